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
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NodeState {
    pub host: String,
    pub slots: u32,
    pub presence: Presence,
}

/// Whether a node's agent is there.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
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

/// What an agent of a standing session must know to find its way when others are lost.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Kin {
    /// Whom it dials first. Where its parent in the tree is lost, somebody further up.
    pub parent: AgentId,
    /// Those above its parent, the nearest first: it dials them in turn when its parent is gone.
    pub ancestors: Vec<Ancestor>,
    /// Agents of its subtree that are there already: it starts the others.
    pub there: Vec<AgentId>,
    /// Agents of its subtree that are lost: it starts those below them in their place.
    pub lost: Vec<AgentId>,
    /// Which of their lives agents live; 0 where it is not said.
    pub lives: Vec<(AgentId, u32)>,
    /// Of jobs up to `newest` only those of `live` may still have something to say.
    pub newest: JobId,
    pub live: Vec<JobId>,
}

/// An agent further up, and where it listens (`ip:port`, best first).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Ancestor {
    pub agent: AgentId,
    pub addresses: Vec<String>,
}
