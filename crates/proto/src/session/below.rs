//! Who of an agent's subtree is linked where, in a standing session.
//!
//! At first every agent is linked where the tree was drawn. When one is lost its children are adopted by somebody further up, and stay
//! there when it returns; so an agent may be below this one in the drawing and not in fact. What is known comes from below (`Here`,
//! which names the child that says it) and from above (those that somebody else has adopted).
//!
//! Two children may claim the same agent while one of them has not noticed yet that it, or somebody between the two, has left. Agents
//! only move up, so the child further down in the drawing is the one that was left last: it is believed for as long as it is linked.

use std::collections::BTreeSet;
use wireup_wire::ids::AgentId;

#[derive(Default)]
pub struct Below {
    /// Agents that are there, each with the children that it is, or was last, linked through.
    claims: BTreeSet<(AgentId, AgentId)>,
    /// Adopted by somebody further up, with whoever is below them.
    elsewhere: BTreeSet<AgentId>,
}

impl Below {
    /// What an agent is told at its birth: these are there already, and not below it.
    pub fn new(there: impl IntoIterator<Item = AgentId>) -> Self {
        Below { claims: BTreeSet::new(), elsewhere: there.into_iter().collect() }
    }

    /// A child links: what it said before is not true any more, and for whom nobody else speaks is waited for.
    pub fn on_linked(&mut self, branch: AgentId) {
        let old: Vec<AgentId> = self.behind(branch).collect();
        for agent in old {
            if self.branches_of(agent).count() > 1 {
                self.claims.remove(&(agent, branch));
            }
        }
        self.on_here(branch, branch);
    }

    pub fn on_here(&mut self, agent: AgentId, branch: AgentId) {
        self.claims.insert((agent, branch));
        self.elsewhere.remove(&agent);
    }

    /// All other children are told that they are mistaken.
    pub fn settle(&mut self, agent: AgentId, branch: AgentId) {
        let branches: Vec<AgentId> = self.branches_of(agent).filter(|other| *other != branch).collect();
        for other in branches {
            self.claims.remove(&(agent, other));
        }
    }

    pub fn on_elsewhere(&mut self, agent: AgentId) {
        self.forget(agent);
        self.elsewhere.insert(agent);
    }

    pub fn forget(&mut self, agent: AgentId) {
        let branches: Vec<AgentId> = self.branches_of(agent).collect();
        for branch in branches {
            self.claims.remove(&(agent, branch));
        }
        self.elsewhere.remove(&agent);
    }

    /// The children that claim an agent, or did last, from the top down.
    pub fn branches_of(&self, agent: AgentId) -> impl DoubleEndedIterator<Item = AgentId> {
        self.claims.range((agent, AgentId(0))..=(agent, AgentId(u32::MAX))).map(|(_, branch)| *branch)
    }

    /// Those that a child claims, or did last, without itself.
    pub fn behind(&self, branch: AgentId) -> impl Iterator<Item = AgentId> {
        self.claims.iter().filter(move |(agent, of)| *of == branch && *agent != branch).map(|(agent, _)| *agent)
    }

    pub fn is_elsewhere(&self, agent: AgentId) -> bool {
        self.elsewhere.contains(&agent)
    }

    /// Those that this agent answers for.
    pub fn here(&self) -> BTreeSet<AgentId> {
        self.claims.iter().map(|(agent, _)| *agent).collect()
    }

    /// All that are there, wherever.
    pub fn there(&self) -> BTreeSet<AgentId> {
        self.here().union(&self.elsewhere).copied().collect()
    }

    /// Entries, for the simulator's checkers.
    pub fn len(&self) -> usize {
        self.claims.len() + self.elsewhere.len()
    }
}
