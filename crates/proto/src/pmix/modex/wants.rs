//! The requests of local ranks for data of ranks elsewhere, and the nodes that were asked.

use std::collections::BTreeMap;
use wireup_wire::ids::{NodeId, Rank};

#[derive(Default)]
pub struct Wants {
    /// The requests that wait for the data of a rank elsewhere.
    wanted: BTreeMap<Rank, Vec<u64>>,
    /// Nodes that were asked.
    requested: BTreeMap<NodeId, NodeRequests>,
}

#[derive(Default)]
struct NodeRequests {
    /// A `Want` is in transit.
    busy: bool,
    next: Vec<Rank>,
}

impl Wants {
    /// Adds a request for a rank of `node`.
    pub fn want(&mut self, id: u64, rank: Rank, node: NodeId) {
        let waiting = self.wanted.entry(rank).or_default();
        waiting.push(id);
        if waiting.len() == 1 {
            self.requested.entry(node).or_default().next.push(rank);
        }
    }

    /// The requests to be sent to other nodes now.
    pub fn take(&mut self) -> Vec<(NodeId, Vec<Rank>)> {
        let ready = self.requested.iter_mut().filter(|(_, requested)| !requested.busy && !requested.next.is_empty());
        ready
            .map(|(node, requested)| {
                requested.busy = true;
                (*node, std::mem::take(&mut requested.next))
            })
            .collect()
    }

    /// A node has acknowledged the last request.
    pub fn on_taken(&mut self, node: NodeId) {
        if let Some(requested) = self.requested.get_mut(&node) {
            requested.busy = false;
        }
    }

    /// A rank's data, or the reason why there is none, is known: returns the requests to be answered.
    pub fn on_have(&mut self, rank: Rank) -> Vec<u64> {
        self.wanted.remove(&rank).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_for_a_node_are_bundled_and_none_waits_for_another_rank() {
        let mut wants = Wants::default();
        wants.want(1, Rank(5), NodeId(1));
        assert_eq!(wants.take(), [(NodeId(1), vec![Rank(5)])]);
        for (id, rank) in [(2, 6), (3, 7), (4, 5), (5, 6)] {
            wants.want(id, Rank(rank), NodeId(1));
        }
        assert!(wants.take().is_empty(), "a request is in transit");
        wants.on_taken(NodeId(1));
        assert_eq!(wants.take(), [(NodeId(1), vec![Rank(6), Rank(7)])], "rank 5 has not committed yet");
        assert_eq!(wants.on_have(Rank(6)), [2, 5]);
        assert_eq!(wants.on_have(Rank(5)), [1, 4]);
        assert!(wants.on_have(Rank(5)).is_empty(), "a second answer is ignored");
        wants.want(6, Rank(6), NodeId(1));
        wants.on_taken(NodeId(1));
        assert_eq!(wants.take(), [(NodeId(1), vec![Rank(6)])], "asked again: it may have committed since");
    }
}
