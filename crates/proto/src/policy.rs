//! The differences between a session of one run and a standing one.

use wireup_wire::peer::SessionSpec;

/// The differences between a session of one run and one that outlives its jobs. Both have the same state; these are the
/// places where an agent behaves differently.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Policy {
    /// The session ends when the job and all jobs that its ranks have spawned have ended, or when its launcher is lost.
    /// An agent that loses its parent leaves at once; frames follow the original tree.
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

    /// Whether the tree is repaired when agents are lost, and lost agents may be started again. In a session of one run
    /// a loss ends the job.
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
