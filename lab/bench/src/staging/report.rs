//! The figures and their targets, as a table, JSON and CSV.
use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Serialize;
use serde_json::{Value, json};

use super::case::{Case, Contestant, Kind};
use super::tree::Tree;
use crate::machine::{self, Machine};
use crate::stats::{self, Summary};
use crate::table;

/// Increased when a reader of older files would misread newer ones.
const FORMAT: u32 = 1;
/// The least speed of wireup, as a part of that of the faster relays.
const PLAIN_MIN: f64 = 0.8;
const ENCRYPTED_MIN: f64 = 0.5;
/// With plain links, of many small files.
const SMALL_MIN: f64 = 0.7;
/// The longest second `wireup stage up` (s).
const AGAIN_MAX_S: f64 = 0.05;
/// The most that an agent may grow.
const GROWTH_MAX: u64 = 64 << 20;
const HEAD: [&str; 9] = ["tree", "contestant", "MB/s", "time", "least", "most", "ratio", "again", "growth"];
const FLUSH_RIGHT: [bool; 9] = [false, false, true, true, true, true, true, true, true];

/// One turn.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Outcome {
    pub seconds: f64,
    /// The second time, when everything was there.
    pub again_s: Option<f64>,
    /// What the largest agent had at its peak more than before anything was staged.
    pub growth_bytes: Option<u64>,
}

#[derive(Default)]
struct Cell {
    /// `None` where the turn failed.
    rounds: Vec<Option<Outcome>>,
    warm_up: Option<Outcome>,
    failures: Vec<String>,
}

impl Cell {
    fn values(&self, of: impl Fn(&Outcome) -> Option<f64>) -> Vec<f64> {
        self.rounds.iter().flatten().filter_map(of).collect()
    }

    fn seconds(&self) -> Option<Summary> {
        stats::summarize(&self.values(|outcome| Some(outcome.seconds)))
    }

    fn again_s(&self) -> Option<f64> {
        stats::median(&self.values(|outcome| outcome.again_s))
    }

    /// Of all turns, also of the first.
    fn growth_bytes(&self) -> Option<u64> {
        self.rounds.iter().flatten().chain(&self.warm_up).filter_map(|outcome| outcome.growth_bytes).max()
    }
}

/// A target and what was measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Judged {
    what: String,
    target: String,
    figure: String,
    is_met: bool,
}

pub struct Report {
    machine: Machine,
    hosts: usize,
    shell: String,
    trees: Vec<Tree>,
    cells: BTreeMap<Case, Cell>,
}

impl Report {
    pub fn new(machine: Machine, hosts: usize, shell: &str, trees: Vec<Tree>) -> Report {
        Report { machine, hosts, shell: shell.to_owned(), trees, cells: BTreeMap::new() }
    }

    pub fn add(&mut self, case: Case, outcome: Outcome, warms_up: bool) {
        let cell = self.cells.entry(case).or_default();
        match warms_up {
            true => cell.warm_up = Some(outcome),
            false => cell.rounds.push(Some(outcome)),
        }
    }

    pub fn fail(&mut self, case: Case, why: String, warms_up: bool) {
        let cell = self.cells.entry(case).or_default();
        if !warms_up {
            cell.rounds.push(None);
        }
        cell.failures.push(why);
    }

    pub fn has_all(&self, cases: &[Case]) -> bool {
        cases.iter().all(|case| self.cells.get(case).is_some_and(|cell| cell.seconds().is_some()))
    }

    /// The relays with the smaller median.
    fn faster_relays(&self, kind: Kind) -> Option<Contestant> {
        let median = |contestant| Some(self.cells.get(&(kind, contestant))?.seconds()?.median);
        let all = Contestant::RELAYS.into_iter().filter_map(|contestant| Some((contestant, median(contestant)?)));
        all.min_by(|(_, one), (_, other)| one.total_cmp(other)).map(|(contestant, _)| contestant)
    }

    /// Speed as a part of that of the faster relays, median of the rounds.
    fn ratio(&self, (kind, contestant): Case) -> Option<f64> {
        let relays = self.cells.get(&(kind, self.faster_relays(kind)?))?;
        let rounds = self.cells.get(&(kind, contestant))?.rounds.iter().zip(&relays.rounds);
        let ratios: Vec<f64> =
            rounds.filter_map(|(own, relays)| Some(relays.as_ref()?.seconds / own.as_ref()?.seconds)).collect();
        stats::median(&ratios)
    }

    fn judged(&self) -> Vec<Judged> {
        let mut all = Vec::new();
        for (case @ (kind, contestant), cell) in &self.cells {
            let who = format!("{} {}", contestant.name(), kind.name());
            let least = match (contestant, kind) {
                (Contestant::Relays(_), _) => continue,
                (Contestant::Encrypted, _) => ENCRYPTED_MIN,
                (Contestant::Plain, Kind::Small) => SMALL_MIN,
                (Contestant::Plain, _) => PLAIN_MIN,
            };
            if let Some(ratio) = self.ratio(*case) {
                let target = format!(">= {least} x the faster relays");
                let (figure, is_met) = (format!("{ratio:.2} x"), ratio >= least);
                all.push(Judged { what: format!("{who}: speed"), target, figure, is_met });
            }
            if let Some(again_s) = cell.again_s().filter(|_| *kind != Kind::Memory) {
                let target = format!("<= {:.0} ms", AGAIN_MAX_S * 1e3);
                let (figure, is_met) = (format!("{:.1} ms", again_s * 1e3), again_s <= AGAIN_MAX_S);
                all.push(Judged { what: format!("{who}: second time"), target, figure, is_met });
            }
            if let Some(bytes) = cell.growth_bytes() {
                let target = format!("<= {} MiB", GROWTH_MAX >> 20);
                let (figure, is_met) = (mib(bytes), bytes <= GROWTH_MAX);
                all.push(Judged { what: format!("{who}: growth of the largest agent"), target, figure, is_met });
            }
        }
        all
    }

    pub fn missed(&self) -> usize {
        self.judged().iter().filter(|judged| !judged.is_met).count()
    }

    pub fn text(&self) -> String {
        let mut text = String::new();
        for tree in &self.trees {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{}: {} files, {}", tree.kind.name(), tree.files, mib(tree.bytes));
        }
        text += &format!("\n{}", table::align(&self.rows(), &FLUSH_RIGHT));
        text += "MB/s: bytes of the tree to all hosts; time: median, least and most of the rounds [s]\n";
        text +=
            "ratio: speed to that of the faster relays; again: the second time [ms]; growth: of the largest agent\n\n";
        for Judged { what, target, figure, is_met } in self.judged() {
            let _ = writeln!(text, "{}: {what} {target}: {figure}", if is_met { "met" } else { "MISSED" });
        }
        for ((kind, contestant), cell) in &self.cells {
            if let Some(first) = cell.failures.first() {
                let count = cell.failures.len();
                let _ = writeln!(text, "! {} {}: {count} turns failed: {first}", contestant.name(), kind.name());
            }
        }
        text
    }

    fn bytes_of(&self, kind: Kind) -> u64 {
        self.trees.iter().find(|tree| tree.kind == kind).map_or(0, |tree| tree.bytes)
    }

    fn rows(&self) -> Vec<[String; 9]> {
        let mut rows = vec![HEAD.map(String::from)];
        for (case @ (kind, contestant), cell) in &self.cells {
            let Some(seconds) = cell.seconds() else { continue };
            let shown = |value: Option<String>| value.unwrap_or_else(|| "-".into());
            rows.push([
                kind.name().to_owned(),
                contestant.name().to_owned(),
                format!("{:.0}", self.bytes_of(*kind) as f64 / 1e6 / seconds.median),
                format!("{:.3}", seconds.median),
                format!("{:.3}", seconds.min),
                format!("{:.3}", seconds.max),
                shown(self.ratio(*case).map(|ratio| format!("{ratio:.2}"))),
                shown(cell.again_s().map(|s| format!("{:.1}", s * 1e3))),
                shown(cell.growth_bytes().map(mib)),
            ]);
        }
        rows
    }

    pub fn json(&self) -> Value {
        let series = self.cells.iter().map(|(case @ (kind, contestant), cell)| {
            json!({
                "tree": kind.name(),
                "contestant": contestant.name(),
                "warm_up": cell.warm_up,
                "rounds": cell.rounds,
                "failures": cell.failures,
                "ratio": self.ratio(*case),
            })
        });
        let trees =
            self.trees.iter().map(|tree| json!({ "tree": tree.kind.name(), "files": tree.files, "bytes": tree.bytes }));
        json!({
            "benchmark": "stage",
            "format": FORMAT,
            "machine": self.machine,
            "load_1min_after": machine::load(),
            "hosts": self.hosts,
            "remote_shell": self.shell,
            "trees": trees.collect::<Vec<_>>(),
            "series": series.collect::<Vec<_>>(),
            "targets": self.judged(),
        })
    }

    pub fn csv(&self) -> String {
        let mut text = String::from("tree,contestant,bytes,round,seconds,again_s,growth_bytes\n");
        for ((kind, contestant), cell) in &self.cells {
            for (round, outcome) in cell.rounds.iter().enumerate() {
                let Some(Outcome { seconds, again_s, growth_bytes }) = outcome else { continue };
                let again = again_s.map_or(String::new(), |s| s.to_string());
                let growth = growth_bytes.map_or(String::new(), |bytes| bytes.to_string());
                let head = format!("{},{},{}", kind.name(), contestant.name(), self.bytes_of(*kind));
                // Writing to a string cannot fail.
                let _ = writeln!(text, "{head},{},{seconds},{again},{growth}", round + 1);
            }
        }
        text
    }
}

fn mib(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / 1048576.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::staging::case::Shape;

    const CHAIN: Contestant = Contestant::Relays(Shape::Chain);
    const TREE: Contestant = Contestant::Relays(Shape::BinaryTree);

    fn relayed(seconds: f64) -> Outcome {
        Outcome { seconds, again_s: None, growth_bytes: None }
    }

    fn staged(seconds: f64, again_s: f64, mib: u64) -> Outcome {
        Outcome { seconds, again_s: Some(again_s), growth_bytes: Some(mib << 20) }
    }

    fn report() -> Report {
        let tree = Tree { kind: Kind::Mixed, folder: "/t".into(), stream: "/s".into(), files: 9, bytes: 100_000_000 };
        let mut report = Report::new(Machine::look(), 2, "ssh", vec![tree]);
        for round in 0..3 {
            report.add((Kind::Mixed, CHAIN), relayed(3.0), round == 0);
            report.add((Kind::Mixed, TREE), relayed(2.0), round == 0);
            report.add((Kind::Mixed, Contestant::Plain), staged(2.0, 0.06, 9), round == 0);
            // The first round is slower, and its agent larger.
            let encrypted = if round == 0 { staged(99.0, 0.9, 80) } else { staged(4.0, 0.04, 9) };
            report.add((Kind::Mixed, Contestant::Encrypted), encrypted, round == 0);
        }
        report
    }

    #[test]
    fn ratios_are_to_the_faster_relays_and_targets_are_judged() {
        let report = report();
        assert_eq!(report.faster_relays(Kind::Mixed), Some(TREE));
        assert_eq!(report.ratio((Kind::Mixed, Contestant::Encrypted)), Some(0.5));
        let met: Vec<bool> = report.judged().iter().map(|judged| judged.is_met).collect();
        assert_eq!(met, [true, true, false, true, false, true]);
        assert_eq!(report.missed(), 2);
        let text = report.text();
        for line in [
            "mixed: 9 files, 95.4 MiB",
            "met: wireup mixed: speed >= 0.5 x the faster relays: 0.50 x",
            "MISSED: wireup mixed: growth of the largest agent <= 64 MiB: 80.0 MiB",
            "MISSED: wireup-plain mixed: second time <= 50 ms: 60.0 ms",
        ] {
            assert!(text.contains(line), "{text}");
        }
        assert_eq!(report.csv().lines().count(), 1 + 4 * 2);
        assert_eq!(report.json()["series"][0]["warm_up"]["seconds"], 99.0);
    }

    #[test]
    fn a_case_without_a_round_is_not_measured() {
        let mut report = report();
        assert!(report.has_all(&[(Kind::Mixed, TREE)]) && !report.has_all(&[(Kind::Small, TREE)]));
        report.fail((Kind::Small, TREE), "no reason".into(), false);
        report.add((Kind::Small, TREE), relayed(1.0), true);
        assert!(!report.has_all(&[(Kind::Small, TREE)]));
        assert!(report.text().contains("! binary-tree small: 1 turns failed: no reason"));
    }
}
