//! The way of a frame from agent to agent, as the links are now.
//!
//! In a session of one run it is the tree's. In a standing session a frame goes to the child that the agent is linked through, as far as
//! that is known; else to the deepest child whose subtree it was drawn in, which may wait for it; else up, and down once on the way. What
//! comes from above never goes up again: where two agents know different things, for as long as a message needs, a frame is dropped
//! rather than sent around. It goes again when all know the same (`Control::Moved`).

use super::Links;
use crate::outbox::Outbox;
use wireup_coll::tree::Hop;
use wireup_wire::frame::Frame;
use wireup_wire::ids::AgentId;

/// Who looks after an agent of the subtree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Keeper {
    /// That child, or whoever is below it.
    Child(AgentId),
    /// Somebody further up.
    Above,
    /// Nobody between the agent and this one is there.
    Nobody,
}

impl Links {
    /// Passes a frame on towards an agent, hop by hop.
    pub fn route(&mut self, to: AgentId, frame: Frame, out: &mut Outbox) {
        match self.next_hop(to) {
            Hop::Child(child) => self.send_child(child, frame, out),
            Hop::Parent if self.me != AgentId(0) => self.send_up(frame, out),
            // No agent of this session.
            Hop::Parent | Hop::Here => {}
        }
    }

    /// The next step of the way to an agent.
    pub fn next_hop(&self, to: AgentId) -> Hop {
        if self.standing.is_none() {
            return self.tree.next_hop(self.me, to);
        }
        if to == self.me {
            return Hop::Here;
        }
        match self.branch_of(to).map_or_else(|| self.keeper(to), Keeper::Child) {
            Keeper::Child(child) => Hop::Child(child),
            Keeper::Above | Keeper::Nobody => Hop::Parent,
        }
    }

    /// The same for a frame that a child passes on: who cannot do better, or has passed it on before, does not get it back.
    pub fn next_hop_from(&self, branch: AgentId, from: AgentId, to: AgentId) -> Hop {
        let origin = self.next_hop(from);
        match self.next_hop(to) {
            hop @ Hop::Child(child) if child == branch || hop == origin => Hop::Parent,
            hop => hop,
        }
    }

    /// The child that an agent is linked through, or will be.
    pub fn branch_of(&self, agent: AgentId) -> Option<AgentId> {
        let branches = || self.standing.iter().flat_map(|standing| standing.below.branches_of(agent).rev());
        let linked = branches().find(|branch| self.children.contains_key(branch));
        linked.or_else(|| branches().find(|branch| self.expected.contains_key(branch)))
    }

    /// Who looks after an agent, as the tree was drawn: the first of it and those above it that is somebody's.
    pub fn keeper(&self, of: AgentId) -> Keeper {
        let Some(standing) = &self.standing else { return Keeper::Nobody };
        let mut at = of;
        while at > self.me {
            if self.has_child(at) {
                return Keeper::Child(at);
            }
            if standing.below.is_elsewhere(at) {
                return Keeper::Above;
            }
            let Some(parent) = self.tree.parent(at) else { break };
            at = parent;
        }
        Keeper::Nobody
    }

    /// Whether an agent is a child: linked, or expected.
    pub fn has_child(&self, agent: AgentId) -> bool {
        self.children.contains_key(&agent) || self.expected.contains_key(&agent)
    }
}
