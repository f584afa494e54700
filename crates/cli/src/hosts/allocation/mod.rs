//! The allocation that a batch system gave to the surrounding job: its nodes, the ranks and cpus of each.
//!
//! ```text
//!   Flux           FLUX_URI, and FLUX_ENCLOSING_ID or FLUX_JOB_ID    the resource set that `flux` prints
//!   Slurm          SLURM_JOB_ID, SLURM_JOB_NODELIST                  variables
//!   PBS, Torque    PBS_JOBID, PBS_NODEFILE                           a file, a host for each rank
//!   LSF            LSB_JOBID, LSB_DJOB_HOSTFILE or LSB_MCPU_HOSTS    a file, or a variable
//!   Grid Engine    JOB_ID, PE_HOSTFILE                               a file, each line a host and its slots
//! ```
//!
//! They are tried in this order, so that a batch system that runs inside another one's job comes first. Information
//! that cannot be understood is an error; it does not count as "no batch system".

mod flux;
mod grid_engine;
mod lsf;
mod pbs;
mod repeated;
mod slurm;

use super::{Entry, HostProblem, HostsError};
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use thiserror::Error;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scheduler {
    Flux,
    Slurm,
    Pbs,
    Lsf,
    GridEngine,
}

impl Scheduler {
    pub fn name(self) -> &'static str {
        match self {
            Scheduler::Flux => "Flux",
            Scheduler::Slurm => "Slurm",
            Scheduler::Pbs => "PBS",
            Scheduler::Lsf => "LSF",
            Scheduler::GridEngine => "Grid Engine",
        }
    }

    /// The program that starts agents on all nodes in one step; `None` if agents are started one by one.
    pub fn step_program(self) -> Option<&'static str> {
        match self {
            Scheduler::Slurm => Some("srun"),
            Scheduler::Flux | Scheduler::Pbs | Scheduler::Lsf | Scheduler::GridEngine => None,
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Allocation {
    pub scheduler: Scheduler,
    pub job: String,
    /// The variable or command that the information comes from.
    pub told_by: &'static str,
    /// In the scheduler's order, without duplicates; never empty.
    pub nodes: Vec<Node>,
    /// The scheduler's name for this machine, if it gives one.
    pub own_name: Option<String>,
    /// Why a run cannot use the allocation.
    pub refused: Option<Refused>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Node {
    pub name: String,
    /// Ranks that the batch system was asked for.
    pub tasks: u32,
    /// Ranks that there is room for.
    pub cpus: u32,
}

/// This process is one of several equal tasks that a batch system has started.
#[derive(Error, Clone, PartialEq, Eq, Debug)]
#[error(
    "this is one of {tasks} tasks of a {scheduler} step, and every task would start the whole job; start wireup run \
     only once ({once}), or use --hosts or --virtual-nodes"
)]
pub struct Refused {
    pub tasks: u32,
    pub scheduler: &'static str,
    pub once: &'static str,
}

/// Information from a batch system that cannot be right.
#[derive(Error, Clone, PartialEq, Eq, Debug)]
pub enum AllocationError {
    #[error(
        "{variable}={value}: {problem}; if the variable is left over from another job, unset it; or name the hosts \
         with --hosts"
    )]
    Variable { variable: &'static str, value: String, problem: String },
    #[error("cannot use the file that {variable} names: {problem}; name the hosts with --hosts, or unset {variable}")]
    File { variable: &'static str, problem: Box<HostsError> },
    #[error(
        "{job} is set, so this is a job of {scheduler}, but {missing} is not, which tells its hosts; start wireup in the \
         job's own script, name the hosts with --hosts, or unset {job} to run on this machine"
    )]
    NoHosts { scheduler: &'static str, job: &'static str, missing: &'static str },
    #[error("cannot get the hosts from {command}: {problem}; name them with --hosts instead")]
    Command { command: String, problem: String },
}

/// The environment of this process.
#[derive(Clone, Copy)]
pub struct Env<'a>(pub &'a [(OsString, OsString)]);

impl Env<'_> {
    /// The value of a variable that is set, not empty, and valid text.
    pub fn get(&self, name: &str) -> Option<&str> {
        let value = self.0.iter().find(|(known, _)| known == OsStr::new(name)).map(|(_, value)| value)?;
        value.to_str().filter(|value| !value.is_empty())
    }

    fn path(&self, name: &str) -> Option<PathBuf> {
        self.get(name).map(PathBuf::from)
    }

    /// The value of a variable that holds a whole number.
    fn number(&self, variable: &'static str) -> Result<Option<u32>, AllocationError> {
        let Some(value) = self.get(variable) else { return Ok(None) };
        match value.parse() {
            Ok(number) => Ok(Some(number)),
            Err(_) => Err(wrong(variable, value, "not a whole number")),
        }
    }
}

/// The allocation that this process is in.
pub fn detect(env: Env) -> Result<Option<Allocation>, AllocationError> {
    for detect in [flux::detect, slurm::detect, pbs::detect, lsf::detect, grid_engine::detect] {
        if let Some(allocation) = detect(env)? {
            return Ok(Some(allocation));
        }
    }
    Ok(None)
}

/// Whether a variable of some batch system is set, valid or not.
pub fn is_likely(env: Env) -> bool {
    ["FLUX_URI", "SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "PE_HOSTFILE"]
        .into_iter()
        .any(|name| env.get(name).is_some())
}

impl Allocation {
    /// The nodes as `--hosts` would name them. With `None`, or if enough, a node has as many slots as ranks were asked
    /// for; otherwise as many as there is room for.
    pub fn entries(&self, ranks: Option<u64>) -> Vec<Entry> {
        let asked: u64 = self.nodes.iter().map(|node| u64::from(node.tasks)).sum();
        let roomy = ranks.is_some_and(|ranks| ranks > asked);
        let slots = |node: &Node| if roomy { node.cpus.max(node.tasks) } else { node.tasks };
        let entry = |node: &Node| Entry { name: node.name.clone(), slots: Some(slots(node)), slots_max: None };
        self.nodes.iter().map(entry).collect()
    }

    pub fn find(&self, name: &str) -> Option<&Node> {
        self.nodes.iter().find(|node| node.name == name)
    }
}

/// A variable with an invalid value.
fn wrong(variable: &'static str, value: &str, problem: impl ToString) -> AllocationError {
    const SHOWN_MAX: usize = 80;
    let mut shown: String = value.chars().take(SHOWN_MAX).collect();
    if shown.len() < value.len() {
        shown += "...";
    }
    AllocationError::Variable { variable, value: shown, problem: problem.to_string() }
}

fn names(variable: &'static str, value: &str) -> Result<Vec<String>, AllocationError> {
    wireup_node::hosts::expand(value).map_err(|problem: HostProblem| wrong(variable, value, problem))
}

/// One node for each name, with the sum of its mentions.
fn counted(mentions: impl IntoIterator<Item = (String, u32)>) -> Vec<Node> {
    let mut nodes: Vec<Node> = Vec::new();
    let mut places = std::collections::HashMap::new();
    for (name, tasks) in mentions {
        let at = *places.entry(name.clone()).or_insert(nodes.len());
        match nodes.get_mut(at) {
            Some(node) => node.tasks = node.tasks.saturating_add(tasks),
            None => nodes.push(Node { name, tasks, cpus: 0 }),
        }
    }
    nodes.retain(|node| node.tasks > 0);
    nodes.iter_mut().for_each(|node| node.cpus = node.tasks);
    nodes
}

#[cfg(test)]
mod tests;
