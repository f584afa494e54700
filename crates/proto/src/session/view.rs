//! Facts that a part may know about its agent while it handles one input.

use super::{Jobs, Policy};
use crate::link::Neighbours;
use crate::time::Instant;
use wireup_coll::tree::Tree;
use wireup_wire::ids::AgentId;
use wireup_wire::peer::{Batch, SessionSpec};

pub struct View<'a> {
    pub now: Instant,
    pub me: AgentId,
    pub tree: Tree,
    pub session: &'a SessionSpec,
    pub policy: Policy,
    pub neighbours: &'a Neighbours,
    /// The addresses at which other agents can dial in; empty while this agent does not listen.
    pub addresses: &'a [String],
    pub jobs: &'a Jobs,
    /// Whether the agent must leave as soon as possible.
    pub is_leaving: bool,
}

impl View<'_> {
    pub fn is_root(&self) -> bool {
        self.me == AgentId(0)
    }

    /// Whether agents are started by steps that the root calls.
    pub fn is_by_step(&self) -> bool {
        self.batch().is_some()
    }

    /// The batch system that runs the steps; `None`: agents are not started by steps.
    pub fn batch(&self) -> Option<&'static Batch> {
        self.session.remote_shell.starter().batch.as_ref()
    }

    /// The name of this agent's host.
    pub fn host(&self) -> &str {
        self.host_of(self.me).unwrap_or("its parent")
    }

    /// The name of the host of one of the session's agents.
    pub fn host_of(&self, agent: AgentId) -> Option<&str> {
        self.session.agents.get(agent.index()).map(|agent| agent.host.as_str())
    }

    pub fn is_strictly_below(&self, branch: AgentId, agent: AgentId) -> bool {
        agent != branch && self.tree.subtree_contains(branch, agent)
    }
}
