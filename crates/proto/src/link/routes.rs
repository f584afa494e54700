//! The routes of frames from agent to agent in the current tree.
//!
//! In a session of one run this is the original tree. In a standing session it is the tree determined by the root's log
//! (`Roster`), as far as each hop has it. On the way down, each hop knows at most as much of the log as its parent, and
//! entries are forwarded before everything else; so a frame never reaches an agent that knows less of the log than the
//! hop before. So a frame goes up, then down, and never in a loop: a frame from the parent whose receiver is not below
//! this agent is dropped. Its sender learns from the log that it may be lost, and sends it again.

use super::{Neighbours, Roster};
use crate::policy::Policy;
use std::collections::BTreeSet;
use wireup_coll::tree::{Hop, Tree};
use wireup_wire::ids::AgentId;
use wireup_wire::route::Incarnations;
use wireup_wire::session::SessionSnapshot;

#[cfg_attr(test, derive(Clone, PartialEq, Eq, Hash, Debug))]
pub struct Routes {
    me: AgentId,
    tree: Tree,
    policy: Policy,
    pub roster: Roster,
}

impl Routes {
    /// The routes of a new agent, from the state that it was given.
    pub fn new(me: AgentId, tree: Tree, policy: Policy, snapshot: &SessionSnapshot) -> Self {
        Routes { me, tree, policy, roster: Roster::new(tree, snapshot) }
    }

    /// The next hop towards an agent.
    pub fn next_hop(&self, to: AgentId) -> Hop {
        match self.policy.survives_losses() {
            true => self.roster.next_hop(self.me, to),
            false => self.tree.next_hop(self.me, to),
        }
    }

    /// Whether a routed frame may come from this neighbour and continue towards its receiver. `branch`: the child that
    /// forwarded it.
    pub fn is_on_its_way(&self, branch: Option<AgentId>, from: AgentId, to: AgentId) -> bool {
        let below = |top, agent| self.tree.subtree_contains(top, agent);
        match (self.policy.survives_losses(), branch) {
            // The agents' knowledge may differ for a moment, but no agent is ever above its ancestors in the original
            // tree.
            (true, Some(branch)) => below(branch, from) && !self.roster.is_lost(from),
            (true, None) => self.next_hop(to) != Hop::Parent && !self.roster.is_lost(from),
            (false, Some(branch)) => below(branch, from) && !below(branch, to),
            (false, None) => !below(self.me, from) && below(self.me, to),
        }
    }

    /// The children on the paths to these agents, each once.
    pub fn branches_to(&self, agents: &[AgentId]) -> BTreeSet<AgentId> {
        let hop = |agent: &AgentId| match self.next_hop(*agent) {
            Hop::Child(child) => Some(child),
            Hop::Here | Hop::Parent => None,
        };
        agents.iter().filter_map(hop).collect()
    }

    /// Whether an agent is reached by a link of the tree: it is the parent or a child. An adopted agent and its new
    /// parent exchange frames like any other two agents: so all frames between two agents use routes that keep their
    /// order.
    pub fn is_neighbour(&self, neighbours: &Neighbours, agent: AgentId) -> bool {
        agent == self.me || self.is_parent(agent) || self.is_own_child(neighbours, agent)
    }

    pub fn is_parent(&self, agent: AgentId) -> bool {
        self.parent() == Some(agent)
    }

    /// The parent, if the agent was started under it.
    pub fn parent(&self) -> Option<AgentId> {
        self.roster.parent(self.me).filter(|_| !self.roster.is_adopted(self.me))
    }

    pub fn is_own_child(&self, neighbours: &Neighbours, agent: AgentId) -> bool {
        let is_there = || neighbours.has_child(agent);
        self.roster.parent(agent) == Some(self.me)
            && !self.roster.is_adopted(agent)
            && !self.roster.is_lost(agent)
            && (!self.policy.survives_losses() || is_there())
    }

    /// Whether frames to and from this agent are dropped.
    pub fn is_lost(&self, agent: AgentId) -> bool {
        self.roster.is_lost(agent)
    }

    /// The incarnations of both ends of a frame that this agent sends.
    pub fn incarnations_to(&self, to: AgentId) -> Incarnations {
        Incarnations { to: self.roster.incarnation(to), from: self.roster.incarnation(self.me) }
    }

    /// The incarnations of both ends of a frame that this agent receives.
    pub fn incarnations_from(&self, from: AgentId) -> Incarnations {
        Incarnations { to: self.roster.incarnation(self.me), from: self.roster.incarnation(from) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::LinkId;
    use wireup_wire::session::Entry;

    /// Agent 1 of fifteen, fan-out 2, with the children 3, which is linked, and 4.
    fn routes(policy: Policy) -> (Routes, Neighbours) {
        let mut neighbours = Neighbours::default();
        neighbours.on_child_up(AgentId(3), LinkId(3));
        neighbours.expect(AgentId(4));
        (Routes::new(AgentId(1), Tree::new(15, 2), policy, &SessionSnapshot::default()), neighbours)
    }

    #[test]
    fn in_one_run_frames_follow_the_original_tree() {
        let (routes, mut neighbours) = routes(Policy::OneRun);
        neighbours.on_child_down(AgentId(3));
        assert_eq!(routes.next_hop(AgentId(7)), Hop::Child(AgentId(3)), "the frame ends there");
        assert_eq!(routes.next_hop(AgentId(2)), Hop::Parent);
        assert!(routes.is_own_child(&neighbours, AgentId(3)));
    }

    #[test]
    fn adopted_agents_are_routed_below_the_root() {
        let (mut routes, neighbours) = routes(Policy::Standing);
        assert_eq!(routes.next_hop(AgentId(7)), Hop::Child(AgentId(3)));
        routes.roster.apply(&Entry::Lost(vec![AgentId(3)]));
        assert_eq!(routes.next_hop(AgentId(7)), Hop::Parent);
        assert!(!routes.is_own_child(&neighbours, AgentId(3)));
        let mut root = Routes::new(AgentId(0), Tree::new(15, 2), Policy::Standing, &SessionSnapshot::default());
        root.roster.apply(&Entry::Lost(vec![AgentId(3)]));
        assert_eq!(root.next_hop(AgentId(7)), Hop::Child(AgentId(7)));
        let mut neighbours = Neighbours::default();
        neighbours.on_child_up(AgentId(7), LinkId(7));
        assert!(!root.is_neighbour(&neighbours, AgentId(7)));
        assert_eq!(root.branches_to(&[AgentId(7), AgentId(4), AgentId(9)]), [AgentId(1), AgentId(7)].into());
    }

    #[test]
    fn frames_from_the_parent_are_only_forwarded_down() {
        let (routes, _) = routes(Policy::Standing);
        assert!(
            routes.is_on_its_way(None, AgentId(2), AgentId(7)) && !routes.is_on_its_way(None, AgentId(2), AgentId(5))
        );
        assert!(!routes.is_on_its_way(Some(AgentId(3)), AgentId(9), AgentId(7)), "9 is not below 3");
        assert!(routes.is_on_its_way(Some(AgentId(3)), AgentId(7), AgentId(9)));
    }

    #[test]
    fn agents_that_return_have_a_new_incarnation() {
        let (mut routes, _) = routes(Policy::Standing);
        routes.roster.apply(&Entry::Lost(vec![AgentId(3)]));
        assert!(routes.is_lost(AgentId(3)));
        routes.roster.apply(&Entry::Return(vec![AgentId(3)]));
        assert!(!routes.is_lost(AgentId(3)));
        assert_eq!(routes.incarnations_to(AgentId(3)), Incarnations { to: 2, from: 0 });
    }
}
