//! Messages between a standing session and its attached launchers, and the state that a new agent receives about the
//! session.
//!
//! All are sent in [`crate::peer::Control`] and [`crate::peer::Bootstrap`]; for the bytes before the first frame see
//! `attach`.

use crate::ids::{AgentId, JobId};
use crate::job::PortRange;
use crate::peer::problem::Problem;
use crate::peer::transport::AgentTransport;
use alloc::string::String;
use alloc::vec::Vec;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// The additional properties of a session that outlives its jobs.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Standing {
    /// The default number of ranks on each node, by `AgentId`; 1 for nodes that are not listed.
    pub slots: Vec<u32>,
    /// Each agent reserves ports for listening sockets of ranks.
    pub rank_ports: Option<PortsPerNode>,
}

/// Ports that an agent of a session reserves for the ranks of its jobs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PortsPerNode {
    /// Number of consecutive ports.
    pub count: u16,
    /// The range in which the agent looks for free ports.
    pub range: PortRange,
}

/// The first message to a launcher.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Welcome {
    /// The number of the launcher's job, if it launches one.
    pub job: JobId,
    pub session: String,
    pub fanout: u32,
    /// Whether all nodes are virtual nodes of one machine.
    pub shared: bool,
    /// Whether the agents were started by a batch system's step, which tells each node the devices of the job.
    pub by_step: bool,
    pub transport: AgentTransport,
    /// The nodes of the session; the position is the `AgentId`.
    pub nodes: Vec<NodeState>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct NodeState {
    pub host: String,
    pub slots: u32,
    pub presence: Presence,
}

/// The state of a node's agent.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Presence {
    /// The agent is being started.
    Starting,
    /// The agent is linked.
    Up,
    /// The agent could not be started, did not return, or its link broke.
    Lost { problem: Problem },
}

/// A request of a job for nodes, which the session chooses.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SeatRequest {
    pub ranks: u32,
    /// The number of nodes; `None`: as many as it takes for their slots to suffice for the ranks.
    pub nodes: Option<u32>,
    /// The nodes among which the session chooses; empty: all nodes of the session.
    pub among: Vec<AgentId>,
    pub by: SeatOrder,
}

/// The order in which a session gives its nodes to a job that names none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum SeatOrder {
    /// Nodes with the fewest ranks per slot are chosen first.
    #[default]
    Spread,
    /// Nodes with free slots are chosen first, in the order in which the session lists its nodes.
    Pack,
}

/// One job of a session, in a list of jobs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct JobEntry {
    pub job: JobId,
    /// The job whose rank has requested this job.
    pub parent: Option<JobId>,
    pub nspace: String,
    /// The first program's name, as given by the user.
    pub program: String,
    pub ranks: u32,
    /// Nodes of the session with ranks of the job.
    pub nodes: Vec<AgentId>,
    /// Hosts that were added to the session for this job.
    pub added: Vec<String>,
    /// The order by which the session chose the job's nodes; `None`: the job's launcher named them.
    pub seats: Option<SeatOrder>,
    /// Time since the job was launched (ns).
    pub age_ns: u64,
    pub state: JobState,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum JobState {
    /// Not all ranks are running yet.
    Starting,
    Running,
    /// The ranks were told to end.
    Ending,
}

/// A report about the ports that an agent, in this incarnation, has reserved for ranks.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RankPortsReport {
    pub agent: AgentId,
    pub incarnation: u32,
    pub news: RankPortsNews,
}

/// What an agent reports about the ports that it has reserved for ranks.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum RankPortsNews {
    /// The agent has reserved this many ports and listens on them; `address` has the lowest one (`rank_address`).
    Reserved { count: u16, address: Bytes },
    /// The agent listens again on the ports of this job, which has ended on all nodes: another job may get them.
    Renewed(JobId),
}

/// One decision of the root about the session's membership. An agent's knowledge of the membership is a prefix of the
/// root's log of these.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Entry {
    /// Loss of these agents. The root adopts the children of each.
    Lost(Vec<AgentId>),
    /// Start of these agents, which are lost or new. An agent is started by its parent in the original tree, if the
    /// parent is also in the list, else by the root.
    Return(Vec<AgentId>),
}

/// The position of an agent in the tree, if it differs from the original tree.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct TreePosition {
    /// The agent's incarnation: the length of the log when the agent was last started; 0: started with the session.
    pub incarnation: u32,
    pub parent: AgentId,
    /// Whether the parent is another agent than the one that was the parent when this agent was started.
    pub is_adopted: bool,
    pub is_lost: bool,
}

/// A segment of the root's log.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Log {
    /// The number of entries of the log that precede `entries`.
    pub at: u32,
    pub entries: Vec<Entry>,
    /// The path to the root has changed: frames sent on the old path may be lost.
    pub has_moved: bool,
    /// Among the jobs up to `newest`, only the jobs in `live` may still send frames.
    pub newest: JobId,
    pub live: Vec<JobId>,
}

impl Log {
    /// A log that fits no prefix: an agent that receives it cannot continue, and leaves.
    pub fn unfit() -> Log {
        Log { at: u32::MAX, ..Log::default() }
    }
}

/// The state that an agent of a standing session receives when it is started.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct SessionSnapshot {
    /// Addresses at which the root listens (`ip:port`, best first), for an agent that loses its parent. Empty for the
    /// root's own children.
    pub root: Vec<String>,
    /// The length of the log, and its effect on the tree.
    pub at: u32,
    pub places: Vec<(AgentId, TreePosition)>,
    /// `newest` and `live`: as in [`Log`].
    pub newest: JobId,
    pub live: Vec<JobId>,
}

impl SessionSnapshot {
    /// The position of an agent, if it differs from the original tree.
    pub fn place(&self, of: AgentId) -> Option<TreePosition> {
        self.places.iter().find(|(agent, _)| *agent == of).map(|(_, place)| *place)
    }
}
