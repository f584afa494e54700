//! Why a job ended.

use super::MissingAgent;
use crate::collective::Collective;
use crate::ids::{AgentId, Epoch, NodeId, Rank};
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// Something that ends a job.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Failure {
    pub node: NodeId,
    /// Name of the node.
    pub host: String,
    pub rank: Option<Rank>,
    pub pid: Option<u32>,
    pub cause: Cause,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Cause {
    /// The rank left with this exit code, not 0.
    Exited(u8),
    /// The rank was killed by this signal.
    Signalled { signal: i32, core_dumped: bool },
    /// The program could not be started.
    Spawn(SpawnError),
    /// The rank called PMI abort.
    Aborted { code: i32, message: String },
    /// Others wait in a fence that this rank can no longer enter.
    LeftFence { epoch: Epoch, collective: Collective, exit: Option<u8>, finalized: bool, waiting: u32 },
    /// The rank left with exit code 0 after PMI init and without finalize; others may wait for it for ever.
    NotFinalized,
    /// The rank's PMI requests broke the protocol.
    Pmi { problem: String },
    /// Agents could not be started or did not link back: all of them.
    AgentsMissing { missing: Vec<MissingAgent> },
    /// The link to a running agent broke.
    AgentLost { agent: AgentId, problem: String },
    /// What came from this agent, on node `host`, beside the tree cannot be put in order.
    NoDirectLink { agent: AgentId, host: String, problem: String },
    /// The process that forks and watches the ranks of a node is gone.
    KeeperLost,
    /// The time limit of the job is over.
    TimedOut { after_ns: u64 },
    /// The user asked for the end.
    Interrupted { signal: i32 },
    /// The launcher's own work failed (a full disk below `--output-dir`, for one).
    Launcher { problem: String },
    /// Others wait in the barrier of a group that this rank can no longer enter: it has said PMI finalize, or is gone.
    LeftGroup { group: String, exit: Option<u8> },
    /// The PMIx server process of a node could not begin, died, or broke its rules; or nodes opened libraries that do not fit.
    PmixServer { problem: String },
    /// The batch system has told the agent of a node to end, by this signal.
    ToldToEnd { signal: i32 },
    /// Somebody else than its launcher wanted its end.
    Killed { by: String },
    /// The session is being ended.
    SessionEnded { reason: String },
}

/// A program that could not be started: which step failed on what, with the `errno`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SpawnError {
    pub step: SpawnStep,
    /// The path or name that the step worked on.
    pub what: String,
    pub errno: i32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum SpawnStep {
    /// No such program in `PATH` or at the path given.
    Find,
    /// The program exists; its interpreter (`#!` or ELF) does not.
    Interpreter,
    Exec,
    Cwd,
    /// Pipes, sockets, pseudo-terminals.
    Stdio,
    Fork,
    /// Giving GPUs to ranks.
    Devices,
}

impl SpawnStep {
    /// What was tried, for a person.
    pub fn words(self) -> &'static str {
        match self {
            SpawnStep::Find => "finding the program",
            SpawnStep::Interpreter => "finding the program's interpreter",
            SpawnStep::Exec => "executing the program",
            SpawnStep::Cwd => "changing to the working directory",
            SpawnStep::Stdio => "making pipes and sockets",
            SpawnStep::Fork => "creating a process",
            SpawnStep::Devices => "giving GPUs to ranks",
        }
    }
}
