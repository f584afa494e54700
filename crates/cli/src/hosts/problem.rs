//! What can be wrong with a list of hosts, each with what to do about it.

use super::allocation::{AllocationError, Refused};
use thiserror::Error;
use wireup_node::hosts::HostProblem;

/// A list of hosts that cannot be used.
#[derive(Error, Clone, PartialEq, Eq, Debug)]
pub enum HostsError {
    #[error("--hosts {0}")]
    List(HostProblem),
    #[error("{file}, line {line}: {problem}")]
    Line { file: String, line: usize, problem: HostProblem },
    #[error("host file {file}: {problem}; give a file with one host per line")]
    Read { file: String, problem: String },
    #[error("host file {file} is longer than {} MiB; is it a list of hosts?", bytes_max >> 20)]
    TooLong { file: String, bytes_max: u64 },
    #[error("{file} contains no host; write one per line, for example: n0 slots=8")]
    Empty { file: String },
    #[error("{name}: {problem}")]
    Variable { name: &'static str, problem: HostProblem },
    #[error(transparent)]
    Allocation(AllocationError),
    #[error(transparent)]
    OneOfMany(Refused),
    #[error("all hosts have 0 slots; give at least one host 1 slot or more")]
    NoSlots,
}
