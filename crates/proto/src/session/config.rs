//! The configuration with which an agent is started, the policy that follows from it, and the statistics for the
//! simulator.

use crate::job::Born;
use wireup_wire::ids::AgentId;
use wireup_wire::peer::SessionSpec;
use wireup_wire::session::SessionSnapshot;

/// The configuration of a new agent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AgentConfig {
    pub agent: AgentId,
    pub session: SessionSpec,
    pub born: Born,
    /// In a standing session: the parent's addresses, best first.
    pub parent: Vec<String>,
    pub snapshot: SessionSnapshot,
    /// The architecture of this machine, as Rust names it, if it is known.
    pub arch: Option<&'static str>,
}

impl AgentConfig {
    /// The configuration of an agent that is not in a standing session.
    pub fn new(agent: AgentId, session: SessionSpec, born: Born) -> Self {
        AgentConfig { agent, session, born, parent: Vec::new(), snapshot: SessionSnapshot::default(), arch: None }
    }
}

/// The differences between a session of one run and one that outlives its jobs. Both have the same state; these are the
/// places where an agent behaves differently.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Policy {
    /// The session ends with its launcher, when the job and those that its ranks have asked for have ended. An agent
    /// that loses its parent leaves at once; frames follow the original tree.
    OneRun,
    /// The session continues when agents are lost, and launchers attach to its root and detach.
    Standing,
}

impl Policy {
    pub fn of(session: &SessionSpec) -> Policy {
        if session.standing.is_some() { Policy::Standing } else { Policy::OneRun }
    }

    fn is_standing(self) -> bool {
        self == Policy::Standing
    }

    /// Whether the tree is repaired when agents are lost, which may return. In a session of one run a loss ends the
    /// job.
    pub fn survives_losses(self) -> bool {
        self.is_standing()
    }

    /// Whether launchers attach to the root and detach. In a session of one run there is one launcher, and the session
    /// ends with its link.
    pub fn has_many_launchers(self) -> bool {
        self.is_standing()
    }

    /// Whether agents are started with the session. In a session of one run they are started with the job that needs
    /// them.
    pub fn starts_all_agents(self) -> bool {
        self.is_standing()
    }

    /// Whether each job has a tree of its own nodes. In a session of one run a job uses the session's tree.
    pub fn has_trees_of_jobs(self) -> bool {
        self.is_standing()
    }

    /// Whether agents continue when they have no job.
    pub fn outlives_jobs(self) -> bool {
        self.is_standing()
    }
}

/// Amounts of data that an agent stores.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Holds {
    pub jobs: usize,
    pub early_frames: usize,
    pub direct_jobs: usize,
    pub direct_bytes: usize,
    pub session: usize,
}
