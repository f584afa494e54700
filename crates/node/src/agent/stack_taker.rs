//! Takes the call stacks of a job's ranks in a separate process, `wireup stacks` (`crate::stacks`).

use super::tail::Stream;
use crate::stacks::innermost;
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::process::{Pid, Signal, kill_process_group};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use wireup_os::process::{is_stopped, kill};
use wireup_os::reactor::Reactor;
use wireup_wire::ids::Rank;
use wireup_wire::limits::STACKS_NS_MAX;
use wireup_wire::peer::{self, Stack};
use wireup_wire::signal::SIGCONT;

/// Time that the process gets in addition to that of the tools that read the stacks (ns).
const SPARE_NS: u64 = 2_000_000_000;

pub struct StackTaker {
    /// The process `wireup stacks`, which ends when its standard input is closed.
    child: Child,
    output: Stream,
    bytes: Vec<u8>,
    ranks: Vec<Rank>,
    /// The ranks' processes that were not stopped when the tools began.
    running: Vec<u32>,
    until_ns: u64,
}

impl StackTaker {
    /// # Errors
    /// The process cannot be started.
    pub fn start(processes: &[(Rank, u32)], token: u64, now_ns: u64, reactor: &Reactor) -> io::Result<StackTaker> {
        let running = processes.iter().map(|(_, pid)| innermost(*pid)).filter(|pid| !is_stopped(*pid)).collect();
        let words = processes.iter().map(|(rank, pid)| format!("{rank}:{pid}"));
        let mut command = Command::new("/proc/self/exe");
        command
            .arg("stacks")
            .args(words)
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = command.spawn()?;
        let output = child.stdout.take();
        output.iter().try_for_each(|output| fcntl_setfl(output, OFlags::NONBLOCK))?;
        Ok(StackTaker {
            child,
            output: Stream::watched(output.map(Into::into), token, reactor),
            bytes: Vec::new(),
            ranks: processes.iter().map(|(rank, _)| *rank).collect(),
            running,
            until_ns: now_ns + STACKS_NS_MAX + SPARE_NS,
        })
    }

    pub fn deadline_ns(&self) -> u64 {
        self.until_ns
    }

    /// Reads the process's available output. Returns the stacks at the end of the output or at the deadline.
    pub fn read(&mut self, now_ns: u64, reactor: &Reactor) -> Option<Vec<Stack>> {
        self.output.read(reactor, |piece| self.bytes.extend_from_slice(piece));
        if self.output.is_open() && now_ns < self.until_ns {
            return None;
        }
        Some(peer::decode(&self.bytes).unwrap_or_else(|_| failed(&self.ranks, "the process that takes stacks failed")))
    }

    pub fn close(mut self, reactor: &Reactor) {
        self.output.close(reactor);
    }
}

/// The result for `ranks` if no call stack could be taken, with the reason `why`.
pub fn failed(ranks: &[Rank], why: &str) -> Vec<Stack> {
    vec![Stack { ranks: ranks.to_vec(), calls: Err(why.to_owned()) }]
}

/// Ends the process and its tools.
impl Drop for StackTaker {
    fn drop(&mut self) {
        let group = Pid::from_child(&self.child);
        let _ = kill_process_group(group, Signal::KILL);
        let _ = self.child.wait();
        // A tool that was killed may have left the rank that it examined stopped.
        if self.output.is_open() {
            self.running.iter().for_each(|pid| drop(kill(*pid, SIGCONT)));
        }
    }
}
