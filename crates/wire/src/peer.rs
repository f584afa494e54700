//! The structs that control messages between agents contain, encoded by `postcard`.
//!
//! `Bootstrap` is sent on the remote shell's standard input; `Hello` inside the link's handshake. The messages
//! themselves are in [`crate::talk`].

mod bootstrap;
mod failure;
pub(crate) mod problem;
mod stacks;
mod stall;
mod start_method;
mod trace;
pub(crate) mod transport;

pub use bootstrap::{
    BOOTSTRAP_HEADER_LEN, BOOTSTRAP_LEN_MAX, BOOTSTRAP_MAGIC, Bootstrap, BootstrapLengths, bootstrap_message, probe,
};
pub use failure::{Cause, Failure, RankError, SpawnError, SpawnStep, remedy};
pub use problem::{MissingAgent, PmixFault, PmixProblem, Problem, ProblemKind};
pub use stacks::{Calls, Stack, folded};
pub use stall::{GroupStall, InitStall, StallReport};
pub use start_method::{Batch, Caller, RemoteShell, StartMethod};
pub use trace::{ExchangeTraffic, ExitStatus, FenceTrace, RankTrace, TracePart, Traffic};
pub use transport::AgentTransport;

use crate::ids::{AgentId, Epoch, NodeId, Rank};
use crate::session::Standing;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use thiserror::Error;
use zeroize::Zeroize;

/// Version of the protocol between agents. Must be raised with any change of `frame`, `talk`, `peer`, `job`, `session`,
/// `modex`, `names`, or of the stream of gathered files.
pub const PROTOCOL_VERSION: u16 = 39;

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
    /// Most remote shells that one agent has in progress at once; a shell no longer counts when its agent has linked.
    pub shells_max: u32,
    /// Path of the launcher's executable: the first place where a node looks for its own wireup executable.
    pub program: String,
    /// Start timeout (ns): an agent that has not linked after this time is lost. In a bootstrap message: the time left.
    pub start_timeout_ns: u64,
    pub links: LinkOptions,
    /// Whether agents report which address their children dialled, and how they reached their parents.
    pub verbose: bool,
    /// Whether wireup is not copied to hosts that lack it; no agent can start on such a host.
    pub installed_only: bool,
    /// In a bootstrap message: ranks start only after the link is up, since another copy of this agent may also have
    /// been started.
    pub hold_ranks: bool,
    /// No rank of the job starts before all agents of the job are linked.
    pub start_together: bool,
    pub containment: Containment,
    /// Write a recording of all inputs of every agent into this directory.
    pub record_dir: Option<String>,
    /// The session outlives its jobs, and launchers attach to its root; `None`: it serves one launcher, with the jobs
    /// of its family.
    pub standing: Option<Standing>,
}

#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct LinkOptions {
    /// A link that is silent for this long is lost (ns).
    pub node_timeout_ns: u64,
    /// Keep Noise's transport phase (encryption) on the links after the handshake.
    pub encrypt: bool,
    /// Links use addresses of this interface only: a name, an address or a network as `10.1.0.0/16`.
    pub interface: Option<String>,
    /// How agents that are not neighbours in the tree reach each other.
    pub transport: AgentTransport,
}

/// The PID namespaces of ranks. `by_user`: whether to create them inside a user namespace where that is necessary.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum Containment {
    /// Ranks run in the PID namespace of their agent.
    #[default]
    None,
    /// A new PID namespace for each job on each node.
    EachNode { by_user: bool },
    /// One PID namespace for all agents of the session, which share a machine.
    Machine {
        /// Process id, as seen from outside, of a process in the namespace; 0: the root agent has not made the
        /// namespace yet.
        process: u32,
        by_user: bool,
    },
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AgentSpec {
    /// Host for the remote shell; for `RemoteShell::Local`, the node's name.
    pub host: String,
}

/// What the dialling agent says about itself in the handshake's first message.
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
    /// Any other agent of the session: a direct link, outside the tree.
    Direct,
    /// An agent whose parent is lost: it asks the root to adopt it.
    Rejoin(Rejoin),
}

/// What an agent that has lost its parent presents to the root.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Rejoin {
    pub incarnation: u32,
    /// The length of the prefix of the root's log that the agent has.
    pub at: u32,
}

/// An agent whose end one of its ancestors has observed.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Gone {
    /// The ancestor that observed the end.
    pub by: AgentId,
    pub agent: AgentId,
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
    /// wireup was missing on the agent's host or had another version, so it was copied there. `to_second_cache`: not
    /// to `~/.cache`, because programs in the home directory cannot be stored or executed.
    Sent { agent: AgentId, to_second_cache: bool },
    /// The remote shell was temporarily refused and is retried.
    Retry { agent: AgentId, attempt: u32, problem: String },
    /// A node offers its ranks no PMIx; the job continues if they do not need it.
    NoPmix { node: NodeId, host: String, problem: String },
    /// This agent cannot use the requested transport, so no agent does.
    NoTransport(MissingAgent),
    /// Two agents have no direct link any more, or never had one: their frames go through the tree.
    Routed { agent: AgentId, peer: AgentId, problem: String },
    /// Output of a node's PMIx server process.
    PmixSaid { host: String, text: String },
    /// The job waits for these agents: they are being started, or have lost their parent and are expected to rejoin.
    Waits { agents: Vec<AgentId> },
    /// A node could not reserve ports for ranks: each job must find its own ports there.
    NoRankPorts { host: String, problem: String },
    /// Ranks of this node run without something that the job has requested.
    Lacks { host: String, what: Lacking },
    /// How the ranks of this node are bound, as a picture in lines of text.
    Bound { host: String, picture: String },
    /// Where a node has found the names of modules to import once for its ranks, and which they are.
    Preloads { host: String, modules: String },
    /// An agent has closed a connection of a rank to the job's store.
    StoreClosed { host: String, problem: String },
    /// The bootstrap message passes through a batch system's step unencrypted: this host has no means to encrypt it.
    NotSealed { problem: String },
}

impl Note {
    /// The agent whose start the note reports; `None`: the note is about something else.
    pub fn starts(&self) -> Option<AgentId> {
        match self {
            Note::Linked { agent, .. } | Note::Dialled { agent, .. } => Some(*agent),
            Note::StartedFor { agent, .. } => Some(*agent),
            Note::Sent { agent, .. } | Note::Retry { agent, .. } => Some(*agent),
            Note::NoPmix { .. } | Note::NoTransport(_) | Note::Routed { .. } | Note::PmixSaid { .. } => None,
            Note::Waits { .. } | Note::NoRankPorts { .. } | Note::Lacks { .. } | Note::Bound { .. } => None,
            Note::NotSealed { .. } | Note::StoreClosed { .. } | Note::Preloads { .. } => None,
        }
    }
}

/// What the ranks of a node lack, and why.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Lacking {
    /// The PID namespace, since its first process has ended: processes that the job starts may outlive it.
    Namespace,
    /// The staged files: the ranks use the originals.
    Staged { problem: String },
    /// Mounts: a library shows the staged files to the ranks.
    Mounts { problem: String },
    /// The modules that should have been imported once for all ranks of the node.
    Preload { problem: String },
    /// Files in the page cache of the node, which should have read them ahead of its ranks.
    Prefetch { problem: String },
}

/// The PMIx library that a node has opened.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Opened {
    pub node: NodeId,
    /// The library's version; empty: the node has opened none, and its ranks run without PMIx.
    pub version: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Departed {
    pub rank: Rank,
    pub pid: u32,
    pub node: NodeId,
    /// The first collective of PMI that the rank will never enter.
    pub epoch: Epoch,
    /// The first fence of PMIx that the rank will never enter.
    pub modex_epoch: Epoch,
    /// Whether the rank called PMI finalize.
    pub finalized: bool,
    /// Whether the rank called PMI init.
    pub initialised: bool,
    /// Whether the rank has ended without finalize while other ranks may wait for it in a way that no agent sees.
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
    /// Whether agents of the subtree were lost or given up: they and their subtrees may still have parts of the job.
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
    #[error("message of a conversation that the peer does not have with this agent")]
    Misdirected,
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
