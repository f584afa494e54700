//! libwireup beside what it replaces, in turns within the same minutes: barriers, and the call that joins the job.
use super::super::flags::{AUTO, Flags};
use super::super::job::{Launch, with_job};
use super::super::report::Cell;
use super::super::rounds;
use super::super::scheme::{Operation, Step};
use super::super::surroundings::Surroundings;
use super::{AGENTS, JOINS, PAIR, key};
use crate::cases::Place;
use crate::command::Failure;
use crate::metric::{Metric, Sample};
use crate::turns::turn;

/// Two ranks, each on a node of its own.
pub const PAIR_PLACE: Place = Place { node_count: 2, ppn: 1 };
pub const BARRIER_PLACE: Place = Place { node_count: 4, ppn: 16 };
pub const JOINS_PLACE: Place = Place { node_count: 16, ppn: 16 };
/// The names of the figures: ours, then what it is compared with.
pub const PAIR_SCHEMES: [&str; 2] = ["barrier-peers", "bare-8-bytes"];
pub const BARRIER_SCHEMES: [&str; 2] = ["barrier-agents", "fence-alone"];
pub const JOINS_SCHEMES: [&str; 2] = ["wu-open", "pmi2-init"];
/// Repetitions of a step: one takes some 10 microseconds between two ranks, a millisecond among 64 (chosen).
const PAIR_REPEAT: u32 = 2_000;
const BARRIER_REPEAT: u32 = 20;
/// Rounds that count (chosen).
const PAIR_ROUNDS: u32 = 41;
const BARRIER_ROUNDS: u32 = 41;
const JOINS_ROUNDS: u32 = 15;

/// A barrier of two ranks by the peers' engine, and 8 bytes each way on a bare connection of the same two processes.
pub fn pair(flags: &Flags, surroundings: &Surroundings) -> Result<Vec<Cell>, Failure> {
    let launch = surroundings.launch_groups(flags, PAIR_PLACE, "peers");
    let operations = [Operation::Barrier, Operation::Bare];
    let steps = operations.map(|operation| Step::of(operation, flags.lengths).repeated(PAIR_REPEAT));
    let keys = PAIR_SCHEMES.map(|name| key(flags, PAIR_PLACE, PAIR, name));
    let tasks: Vec<rounds::Task> =
        keys.into_iter().zip(steps).map(|(key, step)| rounds::Task { key, step, rounds_max: u32::MAX }).collect();
    with_job(&launch, &surroundings.scratch, &surroundings.interrupt, |job| {
        rounds::interleave(job, &tasks, flags.rounds.unwrap_or(PAIR_ROUNDS))
    })
}

/// A barrier of 64 ranks by the agents' engine, and the fence of our libpmi2, in two jobs that take turns.
pub fn barriers(flags: &Flags, surroundings: &Surroundings) -> Result<Vec<Cell>, Failure> {
    let [ours, theirs] = launches(flags, surroundings, BARRIER_PLACE);
    let (scratch, interrupt) = (&surroundings.scratch, &surroundings.interrupt);
    let mut cells = BARRIER_SCHEMES.map(|name| Cell::new(key(flags, BARRIER_PLACE, AGENTS, name)));
    let step = |operation| Step::of(operation, flags.lengths).repeated(BARRIER_REPEAT);
    with_job(&ours, scratch, interrupt, |ours| {
        with_job(&theirs, scratch, interrupt, |theirs| {
            for _ in 0..=flags.rounds.unwrap_or(BARRIER_ROUNDS) {
                cells[0].runs.push(ours.step(&step(Operation::Barrier))?);
                cells[1].runs.push(theirs.step(&step(Operation::FenceAlone))?);
            }
            Ok(())
        })
    })?;
    Ok(cells.into())
}

/// `wu_open` with the agents' engine, and `PMI2_Init` of our libpmi2, in jobs that take turns.
pub fn joins(flags: &Flags, surroundings: &Surroundings) -> Result<Vec<Cell>, Failure> {
    let launches = launches(flags, surroundings, JOINS_PLACE);
    let mut cells = JOINS_SCHEMES.map(|name| Cell::new(key(flags, JOINS_PLACE, JOINS, name)));
    for round in 0..=flags.rounds.unwrap_or(JOINS_ROUNDS) {
        for at in turn(round, cells.len()) {
            let (cell, launch) = (&mut cells[at], &launches[at]);
            let joins = with_job(launch, &surroundings.scratch, &surroundings.interrupt, |job| job.joins())?;
            cell.runs.push(Sample(joins.0.into_iter().filter(|(metric, _)| is_join(*metric)).collect()));
        }
    }
    Ok(cells.into())
}

fn is_join(metric: Metric) -> bool {
    matches!(metric, Metric::JoinMedian | Metric::JoinMax)
}

/// Ranks with libwireup, and ranks with libpmi2.
fn launches(flags: &Flags, surroundings: &Surroundings, place: Place) -> [Launch; 2] {
    [surroundings.launch_groups(flags, place, "agents"), surroundings.launch(flags, place, AUTO)]
}
