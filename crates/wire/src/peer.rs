//! Control messages between agents: plain structs, encoded by `postcard`.
//!
//! `Bootstrap` is sent on the remote shell's standard input; `Control` inside frames of
//! [`crate::frame::Kind::Control`]; `Hello` inside the link's handshake.

mod bootstrap;
mod failure;
pub(crate) mod problem;
mod stall;
mod starter;
mod trace;
pub(crate) mod transport;

pub use bootstrap::{
    BOOTSTRAP_HEADER_LEN, BOOTSTRAP_LEN_MAX, BOOTSTRAP_MAGIC, Bootstrap, BootstrapLengths, bootstrap_message, probe,
};
pub use failure::{Cause, Failure, SpawnError, SpawnStep, remedy};
pub use problem::{MissingAgent, PmixFault, PmixProblem, Problem, ProblemKind};
pub use stall::{GroupStall, InitStall, StallReport};
pub use starter::{Batch, Caller, RemoteShell, Starter};
pub use trace::{ExchangeTraffic, FenceTrace, RankTrace, TracePart, Traffic};
pub use transport::AgentTransport;

use crate::collective::Collective;
use crate::ids::{AgentId, Epoch, JobId, NodeId, Rank};
use crate::job::JobSpec;
use crate::names::NewJob;
use crate::pmi::SpawnRequest;
use crate::session::{JobEntry, Log, NodeState, RankPortsReport, SeatRequest, SessionSnapshot, Standing, Welcome};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use thiserror::Error;
use zeroize::Zeroize;

/// Version of the protocol between agents. Must be raised with any change of `frame`, `peer`, `job`, `session`, `modex`,
/// `names`, or of the stream of gathered files.
pub const PROTOCOL_VERSION: u16 = 31;

/// The secret that both ends of every link of a session prove they know. Dropping it wipes its memory; moving it leaves
/// a copy at its old address, which nothing wipes.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Secret(pub [u8; 32]);

impl Secret {
    fn wipe(&mut self) {
        self.0.zeroize();
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        self.wipe();
    }
}

impl core::fmt::Debug for Secret {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// The agents of a session: a k-ary tree over their ids. The default has no agents and no time limits.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct SessionSpec {
    /// The session's name in messages and file names.
    pub name: String,
    pub fanout: u32,
    /// How to start each agent; the position is the `AgentId`. Position 0 is the root.
    /// Shared, since each agent holds a copy of this for each agent that it starts.
    pub agents: Arc<[AgentSpec]>,
    pub remote_shell: RemoteShell,
    /// Maximum number of remote shells in progress at once under one agent; each frees its slot when its agent has
    /// linked.
    pub shells_max: u32,
    /// Path of the launcher's program: the first place where a node looks for its own.
    pub program: String,
    /// An agent that has not linked by then is lost (ns). In a bootstrap message: the time left.
    pub start_timeout_ns: u64,
    /// A link that is silent for this long is lost (ns).
    pub node_timeout_ns: u64,
    /// Keep Noise's transport phase (encryption) on the links after the handshake.
    pub encrypt: bool,
    /// Links use addresses of this interface only: a name, an address or a network as `10.1.0.0/16`.
    pub interface: Option<String>,
    /// Agents report which address their children dialled, and how they reached their parents.
    pub verbose: bool,
    /// This program is not sent to hosts that lack it: no agent starts there.
    pub installed_only: bool,
    /// In a bootstrap message: ranks start only after the link is up, since another copy of this agent may also have
    /// been started.
    pub hold_ranks: bool,
    /// No rank of the job starts before all agents of the job are linked.
    pub start_together: bool,
    pub containment: Containment,
    /// Write a recording of all inputs of every agent into this directory.
    pub record_dir: Option<String>,
    /// How agents that are not neighbours in the tree reach each other.
    pub transport: AgentTransport,
    /// The session outlives its jobs, and launchers attach to its root; `None`: it serves one launcher, with the jobs
    /// of its family.
    pub standing: Option<Standing>,
}

/// The PID namespaces of ranks. `by_user`: in a user namespace where that is necessary.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum Containment {
    /// That of the agent.
    #[default]
    None,
    /// A new one for each job on each node.
    EachNode { by_user: bool },
    /// One for all agents of the session, which share a machine.
    Machine {
        /// A process in it, by its number outside; 0: the root agent has not made it yet.
        process: u32,
        by_user: bool,
    },
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AgentSpec {
    /// Host for the remote shell; for `Local` the node's name.
    pub host: String,
}

/// The dialling agent, in the handshake's first message.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Hello {
    pub version: u16,
    pub agent: AgentId,
    pub host: String,
    pub pid: u32,
    pub role: Role,
}

/// The relation of the dialling agent to the listening one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Role {
    /// A child in the tree that the listening agent has started, with its incarnation.
    Child { incarnation: u32 },
    /// Any other agent of the session: a link beside the tree.
    Direct,
    /// An agent whose parent is lost: the root is to adopt it.
    Rejoin(Rejoin),
}

/// What an agent that has lost its parent presents to the root.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Rejoin {
    /// The agent's incarnation.
    pub incarnation: u32,
    /// The length of the prefix of the root's log that the agent has.
    pub at: u32,
}

/// An agent that is gone, as observed by one of its ancestors.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Gone {
    /// The ancestor that observed it.
    pub by: AgentId,
    pub agent: AgentId,
    /// The incarnation that is gone.
    pub incarnation: u32,
    pub problem: Problem,
}

/// Information for the user; has no other effect.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Note {
    /// A child dialled this address of its parent.
    Linked { agent: AgentId, parent: AgentId, address: String },
    /// An agent has reached its parent at this address (`ip:port`), `took_ns` after its first attempt. `failed`: the
    /// addresses that it has tried in vain, each with its problem; empty: none.
    Dialled { agent: AgentId, address: String, took_ns: u64, failed: String },
    /// `parent` should have started `agent` but could not reach it; `starter` started it instead.
    StartedFor { agent: AgentId, parent: AgentId, starter: AgentId, problem: String },
    /// wireup was missing on the agent's host or had another version, so it was copied there.
    Sent { agent: AgentId },
    /// The remote shell was temporarily refused and is retried.
    Retry { agent: AgentId, attempt: u32, problem: String },
    /// A node offers its ranks no PMIx; the job continues if they do not need it.
    NoPmix { node: NodeId, host: String, problem: String },
    /// This agent cannot use the requested transport, so no agent does.
    NoTransport(MissingAgent),
    /// There is no longer a direct link between these two, or there never was: their frames go through the tree.
    Routed { agent: AgentId, peer: AgentId, problem: String },
    /// Output of a node's PMIx server process.
    PmixSaid { host: String, text: String },
    /// The job waits for these agents: they are being started, or have lost their parent and are expected to rejoin.
    Waits { agents: Vec<AgentId> },
    /// A node could not reserve ports for ranks: its jobs find their own.
    NoRankPorts { host: String, problem: String },
    /// Ranks of this node run without what the job has asked for.
    Lacks { host: String, what: Lacking },
    /// How the ranks of this node are bound, as a picture in lines of text.
    Bound { host: String, picture: String },
    /// The bootstrap message travels through a batch system's step as it is: nothing here could seal it.
    NotSealed { problem: String },
}

impl Note {
    /// The agent whose start this is about.
    pub fn starts(&self) -> Option<AgentId> {
        match self {
            Note::Linked { agent, .. } | Note::Dialled { agent, .. } => Some(*agent),
            Note::StartedFor { agent, .. } => Some(*agent),
            Note::Sent { agent } | Note::Retry { agent, .. } => Some(*agent),
            Note::NoPmix { .. } | Note::NoTransport(_) | Note::Routed { .. } | Note::PmixSaid { .. } => None,
            Note::Waits { .. } | Note::NoRankPorts { .. } | Note::Lacks { .. } | Note::Bound { .. } => None,
            Note::NotSealed { .. } => None,
        }
    }
}

/// What the ranks of a node lack, and why.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Lacking {
    /// The PID namespace, whose first process has ended: what the job starts may outlive it.
    Namespace,
    /// The staged files: they use the originals.
    Staged { problem: String },
    /// Mounts: a library shows them the staged files.
    Mounts { problem: String },
}

/// One message of the control class. ↓ goes away from the root, ↑ towards it; the frame's header names the job.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Control {
    /// ↓ Start a job.
    Launch(Box<JobSpec>),
    /// ↑ All ranks of the subtree are running; sent once per subtree.
    Started {
        ranks: u32,
        pmix: Option<Opened>,
    },
    /// ↑ The first failure of the subtree; sent at most once per subtree.
    Failed(Failure),
    /// ↑ A rank of the subtree will enter no more fences; sent for the first such rank and for the first that exited
    /// without finalizing.
    Departed(Departed),
    /// ↑ All ranks of the subtree have ended, and all their output has been sent.
    Done(Done),
    /// ↓ Send a signal to every rank of the job.
    Signal {
        signal: i32,
    },
    /// ↓ Set the size of the job's pseudo-terminal.
    Resize {
        rows: u16,
        columns: u16,
    },
    /// ↓ End all ranks: gracefully, and by force after `grace_ns`.
    Kill {
        grace_ns: u64,
    },
    /// ↓ Report the ranks that have not entered the collective.
    StallAsk {
        collective: Option<Collective>,
    },
    /// ↑ The answer of one agent; forwarded unchanged.
    Stall(StallReport),
    /// ↓ End the session: agents leave when their jobs have ended.
    Shutdown,
    /// ↑ Start this child of the sender instead of the sender, whose remote shell does not reach its host, with these
    /// jobs. The agent must dial the sender at `parent`; in a standing session it gets `snapshot`.
    StartFor {
        agent: AgentId,
        jobs: Vec<JobId>,
        parent: Vec<String>,
        problem: Problem,
        snapshot: Box<SessionSnapshot>,
    },
    /// ↓ No ancestor could start this agent; each hop forwards it towards the agent's parent.
    NotStarted(MissingAgent),
    /// ↓ How much of the start time is left (ns). Sent to a child that took long to start, since it counts from its own
    /// start.
    TimeLeft {
        left_ns: u64,
    },
    /// ↑ Check whether this agent's host answers: the sender's remote shell does not reach it, or may not be used.
    /// `asker` gets the result.
    Probe {
        agent: AgentId,
        asker: AgentId,
    },
    /// ↓ The result of a probe, for `asker`; `None`: the host answered, or the result is unknown.
    Probed {
        agent: AgentId,
        asker: AgentId,
        problem: Option<Problem>,
    },
    /// ↑ All agents of the subtree have checked for UCX; `missing` is one that cannot use it.
    TransportLooked {
        missing: Option<MissingAgent>,
    },
    /// ↓ Whether links beside the tree use UCX.
    UseTransport {
        yes: bool,
    },
    /// ↑ Agents of the subtree that are missing. Root to launcher, before each `Spawn`: all that are lost.
    Missing(Vec<MissingAgent>),
    /// ↑ Forwarded to the launcher unchanged.
    Note(Note),
    /// ↑ and ↓ between neighbours: what does your clock read? Sent at `asked_ns` on the asker's clock.
    ClockAsk {
        asked_ns: u64,
    },
    /// The answer: the time of the question, and the answering agent's clock.
    ClockTell {
        asked_ns: u64,
        told_ns: u64,
    },
    /// Root to launcher: the job has ended.
    Ended(Ended),
    /// Root to launcher: a rank of the job asks for processes. They become this job, if the launcher launches it.
    Spawn {
        job: JobId,
        from: Rank,
        request: Box<SpawnRequest>,
    },
    /// Root to launcher: the agents of the hosts that the job adds, in the order of its node list.
    Added {
        agents: Vec<AgentId>,
    },
    /// Launcher to root, about a job that a rank has asked for: its ranks run, or the reason why not.
    Spawned(Result<NewJob, String>),
    /// Root to launcher: ranks of these jobs have connected, so that a failure of one ends all of them; or they have
    /// disconnected.
    Together {
        jobs: Vec<JobId>,
        connected: bool,
    },

    // Only in standing sessions.
    /// Root to launcher: the first message.
    Welcome(Welcome),
    /// Root to launcher: the request is refused.
    Refused {
        problem: String,
    },
    /// Root to launcher: the request, which has no other answer, is done or in progress.
    Granted,
    /// Launcher to root: list the jobs.
    AskJobs,
    JobList(Vec<JobEntry>),
    /// Launcher to root: choose the nodes of its job, which counts as running on them until it is launched or the
    /// launcher has left.
    AskSeats(SeatRequest),
    /// Root to launcher: the chosen nodes, in the order in which ranks are placed on them.
    Seats(Vec<AgentId>),
    /// Launcher to root: list the nodes.
    AskNodes,
    /// Root to launcher: the state of each node, by `AgentId`. It answers `AskNodes`, and `Revive` once all agents are
    /// up or known to be missing.
    Nodes(Vec<NodeState>),
    /// Launcher to root: restart the agents that are lost.
    Revive,
    /// Launcher to root: send a signal to a job's ranks, whoever launched it; `None`: end the job. `by` names the
    /// requester.
    KillJob {
        job: JobId,
        signal: Option<i32>,
        by: String,
    },
    /// Launcher to root: end the session; without `kill` only if it has no jobs. The answer is a `JobList` of the jobs
    /// that are killed or prevent the end, then `Granted` or `Refused`. Once it is granted, further launches are
    /// refused.
    EndSession {
        kill: bool,
    },
    /// ↓ Start a job; forwarded towards its nodes. Of the jobs up to `newest` only those in `live` may still send
    /// frames.
    Start {
        spec: Box<JobSpec>,
        newest: JobId,
        live: Vec<JobId>,
    },
    /// ↓ A job has ended on all of its nodes, which are these agents'; forwarded towards them. An agent that still has
    /// it ends it locally.
    Over {
        agents: Vec<AgentId>,
    },
    /// ↑ These agents of the subtree are linked, with their incarnations. Agents repeat it to a new parent.
    Here(Vec<(AgentId, u32)>),
    /// ↑ An agent has reserved ports for ranks, or renewed some.
    RankPorts(RankPortsReport),
    /// ↑ Agents of the subtree are gone. Repeated to a new parent, until the root has decided.
    Gone(Vec<Gone>),
    /// ↓ The root's decisions.
    Log(Log),

    // In all sessions.
    /// ↑ and ↓ between neighbours: a request for a sign of life, because something waits for the neighbour.
    AreYouAlive,
    /// The answer.
    Alive,

    // Only in single runs across hosts.
    /// ↑ With `start_together`: all agents of the subtree are linked, except those that were reported as missing.
    Ready,
    /// ↓ All agents are linked: start the ranks.
    StartRanks,
}

/// The PMIx library that a node has opened.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Opened {
    pub node: NodeId,
    /// Empty: none, and the ranks run without PMIx.
    pub version: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Departed {
    pub rank: Rank,
    pub pid: u32,
    pub node: NodeId,
    /// The first fence that the rank will never enter.
    pub epoch: Epoch,
    /// The first fence of PMIx that the rank will never enter.
    pub modex_epoch: Epoch,
    /// Whether the rank called PMI finalize.
    pub finalized: bool,
    /// Whether the rank called PMI init.
    pub initialised: bool,
    /// The rank has ended without finalize, and other ranks may wait for it where no agent sees it.
    pub deserted: bool,
    /// The rank's exit code, if the rank has ended.
    pub exit: Option<u8>,
}

/// The report of a finished subtree.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Done {
    pub ranks: u32,
    /// Number of ranks that used PMI.
    pub pmi_clients: u32,
    /// Some of its agents were lost or given up: they and their subtrees may still have parts of the job.
    pub is_torn: bool,
}

/// The end of a job, reported to its launcher.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Ended {
    pub failure: Option<Failure>,
    pub done: Done,
}

/// A peer sent bytes that are not a message.
#[derive(Error, Clone, Copy, PartialEq, Eq, Debug)]
pub enum PeerError {
    #[error("message does not decode")]
    Malformed,
    #[error("not a wireup bootstrap message")]
    Magic,
    #[error(
        "the peer uses protocol version {theirs}, this wireup {PROTOCOL_VERSION}: install the same wireup on every node"
    )]
    Version { theirs: u16 },
    #[error("bootstrap of {0} bytes is longer than {BOOTSTRAP_LEN_MAX}")]
    TooLong(u32),
}

/// Encodes any control-path struct.
///
/// # Panics
/// Never for the types of this crate: they contain no maps of unknown length and no foreign types.
pub fn encode<T: Serialize>(value: &T) -> Vec<u8> {
    postcard::to_allocvec(value).expect("plain structs always encode")
}

/// Decodes one control-path struct that fills `bytes`.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, PeerError> {
    match decode_front(bytes) {
        Ok((value, [])) => Ok(value),
        Ok(_) | Err(_) => Err(PeerError::Malformed),
    }
}

/// Decodes the struct at the start of `bytes`; also returns the rest.
pub fn decode_front<T: DeserializeOwned>(bytes: &[u8]) -> Result<(T, &[u8]), PeerError> {
    postcard::take_from_bytes(bytes).map_err(|_| PeerError::Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_wiped_when_it_is_dropped() {
        let mut secret = Secret([7; 32]);
        secret.wipe();
        assert!(secret == Secret([0; 32]) && core::mem::needs_drop::<Secret>());
    }
}
