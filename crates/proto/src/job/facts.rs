//! What one agent knows about a job for its whole duration.

use super::tree::{JobTree, agents_of, participants};
use bytes::Bytes;
use std::sync::Arc;
use wireup_coll::mapping::Mapping;
use wireup_wire::frame::{Frame, FrameKind};
use wireup_wire::ids::{AgentId, JobId, LocalRank, NodeId, Rank};
use wireup_wire::job::JobSpec;

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
    /// The child agents that run more of the job, in ascending order.
    pub below: Vec<AgentId>,
    /// The nodes, sorted by agent: the node of an agent is looked up for each frame that does not follow the tree, and
    /// in a ring each agent receives one such frame from each node. `None`: the job's nodes are in this order.
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
}

fn by_agent(spec: &JobSpec) -> Option<Box<[NodeId]>> {
    if spec.nodes.is_sorted_by_key(|node| node.agent) {
        return None;
    }
    let mut nodes: Box<[NodeId]> = (0..spec.nodes.len() as u32).map(NodeId).collect();
    nodes.sort_by_key(|node| spec.nodes[node.index()].agent);
    Some(nodes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::job_on;
    use wireup_coll::tree::Tree;

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
}
