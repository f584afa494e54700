//! What an agent asks of its keeper, and what it hears.
//!
//! Both are one process image apart: the keeper is forked from the agent, so the encoding never meets another
//! version of itself. A [`KeeperEvent`] carries descriptors, which travel beside the bytes (see `channel`).

use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use wireup_proto::io::ExitStatus;
use wireup_wire::job::Limit;
use wireup_wire::peer::SpawnError;

/// The slot of a process that serves the others.
pub const SERVER_SLOT: u32 = u32::MAX;

/// Something for the keeper to do.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Request {
    /// Start processes. Each is answered by `Started`, later `Exited`, or by `StartFailed`.
    Spawn(Batch),
    /// Send a signal to the process group of one slot, or of all but [`SERVER_SLOT`]. Processes that are not started yet get it
    /// before their first instruction; with `SIGKILL` to all they are not started (`StartFailed`, `ECANCELED`).
    Signal { slot: Option<u32>, signal: i32 },
    /// Kill all descendants, however they hide; then `Swept`.
    Sweep,
    /// Remove this directory, with all that is in it, when no process is left and the agent lets the keeper go, or dies.
    RemoveAtEnd { directory: Vec<u8> },
    /// The same at the keeper's own end, unless somebody has claimed (`flock`) the directory by then. If anything was written to the
    /// file `log` in it the end of that stays, as the file `last_words`.
    RemoveUnclaimed { directory: Vec<u8>, log: String, last_words: String },
    /// Kill all descendants and remove what is to be removed at the end; then be as new, and say `Renewed`. If that cannot be had,
    /// the keeper leaves.
    Renew,
    /// If the agent dies, give standard input, a terminal, the modes back that it had when the keeper was forked.
    RestoreTerminalOnDeath,
}

/// Processes to start, in this order.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Batch {
    pub programs: Vec<Program>,
    pub processes: Vec<Process>,
    pub umask: u32,
    /// Soft limits, as far as the hard ones here allow.
    pub limits: Vec<Limit>,
}

/// What several processes have in common.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Program {
    /// Never empty. The program is looked up in the `PATH` of `env`.
    pub argv: Vec<Vec<u8>>,
    /// Empty: the keeper's own directory.
    pub cwd: Vec<u8>,
    /// `NAME=VALUE`; the last of a name wins.
    pub env: Vec<Vec<u8>>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Process {
    /// The agent's name for it; free again after `Exited` or `StartFailed`.
    pub slot: u32,
    /// Index into the batch's programs.
    pub program: u16,
    /// Its own variables; they win over the program's.
    pub env: Vec<Vec<u8>>,
    /// The cpus that it may use, 64 a word.
    pub cpus: Option<Vec<u64>>,
    pub stdin: StdinKind,
    pub stdout: OutKind,
    pub stderr: OutKind,
    /// It waits for others, often by polling, and shares the keeper's session with them.
    pub shares_session: bool,
    /// Whether it gets a PMI socket, with its number in `PMI_FD`.
    pub pmi: bool,
    /// A pseudo-terminal of this size (rows, columns) instead of all three streams.
    pub pty: Option<(u16, u16)>,
}

impl Process {
    /// A process of the batch's first program with pipes for output and nothing to read.
    pub fn new(slot: u32) -> Process {
        Process {
            slot,
            program: 0,
            env: Vec::new(),
            cpus: None,
            stdin: StdinKind::Null,
            stdout: OutKind::Pipe,
            stderr: OutKind::Pipe,
            shares_session: false,
            pmi: false,
            pty: None,
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum StdinKind {
    Null,
    /// The standard input that the agent had when it forked the keeper.
    Inherit,
    Pipe,
    /// One end of a socket pair; the other is the agent's `stdin`.
    Socket,
    /// Exactly these bytes. They are never in a file, an argument or a variable.
    Bytes(Vec<u8>),
    /// The file of our own program.
    Program,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum OutKind {
    Pipe,
    Null,
}

/// The agent's ends of a process' streams: close-on-exec, non-blocking.
#[derive(Debug, Default)]
pub struct ProcessFds {
    /// Only for `StdinKind::Pipe` and `StdinKind::Socket`.
    pub stdin: Option<OwnedFd>,
    pub stdout: Option<OwnedFd>,
    pub stderr: Option<OwnedFd>,
    pub pmi: Option<OwnedFd>,
    /// The controlling end of the pseudo-terminal; then the three streams are none.
    pub pty: Option<OwnedFd>,
}

/// Something that the keeper tells.
#[derive(Debug)]
pub enum KeeperEvent {
    /// The process runs its program.
    Started {
        slot: u32,
        pid: u32,
        spawn_ns: u64,
        exec_ns: u64,
        fds: ProcessFds,
    },
    StartFailed {
        slot: u32,
        error: SpawnError,
    },
    /// The process was reaped. Comes after its `Started`.
    Exited {
        slot: u32,
        status: ExitStatus,
    },
    /// No descendant is left (or only such as belong to another user and cannot be killed).
    Swept,
    /// Nothing is left of all that came before.
    Renewed,
}

/// A [`KeeperEvent`] without its descriptors: which there are is a bit each, in the order of [`ProcessFds`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) enum Report {
    Started { slot: u32, pid: u32, spawn_ns: u64, exec_ns: u64, present: u8 },
    StartFailed { slot: u32, error: SpawnError },
    Exited { slot: u32, status: ExitStatus },
    Swept,
    Renewed,
}

impl Report {
    /// Joins the report with its descriptors, the next ones of `fds`.
    pub fn into_event(self, fds: &mut VecDeque<OwnedFd>) -> KeeperEvent {
        match self {
            Report::Started { slot, pid, spawn_ns, exec_ns, present } => {
                KeeperEvent::Started { slot, pid, spawn_ns, exec_ns, fds: ProcessFds::join(present, fds) }
            }
            Report::StartFailed { slot, error } => KeeperEvent::StartFailed { slot, error },
            Report::Exited { slot, status } => KeeperEvent::Exited { slot, status },
            Report::Swept => KeeperEvent::Swept,
            Report::Renewed => KeeperEvent::Renewed,
        }
    }
}

impl ProcessFds {
    /// The bits of those that are there, and they themselves.
    pub(super) fn split(self) -> (u8, Vec<OwnedFd>) {
        let all = [self.stdin, self.stdout, self.stderr, self.pmi, self.pty];
        let present = all.iter().enumerate().fold(0, |bits, (bit, fd)| bits | u8::from(fd.is_some()) << bit);
        (present, all.into_iter().flatten().collect())
    }

    fn join(present: u8, fds: &mut VecDeque<OwnedFd>) -> ProcessFds {
        let mut next = |bit: u8| if present >> bit & 1 == 1 { fds.pop_front() } else { None };
        ProcessFds { stdin: next(0), stdout: next(1), stderr: next(2), pmi: next(3), pty: next(4) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;
    use wireup_os::files::null;

    #[test]
    fn descriptors_find_their_places_again() {
        let (out, pty) = (null().unwrap(), null().unwrap());
        let numbers = [out.as_raw_fd(), pty.as_raw_fd()];
        let (present, fds) = ProcessFds { stdout: Some(out), pty: Some(pty), ..ProcessFds::default() }.split();
        let joined = ProcessFds::join(present, &mut fds.into());
        assert_eq!([joined.stdout.unwrap().as_raw_fd(), joined.pty.unwrap().as_raw_fd()], numbers);
        assert!(joined.stdin.is_none() && joined.stderr.is_none() && joined.pmi.is_none());
    }
}
