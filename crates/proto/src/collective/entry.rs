//! The inputs and outputs of a job's collectives on one node.

use bytes::Bytes;
use wireup_coll::allgather::{PeerSet, Rules};
use wireup_coll::scan::Place;
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
    /// A node's part is compressed from this size on (bytes); 0: never.
    pub compress_min: u32,
    /// The nodes that have ranks, in ascending order: the peers of direct exchanges.
    pub peers: Vec<NodeId>,
    /// This node's index among them.
    pub place: Option<u32>,
    /// For PMIx fences, where the root may choose: a larger amount of data is not distributed.
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
    Fence,
    Allgather {
        max_len: u32,
        shared: bool,
        value: Bytes,
    },
    Ring {
        value: Bytes,
    },
    /// With the data of the whole node, passed by one of its ranks.
    Modex {
        data: Bytes,
    },
}

/// A rank that starts its next collective.
pub struct Entering {
    pub local: LocalRank,
    pub rank: Rank,
    pub entry: Entry,
    pub reply_to: ReplyTo,
}

/// The next action.
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
    /// Blocks of values. `shared`: some local rank wants rows.
    Values { max_len: u32, shared: bool, blocks: Vec<Bytes> },
    /// One place per local rank.
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

/// How to answer a rank when its collective completes: chosen by the code that enters the collective, returned with its
/// outcome.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ReplyTo {
    /// A text client's fence, with its `thrid`.
    Fence { thread: Option<Vec<u8>> },
    /// Already answered.
    Lazy,
    /// The answer goes to the node's PMIx server, which has entered for the rank.
    Server,
    /// A text client's ring.
    Ring { thread: Option<Vec<u8>> },
    /// Nobody waits: this agent has entered for the rank, and keeps the outcome.
    Endpoints,
    /// Our own client's fence.
    OwnFence { id: u32 },
    /// Our own client's allgather.
    Allgather { id: u32 },
}
