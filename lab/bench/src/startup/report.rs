//! The results of a startup benchmark by job and scheme, and their verdicts.
use serde::Serialize;

use super::flags::Benchmark;
use super::scheme::Lengths;
use crate::cases::Place;
use crate::command::Failure;
use crate::machine::Machine;
use crate::metric::{Metric, Sample};
use crate::stats;
use crate::verdict::{Verdict, ratio};

/// Identifies values that belong together.
#[derive(Clone, Debug, PartialEq)]
pub struct Key {
    pub place: Place,
    /// The value of `--exchange`.
    pub exchange: String,
    /// A scheme, or another thing that was timed.
    pub scheme: String,
    pub lengths: Lengths,
}

/// The rounds of one scheme in one job; if there are several, the first one is a warm-up.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    pub key: Key,
    pub runs: Vec<Sample>,
}

impl Cell {
    pub fn new(key: Key) -> Cell {
        Cell { key, runs: Vec::new() }
    }

    /// The counted values by round.
    pub fn values(&self, metric: Metric) -> Vec<Option<f64>> {
        let warm_up = usize::from(self.runs.len() > 1);
        self.runs.iter().skip(warm_up).map(|run| run.get(metric)).collect()
    }

    pub fn summary(&self, metric: Metric) -> Option<stats::Summary> {
        stats::summarize(&self.values(metric).into_iter().flatten().collect::<Vec<_>>())
    }

    pub fn median(&self, metric: Metric) -> Option<f64> {
        self.summary(metric).map(|summary| summary.median)
    }
}

/// One figure that has a target.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Judged {
    pub what: String,
    pub target: String,
    /// The result of the source, in its words.
    pub source: &'static str,
    pub verdict: Verdict,
}

#[derive(Clone, Debug)]
pub struct Report {
    pub benchmark: Benchmark,
    pub machine: Machine,
    pub cells: Vec<Cell>,
    /// Failed jobs and other facts that a reader must know.
    pub warnings: Vec<String>,
    pub judged: Vec<Judged>,
}

impl Report {
    pub fn new(benchmark: Benchmark, machine: Machine) -> Report {
        Report { benchmark, machine, cells: Vec::new(), warnings: Vec::new(), judged: Vec::new() }
    }

    /// Adds the figures of a job, or the reason why there are none.
    pub fn add(&mut self, job: &str, cells: Result<Vec<Cell>, Failure>) {
        match cells {
            Ok(cells) => self.cells.extend(cells),
            Err(failure) => self.warnings.push(format!("{job}: {failure}")),
        }
    }

    /// The first cell of this scheme and size whose exchange is one of `exchanges`, in that order.
    pub fn find(&self, job_size: u32, scheme: &str, exchanges: &[&str]) -> Option<&Cell> {
        exchanges.iter().find_map(|exchange| {
            self.cells.iter().find(|cell| {
                let key = &cell.key;
                key.place.job_size() == job_size && key.scheme == scheme && key.exchange == *exchange
            })
        })
    }

    /// The job sizes that were run, smallest first.
    pub fn job_sizes(&self) -> Vec<u32> {
        let mut sizes: Vec<u32> = self.cells.iter().map(|cell| cell.key.place.job_size()).collect();
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    }

    pub fn missed(&self) -> usize {
        self.judged.iter().filter(|judged| matches!(judged.verdict, Verdict::Missed(_))).count()
    }
}

/// Whether `metric` of `subject` is at most `bound` times that of `base`, round by round.
pub fn at_most(subject: Option<&Cell>, base: Option<&Cell>, metric: Metric, bound: f64) -> Verdict {
    let (Some(subject), Some(base)) = (subject, base) else {
        return Verdict::NotJudged("not run".into());
    };
    match ratio(&subject.values(metric), &base.values(metric)) {
        Some(ratio) => met(ratio <= bound, format!("{ratio:.3} x {}", base.key.scheme)),
        None => Verdict::NotJudged("no round has both figures".into()),
    }
}

/// Whether `base` takes at least `times` as long as `subject`, round by round.
pub fn faster(subject: Option<&Cell>, base: Option<&Cell>, metric: Metric, times: f64) -> Verdict {
    let (Some(subject), Some(base)) = (subject, base) else {
        return Verdict::NotJudged("not run".into());
    };
    match ratio(&base.values(metric), &subject.values(metric)) {
        Some(ratio) => met(ratio >= times, format!("{ratio:.2} x")),
        None => Verdict::NotJudged("no round has both figures".into()),
    }
}

pub fn met(is_met: bool, figure: String) -> Verdict {
    if is_met { Verdict::Met(figure) } else { Verdict::Missed(figure) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(scheme: &str, times: &[f64]) -> Cell {
        let place = Place { node_count: 1, ppn: 4 };
        let lengths = Lengths { value: 18, key: 9 };
        let key = Key { place, exchange: "auto".into(), scheme: scheme.into(), lengths };
        Cell { key, runs: times.iter().map(|time| Sample(vec![(Metric::Time, *time)])).collect() }
    }

    #[test]
    fn ratios_ignore_the_warm_up_round() {
        let (fence, ring) = (cell("fence", &[1.0, 6.0, 60.0, 8.0]), cell("ring", &[1.0, 2.0, 20.0, 2.0]));
        let judge = |times| faster(Some(&ring), Some(&fence), Metric::Time, times);
        assert_eq!(judge(3.0), Verdict::Met("3.00 x".into()));
        assert_eq!(judge(3.1), Verdict::Missed("3.00 x".into()));
        assert_eq!(at_most(Some(&ring), Some(&fence), Metric::Time, 0.3), Verdict::Missed("0.333 x fence".into()));
        assert!(matches!(faster(None, Some(&fence), Metric::Time, 1.0), Verdict::NotJudged(_)));
        assert!(matches!(faster(Some(&ring), Some(&fence), Metric::Whole, 1.0), Verdict::NotJudged(_)));
    }

    #[test]
    fn cells_are_found_by_the_first_matching_exchange() {
        let machine = Machine::look();
        let mut report = Report::new(Benchmark::Exchange, machine);
        report.cells = vec![cell("fence", &[]), cell("ring", &[])];
        report.cells[1].key.exchange = "tree".into();
        assert_eq!(report.find(4, "ring", &["log", "tree"]), Some(&report.cells[1]));
        assert_eq!(report.find(4, "ring", &["auto"]), None);
        assert_eq!(report.find(8, "fence", &["auto"]), None);
        assert_eq!(report.job_sizes(), [4]);
    }
}
