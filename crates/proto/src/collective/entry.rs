//! The inputs and outputs of a job's collectives on one node.

use bytes::Bytes;
use wireup_coll::allgather::{PeerSet, Rules};
use wireup_coll::scan::Down;
use wireup_wire::collective::{Collective, RoundTag, Tag};
use wireup_wire::ids::{Epoch, LocalRank, NodeId, Rank};
use wireup_wire::job::ExchangeScheme;
use wireup_wire::peer::FenceTrace;
use wireup_wire::rope::Rope;

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
    /// The nodes that have ranks, in ascending order: the peers of direct exchanges.
    pub peers: Vec<NodeId>,
    /// Index of this node in `peers`; `None`: this node has no ranks.
    pub place: Option<u32>,
    /// Most data that a PMIx fence distributes where the root may choose (bytes); `None`: no limit.
    pub collect_max: Option<u64>,
}

impl CollectiveConfig {
    pub fn peer_set(&self) -> PeerSet {
        PeerSet { count: self.peers.len() as u32, me: self.place, root: self.root, children: self.children }
    }

    pub fn rules(&self) -> Rules {
        Rules { scheme: self.scheme, collect_max: self.collect_max }
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

/// What a collective does next on this node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    /// A frame to the parent.
    Up { epoch: Epoch, tag: Tag, payload: Rope },
    /// A frame to one child, or to all.
    Down { epoch: Epoch, child: Option<usize>, tag: Tag, payload: Rope },
    /// A direct frame to a node.
    Direct { epoch: Epoch, node: NodeId, tag: RoundTag, payload: Rope },
    /// A collective is complete: answer its local ranks.
    Finish(Box<Finished>),
    /// The job cannot continue.
    Fail { problem: String },
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
