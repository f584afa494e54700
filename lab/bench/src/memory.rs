//! The agents' private memory, read while all ranks wait between their gets and finalize.
//!
//! `Pss_Anon` + `Pss_Shmem` of `/proc/PID/smaps_rollup`: what the kernel charges a process for pages that no file
//! backs, where shared pages are divided among their users. The launcher counts as the root's agent, since it contains
//! that agent. Keepers are forked from their agent without exec; they are recognized by their name and counted
//! separately, in the node's memory.
use std::fs;
use std::path::Path;

use rustix::process::Pid;

use crate::leftovers::children_of;
use crate::machine::kib;
use crate::samples::{Measures, bytes};

/// A keeper's name (`/proc/PID/comm`) contains this.
const KEEPER_MARK: &str = "keeper";

/// One of wireup's processes (bytes).
#[derive(Clone, Copy, Debug, PartialEq)]
struct Process {
    role: Role,
    /// Index of the agent that it belongs to; its own for an agent.
    agent: usize,
    private_bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Agent,
    Keeper,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum MemoryError {
    #[error("cannot read the memory of process {0} ({1}): run as the user of the job")]
    Unreadable(String, String),
    #[error("{found} agents seen for {expected} nodes")]
    AgentCount { found: usize, expected: u32 },
}

/// The memory of a job's agents on `node_count` nodes, below the launcher.
///
/// # Errors
/// If not every node has its agent, the largest one may have been missed.
pub fn sample(launcher: Pid, node_count: u32) -> Result<Measures, MemoryError> {
    let mut processes = Vec::new();
    let mut agents = 0;
    for (pid, role, agent) in ours(launcher, node_count)? {
        agents = agents.max(agent + 1);
        processes.push(Process { role, agent, private_bytes: private_bytes(pid)? });
    }
    Ok(largest(&processes, agents))
}

/// The agents' processes, below the launcher that has started them on `node_count` nodes.
///
/// # Errors
/// Some node has no agent.
pub fn agents(launcher: Pid, node_count: u32) -> Result<Vec<Pid>, MemoryError> {
    let ours = ours(launcher, node_count)?;
    Ok(ours.into_iter().filter(|(_, role, _)| *role == Role::Agent).map(|(pid, ..)| pid).collect())
}

/// Agents and keepers with the index of the agent that they belong to, parents first.
fn ours(launcher: Pid, node_count: u32) -> Result<Vec<(Pid, Role, usize)>, MemoryError> {
    let image = fs::read_link(proc_file(launcher, "exe")).ok();
    let mut found = Vec::new();
    let mut agents = 0;
    walk(launcher, None, &mut |pid, parent: Option<usize>| {
        let is_ours = image.is_some() && fs::read_link(proc_file(pid, "exe")).ok() == image;
        if !is_ours {
            return parent;
        }
        let role = match parent {
            Some(_) if is_keeper(pid) => Role::Keeper,
            _ => Role::Agent,
        };
        let agent = match (role, parent) {
            (Role::Keeper, Some(parent)) => parent,
            _ => {
                agents += 1;
                agents - 1
            }
        };
        found.push((pid, role, agent));
        Some(agent)
    });
    // There may be an agent of the root in addition to those of the nodes.
    if agents != node_count as usize && agents != node_count as usize + 1 {
        return Err(MemoryError::AgentCount { found: agents, expected: node_count });
    }
    Ok(found)
}

/// Whether a process of wireup is a keeper.
pub fn is_keeper(pid: Pid) -> bool {
    fs::read_to_string(proc_file(pid, "comm")).unwrap_or_default().contains(KEEPER_MARK)
}

fn largest(processes: &[Process], agents: usize) -> Measures {
    let mut nodes = vec![0; agents];
    let mut agent_bytes = 0;
    for process in processes {
        nodes[process.agent] += process.private_bytes;
        if process.role == Role::Agent {
            agent_bytes = agent_bytes.max(process.private_bytes);
        }
    }
    let node_bytes = nodes.into_iter().max().unwrap_or(0);
    vec![bytes("agent-memory", agent_bytes as f64), bytes("node-memory", node_bytes as f64)]
}

/// Visits the tree of processes, parents first; `visit` returns the agent that the children belong to.
fn walk(pid: Pid, agent: Option<usize>, visit: &mut impl FnMut(Pid, Option<usize>) -> Option<usize>) {
    let agent = visit(pid, agent);
    for child in children_of(pid) {
        walk(child, agent, visit);
    }
}

/// The memory that the kernel charges a process for pages that no file backs.
pub fn private_bytes(pid: Pid) -> Result<u64, MemoryError> {
    let unreadable = |why: &str| MemoryError::Unreadable(pid.as_raw_nonzero().to_string(), why.to_owned());
    let text = fs::read_to_string(proc_file(pid, "smaps_rollup")).map_err(|e| unreadable(&e.to_string()))?;
    parse_private(&text).ok_or_else(|| unreadable("no Pss_Anon and Pss_Shmem"))
}

/// Bytes of `Pss_Anon` + `Pss_Shmem`.
fn parse_private(text: &str) -> Option<u64> {
    Some(kib(text, "Pss_Anon")? + kib(text, "Pss_Shmem")?)
}

fn proc_file(pid: Pid, name: &str) -> impl AsRef<Path> {
    format!("/proc/{}/{name}", pid.as_raw_nonzero())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_memory_counts_anonymous_and_shmem_pages() {
        let text =
            "00400000-7ffd [rollup]\nRss:  884 kB\nPss: 385 kB\nPss_Anon:  104 kB\nPss_File: 277 kB\nPss_Shmem: 4 kB\n";
        assert_eq!(parse_private(text), Some(108 * 1024));
        assert_eq!(parse_private("Pss_Anon: 104 kB\n"), None);
    }

    #[test]
    fn the_memory_of_this_process_can_be_read() {
        assert!(private_bytes(rustix::process::getpid()).unwrap() > 0);
    }

    #[test]
    fn keeper_memory_counts_only_for_the_node() {
        let process = |role, agent, private_bytes| Process { role, agent, private_bytes };
        let processes = [
            process(Role::Agent, 0, 10),
            process(Role::Keeper, 0, 4),
            process(Role::Keeper, 0, 3),
            process(Role::Agent, 1, 12),
            process(Role::Keeper, 1, 1),
        ];
        assert_eq!(largest(&processes, 2), [bytes("agent-memory", 12.0), bytes("node-memory", 17.0)]);
    }
}
