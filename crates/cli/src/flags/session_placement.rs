//! The nodes of a standing session that a job gets if its user has not said which: the session's root, which knows all
//! jobs, chooses them.
//!
//! The root is asked for a number of nodes, or for nodes until their slots suffice. The ranks are then placed on these
//! as on hosts that the user has named.

use super::mapping::MapBy;
use super::parsed::{Parsed, Start};
use super::resolved;
use super::session_nodes::SessionNodes;
use crate::hosts::{Host, Hosts};
use crate::surroundings::Surroundings;
use std::collections::BTreeMap;
use wireup_wire::ids::{AgentId, NodeId};
use wireup_wire::job::NodeSpec;
use wireup_wire::session::{SeatOrder, SeatRequest};

/// The request for nodes to the session's root; `None`: the user has said which nodes, or all get equally many ranks.
pub fn request(
    parsed: &Parsed,
    surroundings: &Surroundings,
    session_nodes: &SessionNodes,
) -> Result<Option<SeatRequest>, String> {
    let is_said = parsed.names_hosts()
        || parsed.virtual_nodes.is_some()
        || parsed.rank_map.is_some()
        || matches!(parsed.map.by, Some(MapBy::Seq | MapBy::RankFile));
    if is_said || session_nodes.nodes.len() == 1 {
        return Ok(None);
    }
    let by = parsed.place.unwrap_or_default();
    let hosts = session_nodes.hosts.as_ref();
    let seating = resolved::place_ranks(parsed, surroundings, Start::Tree, hosts, Some(session_nodes))?;
    let stated = hosts.filter(|hosts| hosts.stated);
    let slots = |index: usize| stated.map_or(1, |hosts| u64::from(hosts.list[index].slots));
    let agents: Vec<AgentId> = session_nodes.nodes.iter().map(|node| node.agent).collect();
    let counts: Vec<u64> =
        (0..agents.len() as u32).map(|node| seating.mapping.local_size(NodeId(node)).into()).collect();
    if (0..counts.len()).all(|index| counts[index] * slots(0) == counts[0] * slots(index)) {
        return Ok(None);
    }
    let size = |host: &Host| (host.slots, host.slots_max);
    let are_alike = stated.is_none_or(|hosts| hosts.list.iter().all(|host| size(host) == size(&hosts.list[0])));
    let used = counts.iter().filter(|ranks| **ranks > 0).count();
    let nodes = match (are_alike, parsed.map.by, parsed.ppn) {
        (true, ..) => Some(used as u32),
        (false, None | Some(MapBy::Slot | MapBy::Objects(_)), None) => None,
        // Unequal hosts with such a mapping: the number of ranks of a node depends on the nodes before it.
        (false, ..) => return Ok(None),
    };
    let among = match by {
        // Without stated slots no node is ever full, so packing always takes the first nodes.
        SeatOrder::Pack if !session_nodes.slots_stated => agents[..used].to_vec(),
        SeatOrder::Spread | SeatOrder::Pack if session_nodes.is_whole => Vec::new(),
        SeatOrder::Spread | SeatOrder::Pack => agents,
    };
    Ok(Some(SeatRequest { ranks: seating.mapping.job_size(), nodes, among, by }))
}

impl SessionNodes {
    /// Limits the job to the nodes of these agents, in this order. Jobs that its ranks spawn may run on all nodes.
    pub fn limited_to(self, agents: &[AgentId], by: SeatOrder) -> SessionNodes {
        let at: BTreeMap<AgentId, usize> = self.nodes.iter().zip(0..).map(|(node, at)| (node.agent, at)).collect();
        let taken: Vec<usize> = agents.iter().filter_map(|agent| at.get(agent).copied()).collect();
        if taken.is_empty() {
            return self;
        }
        let nodes: Vec<NodeSpec> = taken.iter().map(|at| self.nodes[*at].clone()).collect();
        let of_all = |hosts: &Hosts| Hosts {
            list: taken.iter().map(|at| hosts.list[*at].clone()).collect(),
            stated: hosts.stated,
            order: (0..taken.len() as u32).collect(),
            slots_of: None,
        };
        let hosts = self.hosts.as_ref().map(of_all);
        SessionNodes { all: Some((self.nodes, self.hosts)), nodes, hosts, seats: Some(by), ..self }
    }
}
