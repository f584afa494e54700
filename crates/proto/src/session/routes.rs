//! The way of a frame from agent to agent, as the links are now.
//!
//! In a session of one run it is the tree's. In a standing session a frame goes to the child that the agent is linked through, as far as
//! that is known; else to the deepest child whose subtree it was drawn in, which may wait for it; else up, and down once on the way. What
//! comes from above never goes up again: where two agents know different things, for as long as a message needs, a frame is dropped
//! rather than sent around. It goes again when all know the same (`Control::Moved`).

use super::{Below, Policy};
use crate::link::Neighbours;
use std::collections::{BTreeMap, BTreeSet};
use wireup_coll::tree::{Hop, Tree};
use wireup_wire::ids::AgentId;
use wireup_wire::route::Lives;
use wireup_wire::session::Kin;

pub struct Routes {
    me: AgentId,
    tree: Tree,
    policy: Policy,
    /// The way up does not lead to the agent that the tree says.
    pub is_adopted: bool,
    /// Agents of the subtree.
    pub below: Below,
    /// Agents that nothing is sent to, and nothing taken from.
    lost: BTreeSet<AgentId>,
    /// Which of its lives an agent lives, where it is not the first.
    lives: BTreeMap<AgentId, u32>,
}

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

impl Routes {
    /// With what the agent is told at its birth.
    pub fn new(me: AgentId, tree: Tree, policy: Policy, kin: &Kin) -> Self {
        let mut routes = Routes {
            me,
            tree,
            policy,
            is_adopted: false,
            below: Below::default(),
            lost: BTreeSet::new(),
            lives: BTreeMap::new(),
        };
        if policy.survives_losses() {
            routes.is_adopted = tree.parent(me).is_some_and(|parent| parent != kin.parent);
            routes.below = Below::new(kin.there.iter().copied());
            routes.lost = kin.lost.iter().copied().collect();
            routes.lives = kin.lives.iter().copied().collect();
        }
        routes
    }

    /// The next step of the way to an agent.
    pub fn next_hop(&self, neighbours: &Neighbours, to: AgentId) -> Hop {
        if !self.policy.survives_losses() {
            return self.tree.next_hop(self.me, to);
        }
        if to == self.me {
            return Hop::Here;
        }
        match self.branch_of(neighbours, to).map_or_else(|| self.keeper(neighbours, to), Keeper::Child) {
            Keeper::Child(child) => Hop::Child(child),
            Keeper::Above | Keeper::Nobody => Hop::Parent,
        }
    }

    /// The same for a frame that a child passes on: who cannot do better, or has passed it on before, does not get it back.
    fn next_hop_from(&self, neighbours: &Neighbours, branch: AgentId, from: AgentId, to: AgentId) -> Hop {
        let origin = self.next_hop(neighbours, from);
        match self.next_hop(neighbours, to) {
            hop @ Hop::Child(child) if child == branch || hop == origin => Hop::Parent,
            hop => hop,
        }
    }

    /// The next step of a frame of another agent.
    pub fn hop_of_routed(&self, neighbours: &Neighbours, branch: Option<AgentId>, from: AgentId, to: AgentId) -> Hop {
        match branch.filter(|_| self.policy.survives_losses()) {
            Some(branch) => self.next_hop_from(neighbours, branch, from, to),
            None => self.next_hop(neighbours, to),
        }
    }

    /// Whether a routed frame can have come from there and goes on to somewhere else. `branch`: the child that passes it on.
    pub fn is_on_its_way(&self, neighbours: &Neighbours, branch: Option<AgentId>, from: AgentId, to: AgentId) -> bool {
        let (me, below) = (self.me, |top, agent| self.tree.subtree_contains(top, agent));
        if from.0 >= self.tree.count() || to.0 >= self.tree.count() {
            return false;
        }
        if self.policy.survives_losses() {
            // Adopted agents are not where the tree was drawn, but none is above those that it was below.
            let has_way = branch.is_some() || self.next_hop(neighbours, to) != Hop::Parent;
            return branch.is_none_or(|branch| below(branch, from)) && has_way && !self.is_lost(from);
        }
        match branch {
            Some(branch) => below(branch, from) && !below(branch, to),
            None => !below(me, from) && below(me, to),
        }
    }

    /// The children that lead to some of these agents, each once.
    pub fn branches_to(&self, neighbours: &Neighbours, agents: &[AgentId]) -> BTreeSet<AgentId> {
        let below = agents.iter().filter(|agent| **agent != self.me && self.tree.subtree_contains(self.me, **agent));
        let hop = |agent: &AgentId| match self.next_hop(neighbours, *agent) {
            Hop::Child(child) => Some(child),
            Hop::Here | Hop::Parent => None,
        };
        below.filter_map(hop).collect()
    }

    /// The child that an agent is linked through, or will be.
    pub fn branch_of(&self, neighbours: &Neighbours, agent: AgentId) -> Option<AgentId> {
        let branches = || self.below.branches_of(agent).rev();
        let linked = branches().find(|branch| neighbours.child(*branch).is_some());
        linked.or_else(|| branches().find(|branch| neighbours.expects(*branch)))
    }

    /// Who looks after an agent, as the tree was drawn: the first of it and those above it that is somebody's.
    pub fn keeper(&self, neighbours: &Neighbours, of: AgentId) -> Keeper {
        let mut at = of;
        while at > self.me {
            if neighbours.has_child(at) {
                return Keeper::Child(at);
            }
            if self.below.is_elsewhere(at) {
                return Keeper::Above;
            }
            let Some(parent) = self.tree.parent(at) else { break };
            at = parent;
        }
        Keeper::Nobody
    }

    /// Whether an agent is reached by a link of the tree: this one's parent or child. Those that were adopted reach their new
    /// parents as any other agent: so all frames of two agents take ways that keep their order.
    pub fn is_neighbour(&self, neighbours: &Neighbours, agent: AgentId) -> bool {
        agent == self.me || self.is_parent(agent) || self.is_own_child(neighbours, agent)
    }

    pub fn is_parent(&self, agent: AgentId) -> bool {
        self.parent() == Some(agent)
    }

    /// The parent, where it is the one that the tree says.
    pub fn parent(&self) -> Option<AgentId> {
        self.tree.parent(self.me).filter(|_| !self.is_adopted)
    }

    pub fn is_own_child(&self, neighbours: &Neighbours, agent: AgentId) -> bool {
        let is_there = || neighbours.has_child(agent);
        self.tree.parent(agent) == Some(self.me) && (!self.policy.survives_losses() || is_there())
    }

    /// An agent is lost. True if that is news.
    pub fn lose(&mut self, agent: AgentId) -> bool {
        self.lost.insert(agent)
    }

    /// A lost agent is started again, to live that life.
    pub fn find(&mut self, agent: AgentId, life: u32) {
        self.lost.remove(&agent);
        self.lives.insert(agent, life);
    }

    /// Which of its lives an agent lives.
    pub fn life(&self, agent: AgentId) -> u32 {
        self.lives.get(&agent).copied().unwrap_or(0)
    }

    /// Of both ends of a frame from here.
    pub fn lives_to(&self, to: AgentId) -> Lives {
        Lives { to: self.life(to), from: self.life(self.me) }
    }

    /// Of both ends of a frame to here.
    pub fn lives_from(&self, from: AgentId) -> Lives {
        Lives { to: self.life(self.me), from: self.life(from) }
    }

    /// The lives of all agents that do not live their first.
    pub fn lives(&self) -> impl Iterator<Item = (AgentId, u32)> {
        self.lives.iter().map(|(agent, life)| (*agent, *life))
    }

    pub fn lost(&self) -> impl Iterator<Item = AgentId> {
        self.lost.iter().copied()
    }

    pub fn is_lost(&self, agent: AgentId) -> bool {
        self.lost.contains(&agent)
    }

    /// Entries, for the simulator's checkers.
    pub fn len(&self) -> usize {
        self.below.len() + self.lives.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::LinkId;

    /// Agent 1 of fifteen, fan-out 2: its children are 3, which is linked, and 4.
    fn routes(policy: Policy) -> (Routes, Neighbours) {
        let mut neighbours = Neighbours::default();
        neighbours.on_child_up(AgentId(3), LinkId(3));
        neighbours.expect(AgentId(4));
        (Routes::new(AgentId(1), Tree::new(15, 2), policy, &Kin::default()), neighbours)
    }

    #[test]
    fn in_one_run_frames_go_where_the_tree_was_drawn() {
        let (routes, mut neighbours) = routes(Policy::OneRun);
        neighbours.on_child_down(AgentId(3));
        assert_eq!(routes.next_hop(&neighbours, AgentId(7)), Hop::Child(AgentId(3)), "it ends there");
        assert_eq!(routes.next_hop(&neighbours, AgentId(2)), Hop::Parent);
        assert!(routes.is_own_child(&neighbours, AgentId(3)));
    }

    #[test]
    fn an_adopted_grandchild_has_a_way_of_its_own() {
        let (mut routes, mut neighbours) = routes(Policy::Standing);
        assert_eq!(routes.next_hop(&neighbours, AgentId(7)), Hop::Child(AgentId(3)));
        neighbours.on_child_up(AgentId(7), LinkId(7));
        routes.below.on_linked(AgentId(7));
        assert_eq!(routes.next_hop(&neighbours, AgentId(7)), Hop::Child(AgentId(7)));
        assert!(!routes.is_neighbour(&neighbours, AgentId(7)), "its frames are numbered as any other agent's");
    }

    #[test]
    fn behind_a_child_that_is_gone_is_nobody_until_somebody_further_up_has_adopted() {
        let (mut routes, mut neighbours) = routes(Policy::Standing);
        neighbours.on_child_down(AgentId(3));
        assert_eq!(routes.keeper(&neighbours, AgentId(7)), Keeper::Nobody);
        routes.below.on_elsewhere(AgentId(7));
        assert_eq!(routes.keeper(&neighbours, AgentId(7)), Keeper::Above);
        assert_eq!(routes.next_hop(&neighbours, AgentId(7)), Hop::Parent);
        assert_eq!(routes.keeper(&neighbours, AgentId(9)), Keeper::Child(AgentId(4)));
    }

    #[test]
    fn a_frame_is_never_passed_back() {
        let (routes, neighbours) = routes(Policy::Standing);
        let hop = |branch, from, to| routes.next_hop_from(&neighbours, AgentId(branch), AgentId(from), AgentId(to));
        assert_eq!(hop(3, 7, 8), Hop::Parent);
        assert_eq!(hop(3, 7, 9), Hop::Child(AgentId(4)));
        assert!(!routes.is_on_its_way(&neighbours, Some(AgentId(3)), AgentId(9), AgentId(7)), "9 is not below 3");
    }

    #[test]
    fn the_lost_that_return_live_another_life() {
        let (mut routes, _) = routes(Policy::Standing);
        assert!(routes.lose(AgentId(3)) && !routes.lose(AgentId(3)));
        routes.find(AgentId(3), 2);
        assert!(!routes.is_lost(AgentId(3)));
        assert_eq!(routes.lives_to(AgentId(3)), Lives { to: 2, from: 0 });
    }
}
