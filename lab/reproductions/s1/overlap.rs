//! `wireup bench overlap`: how much of an exchange is hidden behind other work (S1 figures 11 and 12).
//!
//! Every round has three steps, all by the same ranks: the blocking exchange; work alone, as long as that exchange has
//! taken; the start of the same exchange, the same work, the wait. The part of the exchange that was hidden is
//!
//! ```text
//! overlap = 1 - (T(work + start + wait) - T(work)) / T(blocking)
//! ```
//!
//! where T is the time that the median rank takes from its own first call to its last. Work is a sleep or a fixed
//! amount of CPU time. The latter is used only with so few ranks that they and the agents fit on the cores or, if links
//! are slowed down, that the ranks alone do.
use std::time::Duration;

use super::flags::{AUTO, Flags};
use super::job::{Job, with_job};
use super::report::{Cell, Key, Report};
use super::rounds;
use super::scheme::{Scheme, Step, Work, named};
use super::surroundings::Surroundings;
use crate::cases::Place;
use crate::command::Failure;
use crate::metric::{Metric, Sample};

pub const RANKS: [u32; 6] = [16, 64, 256, 1024, 4096, 16384];
/// The operations that may be overlapped, each with its blocking form.
pub const PAIRS: [(&str, &str); 2] = [("ifence", "fence"), ("iallgather", "allgather")];
/// Rounds that determine the length of the work (chosen).
const TRIALS: u32 = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Sleep,
    Spin,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Sleep => "sleep",
            Kind::Spin => "spin",
        }
    }

    fn work(self, time: Duration) -> Work {
        match self {
            Kind::Sleep => Work::Sleep(time),
            Kind::Spin => Work::Spin(time),
        }
    }
}

/// The name of the figures of a scheme with work.
pub fn name(scheme: &str, kind: Kind) -> String {
    format!("{scheme}+{}", kind.name())
}

pub fn plan(flags: &Flags, cores: usize) -> Vec<(Place, Kind, u32)> {
    let mut plan = Vec::new();
    let ranks = if flags.ranks.is_empty() { RANKS.to_vec() } else { flags.ranks.clone() };
    let rounds = |job_size| flags.rounds.unwrap_or_else(|| rounds::default_count(job_size));
    if flags.has_part("sleep") {
        plan.extend(ranks.into_iter().map(|ranks| (flags.place(ranks), Kind::Sleep, rounds(ranks))));
    }
    if flags.has_part("spin") {
        let place = Place { node_count: spinners(flags, cores), ppn: 1 };
        plan.push((place, Kind::Spin, rounds(place.job_size())));
    }
    plan
}

/// Nodes with one spinning rank each: few enough that they fit on the cores together with their agents, or, if the
/// links are slow, without them.
fn spinners(flags: &Flags, cores: usize) -> u32 {
    let cores = u32::try_from(cores).unwrap_or(u32::MAX);
    if flags.delay_ms > 0 { cores.max(2) } else { (cores / 2).max(2) }
}

pub fn describe(flags: &Flags, cores: usize) -> String {
    let line =
        |(place, kind, rounds): (Place, Kind, u32)| format!("overlap, {place}: {rounds} rounds, {}\n", kind.name());
    plan(flags, cores).into_iter().map(line).collect()
}

pub fn run(flags: &Flags, surroundings: &Surroundings, report: &mut Report) {
    for (place, kind, rounds) in plan(flags, report.machine.cores) {
        if surroundings.interrupt.is_set() {
            return;
        }
        let what = format!("overlap, {place}, {}", kind.name());
        eprintln!("wireup bench {what}");
        if kind == Kind::Spin && flags.delay_ms == 0 && 2 * place.node_count as usize > report.machine.cores {
            report.warnings.push(format!("{what}: agents and clients do not fit the cores"));
        }
        report.add(&what, job(flags, surroundings, place, kind, rounds));
    }
}

fn job(
    flags: &Flags,
    surroundings: &Surroundings,
    place: Place,
    kind: Kind,
    rounds: u32,
) -> Result<Vec<Cell>, Failure> {
    let mut launch = surroundings.launch(flags, place, AUTO);
    if kind == Kind::Spin && flags.delay_ms > 0 {
        launch.link_delay = Some(Duration::from_millis(flags.delay_ms.into()));
    }
    let wanted = |name: &str| flags.schemes.is_empty() || flags.schemes.iter().any(|scheme| scheme.name == name);
    with_job(&launch, &surroundings.scratch, &surroundings.interrupt, |job| {
        let mut cells = Vec::new();
        for (later, blocking) in PAIRS.into_iter().filter(|(later, _)| wanted(later)) {
            let key = |scheme: String| Key { place, exchange: exchange_name(kind), scheme, lengths: flags.lengths };
            let steps = Steps::new(flags, job, kind, named(later), named(blocking))?;
            let mut triple = [blocking.to_owned(), format!("{} for {later}", kind.name()), name(later, kind)]
                .map(|scheme| Cell::new(key(scheme)));
            for _ in 0..=rounds {
                for (cell, sample) in triple.iter_mut().zip(steps.round(job)?) {
                    cell.runs.push(sample);
                }
            }
            cells.extend(triple);
        }
        Ok(cells)
    })
}

/// Jobs with different kinds of work are kept apart, even if their size is the same.
pub fn exchange_name(kind: Kind) -> String {
    match kind {
        Kind::Sleep => AUTO.into(),
        Kind::Spin => format!("{AUTO} {}", kind.name()),
    }
}

/// The three steps of a round.
struct Steps {
    blocking: Step,
    alone: Step,
    background: Step,
}

impl Steps {
    /// Measures how long the blocking exchange takes, so that the work takes as long.
    fn new(flags: &Flags, job: &mut Job, kind: Kind, later: Scheme, blocking: Scheme) -> Result<Steps, Failure> {
        let blocking = Step::exchange(blocking, flags.lengths);
        let trials: Vec<Sample> = (0..TRIALS).map(|_| job.step(&blocking)).collect::<Result<_, _>>()?;
        let wholes = trials.iter().filter_map(|sample| sample.get(Metric::Whole));
        let work = kind.work(Duration::from_secs_f64(wholes.fold(0.0, f64::max)));
        let background = Step::exchange(later, flags.lengths).with_work(work);
        Ok(Steps { blocking, alone: Step::work_alone(work, flags.lengths), background })
    }

    fn round(&self, job: &mut Job) -> Result<[Sample; 3], Failure> {
        let blocking = job.step(&self.blocking)?;
        let alone = job.step(&self.alone)?;
        let mut background = job.step(&self.background)?;
        let time = |sample: &Sample| sample.get(Metric::RankMedian);
        if let (Some(blocking), Some(alone), Some(both)) = (time(&blocking), time(&alone), time(&background)) {
            background.0.push((Metric::Overlap, overlap(blocking, alone, both)));
        }
        Ok([blocking, alone, background])
    }
}

/// 1: the exchange was hidden completely; 0: as if it had blocked. Noise may make it larger than 1 or negative.
fn overlap(blocking: f64, alone: f64, both: f64) -> f64 {
    1.0 - (both - alone) / blocking
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlap_is_the_hidden_part_of_the_exchange() {
        assert_eq!(overlap(2.0, 5.0, 5.0), 1.0);
        assert_eq!(overlap(2.0, 5.0, 5.5), 0.75);
        assert_eq!(overlap(2.0, 5.0, 7.0), 0.0);
    }

    #[test]
    fn spinning_ranks_leave_cores_to_agents_unless_links_are_delayed() {
        let line = crate::common_flags::line(&super::super::COMMAND, "--part spin").unwrap();
        let mut flags = super::super::read(super::super::Benchmark::Overlap, &line).unwrap();
        assert_eq!(plan(&flags, 2)[0].0, Place { node_count: 2, ppn: 1 });
        assert_eq!(plan(&flags, 16)[0].0, Place { node_count: 16, ppn: 1 });
        flags.delay_ms = 0;
        assert_eq!(plan(&flags, 16)[0].0, Place { node_count: 8, ppn: 1 });
        assert_eq!(plan(&flags, 2)[0].0, Place { node_count: 2, ppn: 1 });
    }
}
