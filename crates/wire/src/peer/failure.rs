//! Why a job ended.

use super::problem::{MissingAgent, PmixProblem, Problem};
use crate::collective::Collective;
use crate::ids::{AgentId, Epoch, NodeId, Rank};
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// An error that ends a job.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Failure {
    pub node: NodeId,
    /// Name of the node.
    pub host: String,
    pub rank: Option<Rank>,
    pub pid: Option<u32>,
    pub cause: Cause,
}

/// What a rank wrote about its own failure before it exited (`TORCHELASTIC_ERROR_FILE`).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RankError {
    pub rank: Rank,
    /// Name of the rank's node.
    pub host: String,
    /// When the rank wrote the error (ns since 1970, by the clock of its node).
    pub at_ns: u64,
    /// The content of the file, at most [`crate::limits::RANK_ERROR_BYTES_MAX`] bytes.
    pub text: Vec<u8>,
}

/// A failure that concerns no node in particular.
impl From<Cause> for Failure {
    fn from(cause: Cause) -> Failure {
        Failure { node: NodeId::default(), host: String::new(), rank: None, pid: None, cause }
    }
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Cause {
    /// The rank exited with this exit code, which is not 0.
    Exited(u8),
    /// The rank was killed by this signal.
    Signalled { signal: i32, core_dumped: bool },
    /// The program could not be started.
    Spawn(SpawnError),
    /// The rank called PMI abort.
    Aborted { code: i32, message: String },
    /// Other ranks wait in a fence that this rank can no longer enter.
    LeftFence { epoch: Epoch, collective: Collective, exit: Option<u8>, finalized: bool, waiting: u32 },
    /// The rank exited with code 0 without finalize; other ranks may wait for it forever. `initialised`: whether it had
    /// called init.
    NotFinalized { initialised: bool },
    /// The rank's PMI requests broke the protocol.
    Pmi { problem: String },
    /// Agents could not be started or did not link; the list is complete.
    AgentsMissing { missing: Vec<MissingAgent> },
    /// The link to a running agent broke.
    AgentLost { agent: AgentId, problem: Problem },
    /// Frames that this agent, on node `host`, sent outside the tree cannot be put in order.
    NoDirectLink { agent: AgentId, host: String, problem: String },
    /// The process that starts the ranks of a node has ended. `problem`: the error that it reported; `None`: it was
    /// killed.
    KeeperLost { problem: Option<SpawnError> },
    /// The job has exceeded its time limit.
    TimedOut { after_ns: u64 },
    /// The user ended the job.
    Interrupted { signal: i32 },
    /// The launcher itself failed (for example a full disk for `--output-dir`).
    Launcher { problem: String },
    /// Other ranks wait in a group's barrier that this rank can no longer enter: it has called PMI finalize, or has
    /// ended.
    LeftGroup { group: String, exit: Option<u8> },
    /// The PMIx server process of a node could not start, died, or violated the protocol; or nodes opened incompatible
    /// libraries.
    PmixServer { problem: PmixProblem },
    /// The batch system told a node's agent to end, by this signal.
    ToldToEnd { signal: i32 },
    /// The job was ended by a request; `by`: who made the request.
    Killed { by: String },
    /// The session is being ended.
    SessionEnded { reason: String },
    /// The kernel killed the rank because memory ran out.
    OutOfMemory,
    /// The rank exited with this code, which is not 0, after PMI finalize: the other ranks continue.
    ExitedLate(u8),
}

impl Cause {
    /// Whether a failure of this cause, before all ranks run, means that ranks could not be started.
    pub fn is_of_start(&self) -> bool {
        matches!(
            self,
            Cause::Spawn(_)
                | Cause::AgentsMissing { .. }
                | Cause::AgentLost { .. }
                | Cause::Launcher { .. }
                | Cause::PmixServer { .. }
        )
    }

    /// Whether the rank has crashed (SIGILL, SIGBUS, SIGFPE, SIGSEGV or lack of memory), which is hardly ever a
    /// consequence of a peer's end.
    pub fn is_crash(&self) -> bool {
        matches!(self, Cause::OutOfMemory | Cause::Signalled { signal: 4 | 7 | 8 | 11, .. })
    }

    /// Whether the rank may have ended because a peer had crashed.
    pub fn may_follow_crash(&self) -> bool {
        match self {
            Cause::Exited(_) | Cause::Aborted { .. } | Cause::LeftFence { .. } | Cause::LeftGroup { .. } => true,
            Cause::Signalled { .. } => !self.is_crash(),
            _ => false,
        }
    }

    /// Whether a failure of this cause ends the job.
    pub fn ends_job(&self) -> bool {
        !matches!(self, Cause::ExitedLate(_))
    }
}

/// A program that could not be started: which step failed on what, with the `errno`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SpawnError {
    pub step: SpawnStep,
    /// The path or name on which the step failed.
    pub what: String,
    pub errno: i32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum SpawnStep {
    /// No such program in `PATH` or at the given path.
    Find,
    /// The program exists; its interpreter (`#!` or ELF) does not.
    Interpreter,
    Exec,
    Cwd,
    /// Creating pipes, sockets or a pseudo-terminal.
    Stdio,
    Fork,
    /// Assigning GPUs to ranks.
    Devices,
    /// Creating listening sockets for ranks.
    Sockets,
    /// Showing staged files instead of the originals; `what` has the complete description.
    Staged,
    /// Finding the processors to bind ranks to; `what` has the complete description.
    Bind,
    /// Listening, or finding this node's addresses; `what` has the complete description.
    Listen,
    /// Getting random bytes for a secret.
    Secret,
    /// Importing modules once for all ranks; `what` has the complete description.
    Preload,
}

/// Advice to the user about a system call that failed with this `errno`; `None`: there is none.
pub fn remedy(errno: i32) -> Option<&'static str> {
    const EAGAIN: i32 = 11;
    const ENOMEM: i32 = 12;
    const ENFILE: i32 = 23;
    const EMFILE: i32 = 24;
    const ENOSPC: i32 = 28;
    const EROFS: i32 = 30;
    const EDQUOT: i32 = 122;
    match errno {
        EMFILE => Some("raise its limit of open files (ulimit -n)"),
        ENFILE => Some("the machine has no more open files; raise fs.file-max, or end other programs there"),
        EAGAIN => Some("raise its limit of processes (ulimit -u, or pids.max of its cgroup)"),
        ENOMEM => Some("free memory there"),
        ENOSPC | EDQUOT => Some("free some space there"),
        EROFS => Some("name a folder that can be written to"),
        _ => None,
    }
}

impl SpawnStep {
    /// The step in words, for messages.
    pub fn words(self) -> &'static str {
        match self {
            SpawnStep::Bind => "finding the processors to bind ranks to",
            SpawnStep::Find => "finding the program",
            SpawnStep::Interpreter => "finding the program's interpreter",
            SpawnStep::Exec => "executing the program",
            SpawnStep::Cwd => "changing to the working directory",
            SpawnStep::Stdio => "making pipes and sockets",
            SpawnStep::Fork => "creating a process",
            SpawnStep::Staged => "showing staged files",
            SpawnStep::Devices => "giving GPUs to ranks",
            SpawnStep::Sockets => "making listening sockets for ranks",
            SpawnStep::Listen => "listening for connections",
            SpawnStep::Secret => "asking the kernel for random bytes",
            SpawnStep::Preload => "importing modules for the ranks",
        }
    }
}
