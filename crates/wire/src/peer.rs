//! What agents tell each other on the control path: plain structs, encoded by `postcard`.
//!
//! `Bootstrap` travels over the remote shell's standard input; `Control` inside frames of
//! [`crate::frame::Kind::Control`]; `Hello` inside the link's handshake.

mod bootstrap;
mod failure;
mod stall;
mod starter;
mod trace;
mod transport;

pub use bootstrap::{BOOTSTRAP_HEADER_LEN, BOOTSTRAP_LEN_MAX, BOOTSTRAP_MAGIC, Bootstrap, probe};
pub use failure::{Cause, Failure, SpawnError, SpawnStep};
pub use stall::{GroupStall, StallReport};
pub use starter::{Batch, Caller, RemoteShell, Starter};
pub use trace::{ExchangeTraffic, FenceTrace, RankTrace, TracePart, Traffic};
pub use transport::AgentTransport;

use crate::collective::Collective;
use crate::ids::{AgentId, Epoch, JobId, NodeId, Rank};
use crate::job::JobSpec;
use crate::session::{JobEntry, Kin, Log, NodeState, Standing, Welcome};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use thiserror::Error;

/// Version of everything agents say to each other. Raised with any change of `frame`, `peer`, `job`, `session`.
pub const PROTOCOL_VERSION: u16 = 11;

/// The secret that every link of a session proves to know.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Secret(pub [u8; 32]);

impl core::fmt::Debug for Secret {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// The agents of a session: a k-ary tree over their ids. By default there are none, and no time to start or to answer.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct SessionSpec {
    /// Names the session in messages and file names.
    pub name: String,
    pub fanout: u32,
    /// How to start each agent; a position is an `AgentId`. Position 0 is the root.
    pub agents: Vec<AgentSpec>,
    pub remote_shell: RemoteShell,
    /// Remote shells under way at once below one agent; each leaves room when its agent has linked.
    pub shells_max: u32,
    /// Where the launcher's program lies: the first place where a node looks for its own.
    pub program: String,
    /// An agent that has not linked back by then is lost (ns). In a bootstrap message: what is left of it.
    pub start_timeout_ns: u64,
    /// A link that is silent for so long is lost (ns).
    pub node_timeout_ns: u64,
    /// Keep Noise's transport phase on the links after the handshake.
    pub encrypt: bool,
    /// Links use addresses of this interface only: a name, an address or a network as `10.1.0.0/16`.
    pub interface: Option<String>,
    /// Agents tell which address their children dialled.
    pub verbose: bool,
    /// In a bootstrap message: ranks wait for the link, since another copy of this agent may be on its way.
    pub hold_ranks: bool,
    /// Write a recording of all inputs of every agent into this directory.
    pub record_dir: Option<String>,
    /// How agents that are no neighbours in the tree reach each other.
    pub transport: AgentTransport,
    /// Frames of collectives wait so long before they leave (ns): a slow network where there is none, for measurements.
    pub link_delay_ns: u64,
    /// The session outlives its jobs, launchers attach to its root; `None`: it is there for one job and one launcher.
    pub standing: Option<Standing>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AgentSpec {
    /// Host for the remote shell; the node's name for `Local`.
    pub host: String,
}

/// Who dials, inside the handshake's first message.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Hello {
    pub version: u16,
    pub agent: AgentId,
    pub host: String,
    pub pid: u32,
    pub role: Role,
}

/// What an agent that dials is to the one that listens.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Role {
    /// A child in the tree that it has started: this incarnation of it.
    Child { life: u32 },
    /// Any other agent of the session: a link beside the tree.
    Direct,
    /// An agent whose parent is gone: the root is to be its parent.
    Orphan(Orphan),
}

/// What an agent without a parent says of itself.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Orphan {
    /// Its incarnation.
    pub life: u32,
    /// How much it has of the root's log.
    pub at: u32,
}

/// An agent that is gone, as one of those above it saw it.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Gone {
    /// Who saw it.
    pub by: AgentId,
    pub agent: AgentId,
    /// The incarnation that is gone.
    pub life: u32,
    pub problem: String,
}

/// An agent that is not there: it could not be started, or did not link back.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MissingAgent {
    pub agent: AgentId,
    pub problem: String,
}

/// Something that a person may want to read; changes nothing.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Note {
    /// A child dialled this address of its parent.
    Linked { agent: AgentId, parent: AgentId, address: String },
    /// `agent` was to be started by `parent`, which could not reach it; `starter` did.
    StartedFor { agent: AgentId, parent: AgentId, starter: AgentId, problem: String },
    /// wireup was missing on the agent's host, or of another version, and was sent there.
    Sent { agent: AgentId },
    /// The remote shell was refused for the time being and is tried again.
    Retry { agent: AgentId, attempt: u32, problem: String },
    /// A node offers its ranks no PMIx; they may do without.
    NoPmix { node: NodeId, host: String, problem: String },
    /// What the agents measured: this many exchanges of so many bytes. Times are of one: there and back, or until the node had all.
    Measured { agent: AgentId, bytes: u32, iterations: u32, total_ns: u64, median_ns: u64, least_ns: u64 },
    /// This agent cannot use the transport that was asked for, so nobody does.
    NoTransport(MissingAgent),
    /// There is no link between these two beside the tree, or no longer: what they say to each other goes through the tree.
    Routed { agent: AgentId, peer: AgentId, problem: String },
    /// The last that a node's PMIx server process wrote to its standard error, in a job that it did not fail.
    PmixSaid { host: String, text: String },
    /// The job waits for these agents, which are being started, or have lost the agent above them and are awaited.
    Waits { agents: Vec<AgentId> },
}

/// One message of the control class. ↓ goes from the root outward, ↑ towards it; jobs are named by the frame.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Control {
    /// ↓ Start a job.
    Launch(Box<JobSpec>),
    /// ↑ All ranks of the subtree run; sent once per subtree.
    Started {
        ranks: u32,
        pmix: Option<Opened>,
    },
    /// ↑ The first failure of the subtree; sent at most once per subtree.
    Failed(Failure),
    /// ↑ A rank of the subtree has left the job's fences; sent for the first one and for the first deserter.
    Departed(Departed),
    /// ↑ All ranks of the subtree are gone, all their output is sent.
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
    /// ↓ End all ranks: gently, after `grace_ns` by force.
    Kill {
        grace_ns: u64,
    },
    /// ↓ Say who has not arrived.
    StallAsk {
        collective: Option<Collective>,
    },
    /// ↑ The answer of one agent; passed on as it is.
    Stall(StallReport),
    /// ↓ End the session: agents leave when their jobs have.
    Shutdown,
    /// ↑ Start this agent of mine in my stead, with these jobs: my remote shell does not reach its host. It is to dial me at
    /// `parent`; of a standing session it is told of its `kin`.
    StartFor {
        agent: AgentId,
        jobs: Vec<JobId>,
        parent: Vec<String>,
        problem: String,
        kin: Box<Kin>,
    },
    /// ↓ Nobody on the way up to the root could start this agent; each hop passes it on towards its parent.
    NotStarted(MissingAgent),
    /// ↓ So much is left of the start time (ns). Told to a child that was long on its way, since it counts from its birth.
    TimeLeft {
        left_ns: u64,
    },
    /// ↑ Ask this agent's host whether it answers: my remote shell does not reach it, or may not. `asker` wants to know.
    Probe {
        agent: AgentId,
        asker: AgentId,
    },
    /// ↓ What came of it, for `asker`; `None`: it answered, or nobody knows.
    Probed {
        agent: AgentId,
        asker: AgentId,
        problem: Option<String>,
    },
    /// ↑ All agents of the subtree have looked for UCX; one that cannot use it.
    TransportLooked {
        missing: Option<MissingAgent>,
    },
    /// ↓ Whether links beside the tree are made by UCX.
    UseTransport {
        yes: bool,
    },
    /// ↑ Agents of the subtree that are not there.
    Missing(Vec<MissingAgent>),
    /// ↑ Passed on to the launcher as it is.
    Note(Note),
    /// ↑ and ↓ between neighbours: what does your clock say? Sent `asked_ns` by the asker's clock.
    ClockAsk {
        asked_ns: u64,
    },
    /// The answer: the question, and the answering agent's clock.
    ClockTell {
        asked_ns: u64,
        told_ns: u64,
    },
    /// Root to launcher: the job is over.
    Ended(Ended),

    // Of standing sessions alone.
    /// Root to launcher, first of all.
    Welcome(Welcome),
    /// Root to launcher: what was asked for is not done.
    Refused {
        problem: String,
    },
    /// Root to launcher: what was asked for, and has no other answer, is done or begun.
    Granted,
    /// Launcher to root: which jobs are there?
    AskJobs,
    JobList(Vec<JobEntry>),
    /// Launcher to root: which nodes are there?
    AskNodes,
    /// Also the answer to `Revive`, once all are up or known to be missing. A position is an `AgentId`.
    Nodes(Vec<NodeState>),
    /// Launcher to root: start the agents that are lost again.
    Revive,
    /// Launcher to root: send a signal to a job's ranks, whoever launched it; none: end it. `by` says who wants that.
    KillJob {
        job: JobId,
        signal: Option<i32>,
        by: String,
    },
    /// Launcher to root: end the session; without `kill` only if it has no jobs. The answer is a `JobList` of those that are killed or in
    /// the way, and whether it is granted: jobs that are launched from then on are refused.
    EndSession {
        kill: bool,
    },
    /// ↓ Start a job; passed on towards its nodes. Of jobs up to `newest` only those of `live` may still have something to say.
    Start {
        spec: Box<JobSpec>,
        newest: JobId,
        live: Vec<JobId>,
    },
    /// ↓ A job is over on all of its nodes, which are these agents'; passed on towards them. Whoever still has it ends it for itself.
    Over {
        agents: Vec<AgentId>,
    },
    /// ↑ These agents of the subtree are linked, with their incarnations. To a new parent agents say it again.
    Here(Vec<(AgentId, u32)>),
    /// ↑ Agents of the subtree are gone. Said again to a new parent, until the root has decided.
    Gone(Vec<Gone>),
    /// ↓ What the root has decided.
    Log(Log),

    // Of all sessions.
    /// ↑ and ↓ between neighbours: somebody waits for you.
    AreYouAlive,
    /// The answer.
    Alive,
}

/// Which PMIx library a node has opened.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Opened {
    pub node: NodeId,
    /// Empty: none, and the ranks do without.
    pub version: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Departed {
    pub rank: Rank,
    pub pid: u32,
    pub node: NodeId,
    /// The first fence that the rank will never enter.
    pub epoch: Epoch,
    /// The same of PMIx fences.
    pub modex_epoch: Epoch,
    /// Whether it said goodbye by PMI finalize.
    pub finalized: bool,
    /// It had said init, is gone, and has not said goodbye.
    pub deserted: bool,
    /// Its exit code, if it is gone.
    pub exit: Option<u8>,
}

/// What a finished subtree reports.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Done {
    pub ranks: u32,
    /// Ranks that ever spoke PMI.
    pub pmi_clients: u32,
    /// Agents of it were lost, or given up: they, and those behind them, may have something of the job still.
    pub is_torn: bool,
}

/// The end of a job, told to its launcher.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Ended {
    pub failure: Option<Failure>,
    pub done: Done,
}

/// A peer sent what is no message.
#[derive(Error, Clone, Copy, PartialEq, Eq, Debug)]
pub enum PeerError {
    #[error("message does not decode")]
    Malformed,
    #[error("not a wireup bootstrap message")]
    Magic,
    #[error("protocol version {theirs}, mine is {PROTOCOL_VERSION}: install the same wireup on every node")]
    Version { theirs: u16 },
    #[error("bootstrap of {0} bytes is longer than {BOOTSTRAP_LEN_MAX}")]
    TooLong(u32),
}

/// Encodes any control-path struct.
///
/// # Panics
/// Never for the types of this crate: they hold no unsized maps and no foreign types.
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

/// Decodes the struct at the head of `bytes`; with what is behind it.
pub fn decode_front<T: DeserializeOwned>(bytes: &[u8]) -> Result<(T, &[u8]), PeerError> {
    postcard::take_from_bytes(bytes).map_err(|_| PeerError::Malformed)
}
