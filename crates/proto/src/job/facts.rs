//! What one agent knows about a job for its whole duration.

use crate::link::UpHop;
use crate::outbox::control_frame;
use bytes::Bytes;
use std::sync::Arc;
use wireup_coll::mapping::Mapping;
use wireup_coll::tree::{Hop, Tree};
use wireup_wire::frame::{Frame, FrameKind};
use wireup_wire::ids::{AgentId, JobId, LocalRank, NodeId, Rank};
use wireup_wire::job::{JobSpec, StdinTarget};
use wireup_wire::peer::{AgentTransport, SessionSpec};
use wireup_wire::talk::Control;

/// Properties of a job that stay the same until it ends.
pub struct Facts {
    pub spec: Arc<JobSpec>,
    pub mapping: Arc<Mapping>,
    pub job_size: u32,
    pub me: AgentId,
    /// This agent's node in the job; `None`: the agent has no ranks of the job.
    pub node: Option<NodeId>,
    /// Whether this agent is the root, which decides about failures.
    pub root: bool,
    pub tree: JobTree,
    /// The child agents whose subtrees have ranks of the job, in ascending order.
    pub below: Vec<AgentId>,
    /// The nodes, sorted by agent, because the node of an agent is looked up for each frame outside the tree (in a
    /// ring, one from each node). `None`: the job's node list is already in this order.
    by_agent: Option<Box<[NodeId]>>,
}

impl Facts {
    pub fn new(spec: Arc<JobSpec>, mapping: &Mapping, me: AgentId, tree: JobTree) -> Facts {
        Facts {
            mapping: Arc::new(mapping.clone()),
            job_size: spec.job_size(),
            me,
            node: spec.nodes.iter().position(|node| node.agent == me).map(|index| NodeId(index as u32)),
            root: me == AgentId(0),
            below: participants(&spec, mapping, &tree),
            by_agent: by_agent(&spec),
            tree,
            spec,
        }
    }

    pub fn id(&self) -> JobId {
        self.spec.job
    }

    /// The number of this node; 0 if it has no ranks of the job.
    pub fn own_node(&self) -> NodeId {
        self.node.unwrap_or_default()
    }

    /// Number of ranks on this node.
    pub fn local_size(&self) -> u32 {
        self.node.map_or(0, |node| self.mapping.local_size(node))
    }

    /// Name of this node.
    pub fn host(&self) -> String {
        self.node.map(|node| self.spec.nodes[node.index()].name.clone()).unwrap_or_default()
    }

    pub fn node_of(&self, agent: AgentId) -> Option<NodeId> {
        let node = match &self.by_agent {
            Some(nodes) => *nodes.get(nodes.partition_point(|node| self.agent_of(*node) < agent))?,
            None => NodeId(self.spec.nodes.partition_point(|node| node.agent < agent) as u32),
        };
        self.spec.nodes.get(node.index()).is_some_and(|found| found.agent == agent).then_some(node)
    }

    pub fn agent_of(&self, node: NodeId) -> AgentId {
        self.spec.nodes[node.index()].agent
    }

    /// Name of a node; empty if it is not in the job.
    pub fn name_of(&self, node: NodeId) -> String {
        self.spec.nodes.get(node.index()).map(|node| node.name.clone()).unwrap_or_default()
    }

    /// A rank's index on this node, if it is local.
    pub fn local_of(&self, rank: Rank) -> Option<LocalRank> {
        let (node, local) = self.mapping.place(rank).filter(|_| rank.0 < self.job_size)?;
        (Some(node) == self.node).then_some(local)
    }

    /// The index of a child in `below`.
    pub fn child_index(&self, agent: AgentId) -> Option<usize> {
        self.below.binary_search(&agent).ok()
    }

    /// All agents with ranks of the job.
    pub fn agents(&self) -> Vec<AgentId> {
        agents_of(&self.spec, &self.mapping)
    }

    pub fn has_agent(&self, agent: AgentId) -> bool {
        self.node_of(agent).is_some_and(|node| self.mapping.local_size(node) > 0)
    }

    /// A frame of this job.
    pub fn frame(&self, kind: impl Into<FrameKind>, stream: u16, arg: u32, payload: Bytes) -> Frame {
        Frame::new(kind, stream, self.id().0, arg, payload)
    }

    /// A control message of this job, in its frame.
    pub fn control(&self, message: impl Into<Control>) -> Frame {
        control_frame(self.id(), &message.into())
    }
}

fn by_agent(spec: &JobSpec) -> Option<Box<[NodeId]>> {
    if spec.nodes.is_sorted_by_key(|node| node.agent) {
        return None;
    }
    let mut nodes: Box<[NodeId]> = (0..spec.nodes.len() as u32).map(NodeId).collect();
    nodes.sort_by_key(|node| spec.nodes[node.index()].agent);
    Some(nodes)
}

/// Most children of an agent in the tree of a job that stages files. An agent sends the files to all of its children by
/// one network card, so with n children the transfer takes n times as long as with one; each level adds only the time
/// of one piece. Chosen with `wireup simulate --machine s2`: 16 MiB reach 256 nodes in 353 ms with a fan-out of 16, in
/// 143 ms with 4, in 106 ms with 2.
const STAGING_FANOUT_MAX: u32 = 2;

/// The tree of one job, along which its frames travel, as seen by one agent.
///
/// In a session of one run it is the session's tree. In a standing session it is a tree of the same fan-out over the
/// job's own nodes, in the order of their agents, below the root, which serves the launcher: nodes outside the job
/// never forward its frames. A job that stages files has a fan-out of [`STAGING_FANOUT_MAX`] at most, if agents have
/// direct links.
///
/// ```text
///   session, fan-out 2:       0          job on 3, 4, 6:     0
///                         1       2                        3   4
///                       3   4   5   6                     6
/// ```
///
/// If all agents are in the job, both trees are the same, except for staging. Cost: a list of the job's agents.
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

    /// The tree of a job of a standing session; `agents` have ranks of the job.
    pub fn of_job(spec: &JobSpec, me: AgentId, session: &SessionSpec, agents: Vec<AgentId>) -> Self {
        // Without direct links, the frames of another tree would take several hops of the session's tree.
        let has_direct = session.links.transport != AgentTransport::Tree;
        let is_narrow = has_direct && spec.options.stdio.stdin == StdinTarget::AllByMemory;
        JobTree::new(me, session.fanout.min(if is_narrow { STAGING_FANOUT_MAX } else { u32::MAX }), agents)
    }

    /// The tree of these agents and the root; `me` is one of them.
    fn new(me: AgentId, fanout: u32, mut agents: Vec<AgentId>) -> Self {
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
    pub fn up(&self) -> UpHop {
        self.parent().map_or(UpHop::Launcher, UpHop::Agent)
    }

    /// The parent of this agent; `None` at the root.
    pub fn parent(&self) -> Option<AgentId> {
        let parent = self.tree.parent(self.position(self.me)?)?;
        Some(self.agent_at(parent))
    }

    /// The agents of the upper levels of the tree: as many whole levels as have at most `max` agents together.
    pub fn upper_levels(&self, max: usize) -> Vec<AgentId> {
        let fanout = self.tree.fanout() as usize;
        let (mut count, mut level) = (1, fanout);
        while count + level <= max {
            (count, level) = (count + level, level * fanout);
        }
        let count = count.min(self.tree.count() as usize) as u32;
        (0..count).map(|position| self.agent_at(AgentId(position))).collect()
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

/// The children whose subtrees have ranks of the job. Other children are left out: they would have to take part in the
/// job's fences.
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
    use crate::testing::job_on;

    /// A job's nodes may be in any order, and hosts that are being added have no agents of their own yet.
    #[test]
    fn agents_are_found_in_jobs_whose_nodes_are_in_any_order() {
        for agents in [vec![0, 1, 2, 3], vec![3, 1, 2, 0], vec![7, 5], vec![2, AgentId::ADDED.0, 0, AgentId::ADDED.0]] {
            let spec = job_on(1, agents.clone(), 1);
            let mapping =
                Mapping::new(&spec.blocks, spec.job_size(), spec.nodes.len() as u32).expect("ranks on all nodes");
            let tree = JobTree::whole(AgentId(0), Tree::new(9, 2));
            let facts = Facts::new(spec.clone().into(), &mapping, AgentId(0), tree);
            for agent in (0..9).chain([AgentId::ADDED.0]).map(AgentId) {
                let first = spec.nodes.iter().position(|node| node.agent == agent);
                assert_eq!(facts.node_of(agent).map(NodeId::index), first, "{agent} of {agents:?}");
                assert_eq!(facts.child_index(agent), facts.below.iter().position(|child| *child == agent));
            }
        }
    }

    use proptest::prelude::*;

    fn of(me: u32, agents: &[u32]) -> JobTree {
        JobTree::new(AgentId(me), 2, agents.iter().copied().map(AgentId).collect())
    }

    #[test]
    fn the_tree_of_a_staging_job_is_narrow_if_agents_have_direct_links() {
        for (stdin, transport, expected) in [
            (StdinTarget::AllByMemory, AgentTransport::Auto, STAGING_FANOUT_MAX),
            (StdinTarget::AllByMemory, AgentTransport::Tree, 5),
            (StdinTarget::All, AgentTransport::Auto, 5),
        ] {
            let mut spec = job_on(1, 0..9, 1);
            spec.options.stdio.stdin = stdin;
            let mut session = SessionSpec { fanout: 5, ..SessionSpec::default() };
            session.links.transport = transport;
            let tree = JobTree::of_job(&spec, AgentId(0), &session, (0..9).map(AgentId).collect());
            let is_child = |agent: &AgentId| tree.next_hop(*agent) == Hop::Child(*agent);
            assert_eq!((1..9).map(AgentId).filter(is_child).count() as u32, expected, "{stdin:?}, {transport:?}");
        }
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
