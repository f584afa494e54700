//! The results: a table for each number of ranks, JSON, CSV, a chart.
use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Serialize;
use serde_json::{Value, json};

use super::column::{Column, Phase};
use crate::machine::Machine;
use crate::startup::chart::{Axis, Chart, Line, Point, Style};
use crate::{stats, table};

/// Increased when a reader of older files would misread newer ones.
const FORMAT: u32 = 1;

pub const CITATION: &str =
    "A. Moody, Impatient with mpirun? Me too, MVAPICH User Group Meeting 2016 (73,728 ranks on 2,048 nodes)";

/// One phase of one job (s).
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Times {
    pub median: f64,
    pub max: f64,
}

/// One job.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// From before the launcher is started until the last rank is connected (s).
    pub total_s: f64,
    pub phases: BTreeMap<Phase, Times>,
}

impl Outcome {
    /// From the lines of the ranks; `begin` is the clock at the start (ns).
    ///
    /// # Errors
    /// A rank's line is missing, twice there, or not that of the column.
    pub fn read(text: &str, column: Column, ranks: u32, begin: u64) -> Result<Outcome, String> {
        let mut seen = vec![false; ranks as usize];
        let mut all: BTreeMap<Phase, Vec<f64>> = BTreeMap::new();
        let mut last = begin;
        for line in text.lines().filter_map(|line| line.strip_prefix("measured ")) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [name, rank, phases @ .., end] = &words[..] else { return Err(format!("{line}: too short")) };
            let place = rank.parse().ok().and_then(|rank: usize| seen.get_mut(rank));
            let (true, Some(place @ false)) = (*name == column.name() && phases.len() == Phase::ALL.len(), place)
            else {
                return Err(format!("{line}: not the line of a rank"));
            };
            *place = true;
            for (phase, word) in Phase::ALL.into_iter().zip(phases) {
                match (word.parse::<u64>(), column.phases().contains(&phase)) {
                    (Ok(ns), true) => all.entry(phase).or_default().push(ns as f64 / 1e9),
                    (Err(_), false) if *word == "-" => {}
                    _ => return Err(format!("{line}: {}", phase.name())),
                }
            }
            last = last.max(end.parse().map_err(|_| format!("{line}: no end"))?);
        }
        if let Some(missing) = seen.iter().position(|seen| !seen) {
            return Err(format!("rank {missing} of {ranks} has not reported"));
        }
        let times = |values: Vec<f64>| {
            let max = values.iter().copied().fold(0.0, f64::max);
            Times { median: stats::median(&values).unwrap_or(max), max }
        };
        let phases = all.into_iter().map(|(phase, values)| (phase, times(values))).collect();
        Ok(Outcome { total_s: (last - begin) as f64 / 1e9, phases })
    }
}

#[derive(Default)]
struct Cell {
    rounds: Vec<Outcome>,
    failures: Vec<String>,
}

impl Cell {
    fn total(&self) -> Option<stats::Summary> {
        stats::summarize(&self.rounds.iter().map(|outcome| outcome.total_s).collect::<Vec<_>>())
    }

    /// Medians of the rounds.
    fn phase(&self, phase: Phase) -> Option<Times> {
        let all: Vec<&Times> = self.rounds.iter().filter_map(|outcome| outcome.phases.get(&phase)).collect();
        let of = |which: fn(&Times) -> f64| stats::median(&all.iter().map(|times| which(times)).collect::<Vec<_>>());
        Some(Times { median: of(|times| times.median)?, max: of(|times| times.max)? })
    }
}

pub struct Report {
    machine: Machine,
    ppn: u32,
    cells: BTreeMap<(u32, Column), Cell>,
}

impl Report {
    pub fn new(machine: Machine, ppn: u32) -> Report {
        Report { machine, ppn, cells: BTreeMap::new() }
    }

    pub fn add(&mut self, (column, ranks): (Column, u32), outcome: Outcome) {
        self.cells.entry((ranks, column)).or_default().rounds.push(outcome);
    }

    pub fn fail(&mut self, (column, ranks): (Column, u32), why: String) {
        self.cells.entry((ranks, column)).or_default().failures.push(why);
    }

    pub fn has_figures(&self) -> bool {
        self.cells.values().any(|cell| !cell.rounds.is_empty())
    }

    pub fn text(&self) -> String {
        let mut sizes: Vec<u32> = self.cells.keys().map(|(ranks, _)| *ranks).collect();
        sizes.dedup();
        let mut text = String::new();
        for ranks in sizes {
            let rows = self.rows(ranks);
            // Writing to a string cannot fail.
            let _ = write!(text, "\n{ranks} ranks\n{}", table::align(&rows, &[false, true, true, true, true, true]));
        }
        text += "\nmilliseconds: the median rank / the slowest rank; medians of the rounds\n";
        text += "total: from before the launcher is started until the last rank is connected\n";
        let _ = writeln!(text, "published: totals in seconds, with finalize and more: {CITATION}");
        for ((ranks, column), cell) in &self.cells {
            if let Some(first) = cell.failures.first() {
                let _ = writeln!(text, "! {} {ranks}: {} runs failed: {first}", column.name(), cell.failures.len());
            }
        }
        text
    }

    fn rows(&self, ranks: u32) -> Vec<[String; 6]> {
        let cell = |column| self.cells.get(&(ranks, column));
        let ms = |seconds: f64| {
            let ms = seconds * 1e3;
            if ms < 10.0 { format!("{ms:.1}") } else { format!("{ms:.0}") }
        };
        let row = |name: &str, of: &dyn Fn(Column) -> String| {
            let mut row: [String; 6] = Default::default();
            row[0] = name.to_owned();
            Column::ALL.into_iter().zip(&mut row[1..]).for_each(|(column, shown)| *shown = of(column));
            row
        };
        let mut rows = vec![row("", &|column| column.name().to_owned())];
        for phase in Phase::ALL {
            let shown = |times: Times| format!("{} / {}", ms(times.median), ms(times.max));
            rows.push(row(phase.name(), &|column| {
                cell(column).and_then(|cell| cell.phase(phase)).map_or("-".into(), shown)
            }));
        }
        let total = |column| cell(column).and_then(Cell::total).map_or("-".into(), |total| ms(total.median));
        rows.push(row("total", &total));
        rows.push(row("published", &|column| column.published().1.to_string()));
        rows
    }

    pub fn json(&self) -> Value {
        let series: Vec<Value> = self
            .cells
            .iter()
            .map(|((ranks, column), cell)| {
                json!({
                    "column": column.name(),
                    "published": column.published(),
                    "ranks": ranks,
                    "rounds": cell.rounds,
                    "failures": cell.failures,
                })
            })
            .collect();
        json!({ "benchmark": "steps", "format": FORMAT, "machine": self.machine, "ppn": self.ppn, "series": series })
    }

    pub fn csv(&self) -> String {
        let mut text = String::from("column,ranks,ppn,round,phase,median_s,max_s\n");
        for ((ranks, column), cell) in &self.cells {
            for (round, outcome) in cell.rounds.iter().enumerate() {
                let head = format!("{},{ranks},{},{}", column.name(), self.ppn, round + 1);
                for (phase, Times { median, max }) in &outcome.phases {
                    // Writing to a string cannot fail.
                    let _ = writeln!(text, "{head},{},{median},{max}", phase.name());
                }
                let _ = writeln!(text, "{head},total,,{}", outcome.total_s);
            }
        }
        text
    }

    pub fn charts(&self) -> Vec<Chart> {
        let line = |column: Column| {
            let cells = self.cells.iter().filter(|((_, other), _)| *other == column);
            let point = |((ranks, _), cell): (&(u32, Column), &Cell)| Some(Point::of(*ranks, &cell.total()?, 1.0));
            Line { name: column.name().into(), style: Style::Measured, points: cells.filter_map(point).collect() }
        };
        vec![Chart {
            name: "steps",
            title: "From the start of the launcher until the last rank is connected: lower is better".into(),
            across: "ranks",
            values: "time [s]",
            axis: Axis::Log,
            lines: Column::ALL.into_iter().map(line).collect(),
            note: format!(
                "Virtual nodes of {} ranks on {} cores. Medians; bars: fastest and slowest round. on-demand: to a few ranks.",
                self.ppn, self.machine.cores
            ),
        }]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINES: &str = "measured on-demand 1 3000000 2000000 1000000 - 4000000 90000000\n\
                         noise\nmeasured on-demand 0 1000000 2000000 1000000 - 8000000 60000000\n";

    #[test]
    fn lines_of_ranks_become_medians_and_maxima() {
        let outcome = Outcome::read(LINES, Column::OnDemand, 2, 10_000_000).unwrap();
        assert_eq!(outcome.total_s, 0.08);
        assert_eq!(outcome.phases[&Phase::Launch], Times { median: 0.002, max: 0.003 });
        assert_eq!(outcome.phases[&Phase::Connect], Times { median: 0.006, max: 0.008 });
        assert!(!outcome.phases.contains_key(&Phase::AddressExchange));
        for (text, ranks) in [
            (LINES.to_owned(), 3),
            (LINES.replace("- ", "5 "), 2),
            (LINES.replace("demand 1", "demand 0"), 2),
            (LINES.replace("on-demand", "groups"), 2),
            (String::new(), 1),
        ] {
            assert!(Outcome::read(&text, Column::OnDemand, ranks, 0).is_err(), "{text}");
        }
    }

    #[test]
    fn the_report_shows_columns_and_failures() {
        let mut report = Report::new(Machine::look(), 16);
        report.add((Column::OnDemand, 2), Outcome::read(LINES, Column::OnDemand, 2, 0).unwrap());
        report.fail((Column::Baseline, 2), "no reason".into());
        let text = report.text();
        assert!(text.contains("6.0 / 8.0") && text.contains("! baseline 2: 1 runs failed: no reason"), "{text}");
        assert_eq!(report.csv().lines().count(), 1 + 5);
        assert!(report.has_figures() && report.charts()[0].draw().is_some());
        assert_eq!(report.json()["series"][1]["rounds"][0]["phases"]["connect"]["max"], 0.008);
    }
}
