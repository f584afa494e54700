//! The requests of local ranks for data of ranks elsewhere, and the nodes that were asked.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use wireup_wire::ids::NodeId;
use wireup_wire::pmix::Wanted;

#[derive(Default)]
pub struct Wants {
    /// Numbers of the requests that wait for the data of a rank on another node.
    wanted: BTreeMap<Wanted, Vec<u64>>,
    /// Nodes that were asked.
    requested: BTreeMap<NodeId, NodeRequests>,
}

#[derive(Default)]
struct NodeRequests {
    /// Whether a `Want` to the node is in transit.
    busy: bool,
    next: Vec<Wanted>,
}

impl Wants {
    /// Adds a request for a rank of `node`.
    pub fn want(&mut self, id: u64, wanted: Wanted, node: NodeId) {
        match self.wanted.entry(wanted) {
            Entry::Occupied(mut waiting) => waiting.get_mut().push(id),
            Entry::Vacant(entry) => {
                self.requested.entry(node).or_default().next.push(entry.key().clone());
                entry.insert(vec![id]);
            }
        }
    }

    /// A request was answered in another way. The node still answers the message that was sent.
    pub fn forget(&mut self, id: u64) {
        self.wanted.values_mut().for_each(|waiting| waiting.retain(|other| *other != id));
    }

    /// The requests to be sent to other nodes now.
    pub fn take(&mut self) -> Vec<(NodeId, Vec<Wanted>)> {
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
    pub fn on_have(&mut self, wanted: &Wanted) -> Vec<u64> {
        self.wanted.remove(wanted).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wireup_wire::ids::Rank;

    fn of(rank: u32) -> Wanted {
        Wanted::data_of(Rank(rank))
    }

    #[test]
    fn requests_for_a_node_are_bundled_and_none_waits_for_another_rank() {
        let mut wants = Wants::default();
        wants.want(1, of(5), NodeId(1));
        assert_eq!(wants.take(), [(NodeId(1), vec![of(5)])]);
        for (id, rank) in [(2, 6), (3, 7), (4, 5), (5, 6)] {
            wants.want(id, of(rank), NodeId(1));
        }
        assert!(wants.take().is_empty(), "a request is in transit");
        wants.on_taken(NodeId(1));
        assert_eq!(wants.take(), [(NodeId(1), vec![of(6), of(7)])], "rank 5 has not committed yet");
        assert_eq!(wants.on_have(&of(6)), [2, 5]);
        assert_eq!(wants.on_have(&of(5)), [1, 4]);
        assert!(wants.on_have(&of(5)).is_empty(), "a second answer is ignored");
        wants.want(6, of(6), NodeId(1));
        wants.on_taken(NodeId(1));
        assert_eq!(wants.take(), [(NodeId(1), vec![of(6)])], "asked again: it may have committed since");
    }

    #[test]
    fn each_key_is_requested_for_itself() {
        let (mut wants, key) = (Wants::default(), |name: &str| Wanted { key: Some(name.into()), ..of(5) });
        wants.want(1, key("a"), NodeId(1));
        wants.want(2, key("b"), NodeId(1));
        wants.want(3, key("a"), NodeId(1));
        assert_eq!(wants.take(), [(NodeId(1), vec![key("a"), key("b")])]);
        wants.forget(1);
        assert_eq!((wants.on_have(&key("a")), wants.on_have(&key("b"))), (vec![3], vec![2]));
    }
}
