//! Which agents have ranks of a job, and which nodes of it they are.

use super::{Job, JobTree};
use wireup_coll::mapping::Mapping;
use wireup_coll::tree::Hop;
use wireup_wire::ids::{AgentId, NodeId};
use wireup_wire::job::JobSpec;

/// The agents with ranks of a job, in order.
pub fn agents_of(spec: &JobSpec, mapping: &Mapping) -> Vec<AgentId> {
    let nodes = spec.nodes.iter().enumerate();
    let with_ranks = nodes.filter(|(index, _)| mapping.local_size(NodeId(*index as u32)) > 0);
    let mut agents: Vec<AgentId> = with_ranks.map(|(_, node)| node.agent).collect();
    agents.sort_unstable();
    agents.dedup();
    agents
}

/// The children whose subtrees have ranks of the job: a node without ranks would have to answer for its fences.
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

impl Job {
    /// The agents with ranks of it.
    pub fn agents(&self) -> Vec<AgentId> {
        agents_of(&self.facts.spec, &self.facts.mapping)
    }

    pub fn has_agent(&self, agent: AgentId) -> bool {
        let mut nodes = self.facts.spec.nodes.iter().enumerate();
        nodes.any(|(index, node)| node.agent == agent && self.facts.mapping.local_size(NodeId(index as u32)) > 0)
    }

    pub(super) fn node_of(&self, agent: AgentId) -> Option<NodeId> {
        self.facts.spec.nodes.iter().position(|node| node.agent == agent).map(|index| NodeId(index as u32))
    }

    /// Name of this node.
    pub(super) fn host(&self) -> String {
        self.facts.node.map(|node| self.facts.spec.nodes[node.index()].name.clone()).unwrap_or_default()
    }
}
