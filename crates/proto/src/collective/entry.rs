//! The inputs and outputs of a job's collectives on one node.

use crate::job::facts::Facts;
use bytes::Bytes;
use wireup_coll::allgather::{PeerSet, Rules};
use wireup_coll::scan::Down;
use wireup_wire::collective::Collective;
use wireup_wire::ids::{Epoch, LocalRank, NodeId, Rank};
use wireup_wire::job::ExchangeScheme;
use wireup_wire::peer::FenceTrace;

/// The properties that all collectives of a job on this node share.
#[derive(Clone)]
pub struct CollectiveConfig {
    /// This agent is the root: gathers end here.
    pub root: bool,
    pub local_size: u32,
    /// Children in the tree with ranks of the job below them.
    pub children: usize,
    pub scheme: ExchangeScheme,
    /// Least size of a node's contribution that is compressed (bytes); 0: contributions are never compressed.
    pub compress_min: u32,
    pub peers: Peers,
    /// Index of this node in `peers`; `None`: this node has no ranks.
    pub place: Option<u32>,
    /// Most data that a PMIx fence distributes where the root may choose (bytes); `None`: no limit.
    pub collect_max: Option<u64>,
}

impl CollectiveConfig {
    /// The properties of this node that the job's collectives need.
    pub fn new(facts: &Facts) -> CollectiveConfig {
        let Facts { spec, mapping, .. } = facts;
        let all = (0..spec.nodes.len() as u32).map(NodeId);
        let peers: Peers = all.filter(|node| mapping.local_size(*node) > 0).collect();
        let place = facts.node.and_then(|node| peers.index_of(node));
        CollectiveConfig {
            root: facts.root,
            local_size: facts.local_size(),
            children: facts.below.len(),
            scheme: spec.options.exchange.scheme,
            compress_min: spec.options.exchange.compress_bytes_min,
            peers,
            place,
            collect_max: None,
        }
    }

    pub fn peer_set(&self) -> PeerSet {
        PeerSet { count: self.peers.count(), me: self.place, root: self.root, children: self.children }
    }

    /// The node of a peer.
    ///
    /// # Panics
    /// If there is no such peer.
    pub fn peer(&self, peer: u32) -> NodeId {
        self.peers.node(peer).expect("a collective is among its peers")
    }

    pub fn rules(&self) -> Rules {
        Rules { scheme: self.scheme, collect_max: self.collect_max }
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

    /// The node of a peer; `None`: there is no such peer.
    pub fn node(&self, peer: u32) -> Option<NodeId> {
        match &self.some {
            Some(nodes) => nodes.get(peer as usize).copied(),
            None => (peer < self.count).then_some(NodeId(peer)),
        }
    }

    /// The index of a node; `None`: it has no ranks.
    pub fn index_of(&self, node: NodeId) -> Option<u32> {
        match &self.some {
            Some(nodes) => nodes.binary_search(&node).ok().map(|peer| peer as u32),
            None => (node.0 < self.count).then_some(node.0),
        }
    }
}

impl FromIterator<NodeId> for Peers {
    /// The nodes are in ascending order.
    fn from_iter<I: IntoIterator<Item = NodeId>>(nodes: I) -> Self {
        let nodes: Box<[NodeId]> = nodes.into_iter().collect();
        let count = nodes.len() as u32;
        let are_all = nodes.last().is_none_or(|last| last.0 + 1 == count);
        Peers { count, some: (!are_all).then_some(nodes) }
    }
}

/// A rank's contribution to a collective.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Entry {
    /// Nothing but the pairs that the node has put.
    Fence,
    /// A value for all ranks, of at most `max_len` bytes. `shared`: the results lie in the arena.
    Allgather { max_len: u32, shared: bool, value: Bytes },
    /// A value for the neighbours in the ring.
    Ring { value: Bytes },
    /// A fence of PMIx clients, with the data of the whole node. One rank passes the data for all ranks of the node.
    Modex { data: Bytes },
}

/// A rank that starts its next collective.
pub struct Entering {
    pub local: LocalRank,
    pub rank: Rank,
    pub entry: Entry,
    pub reply_to: ReplyTo,
}

/// A collective that is complete as far as this node is concerned.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finished {
    pub epoch: Epoch,
    /// The local ranks, in order of arrival, and how to answer each of them.
    pub waiting: Vec<(LocalRank, ReplyTo)>,
    pub outcome: Outcome,
    pub trace: FenceTrace,
}

/// The result of a collective.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Blocks of packed pairs; for a PMIx fence, of the library's data.
    Pairs(Vec<Bytes>),
    /// Blocks of values. `shared`: some local rank reads the values from shared memory, in rows.
    Values { max_len: u32, shared: bool, blocks: Vec<Bytes> },
    /// The result of a ring: one place for each local rank.
    Places(Vec<Down>),
}

impl Entry {
    pub fn collective(&self) -> Collective {
        match self {
            Entry::Fence => Collective::Fence,
            Entry::Allgather { .. } => Collective::Allgather,
            Entry::Ring { .. } => Collective::Ring,
            Entry::Modex { .. } => Collective::Modex,
        }
    }
}

/// How to answer a rank when its collective completes: chosen by the code that enters the collective, returned with its
/// outcome.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ReplyTo {
    /// A text client's fence. `thread`: the `thrid` of the request, which the reply repeats.
    Fence { thread: Option<Vec<u8>> },
    /// A lazy fence, which was answered when the rank entered it: nothing is sent.
    Lazy,
    /// The answer goes to the node's PMIx server, which has entered for the rank.
    Server,
    /// A text client's ring. `thread`: the `thrid` of the request, which the reply repeats.
    Ring { thread: Option<Vec<u8>> },
    /// The exchange of the ranks' addresses: this agent has entered for the rank and keeps the outcome. No rank waits.
    Endpoints,
    /// A fence of our own client. `id`: the client's number for the request.
    OwnFence { id: u32 },
    /// An allgather of our own client. `id`: the client's number for the request.
    Allgather { id: u32 },
}

#[cfg(test)]
mod tests {
    use super::*;

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
