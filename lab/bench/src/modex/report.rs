//! The results: a table, JSON, CSV, and charts against the number of nodes.
use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use super::plan::{Part, Task};
use crate::machine::Machine;
use crate::metric::{Metric, Sample};
use crate::startup::chart::{Axis, Chart, Line, Point, Points, Style};
use crate::{stats, table};

/// Increased when a reader of older files would misread newer ones.
const FORMAT: u32 = 1;

struct Cell {
    task: Task,
    runs: Vec<Sample>,
    failures: Vec<String>,
}

impl Cell {
    fn values(&self, metric: Metric) -> Vec<f64> {
        self.runs.iter().filter_map(|run| run.get(metric)).collect()
    }

    /// For the fence: the mean over the rounds of the slowest rank's time, as in the source; otherwise the median
    /// round.
    fn figure(&self, metric: Metric) -> Option<f64> {
        let values = self.values(metric);
        match metric {
            Metric::FenceMax if !values.is_empty() => Some(values.iter().sum::<f64>() / values.len() as f64),
            _ => stats::median(&values),
        }
    }
}

pub struct Report {
    machine: Machine,
    cells: Vec<Cell>,
}

/// The metrics that get a row in each part.
fn metrics(part: Part) -> &'static [Metric] {
    match part {
        Part::Fence => &[Metric::FenceMax, Metric::GetAll, Metric::Skew, Metric::Wall],
        Part::Direct => &[Metric::FirstGet, Metric::GetAll],
        Part::Init => &[Metric::JoinMedian],
        Part::Shmem => &[Metric::JoinMedian, Metric::JoinMax, Metric::Wall],
    }
}

impl Report {
    pub fn new(machine: Machine) -> Report {
        Report { machine, cells: Vec::new() }
    }

    pub fn has_figures(&self) -> bool {
        self.cells.iter().any(|cell| !cell.runs.is_empty())
    }

    pub fn add(&mut self, task: &Task, sample: Sample) {
        self.cell(task).runs.push(sample);
    }

    pub fn fail(&mut self, task: &Task, why: String) {
        self.cell(task).failures.push(why);
    }

    fn cell(&mut self, task: &Task) -> &mut Cell {
        let at = self.cells.iter().position(|cell| cell.task == *task).unwrap_or_else(|| {
            self.cells.push(Cell { task: task.clone(), runs: Vec::new(), failures: Vec::new() });
            self.cells.len() - 1
        });
        &mut self.cells[at]
    }

    pub fn table(&self) -> String {
        let mut rows = vec![["job", "metric", "figure", "least", "most", "rounds"].map(String::from)];
        let mut notes = String::new();
        for cell in &self.cells {
            for &metric in metrics(cell.task.part) {
                let values = cell.values(metric);
                let Some(figure) = cell.figure(metric) else { continue };
                let show = |value: f64| metric.unit().show(value);
                let (least, most) = values
                    .iter()
                    .fold((f64::MAX, 0.0), |(least, most): (f64, f64), &value| (least.min(value), most.max(value)));
                let rounds = values.len().to_string();
                rows.push([cell.task.name(), metric.to_string(), show(figure), show(least), show(most), rounds]);
            }
            if let Some(first) = cell.failures.first() {
                // Writing to a string cannot fail.
                let _ = writeln!(notes, "! {}: {} runs failed: {first}", cell.task.name(), cell.failures.len());
            }
        }
        let means = "fence-max: mean over the rounds of the slowest rank; else medians of the rounds\n";
        format!("\n{}{means}{notes}", table::align(&rows, &[false, false, true, true, true, true]))
    }

    pub fn json(&self) -> Value {
        let run = |Sample(values): &Sample| -> Map<String, Value> {
            values.iter().map(|(metric, value)| (metric.name().to_owned(), json!(value))).collect()
        };
        let series = |cell: &Cell| {
            let Task { part, variant, nodes, ppn, .. } = &cell.task;
            let runs: Vec<_> = cell.runs.iter().map(run).collect();
            json!({ "part": part.name(), "variant": variant, "nodes": nodes, "ppn": ppn, "failures": cell.failures, "runs": runs })
        };
        let series: Vec<Value> = self.cells.iter().map(series).collect();
        json!({ "benchmark": "modex", "format": FORMAT, "machine": self.machine, "series": series })
    }

    pub fn csv(&self) -> String {
        let mut text = String::from("part,variant,nodes,ppn,round,metric,unit,value\n");
        for cell in &self.cells {
            let Task { part, variant, nodes, ppn, .. } = &cell.task;
            for (round, Sample(values)) in cell.runs.iter().enumerate() {
                for (metric, value) in values {
                    // Writing to a string cannot fail.
                    let _ = writeln!(
                        text,
                        "{},{variant},{nodes},{ppn},{},{metric},{},{value}",
                        part.name(),
                        round + 1,
                        metric.unit().name()
                    );
                }
            }
        }
        text
    }

    pub fn charts(&self) -> Vec<Chart> {
        let chart = |part, metric, name, title: &str, values| {
            let mut lines: BTreeMap<&str, Points> = BTreeMap::new();
            for cell in self.cells.iter().filter(|cell| cell.task.part == part) {
                let across = if part == Part::Shmem { cell.task.ppn } else { cell.task.nodes };
                let summary = stats::summarize(&cell.values(metric));
                if let (Some(value), Some(summary)) = (cell.figure(metric), summary) {
                    let point = Point { value, ..Point::of(across, &summary, 1.0) };
                    lines.entry(cell.task.variant).or_default().0.push(point);
                }
            }
            let line = |(name, points): (&str, Points)| Line { name: name.into(), style: Style::Measured, points };
            Chart {
                name,
                title: format!("{title}: lower is better"),
                across: if part == Part::Shmem { "ranks of the node" } else { "nodes" },
                values,
                axis: Axis::Log,
                lines: lines.into_iter().map(line).collect(),
                note: String::new(),
            }
        };
        let all = vec![
            chart(Part::Fence, Metric::FenceMax, "modex-fence", "Collecting fence after two without data", "time [s]"),
            chart(Part::Direct, Metric::FirstGet, "modex-direct", "First get by direct modex", "time [s]"),
            chart(Part::Shmem, Metric::JoinMax, "modex-shmem", "shmem_init", "slowest rank [s]"),
        ];
        all.into_iter().filter(|chart| !chart.lines.is_empty()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::flags::Flags;
    use super::super::plan;
    use super::*;

    #[test]
    fn the_report_shows_values_and_failures() {
        let tasks = plan::all(&Flags { nodes: vec![2], parts: vec![Part::Fence], ..Flags::default() });
        let mut report = Report::new(Machine::look());
        for fence in [0.001, 0.002, 0.006] {
            report.add(&tasks[0], Sample(vec![(Metric::FenceMax, fence), (Metric::Wall, 1.0)]));
        }
        report.fail(&tasks[1], "no reason".into());
        let table = report.table();
        assert!(table.contains("fence early wireup, 2x4") && table.contains("3.00 ms"), "{table}");
        assert!(table.contains("links when needed, 2x4: 1 runs failed: no reason"), "{table}");
        assert_eq!(report.csv().lines().count(), 1 + 3 * 2);
        assert_eq!(report.charts().len(), 1);
        assert_eq!(report.json()["series"][0]["runs"][2]["fence-max"], 0.006);
    }
}
