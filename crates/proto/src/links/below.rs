//! Who of an agent's subtree is linked where, in a standing session.
//!
//! At first every agent is linked where the tree was drawn. When one is lost its children are adopted by somebody further up, and stay
//! there when it returns; so an agent may be below this one in the drawing and not in fact. What is known comes from below (`Here`,
//! which names the child that says it) and from above (those that somebody else has adopted).

use std::collections::{BTreeMap, BTreeSet};
use wireup_wire::ids::AgentId;

#[derive(Default)]
pub struct Below {
    /// Linked below this agent, each with the child that it is, or was last, linked through.
    here: BTreeMap<AgentId, AgentId>,
    /// Adopted by somebody further up, with whoever is below them.
    elsewhere: BTreeSet<AgentId>,
}

impl Below {
    /// What an agent is told at its birth: these are there already, and not below it.
    pub fn new(there: impl IntoIterator<Item = AgentId>) -> Self {
        Below { here: BTreeMap::new(), elsewhere: there.into_iter().collect() }
    }

    pub fn on_here(&mut self, agent: AgentId, branch: AgentId) {
        self.here.insert(agent, branch);
        self.elsewhere.remove(&agent);
    }

    pub fn on_elsewhere(&mut self, agent: AgentId) {
        self.here.remove(&agent);
        self.elsewhere.insert(agent);
    }

    pub fn forget(&mut self, agent: AgentId) {
        self.here.remove(&agent);
        self.elsewhere.remove(&agent);
    }

    /// The child that an agent is, or was last, linked through.
    pub fn branch_of(&self, agent: AgentId) -> Option<AgentId> {
        self.here.get(&agent).copied()
    }

    pub fn is_elsewhere(&self, agent: AgentId) -> bool {
        self.elsewhere.contains(&agent)
    }

    /// Those that this agent answers for.
    pub fn here(&self) -> impl Iterator<Item = AgentId> {
        self.here.keys().copied()
    }

    /// All that are there, wherever.
    pub fn there(&self) -> impl Iterator<Item = AgentId> {
        self.here().chain(self.elsewhere.iter().copied())
    }

    /// Entries, for the simulator's checkers.
    pub fn len(&self) -> usize {
        self.here.len() + self.elsewhere.len()
    }
}
