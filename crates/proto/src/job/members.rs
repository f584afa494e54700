//! Which agents and nodes have ranks of a job.

use super::tree::JobTree;
use wireup_coll::mapping::Mapping;
use wireup_coll::tree::Hop;
use wireup_wire::ids::{AgentId, NodeId};
use wireup_wire::job::JobSpec;

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
