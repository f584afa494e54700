//! What goes into a job's collectives on one node, and what comes out of them.

use super::ticket::Ticket;
use bytes::Bytes;
use wireup_coll::allgather::{PeerSet, Rules};
use wireup_coll::scan::Place;
use wireup_wire::collective::{Collective, RoundTag, Tag};
use wireup_wire::ids::{Epoch, LocalRank, NodeId, Rank};
use wireup_wire::job::ExchangeScheme;
use wireup_wire::peer::FenceTrace;
use wireup_wire::rope::Rope;

/// What is the same for all collectives of a job on this node.
#[derive(Clone)]
pub struct Site {
    /// The way up ends here.
    pub root: bool,
    pub local_size: u32,
    /// Children in the tree with ranks of the job below them.
    pub children: usize,
    pub scheme: ExchangeScheme,
    /// A node's part is compressed from so many bytes on; 0: never.
    pub compress_min: u32,
    /// The nodes that have ranks, ascending: the peers of direct ways.
    pub peers: Vec<NodeId>,
    /// This node among them.
    pub place: Option<u32>,
    /// Of PMIx fences, where the root may choose: data of more bytes stays where it is.
    pub collect_max: Option<u64>,
}

impl Site {
    pub fn peer_set(&self) -> PeerSet {
        PeerSet { count: self.peers.len() as u32, me: self.place, root: self.root, children: self.children }
    }

    pub fn rules(&self) -> Rules {
        Rules { scheme: self.scheme, collect_max: self.collect_max }
    }
}

/// A rank's part in a collective.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Entry {
    Fence,
    Allgather {
        max_len: u32,
        shared: bool,
        value: Bytes,
    },
    Ring {
        value: Bytes,
    },
    /// With the data of the whole node, given by one of its ranks.
    Modex {
        data: Bytes,
    },
}

/// A rank that starts its next collective.
pub struct Entering {
    pub local: LocalRank,
    pub rank: Rank,
    pub entry: Entry,
    pub ticket: Ticket,
}

/// What is to be done next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Do {
    /// A frame to the parent.
    Up { epoch: Epoch, tag: Tag, payload: Rope },
    /// A frame to one child, or to all.
    Down { epoch: Epoch, child: Option<usize>, tag: Tag, payload: Rope },
    /// A frame to a node, straight.
    Direct { epoch: Epoch, node: NodeId, tag: RoundTag, payload: Rope },
    /// A collective is over: its ranks here are told.
    Finish(Box<Finished>),
    /// The job cannot go on.
    Fail { problem: String },
}

/// A collective that is over everywhere this node must know of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finished {
    pub epoch: Epoch,
    /// The ranks here, in the order of their coming, and how each is to be answered.
    pub waiting: Vec<(LocalRank, Ticket)>,
    pub outcome: Outcome,
    pub trace: FenceTrace,
}

/// What a collective brought.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Blocks of packed pairs; of a PMIx fence: of what its library gave.
    Pairs(Vec<Bytes>),
    /// Blocks of values. `shared`: somebody here wants rows.
    Values { max_len: u32, shared: bool, blocks: Vec<Bytes> },
    /// For each local rank.
    Places(Vec<Place>),
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
