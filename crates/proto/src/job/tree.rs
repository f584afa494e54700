//! The tree of one job, along which its frames travel, as seen by one agent.
//!
//! In a session of one run it is the session's tree. In a standing session it is a tree of the same fan-out over the
//! job's own nodes, in the order of their agents, below the root, which serves the launcher: nodes outside the job
//! never forward its frames.
//!
//! ```text
//!   session, fan-out 2:       0          job on 3, 4, 6:     0
//!                         1       2                        3   4
//!                       3   4   5   6                     6
//! ```
//!
//! If all agents are in the job, both trees are the same. Cost: a list of the job's agents.

use wireup_coll::mapping::Mapping;
use wireup_coll::tree::{Hop, Tree};
use wireup_wire::ids::{AgentId, NodeId};
use wireup_wire::job::JobSpec;

/// The next hop of a job's frames towards its launcher.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Up {
    /// This agent is the root.
    Launcher,
    Agent(AgentId),
    /// The launcher cannot be reached any more.
    Nowhere,
}

pub struct JobTree {
    me: AgentId,
    /// Tree over the positions in `agents`, if there is such a list; otherwise over the agents themselves.
    tree: Tree,
    agents: Option<Vec<AgentId>>,
}

impl JobTree {
    /// The session's own tree.
    pub fn whole(me: AgentId, tree: Tree) -> Self {
        JobTree { me, tree, agents: None }
    }

    /// The tree of these agents and the root; `me` is one of them.
    pub fn new(me: AgentId, fanout: u32, mut agents: Vec<AgentId>) -> Self {
        agents.push(AgentId(0));
        agents.sort_unstable();
        agents.dedup();
        JobTree { me, tree: Tree::new(agents.len() as u32, fanout), agents: Some(agents) }
    }

    fn position(&self, agent: AgentId) -> Option<AgentId> {
        match &self.agents {
            None => Some(agent),
            Some(agents) => agents.binary_search(&agent).ok().map(|at| AgentId(at as u32)),
        }
    }

    fn agent_at(&self, position: AgentId) -> AgentId {
        self.agents.as_ref().map_or(position, |agents| agents[position.index()])
    }

    /// The next hop of the job's frames towards its launcher.
    pub fn up(&self) -> Up {
        self.parent().map_or(Up::Launcher, Up::Agent)
    }

    /// The parent of this agent; `None` at the root.
    pub fn parent(&self) -> Option<AgentId> {
        let parent = self.tree.parent(self.position(self.me)?)?;
        Some(self.agent_at(parent))
    }

    /// The next hop towards an agent. Agents outside the tree are in no child's subtree.
    pub fn next_hop(&self, to: AgentId) -> Hop {
        let (Some(me), Some(to)) = (self.position(self.me), self.position(to)) else { return Hop::Parent };
        match self.tree.next_hop(me, to) {
            Hop::Child(child) => Hop::Child(self.agent_at(child)),
            Hop::Here => Hop::Here,
            Hop::Parent => Hop::Parent,
        }
    }

    /// Whether `agent` is `top` or below it.
    pub fn subtree_contains(&self, top: AgentId, agent: AgentId) -> bool {
        match (self.position(top), self.position(agent)) {
            (Some(top), Some(agent)) => self.tree.subtree_contains(top, agent),
            _ => false,
        }
    }
}

/// The agents with ranks of a job, in ascending order.
pub fn agents_of(spec: &JobSpec, mapping: &Mapping) -> Vec<AgentId> {
    let nodes = spec.nodes.iter().enumerate();
    let with_ranks = nodes.filter(|(index, _)| mapping.local_size(NodeId(*index as u32)) > 0);
    let mut agents: Vec<AgentId> = with_ranks.map(|(_, node)| node.agent).collect();
    agents.sort_unstable();
    agents.dedup();
    agents
}

/// The children whose subtrees have ranks of the job. Others are left out: they would have to take part in its fences.
pub fn participants(spec: &JobSpec, mapping: &Mapping, tree: &JobTree) -> Vec<AgentId> {
    let below = agents_of(spec, mapping).into_iter().filter_map(|agent| match tree.next_hop(agent) {
        Hop::Child(child) => Some(child),
        Hop::Here | Hop::Parent => None,
    });
    let mut children: Vec<AgentId> = below.collect();
    children.sort_unstable();
    children.dedup();
    children
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(me: u32, agents: &[u32]) -> JobTree {
        JobTree::new(AgentId(me), 2, agents.iter().copied().map(AgentId).collect())
    }

    #[test]
    fn the_tree_of_a_job_is_as_drawn() {
        let agents = [6, 3, 4];
        assert_eq!(of(6, &agents).parent(), Some(AgentId(3)));
        assert_eq!(of(4, &agents).parent(), Some(AgentId(0)));
        assert_eq!(of(0, &agents).parent(), None);
        assert_eq!(of(0, &agents).next_hop(AgentId(6)), Hop::Child(AgentId(3)));
        assert_eq!(of(4, &agents).next_hop(AgentId(6)), Hop::Parent);
        assert!(of(0, &agents).subtree_contains(AgentId(3), AgentId(6)));
        assert!(!of(0, &agents).subtree_contains(AgentId(3), AgentId(5)));
    }

    proptest! {
        #[test]
        fn the_tree_of_a_job_on_all_agents_is_that_of_the_session(
            count in 1u32..60,
            fanout in 1u32..6,
            me in 0u32..60,
            to in 0u32..60,
        ) {
            let (me, to) = (AgentId(me % count), AgentId(to % count));
            let tree = Tree::new(count, fanout);
            let (whole, own) =
                (JobTree::whole(me, tree), JobTree::new(me, fanout, (0..count).map(AgentId).collect()));
            prop_assert_eq!(whole.parent(), own.parent());
            prop_assert_eq!(whole.next_hop(to), own.next_hop(to));
            prop_assert_eq!(whole.subtree_contains(me, to), own.subtree_contains(me, to));
        }
    }
}
