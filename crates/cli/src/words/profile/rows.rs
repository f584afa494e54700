//! Nested phases, printed so that the parts of each add up to it.
//!
//! Phases may overlap, so their durations (`took`) do not add up. `adds` counts each moment once: it is the part of a
//! phase that none of the rows above it, with the same parent, covers. What no row covers is the row `other`, so the
//! `adds` of all parts sum to their parent's `took`.

/// A stretch of time, and the phases within it in the order in which they are shown.
#[derive(Clone, Debug)]
pub struct Row {
    pub name: String,
    pub from_ns: u64,
    pub to_ns: u64,
    pub remark: String,
    pub parts: Vec<Row>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Line<'a> {
    depth: usize,
    name: &'a str,
    /// `None` for the rest that no phase covers, which may consist of several stretches.
    from_ns: Option<u64>,
    took_ns: u64,
    adds_ns: u64,
    remark: &'a str,
}

impl Row {
    pub fn new(name: impl Into<String>, from_ns: u64, to_ns: u64, remark: impl Into<String>) -> Row {
        Row { name: name.into(), from_ns, to_ns, remark: remark.into(), parts: Vec::new() }
    }

    /// The table with its head, times counted from the start of this row.
    pub fn table(&self) -> String {
        let mut text = format!("{:<26} {:>10} {:>10} {:>10}\n", "phase", "from ms", "took ms", "adds ms");
        let ms = |ns: u64| ns as f64 / 1e6;
        for line in self.lines() {
            let label = format!("{}/-- {}:", "    ".repeat(line.depth), line.name);
            let from = line.from_ns.map_or(String::new(), |at| format!("{:.3}", ms(at - self.from_ns)));
            let (took, adds) = (ms(line.took_ns), ms(line.adds_ns));
            let line = format!("{label:<26} {from:>10} {took:>10.3} {adds:>10.3}  {}", line.remark);
            text += &format!("{}\n", line.trim_end());
        }
        text
    }

    fn lines(&self) -> Vec<Line<'_>> {
        let mut lines = Vec::new();
        let whole = (self.from_ns, self.to_ns.max(self.from_ns));
        self.add_lines(0, whole, whole.1 - whole.0, &mut lines);
        lines
    }

    /// `time` is the time of this row within its parent: clocks of different nodes may put the end of a part behind the
    /// end of the whole.
    fn add_lines<'a>(&'a self, depth: usize, time: (u64, u64), adds_ns: u64, lines: &mut Vec<Line<'a>>) {
        let took_ns = time.1 - time.0;
        let (name, remark) = (&self.name, &self.remark);
        lines.push(Line { depth, name, from_ns: Some(time.0), took_ns, adds_ns, remark });
        let mut above = Vec::new();
        let mut counted_ns = 0;
        for part in &self.parts {
            let from = part.from_ns.clamp(time.0, time.1);
            let part_time = (from, part.to_ns.clamp(from, time.1));
            above.push(part_time);
            let adds_ns = covered(&above) - counted_ns;
            counted_ns += adds_ns;
            part.add_lines(depth + 1, part_time, adds_ns, lines);
        }
        let rest_ns = took_ns - counted_ns;
        if !self.parts.is_empty() && rest_ns > 0 {
            let (depth, remark) = (depth + 1, "not in any of these phases");
            lines.push(Line { depth, name: "other", from_ns: None, took_ns: rest_ns, adds_ns: rest_ns, remark });
        }
    }
}

/// The length of the union of stretches of time.
fn covered(stretches: &[(u64, u64)]) -> u64 {
    let mut sorted = stretches.to_vec();
    sorted.sort_unstable();
    let mut end = 0;
    let mut length = 0;
    for (from, to) in sorted {
        length += to.saturating_sub(from.max(end));
        end = end.max(to);
    }
    length
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Any rows, also ones that end before they begin, and that are longer than their parents.
    fn any_row() -> impl Strategy<Value = Row> {
        let one = || (0..100_u64, 0..100_u64).prop_map(|(from, to)| Row::new("phase", from, to, ""));
        one().prop_recursive(3, 40, 6, move |part| {
            (one(), proptest::collection::vec(part, 0..6)).prop_map(|(row, parts)| Row { parts, ..row })
        })
    }

    proptest! {
        #[test]
        fn parts_add_up_to_their_parent(row in any_row()) {
            let lines = row.lines();
            for (at, parent) in lines.iter().enumerate() {
                let below = lines[at + 1..].iter().take_while(|line| line.depth > parent.depth);
                let parts: Vec<&Line<'_>> = below.filter(|line| line.depth == parent.depth + 1).collect();
                let sum: u64 = parts.iter().map(|part| part.adds_ns).sum();
                prop_assert!(parts.is_empty() || sum == parent.took_ns, "{}", row.table());
                for part in parts {
                    prop_assert!(part.adds_ns <= part.took_ns && part.took_ns <= parent.took_ns, "{}", row.table());
                }
            }
        }

        #[test]
        fn every_moment_is_counted_once(row in any_row()) {
            let within = |moment: u64| {
                let clip = |at: u64| at.clamp(row.from_ns, row.to_ns.max(row.from_ns));
                row.parts.iter().any(|part| (clip(part.from_ns)..clip(part.to_ns)).contains(&moment))
            };
            let wanted = (row.from_ns..row.to_ns).filter(|&moment| !row.parts.is_empty() && !within(moment)).count();
            let lines = row.lines();
            let other = lines.iter().find(|line| line.depth == 1 && line.from_ns.is_none());
            prop_assert_eq!(other.map_or(0, |other| other.adds_ns), wanted as u64);
        }
    }

    #[test]
    fn what_an_earlier_row_covers_is_not_added_again() {
        let part = |name: &str, from: u64, to: u64| Row::new(name, from * 1_000_000, to * 1_000_000, "");
        let mut total = part("total", 10, 30);
        total.parts = vec![part("one", 10, 14), part("two", 12, 16), part("three", 11, 13), part("four", 20, 99)];
        let expected = "\
phase                         from ms    took ms    adds ms
/-- total:                      0.000     20.000     20.000
    /-- one:                    0.000      4.000      4.000
    /-- two:                    2.000      4.000      2.000
    /-- three:                  1.000      2.000      0.000
    /-- four:                  10.000     10.000     10.000
    /-- other:                             4.000      4.000  not in any of these phases
";
        assert_eq!(total.table(), expected);
    }
}
