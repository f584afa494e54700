//! Messages between agents about a job's PMIx apart from its collectives: plain structs, encoded by `postcard`.
//!
//! ```text
//!   requester           tree or direct link             owner
//!     ── Want { wanted } ───────────────────────────────►  asks its server process
//!     ◄──────────── Have { taken, blobs } ──  at once; again when the rest is available
//!
//!   any node ── Up ──► … ──► root ── Down ──► … ──► one node, or all
//! ```
//!
//! The next `Want` is sent when the previous one was acknowledged; further requests are collected in it meanwhile. So
//! requests are bundled, and none waits for another rank's commit.

use crate::ids::{Epoch, NodeId, Rank};
use crate::inter_job::{InterJobReport, Order};
use crate::pmix::{Answer, Ask, Event, Proc, Set, Status, Wanted};
use alloc::vec::Vec;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// A message between two agents, in frames of [`crate::frame::PeerFrame::Modex`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Between {
    /// Requests the data that these ranks of the receiver's node have committed.
    Want { wanted: Vec<Wanted> },
    /// `taken`: acknowledges the last `Want`.
    Have { taken: bool, blobs: Vec<Blob> },
    /// An order of the root, sent directly because the agent's part of the job has ended, so that the job's tree does
    /// not reach it.
    Order(Order),
    /// To the root: the answer to such an order.
    Report(InterJobReport),
}

/// The data that a rank has committed, or the reason why there is none.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Blob {
    pub wanted: Wanted,
    pub status: Status,
    pub bytes: Bytes,
}

/// A message to the root, in frames of [`crate::frame::UpFrame::PmixUp`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Up {
    /// A request that the root serves; answered with the same number.
    Ask { node: NodeId, id: u64, ask: Ask },
    /// A rank of the sender's node has registered for events about other ranks.
    Watch,
    /// A rank raises an event, or has ended.
    Event { code: Event, from: Option<Rank>, affected: Option<Rank>, to: Set, infos: Bytes },
    /// The processes of a subtree. Each hop combines the lists of its children.
    Procs { query: u32, procs: Vec<Proc> },
    /// Some rank has set a timeout for a fence of the whole job. Sent before the contribution of that rank's node to
    /// the fence.
    Impatient { epoch: Epoch },
    /// A fence of the whole job exceeded a rank's timeout.
    GiveUp { epoch: Epoch },
}

/// A message from the root, in frames of [`crate::frame::DownFrame::PmixDown`]; to all nodes except for `Answer`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Down {
    /// The answer to a node's request.
    Answer { node: NodeId, id: u64, answer: Answer },
    /// Some rank has registered for events: each node must report its ranks that end.
    Watched,
    /// An event, for the ranks of `to` that have registered for it.
    Event { code: Event, from: Option<Rank>, affected: Option<Rank>, to: Set, infos: Bytes },
    /// Requests the list of the job's processes.
    Procs { query: u32 },
    /// A fence of the whole job has ended without a result.
    Over { epoch: Epoch, status: Status },
    /// Send a signal to these ranks.
    Signal { ranks: Vec<Rank>, signal: i32 },
}

/// One node's contribution to a fence of some ranks, or to a group: the bytes of its block.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum NodeContribution {
    /// The data of the node for a fence.
    Fence { data: Bytes },
    /// A node's part of the construction of a group; the group's context is the smallest `context` of all nodes.
    Group { name: alloc::string::String, context: u64, data: Bytes },
    /// There will be no contribution, because a member on the node, or each of them, has ended.
    Gone,
}
