//! Interleaved rounds within one job: A B C, A B C, … so that disturbances of the machine affect all schemes alike.
use super::job::Job;
use super::report::{Cell, Key};
use super::scheme::{Gets, Operation, Scheme, Step};
use crate::command::Failure;

/// Rounds of a step that takes seconds (chosen).
const LONG_ROUNDS_MAX: u32 = 3;

/// A step that is repeated, and the key of its figures.
#[derive(Clone, Debug, PartialEq)]
pub struct Task {
    pub key: Key,
    pub step: Step,
    /// The largest number of counted rounds: long steps are repeated less often.
    pub rounds_max: u32,
}

/// Rounds that count, unless the user chooses: a step of a large job takes a second, of a small one a millisecond.
pub fn default_count(job_size: u32) -> u32 {
    match job_size {
        ..=256 => 21,
        257..=1024 => 11,
        1025..=4096 => 7,
        _ => 5,
    }
}

/// The largest number of rounds of a scheme: large numbers of gets take seconds, since every node indexes all pairs
/// (chosen).
pub fn rounds_max(scheme: Scheme, job_size: u32) -> u32 {
    let is_long = match scheme.gets {
        Gets::None => false,
        Gets::Neighbours => job_size >= 4096,
        Gets::All => job_size >= 512,
    };
    let has_keys = matches!(scheme.operation, Operation::TextFence | Operation::Fence);
    if is_long && has_keys { LONG_ROUNDS_MAX } else { u32::MAX }
}

/// One warm-up round, then `rounds` that count.
pub fn interleave(job: &mut Job, tasks: &[Task], rounds: u32) -> Result<Vec<Cell>, Failure> {
    let mut cells: Vec<Cell> = tasks.iter().map(|task| Cell::new(task.key.clone())).collect();
    for round in 0..=rounds {
        for (cell, task) in cells.iter_mut().zip(tasks).filter(|(_, task)| round <= task.rounds_max) {
            cell.runs.push(job.step(&task.step)?);
        }
    }
    Ok(cells)
}
