//! The results: tables with what S4 has published beside them, crossovers, JSON, CSV, charts.
use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::{Value, json};

use super::Case;
use super::launcher::Outcome;
use super::scheme::Scheme;
use super::traffic::formula;
use crate::machine::Machine;
use crate::published::{CITATION, Row, TABLE};
use crate::startup::chart::{Axis, Chart, Line, Point, Style};
use crate::{stats, table};

/// Increased when a reader of older files would misread newer ones.
const FORMAT: u32 = 1;
/// Where the order of the schemes is judged: the source's largest job.
const JUDGED: u16 = 128;
/// From the slowest to the fastest there.
const ORDER: [Scheme; 4] = [Scheme::Original, Scheme::SshDr, Scheme::SshBc, Scheme::MpdBc];

#[derive(Default)]
struct Cell {
    /// `None` where the job failed.
    rounds: Vec<Option<Outcome>>,
    failures: Vec<String>,
}

pub struct Report {
    machine: Machine,
    hosts: usize,
    shell: String,
    cells: BTreeMap<(u16, Scheme), Cell>,
    mismatch: Option<String>,
}

impl Cell {
    fn median(&self, of: impl Fn(&Outcome) -> f64) -> Option<f64> {
        stats::median(&self.values(of))
    }

    fn values(&self, of: impl Fn(&Outcome) -> f64) -> Vec<f64> {
        self.rounds.iter().flatten().map(of).collect()
    }
}

/// Whatever follows the initiation.
fn setup_s(outcome: &Outcome) -> f64 {
    outcome.connected_s - outcome.initiated_s
}

fn seconds(value: f64) -> String {
    format!("{value:.3}")
}

impl Report {
    pub fn new(machine: Machine, hosts: usize, shell: &str) -> Report {
        Report { machine, hosts, shell: shell.to_owned(), cells: BTreeMap::new(), mismatch: None }
    }

    /// An outcome whose traffic is not the formula's is a failure.
    pub fn add(&mut self, (scheme, size): Case, outcome: Outcome) {
        let wanted = formula(scheme, size, self.hosts as u16);
        if outcome.traffic != wanted {
            let what = format!("{} {size}: sent {:?}, the formula gives {wanted:?}", scheme.name(), outcome.traffic);
            self.mismatch.get_or_insert_with(|| what.clone());
            return self.fail((scheme, size), what);
        }
        self.cells.entry((size, scheme)).or_default().rounds.push(Some(outcome));
    }

    pub fn fail(&mut self, (scheme, size): Case, why: String) {
        let cell = self.cells.entry((size, scheme)).or_default();
        cell.rounds.push(None);
        cell.failures.push(why);
    }

    pub fn mismatch(&self) -> Option<String> {
        self.mismatch.clone()
    }

    pub fn has_figures(&self) -> bool {
        self.cells.values().any(|cell| cell.rounds.iter().any(Option::is_some))
    }

    /// The median over the rounds of the ratio of two schemes' times; rounds are matched from the last one on.
    fn ratio(&self, size: u16, scheme: Scheme, to: Scheme) -> Option<f64> {
        let rounds = |scheme| Some(self.cells.get(&(size, scheme))?.rounds.iter().rev());
        let both = rounds(scheme)?.zip(rounds(to)?);
        let ratios = both.filter_map(|(one, other)| Some(one.as_ref()?.connected_s / other.as_ref()?.connected_s));
        stats::median(&ratios.collect::<Vec<_>>())
    }

    /// For each pair of neighbours in the source's order: the ratio, which is below 1 if the order holds.
    fn order(&self) -> Vec<(Scheme, Scheme, f64)> {
        let pairs = ORDER.windows(2).map(|pair| (pair[0], pair[1]));
        pairs.filter_map(|(slow, fast)| Some((slow, fast, self.ratio(JUDGED, fast, slow)?))).collect()
    }

    pub fn missed(&self) -> usize {
        self.order().iter().filter(|(_, _, ratio)| *ratio >= 1.0).count()
    }

    /// The smallest size from which on the scheme is faster than the original one.
    fn crossover(&self, scheme: Scheme) -> Option<u16> {
        let sizes = self.cells.keys().filter(|(_, other)| *other == scheme).map(|(size, _)| *size);
        faster_from(sizes.filter_map(|size| Some((size, self.ratio(size, scheme, Scheme::Original)?))))
    }

    pub fn text(&self) -> String {
        let mut text =
            format!("\n{}", table::align(&self.times(), &[true, false, true, true, true, true, true, true, true]));
        text += "connected: until every process is connected to every other; median, fastest and slowest round [s]\n";
        text += "initiated: until every process runs; set-up: what follows; ratio: to original, median of the rounds\n";
        text += &format!("published: {CITATION}\n");
        text += &format!(
            "\n{}",
            table::align(&self.bytes(), &[true, false, true, true, true, true, true, true, true, true])
        );
        text += "messages and bytes as counted, headers included; they equal the formulas\n\n";
        for scheme in Scheme::ALL.into_iter().skip(1) {
            if !self.cells.keys().any(|(_, other)| *other == scheme) {
                continue;
            }
            let shown =
                |size: Option<u16>| size.map_or("at no size".into(), |size| format!("from {size} processes on"));
            let published = match published_crossover(scheme) {
                Some(size) => format!(" (published: from {size} on)"),
                None => String::new(),
            };
            // Writing to a string cannot fail.
            let _ = writeln!(
                text,
                "{} is faster than original {}{published}",
                scheme.name(),
                shown(self.crossover(scheme))
            );
        }
        for (slow, fast, ratio) in self.order() {
            let word = if ratio < 1.0 { "met" } else { "MISSED" };
            let _ = writeln!(
                text,
                "{word}: at {JUDGED} processes {} is faster than {}: {ratio:.3} x",
                fast.name(),
                slow.name()
            );
        }
        for ((size, scheme), cell) in &self.cells {
            if let Some(first) = cell.failures.first() {
                let _ = writeln!(text, "! {} {size}: {} runs failed: {first}", scheme.name(), cell.failures.len());
            }
        }
        text
    }

    fn times(&self) -> Vec<[String; 9]> {
        let head = ["processes", "scheme", "connected", "least", "most", "initiated", "set-up", "ratio", "published"];
        let mut rows = vec![head.map(String::from)];
        for ((size, scheme), cell) in &self.cells {
            let Some(all) = stats::summarize(&cell.values(|outcome| outcome.connected_s)) else { continue };
            let shown = |value: Option<f64>| value.map_or(String::new(), seconds);
            let published = TABLE.iter().find(|row| row.processes == u32::from(*size));
            rows.push([
                size.to_string(),
                scheme.name().to_owned(),
                seconds(all.median),
                seconds(all.min),
                seconds(all.max),
                shown(cell.median(|outcome| outcome.initiated_s)),
                shown(cell.median(setup_s)),
                shown(self.ratio(*size, *scheme, Scheme::Original)),
                published.and_then(|row| scheme.published_s(row)).map_or(String::new(), |s| format!("{s:.2}")),
            ]);
        }
        rows
    }

    fn bytes(&self) -> Vec<[String; 10]> {
        let head = ["processes", "scheme", "star", "bytes", "channel", "bytes", "hops", "bytes", "local", "bytes"];
        let mut rows = vec![head.map(String::from)];
        for ((size, scheme), cell) in &self.cells {
            let Some(outcome) = cell.rounds.iter().flatten().next() else { continue };
            let traffic = outcome.traffic;
            let counts = [traffic.star, traffic.channel, traffic.hops, traffic.local];
            let mut row: [String; 10] = Default::default();
            (row[0], row[1]) = (size.to_string(), scheme.name().to_owned());
            for (at, count) in counts.iter().enumerate().filter(|(_, count)| count.messages > 0) {
                (row[2 + 2 * at], row[3 + 2 * at]) = (count.messages.to_string(), count.bytes.to_string());
            }
            rows.push(row);
        }
        rows
    }

    pub fn json(&self) -> Value {
        let series: Vec<Value> = self
            .cells
            .iter()
            .map(|((size, scheme), cell)| {
                json!({
                    "scheme": scheme.name(),
                    "processes": size,
                    "rounds": cell.rounds,
                    "failures": cell.failures,
                    "formula": formula(*scheme, *size, self.hosts as u16),
                    "ratio_to_original": self.ratio(*size, *scheme, Scheme::Original),
                })
            })
            .collect();
        let order: Vec<Value> = self
            .order()
            .iter()
            .map(|(slow, fast, ratio)| json!({ "slower": slow.name(), "faster": fast.name(), "ratio": ratio }))
            .collect();
        json!({
            "benchmark": "s4",
            "format": FORMAT,
            "machine": self.machine,
            "hosts": self.hosts,
            "remote_shell": self.shell,
            "order_at_128": order,
            "series": series,
        })
    }

    pub fn csv(&self) -> String {
        let mut text = String::from(
            "scheme,processes,round,connected_s,initiated_s,exchange_max_s,connecting_max_s,messages,bytes\n",
        );
        for ((size, scheme), cell) in &self.cells {
            for (round, outcome) in cell.rounds.iter().enumerate() {
                let Some(outcome) = outcome else { continue };
                let Outcome { connected_s, initiated_s, exchange_max_s, connecting_max_s, traffic } = outcome;
                let total = traffic.total();
                // Writing to a string cannot fail.
                let _ = writeln!(
                    text,
                    "{},{size},{},{connected_s},{initiated_s},{exchange_max_s},{connecting_max_s},{},{}",
                    scheme.name(),
                    round + 1,
                    total.messages,
                    total.bytes
                );
            }
        }
        text
    }

    pub fn charts(&self) -> Vec<Chart> {
        let measured = |of: fn(&Outcome) -> f64| -> Vec<Line> {
            let line = |scheme: &Scheme| {
                let cells = self.cells.iter().filter(|((_, other), _)| other == scheme);
                let point = |((size, _), cell): (&(u16, Scheme), &Cell)| {
                    Some(Point::of(u32::from(*size), &stats::summarize(&cell.values(of))?, 1.0))
                };
                Line { name: scheme.name().into(), style: Style::Measured, points: cells.filter_map(point).collect() }
            };
            Scheme::ALL.iter().map(line).collect()
        };
        let published = |name: &str, is_first, of: fn(&Row) -> f64| Line {
            name: format!("published: {name}"),
            style: Style::Published { is_first },
            points: TABLE.iter().map(|row| (f64::from(row.processes), of(row))).collect(),
        };
        let machine = format!(
            "{} hosts on {} cores, by {}. Medians; bars: fastest and slowest round.",
            self.hosts, self.machine.cores, self.shell
        );
        let mut connected = measured(|outcome| outcome.connected_s);
        connected.push(published("original", true, |row| row.original_s));
        connected.push(published("MPD-BC", false, |row| row.mpd_bc_s));
        let chart = |name, title: &str, lines, note| Chart {
            name,
            title: format!("{title}: lower is better"),
            across: "processes",
            values: "time [s]",
            axis: Axis::Log,
            lines,
            note,
        };
        vec![
            chart(
                "s4-connected",
                "From the start until every process is connected to every other",
                connected,
                format!("{machine} Published: another machine:\n{CITATION}"),
            ),
            chart("s4-setup", "Connection set-up: the same without the start of processes", measured(setup_s), machine),
        ]
    }
}

/// The smallest size from which on all ratios are below 1.
fn faster_from(ratios: impl Iterator<Item = (u16, f64)>) -> Option<u16> {
    let mut all: Vec<(u16, f64)> = ratios.collect();
    all.sort_by_key(|(size, _)| std::cmp::Reverse(*size));
    all.into_iter().take_while(|(_, ratio)| *ratio < 1.0).last().map(|(size, _)| size)
}

fn published_crossover(scheme: Scheme) -> Option<u16> {
    let ratio = |row: &Row| Some((row.processes as u16, scheme.published_s(row)? / row.original_s));
    faster_from(TABLE.iter().filter_map(ratio))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(scheme: Scheme, size: u16, connected_s: f64) -> Outcome {
        let traffic = formula(scheme, size, 16);
        Outcome { connected_s, initiated_s: connected_s / 2.0, exchange_max_s: 0.1, connecting_max_s: 0.2, traffic }
    }

    fn report(times: &[(Scheme, u16, f64)]) -> Report {
        let mut report = Report::new(Machine::look(), 16, "ssh");
        times.iter().for_each(|(scheme, size, time)| report.add((*scheme, *size), outcome(*scheme, *size, *time)));
        report
    }

    #[test]
    fn the_source_has_these_crossovers() {
        let all = [Scheme::SshDr, Scheme::SshBc, Scheme::MpdBc, Scheme::Hypercube].map(published_crossover);
        assert_eq!(all, [Some(16), Some(16), Some(8), None]);
    }

    #[test]
    fn the_order_is_judged_at_128_and_crossovers_are_found() {
        let times = [
            (Scheme::Original, 4, 1.0),
            (Scheme::MpdBc, 4, 1.5),
            (Scheme::Original, 128, 8.0),
            (Scheme::SshDr, 128, 7.0),
            (Scheme::SshBc, 128, 7.5),
            (Scheme::MpdBc, 128, 1.0),
        ];
        let report = report(&times);
        let ratios: Vec<bool> = report.order().iter().map(|(_, _, ratio)| *ratio < 1.0).collect();
        assert_eq!((ratios, report.missed()), (vec![true, false, true], 1));
        let text = report.text();
        assert!(text.contains("mpd-bc is faster than original from 128 processes on (published: from 8 on)"), "{text}");
        assert!(text.contains("MISSED: at 128 processes ssh-bc is faster than ssh-dr: 1.071 x"), "{text}");
        assert_eq!(report.csv().lines().count(), 1 + times.len());
        assert_eq!(report.json()["series"][0]["processes"], 4);
        assert!(report.charts().iter().all(|chart| chart.draw().is_some()));
    }

    #[test]
    fn one_byte_more_than_the_formula_is_a_failure() {
        let mut report = report(&[]);
        let mut more = outcome(Scheme::SshDr, 4, 1.0);
        more.traffic.star.bytes += 1;
        report.add((Scheme::SshDr, 4), more);
        assert!(!report.has_figures() && report.mismatch().unwrap().contains("ssh-dr 4: sent"));
        assert!(report.text().contains("! ssh-dr 4: 1 runs failed"));
    }
}
