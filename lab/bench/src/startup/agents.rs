//! The cost of the agents and clients of a running job: CPU time and memory, from `/proc`.
use std::fs;

use rustix::process::Pid;

use super::board::Slot;
use crate::memory::{self, MemoryError};
use crate::samples::{Measures, bytes};

/// Clients whose memory is read; all clients do the same (chosen).
const CLIENTS_MAX: usize = 64;
/// Marks our shared memory in a client's memory map.
const SHARED_MARK: &str = "/memfd:";

/// The agents of one job; the launcher contains the root's.
pub struct Agents {
    launcher: Pid,
    node_count: u32,
    pids: Vec<Pid>,
}

impl Agents {
    pub fn below(launcher: Pid, node_count: u32) -> Result<Agents, MemoryError> {
        Ok(Agents { launcher, node_count, pids: memory::agents(launcher, node_count)? })
    }

    /// CPU time of all agents since they started (seconds).
    pub fn cpu_s(&self) -> f64 {
        // Agents have one thread each; this file begins with the nanoseconds on a CPU.
        let ns = |pid: &Pid| -> Option<u64> {
            let text = fs::read_to_string(format!("/proc/{}/schedstat", pid.as_raw_nonzero())).ok()?;
            text.split(' ').next()?.parse().ok()
        };
        self.pids.iter().filter_map(ns).sum::<u64>() as f64 / 1e9
    }

    /// Memory of the largest agent, and of clients.
    pub fn memory(&self, slots: &[Slot]) -> Result<Measures, MemoryError> {
        let mut measures = memory::sample(self.launcher, self.node_count)?;
        let step = slots.len().div_ceil(CLIENTS_MAX).max(1);
        let clients: Vec<Client> = slots.iter().step_by(step).filter_map(|slot| Client::look(slot.pid)).collect();
        let middle = |of: fn(&Client) -> u64| {
            let mut values: Vec<u64> = clients.iter().map(of).collect();
            values.sort_unstable();
            values.get(values.len() / 2).copied().unwrap_or(0) as f64
        };
        measures.push(bytes("client-memory", middle(|client| client.private_bytes)));
        measures.push(bytes("shared-memory", middle(|client| client.shared_bytes)));
        Ok(measures)
    }
}

/// One client's memory (bytes).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Client {
    private_bytes: u64,
    /// Memory of its agent's that it has mapped, touched or not.
    shared_bytes: u64,
}

impl Client {
    fn look(pid: u64) -> Option<Client> {
        Some(parse(&fs::read_to_string(format!("/proc/{pid}/smaps")).ok()?))
    }
}

/// Sums over a process's mappings: anonymous pages, and the sizes of the mappings of our shared memory.
fn parse(smaps: &str) -> Client {
    let mut client = Client::default();
    let mut is_shared = false;
    for line in smaps.lines() {
        let mut words = line.split_whitespace();
        let (Some(name), Some(number)) = (words.next(), words.next()) else { continue };
        let kib = || number.parse::<u64>().unwrap_or(0) * 1024;
        match name {
            "Size:" if is_shared => client.shared_bytes += kib(),
            "Anonymous:" => client.private_bytes += kib(),
            _ if !name.ends_with(':') => is_shared = line.contains(SHARED_MARK),
            _ => {}
        }
    }
    client
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
        assert_eq!(parse(smaps), Client { private_bytes: 20 * 1024, shared_bytes: 64 * 1024 });
    }
}
