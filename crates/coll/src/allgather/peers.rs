//! The peers of an allgather, and the messages between them.

use alloc::boxed::Box;
use alloc::vec::Vec;
use wireup_wire::collective::{ExchangeScheme, RoundTag, Tag};
use wireup_wire::ids::NodeId;
use wireup_wire::rope::Rope;

/// A peer set as seen by one agent of its tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PeerSet {
    /// Number of peers, which are numbered `0..count`.
    pub count: u32,
    /// This agent's index among the peers; `None`: this agent is not in the peer set.
    pub me: Option<u32>,
    /// Whether this agent is the root, where the gather up the tree ends.
    pub root: bool,
    /// Number of this agent's children that are peers themselves or have peers below them.
    pub children: usize,
}

/// The rules by which a peer set exchanges its blocks, which are the same for every peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rules {
    pub scheme: ExchangeScheme,
    /// Total size of the blocks (bytes) above which the tree does not distribute them: peers then request the blocks
    /// that they need. `None`: no limit.
    pub collect_max: Option<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sender {
    Parent(Tag),
    /// A child, by its index.
    Child(usize, Tag),
    Peer(u32, RoundTag),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Receiver {
    Parent(Tag),
    /// A child, by its index.
    Child(usize, Tag),
    /// Every child of this agent.
    Children(Tag),
    Peer(u32, RoundTag),
}

/// What a peer sends next and, if the collective is complete for this peer, its outcome.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Progress<T = Vec<Rope>> {
    pub sends: Vec<(Receiver, Rope)>,
    /// The outcome, returned once. That of an allgather is all blocks, possibly without the empty ones, in parts in any
    /// order.
    pub done: Option<T>,
}

impl<T> Default for Progress<T> {
    fn default() -> Self {
        Progress { sends: Vec::new(), done: None }
    }
}

/// The nodes that have ranks, in ascending order: the peers of direct exchanges.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Peers {
    count: u32,
    /// The nodes; `None`: all nodes of the job, so that an agent of a job on thousands of nodes needs no list.
    some: Option<Box<[NodeId]>>,
}

impl Peers {
    pub fn count(&self) -> u32 {
        self.count
    }

    /// The node of a peer; `None`: no peer has this index.
    pub fn node(&self, peer: u32) -> Option<NodeId> {
        match &self.some {
            Some(nodes) => nodes.get(peer as usize).copied(),
            None => (peer < self.count).then_some(NodeId(peer)),
        }
    }

    /// The index of a node among the peers; `None`: the node has no ranks.
    pub fn index_of(&self, node: NodeId) -> Option<u32> {
        match &self.some {
            Some(nodes) => nodes.binary_search(&node).ok().map(|peer| peer as u32),
            None => (node.0 < self.count).then_some(node.0),
        }
    }
}

impl FromIterator<NodeId> for Peers {
    /// Expects the nodes in ascending order.
    fn from_iter<I: IntoIterator<Item = NodeId>>(nodes: I) -> Self {
        let nodes: Box<[NodeId]> = nodes.into_iter().collect();
        let count = nodes.len() as u32;
        let are_all = nodes.last().is_none_or(|last| last.0 + 1 == count);
        Peers { count, some: (!are_all).then_some(nodes) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn peers_are_the_nodes_with_ranks() {
        for nodes in [vec![], vec![0, 1, 2], vec![1, 2], vec![0, 2, 5]] {
            let peers: Peers = nodes.iter().copied().map(NodeId).collect();
            assert_eq!(peers.some.is_some(), nodes == [1, 2] || nodes == [0, 2, 5], "a list only if nodes are missing");
            assert_eq!(peers.count() as usize, nodes.len());
            for number in 0..7 {
                let place = nodes.iter().position(|node| *node == number).map(|place| place as u32);
                assert_eq!(peers.index_of(NodeId(number)), place);
                assert_eq!(peers.node(number).map(|node| node.0), nodes.get(number as usize).copied());
            }
        }
    }
}
