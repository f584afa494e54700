//! What the agents and clients of a running job hold: memory, and the CPU time of agents, from `/proc`.
//!
//! Private memory is `Pss_Anon` + `Pss_Shmem` of `/proc/PID/smaps_rollup`: what the kernel charges a process for pages
//! that no file backs, where shared pages are divided among their users. The launcher counts as the root's agent, since
//! it contains that agent. Keepers are forked from their agent without exec; they are recognized by their name and
//! counted separately, in the node's memory.
use std::fs;

use rustix::process::Pid;

use crate::command::{Failure, wrong};
use crate::leftovers::children_of;
use crate::machine::kib;
use crate::samples::{Measures, bytes};

/// A keeper's name (`/proc/PID/comm`) contains this.
const KEEPER_MARK: &str = "keeper";
/// Clients whose memory is read; all clients do the same (chosen).
const CLIENTS_MAX: usize = 64;
/// Marks our shared memory in a client's memory map.
const SHARED_MARK: &str = "/memfd:";

/// An agent, and its keepers.
pub type Agent = (Pid, Vec<Pid>);

/// The agents below the launcher that has started them on `node_count` nodes.
///
/// # Errors
/// Some node has no agent.
pub fn agents(launcher: Pid, node_count: u32) -> Result<Vec<Agent>, Failure> {
    let mut all = Vec::new();
    find(launcher, &proc_link(launcher), None, &mut all);
    // There may be an agent of the root in addition to those of the nodes.
    match all.len().checked_sub(node_count as usize) {
        Some(0 | 1) => Ok(all),
        _ => Err(wrong(format!("{} agents seen for {node_count} nodes", all.len()))),
    }
}

/// Adds what runs `image` at and below `pid`; `agent` is the place of the nearest agent above.
fn find(pid: Pid, image: &Option<std::path::PathBuf>, mut agent: Option<usize>, all: &mut Vec<Agent>) {
    if image.is_some() && proc_link(pid) == *image {
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

/// The program of a process.
pub fn proc_link(pid: Pid) -> Option<std::path::PathBuf> {
    fs::read_link(format!("/proc/{}/exe", pid.as_raw_nonzero())).ok()
}

/// A file of a process.
pub fn proc_text(pid: Pid, name: &str) -> Option<String> {
    fs::read_to_string(format!("/proc/{}/{name}", pid.as_raw_nonzero())).ok()
}

/// Whether a process of wireup is a keeper.
pub fn is_keeper(pid: Pid) -> bool {
    proc_text(pid, "comm").is_some_and(|name| name.contains(KEEPER_MARK))
}

/// The memory of the largest agent, and of the largest one with its keepers.
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
        let text = proc_text(pid, "smaps_rollup")?;
        Some(kib(&text, "Pss_Anon")? + kib(&text, "Pss_Shmem")?)
    };
    let number = pid.as_raw_nonzero();
    read().ok_or_else(|| wrong(format!("cannot read the memory of process {number}: run as the user of the job")))
}

/// CPU time of agents since they started (seconds).
pub fn cpu_s(agents: &[Agent]) -> f64 {
    // Agents have one thread each; this file begins with the nanoseconds on a CPU.
    let ns = |(pid, _): &Agent| proc_text(*pid, "schedstat")?.split(' ').next()?.parse::<u64>().ok();
    agents.iter().filter_map(ns).sum::<u64>() as f64 / 1e9
}

/// The memory of the median client: its own, and memory of its agent's that it has mapped, touched or not.
pub fn of_clients(pids: &[Pid]) -> Measures {
    let step = pids.len().div_ceil(CLIENTS_MAX).max(1);
    let clients: Vec<[u64; 2]> =
        pids.iter().step_by(step).filter_map(|pid| Some(of_client(&proc_text(*pid, "smaps")?))).collect();
    let middle = |which: usize| {
        let mut values: Vec<u64> = clients.iter().map(|client| client[which]).collect();
        values.sort_unstable();
        values.get(values.len() / 2).copied().unwrap_or(0) as f64
    };
    vec![bytes("client-memory", middle(0)), bytes("shared-memory", middle(1))]
}

/// Sums over a process's mappings (bytes): anonymous pages, and the sizes of the mappings of our shared memory.
fn of_client(smaps: &str) -> [u64; 2] {
    let ([mut private, mut shared], mut is_shared) = ([0, 0], false);
    for line in smaps.lines() {
        let mut words = line.split_whitespace();
        let (Some(name), Some(number)) = (words.next(), words.next()) else { continue };
        let bytes = || number.parse::<u64>().unwrap_or(0) * 1024;
        match name {
            "Size:" if is_shared => shared += bytes(),
            "Anonymous:" => private += bytes(),
            _ if !name.ends_with(':') => is_shared = line.contains(SHARED_MARK),
            _ => {}
        }
    }
    [private, shared]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_and_shared_memory_are_counted_separately() {
        let smaps = "55d0-55d1 r--p 00000000 fe:00 1 /bin/x\nSize:  8 kB\nAnonymous:  4 kB\n\
                     7f00-7f10 r--s 00000000 00:01 9 /memfd:wireup (deleted)\nSize:  64 kB\nAnonymous:  0 kB\n\
                     7f20-7f30 rw-s 00000000 00:01 9 /dev/shm/board\nSize:  128 kB\nAnonymous:  0 kB\n\
                     7ffd-7ffe rw-p 00000000 00:00 0 [stack]\nSize: 132 kB\nAnonymous: 16 kB\n";
        assert_eq!(of_client(smaps), [20 * 1024, 64 * 1024]);
    }

    #[test]
    fn the_memory_of_this_process_can_be_read() {
        let own = rustix::process::getpid();
        assert!(private_bytes(own).unwrap() > 0);
        assert!(agents(own, 1).is_ok_and(|all| all[0] == (own, Vec::new())) && agents(own, 3).is_err());
    }
}
