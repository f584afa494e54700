//! The agents below this one in the job's tree, and how far the job is with each.

use super::{Context, Job, Up};
use wireup_wire::ids::AgentId;
use wireup_wire::peer::{Control, Done};

/// The children that run more of the job, in the order of `Facts::below`.
pub struct Children(Vec<Child>);

impl Children {
    pub fn new(below: &[AgentId]) -> Self {
        Children(below.iter().map(|agent| Child { agent: *agent, started: None, done: None }).collect())
    }
}

impl std::ops::Deref for Children {
    type Target = [Child];

    fn deref(&self) -> &[Child] {
        &self.0
    }
}

impl std::ops::DerefMut for Children {
    fn deref_mut(&mut self) -> &mut [Child] {
        &mut self.0
    }
}

/// A child agent's share of the job.
pub struct Child {
    pub agent: AgentId,
    pub started: Option<u32>,
    pub done: Option<Done>,
}

impl Job {
    /// The children that run more of it.
    pub fn child_agents(&self) -> impl Iterator<Item = AgentId> {
        self.children.iter().map(|child| child.agent)
    }

    /// What another agent is to this one in the job's tree: its parent (`Some(None)`), a child, or nothing.
    pub fn side(&self, agent: AgentId) -> Option<Option<AgentId>> {
        if self.up == Up::Agent(agent) { Some(None) } else { self.has_child(agent).then_some(Some(agent)) }
    }

    /// Which link a job's frames go to is the agents' tree alone; a link that is not in it sends nothing.
    pub fn has_child(&self, agent: AgentId) -> bool {
        self.child_index(agent).is_some()
    }

    pub(super) fn child_index(&self, agent: AgentId) -> Option<usize> {
        self.children.iter().position(|child| child.agent == agent)
    }

    pub(super) fn child_mut(&mut self, agent: AgentId) -> Option<&mut Child> {
        self.children.iter_mut().find(|child| child.agent == agent)
    }

    /// A child agent is lost with all its ranks.
    pub fn on_child_lost(&mut self, agent: AgentId) {
        if let Some(child) = self.child_mut(agent) {
            child.started.get_or_insert(0);
            child.done.get_or_insert_default();
        }
    }

    /// A child agent was never there. `settled`: nothing more will be learnt about those behind it.
    pub fn on_child_missing(&mut self, agent: AgentId, settled: bool) {
        if let Some(child) = self.child_mut(agent) {
            // Until then the job is not over: who is missing is yet to be named.
            if settled {
                child.done.get_or_insert_default();
                child.started.get_or_insert(0);
            }
        }
    }

    pub(super) fn forward_down(&self, message: &Control, cx: &mut Context<'_>) {
        for child in self.children.iter() {
            cx.control_child(child.agent, self.id(), message);
        }
    }
}
