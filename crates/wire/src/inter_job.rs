//! Messages for PMIx operations that involve several jobs of a session: collectives of their ranks, and requests for
//! data of another job's ranks. Plain structs, encoded by `postcard`. All pass through the root, which knows all jobs.
//!
//! ```text
//!   PMIx server ── Joint ──► its agent ── up ──► root: until the last node has entered ── Joined ──► each node
//!   PMIx server ── Fetch ──► its agent ── up ──► root ── Order::Give ──► agent of the rank
//!                                                root ◄──────────────────────── Given ──
//!   PMIx server ◄── its agent ◄────── Fetched ── root
//! ```

use crate::ids::{AgentId, Rank};
use crate::job::Block;
use crate::pmix_types::{App, Set, Status, Wanted};
use alloc::string::String;
use alloc::vec::Vec;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// A job, as the PMIx servers of other jobs need to know it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct OtherJob {
    pub nspace: String,
    /// Agent and name of each node of the job; the position is the `NodeId`.
    pub nodes: Vec<(AgentId, String)>,
    pub blocks: Vec<Block>,
    /// Programs in rank order.
    pub apps: Vec<App>,
    pub universe: Option<u32>,
    pub parent: Option<Parent>,
}

/// The rank that has requested the spawned job.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Parent {
    pub nspace: String,
    pub rank: Rank,
}

/// A collective of ranks of several jobs: all members on one node have entered.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Joint {
    pub purpose: Purpose,
    /// The ranks of each job, in ascending order of the names; each name once.
    pub members: Vec<(String, Set)>,
    pub data: Bytes,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum Purpose {
    Fence,
    /// `PMIx_Connect`: from now on a failure of one of the jobs ends all of them.
    Connect,
    /// `PMIx_Disconnect`: ends the effect of `Connect`.
    Disconnect,
    /// The construction of a group with this name.
    Group(String),
}

/// A request for what a rank of another job has committed, or for the description of that job.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Fetch {
    pub nspace: String,
    /// The data of a rank of that job that is requested; `None`: only the description of the job.
    pub wanted: Option<Wanted>,
    /// Whether the job is unknown to the node that asks.
    pub is_new: bool,
}

/// The outcome of a collective of several jobs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Joined {
    /// The context id, equal at all members and unique in the session.
    pub context: u64,
    /// The data of the nodes, in an order that is equal at all members.
    pub data: Vec<Bytes>,
    /// Descriptions of the jobs that took part, except the receiver's own.
    pub jobs: Vec<OtherJob>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Fetched {
    pub blob: Bytes,
    pub job: Option<OtherJob>,
}

/// An order of the root to an agent that runs a part of a job.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Order {
    /// Send what a rank of this node has committed, for a rank of another job; the answer has the same `ticket`.
    Give { ticket: u64, wanted: Wanted },
    /// Ranks of other jobs may wait for ranks of this one: report which ones enter no more collectives.
    TellDeparted,
    /// Another job has ended: its data is no longer needed.
    Forget { nspace: String },
}

/// A report of an agent to the root.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum InterJobReport {
    /// The answer to [`Order::Give`].
    Given { ticket: u64, status: Status, blob: Bytes },
    /// Ranks of this node that will enter no more collectives.
    Departed { ranks: Vec<Rank> },
    /// All ranks of this node have ended.
    Ended,
    /// No rank waits any more for the answer to this request of the PMIx server.
    GaveUp { id: u64 },
}
