//! The measurements, by name, size and round.
use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::flags::Flags;
use super::measure::Measured;
use super::subject::Subject;
use crate::machine::Machine;
use crate::stats;
use crate::verdict::Verdict;

pub struct Report {
    pub flags: Flags,
    pub machine: Machine,
    pub series: Vec<Series>,
    pub judged: Vec<Judged>,
}

/// The measurements of one transport, scheme or program.
pub struct Series {
    pub name: String,
    /// Whether measured times are round trips, which are halved to give one-way times.
    pub is_round_trip: bool,
    pub is_peer: bool,
    /// Whether the times are those of allgathers.
    pub is_gathered: bool,
    /// Rounds by size.
    pub by_size: BTreeMap<u32, Vec<Measured>>,
    pub failures: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Judged {
    pub figure: String,
    pub verdict: Verdict,
}

impl Report {
    pub fn new(flags: &Flags, machine: Machine) -> Report {
        Report { flags: flags.clone(), machine, series: Vec::new(), judged: Vec::new() }
    }

    pub fn add(&mut self, subject: &Subject, measured: Vec<Measured>) {
        let series = self.series_of(subject);
        for one in measured {
            series.by_size.entry(one.bytes).or_default().push(one);
        }
    }

    pub fn fail(&mut self, subject: &Subject, problem: String) {
        self.series_of(subject).failures.push(problem);
    }

    fn series_of(&mut self, subject: &Subject) -> &mut Series {
        let name = subject.name();
        let at = self.series.iter().position(|series| series.name == name).unwrap_or_else(|| {
            self.series.push(Series {
                name,
                is_round_trip: subject.is_round_trip(),
                is_peer: matches!(subject, Subject::Peer { .. }),
                is_gathered: matches!(subject, Subject::All { .. } | Subject::Peer { .. }),
                by_size: BTreeMap::new(),
                failures: Vec::new(),
            });
            self.series.len() - 1
        });
        &mut self.series[at]
    }

    pub fn get(&self, name: &str) -> Option<&Series> {
        self.series.iter().find(|series| series.name == name)
    }

    pub fn sizes(&self) -> BTreeSet<u32> {
        self.series.iter().flat_map(|series| series.by_size.keys().copied()).collect()
    }

    pub fn missed(&self) -> usize {
        self.judged.iter().filter(|judged| matches!(judged.verdict, Verdict::Missed(_))).count()
    }
}

impl Series {
    fn way(&self) -> f64 {
        if self.is_round_trip { 0.5 } else { 1.0 }
    }

    /// For each round the median of its messages (seconds, one way). For consecutive allgathers it is the mean: a node
    /// that was late for one may get the next one at once.
    pub fn rounds_s(&self, bytes: u32) -> Vec<f64> {
        let rounds = self.by_size.get(&bytes).map_or(&[][..], Vec::as_slice);
        let middle = |one: &Measured| if self.is_gathered { one.mean_ns } else { one.median_ns };
        rounds.iter().map(|one| middle(one) * self.way() / 1e9).collect()
    }

    /// The median of these.
    pub fn latency_s(&self, bytes: u32) -> Option<f64> {
        stats::median(&self.rounds_s(bytes))
    }

    /// Bytes per second, for messages sent one after the other.
    pub fn bandwidth(&self, bytes: u32) -> Option<f64> {
        self.latency_s(bytes).map(|latency| f64::from(bytes) / latency)
    }

    /// For each round the mean of its iterations, as in the source (seconds, one way).
    pub fn mean_s(&self, one: &Measured) -> f64 {
        one.mean_ns * self.way() / 1e9
    }
}
