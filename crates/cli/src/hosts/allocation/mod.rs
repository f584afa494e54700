//! The allocation that a batch system gave to the surrounding job: its nodes, the ranks and cpus of each.

mod each_node;
mod flux;
mod host_lists;
mod schedulers;
mod slurm;

pub use schedulers::{detect, is_likely};

use super::Entry;
use std::ffi::{OsStr, OsString};
use std::fmt::Display;
use std::path::PathBuf;

/// Slurm's name as a scheduler.
const SLURM: &str = "Slurm";

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Allocation {
    /// The batch system's name.
    pub scheduler: &'static str,
    pub job: String,
    /// The variable or command that the information comes from.
    pub told_by: &'static str,
    /// The nodes in the scheduler's order, without duplicates; never empty.
    pub nodes: Vec<Node>,
    /// The scheduler's name for this machine, if it gives one.
    pub own_name: Option<String>,
    /// The reason why a run cannot use the allocation; `None`: it can.
    pub refused: Option<String>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Node {
    pub name: String,
    /// The number of ranks that the batch system was asked for on this node.
    pub tasks: u32,
    /// The number of ranks that the node has room for; 0: any number.
    pub cpus: u32,
}

/// Why one of several equal tasks that a batch system has started cannot use the allocation.
fn one_of_many(tasks: u32, scheduler: &str, once: &str) -> String {
    format!(
        "this is one of {tasks} tasks of a {scheduler} step, and every task would start the whole job; start wireup \
         run only once ({once}), or use --hosts or --virtual-nodes"
    )
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
    fn number(&self, variable: &str) -> Result<Option<u32>, String> {
        let number = |value: &str| value.parse().map_err(|_| wrong(variable, value, "not a whole number"));
        self.get(variable).map(number).transpose()
    }
}

impl Allocation {
    fn new(scheduler: &'static str, job: &str, told_by: &'static str, nodes: Vec<Node>) -> Allocation {
        Allocation { scheduler, job: job.to_owned(), told_by, nodes, own_name: None, refused: None }
    }

    /// The program that starts agents on all nodes in one step; `None` if agents are started one by one.
    pub fn step_program(&self) -> Option<&'static str> {
        (self.scheduler == SLURM).then_some("srun")
    }

    /// The nodes as `--hosts` would name them. If the job was given enough slots for `ranks` ranks, or with `None`,
    /// each node has the slots that were asked for; otherwise as many as it has room for, if that is known.
    pub fn entries(&self, ranks: Option<u64>) -> Vec<Entry> {
        let asked: u64 = self.nodes.iter().map(|node| u64::from(node.tasks)).sum();
        let roomy = ranks.is_some_and(|ranks| ranks > asked);
        let slots = |node: &Node| match roomy {
            true => (node.cpus > 0).then_some(node.cpus.max(node.tasks)),
            false => Some(node.tasks),
        };
        let entry = |node: &Node| Entry { name: node.name.clone(), slots: slots(node), slots_max: None };
        self.nodes.iter().map(entry).collect()
    }

    pub fn find(&self, name: &str) -> Option<&Node> {
        self.nodes.iter().find(|node| node.name == name)
    }
}

/// The error message for a variable with an invalid value.
fn wrong(variable: &str, value: &str, problem: impl Display) -> String {
    const SHOWN_MAX: usize = 80;
    let mut shown: String = value.chars().take(SHOWN_MAX).collect();
    if shown.len() < value.len() {
        shown += "...";
    }
    format!(
        "{variable}={shown}: {problem}; if the variable is left over from another job, unset it; or name the hosts \
         with --hosts"
    )
}

/// The error message for a variable that names a file which cannot be used.
fn wrong_file(variable: &str, problem: &str) -> String {
    format!("cannot use the file that {variable} names: {problem}; name the hosts with --hosts, or unset {variable}")
}

/// The error message for a job of a batch system without the variable that names its hosts.
fn no_hosts(scheduler: &str, job: &str, missing: &str) -> String {
    format!(
        "{job} is set but {missing} (the host list) is not; start wireup in the {scheduler} job's own script, name the \
         hosts with --hosts, or unset {job} to run on this machine"
    )
}

fn names(variable: &str, value: &str) -> Result<Vec<String>, String> {
    wireup_node::hosts::expand(value).map_err(|problem| wrong(variable, value, problem))
}

/// The host that one word of a variable's value names.
fn one_name(variable: &str, value: &str, word: &str) -> Result<String, String> {
    match &names(variable, word)?[..] {
        [name] => Ok(name.clone()),
        _ => Err(wrong(variable, value, format!("{word} must name exactly one host"))),
    }
}

/// One node for each name, with the sum of the slots that all its mentions state.
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
