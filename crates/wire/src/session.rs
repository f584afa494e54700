//! What a standing session and the launchers attached to it tell each other about it, and what an agent is told of its kin.
//!
//! All travels in [`crate::peer::Control`] and [`crate::peer::Bootstrap`]; the bytes before the first frame are `attach`'s.

use crate::ids::{AgentId, JobId};
use crate::peer::AgentTransport;
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// What a session that outlives its jobs knows beyond one of a single run.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Standing {
    /// How many ranks each node takes by itself, by `AgentId`; 1 where it is not said.
    pub slots: Vec<u32>,
}

/// What a launcher hears first of all.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Welcome {
    /// The launcher's job, if it launches one, is this and no other.
    pub job: JobId,
    pub session: String,
    pub fanout: u32,
    /// All nodes are virtual ones of one machine.
    pub shared: bool,
    /// A batch system's step has brought the agents, and tells each node which devices are the job's.
    pub by_step: bool,
    pub transport: AgentTransport,
    /// A position is an `AgentId`.
    pub nodes: Vec<NodeState>,
}

/// One node of a session.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct NodeState {
    pub host: String,
    pub slots: u32,
    pub presence: Presence,
}

/// Whether a node's agent is there.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Presence {
    Starting,
    Up,
    /// It could not be started, did not come back, or its link broke.
    Lost {
        problem: String,
    },
}

/// One job of a session, for a list.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct JobEntry {
    pub job: JobId,
    pub nspace: String,
    /// The first program's name, as it was called.
    pub program: String,
    pub ranks: u32,
    /// Nodes with ranks of it.
    pub nodes: Vec<AgentId>,
    /// Since it was launched (ns).
    pub age_ns: u64,
    pub state: JobState,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum JobState {
    /// Not all ranks run yet.
    Starting,
    Running,
    /// Its ranks were told to end.
    Ending,
}

/// One decision of the root about who is in the session. An agent knows the others by a beginning of the root's log of these.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Entry {
    /// These agents are lost. The children of each are the root's from now on.
    Lost(Vec<AgentId>),
    /// These lost agents are started again, each by the parent that the tree was drawn with, if that is one of them, else by the root.
    Return(Vec<AgentId>),
}

/// Where an agent is, if it is not where the tree was drawn.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Place {
    /// Its incarnation: how long the log was when it was last started; 0: with the session.
    pub life: u32,
    pub parent: AgentId,
    /// This is not the parent that it was started for.
    pub is_adopted: bool,
    pub is_lost: bool,
}

/// A part of the root's log.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Log {
    /// So many entries come before these.
    pub at: u32,
    pub entries: Vec<Entry>,
    /// The way to the root is another one than before: what went by it may be lost.
    pub has_moved: bool,
    /// Of jobs up to `newest` only those of `live` may still have something to say.
    pub newest: JobId,
    pub live: Vec<JobId>,
}

impl Log {
    /// A log that follows on none: whoever gets it cannot go on, and leaves.
    pub fn unfit() -> Log {
        Log { at: u32::MAX, ..Log::default() }
    }
}

/// What an agent of a standing session is told at its birth.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Kin {
    /// Where the root listens (`ip:port`, best first): an agent whose parent is gone dials it. Empty for the root's own children, whose
    /// parent it is.
    pub root: Vec<String>,
    /// How long the log was, and what it had made of the tree.
    pub at: u32,
    pub places: Vec<(AgentId, Place)>,
    /// Jobs as in [`Log`].
    pub newest: JobId,
    pub live: Vec<JobId>,
}

impl Kin {
    /// The place of an agent, if it is not as the tree was drawn.
    pub fn place(&self, of: AgentId) -> Option<Place> {
        self.places.iter().find(|(agent, _)| *agent == of).map(|(_, place)| *place)
    }
}
