//! The memory of the agents and clients of a running job, and the CPU time of agents, from `/proc`.
//!
//! A process's private memory is `Pss_Anon` + `Pss_Shmem` of `/proc/PID/smaps_rollup`: the memory that the kernel
//! charges a process for pages that no file backs, where shared pages are divided among their users. The launcher
//! counts as the root's agent, since it contains that agent. A keeper is forked from its agent without exec; keepers
//! are recognized by their name and counted separately, in the node's memory.
use std::path::PathBuf;

use procfs::process::{MMapPath, MemoryMap};
use rustix::process::Pid;

use crate::command::{Failure, wrong};
use crate::leftovers::{children_of, process};
use crate::samples::{Measures, bytes, median};

/// Part of a keeper's name (`/proc/PID/comm`) by which it is recognized.
const KEEPER_MARK: &str = "keeper";
/// Maximum number of clients whose memory is read; all clients do the same (chosen).
const CLIENTS_MAX: usize = 64;
/// Text that marks wireup's shared memory in a client's memory map.
const SHARED_MARK: &str = "/memfd:wireup";

/// An agent, and the keepers of that agent.
pub type Agent = (Pid, Vec<Pid>);

/// The agents below the launcher that has started them on `node_count` nodes.
pub fn agents(launcher: Pid, node_count: u32) -> Result<Vec<Agent>, Failure> {
    let mut all = Vec::new();
    find(launcher, &program_of(launcher), None, &mut all);
    // All nodes have an agent. There may be one more: an agent of the root that belongs to no node.
    match all.len().checked_sub(node_count as usize) {
        Some(0 | 1) => Ok(all),
        _ => Err(wrong(format!("{} agents seen for {node_count} nodes", all.len()))),
    }
}

/// Adds the processes that run `image`, from `pid` downwards. `agent`: index in `all` of the nearest agent above `pid`.
fn find(pid: Pid, image: &Option<PathBuf>, mut agent: Option<usize>, all: &mut Vec<Agent>) {
    if image.is_some() && program_of(pid) == *image {
        match agent {
            Some(at) if is_keeper(pid) => all[at].1.push(pid),
            _ => {
                agent = Some(all.len());
                all.push((pid, Vec::new()));
            }
        }
    }
    children_of(pid).into_iter().for_each(|child| find(child, image, agent, all));
}

/// Path of the program that a process runs.
pub fn program_of(pid: Pid) -> Option<PathBuf> {
    process(pid).ok()?.exe().ok()
}

/// Whether a process of wireup is a keeper, not an agent.
fn is_keeper(pid: Pid) -> bool {
    process(pid).and_then(|process| process.stat()).is_ok_and(|stat| stat.comm.contains(KEEPER_MARK))
}

/// The memory of the largest agent, and of the largest agent together with its keepers.
///
/// # Errors
/// If not every node has its agent, the largest one may have been missed.
pub fn sample(launcher: Pid, node_count: u32) -> Result<Measures, Failure> {
    let (mut agent_max, mut node_max) = (0, 0);
    for (agent, keepers) in agents(launcher, node_count)? {
        let own = private_bytes(agent)?;
        let keepers: u64 = keepers.into_iter().map(private_bytes).sum::<Result<_, _>>()?;
        (agent_max, node_max) = (agent_max.max(own), node_max.max(own + keepers));
    }
    Ok(vec![bytes("agent-memory", agent_max as f64), bytes("node-memory", node_max as f64)])
}

/// The memory that the kernel charges a process for pages that no file backs.
pub fn private_bytes(pid: Pid) -> Result<u64, Failure> {
    let read = || {
        let all = process(pid).ok()?.smaps_rollup().ok()?.memory_map_rollup.0;
        let sizes = &all.first()?.extension.map;
        Some(sizes.get("Pss_Anon")? + sizes.get("Pss_Shmem")?)
    };
    let number = pid.as_raw_nonzero();
    read().ok_or_else(|| wrong(format!("cannot read the memory of process {number}: run as the user of the job")))
}

/// A value such as `Rss` in the description of a mapping (bytes).
fn size(part: &MemoryMap, name: &str) -> u64 {
    part.extension.map.get(name).copied().unwrap_or(0)
}

/// CPU time of agents since they started (seconds).
pub fn cpu_s(agents: &[Agent]) -> f64 {
    // Each agent has only one thread, so the time of the process's main thread suffices.
    let ns = |(pid, _): &Agent| Some(process(*pid).ok()?.schedstat().ok()?.sum_exec_runtime);
    agents.iter().filter_map(ns).sum::<u64>() as f64 / 1e9
}

/// The memory of the median client: its private memory, and its agent's memory that it has mapped, touched or not.
pub fn of_clients(pids: &[Pid]) -> Measures {
    let step = pids.len().div_ceil(CLIENTS_MAX).max(1);
    let of_client = |pid: &Pid| Some(private_and_shared(&process(*pid).ok()?.smaps().ok()?.0));
    let clients: Vec<[u64; 2]> = pids.iter().step_by(step).filter_map(of_client).collect();
    let middle = |which: usize| median(clients.iter().map(|client| client[which] as f64)).unwrap_or(0.0);
    vec![bytes("client-memory", middle(0)), bytes("shared-memory", middle(1))]
}

/// Sums over a process's mappings (bytes): anonymous pages, and the sizes of the mappings of wireup's shared memory.
fn private_and_shared(all: &[MemoryMap]) -> [u64; 2] {
    let is_shared = |part: &&MemoryMap| match &part.pathname {
        MMapPath::Path(path) => path.to_string_lossy().starts_with(SHARED_MARK),
        _ => false,
    };
    let private = all.iter().map(|part| size(part, "Anonymous")).sum();
    [private, all.iter().filter(is_shared).map(|part| size(part, "Size")).sum()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use procfs::FromRead;
    use procfs::process::MemoryMaps;

    #[test]
    fn private_and_shared_memory_are_counted_separately() {
        let text = "55d0-55d1 r--p 00000000 fe:00 1 /bin/x\nSize:  8 kB\nAnonymous:  4 kB\n\
                     7f00-7f10 r--s 00000000 00:01 9 /memfd:wireup (deleted)\nSize:  64 kB\nAnonymous:  0 kB\n\
                     7f20-7f30 rw-s 00000000 00:01 9 /memfd:bench-board (deleted)\nSize:  128 kB\nAnonymous:  0 kB\n\
                     7ffd-7ffe rw-p 00000000 00:00 0 [stack]\nSize: 132 kB\nAnonymous: 16 kB\n";
        let smaps = MemoryMaps::from_read(text.as_bytes()).unwrap();
        assert_eq!(private_and_shared(&smaps.0), [20 * 1024, 64 * 1024]);
    }

    #[test]
    fn the_memory_of_this_process_can_be_read() {
        let own = rustix::process::getpid();
        assert!(private_bytes(own).unwrap() > 0);
        assert!(agents(own, 1).is_ok_and(|all| all[0] == (own, Vec::new())) && agents(own, 3).is_err());
    }
}
