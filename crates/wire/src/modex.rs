//! What agents tell each other about a job's PMIx beside its collectives: plain structs, encoded by `postcard`.
//!
//! ```text
//!   wants               tree, or straight               has
//!     ── Want { ranks } ────────────────────────────────►  asks its server process
//!     ◄──────────── Have { taken, blobs } ──  at once; again when the rest is there
//!
//!   any node ── Up ──► … ──► root ── Down ──► … ──► one node, or all
//! ```
//!
//! A `Want` is sent when the one before was taken; what is wanted meanwhile goes along with the next. So requests are
//! bundled, and none waits for another rank's commit.

use crate::ids::{Epoch, NodeId, Rank};
use crate::pmix::{Answer, Ask, Event, Proc, Set, Status};
use alloc::vec::Vec;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// Between two agents, in frames of [`crate::frame::Kind::Modex`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Between {
    /// What have these ranks of your node committed?
    Want { ranks: Vec<Rank> },
    /// `taken`: the last `Want` was read.
    Have { taken: bool, blobs: Vec<Blob> },
}

/// What a rank has committed; or why there is nothing.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Blob {
    pub rank: Rank,
    pub status: Status,
    pub bytes: Bytes,
}

/// To the root, in frames of [`crate::frame::Kind::PmixUp`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Up {
    /// A request that the root serves; answered by its number.
    Ask { node: NodeId, id: u64, ask: Ask },
    /// A rank that has published is gone.
    Left { rank: Rank },
    /// A rank here waits for events about others.
    Watch,
    /// A rank raises an event, or is gone.
    Event { code: Event, from: Option<Rank>, affected: Option<Rank>, to: Set, infos: Bytes },
    /// The processes of a subtree. From hop to hop: each joins what its children say.
    Procs { query: u32, procs: Vec<Proc> },
    /// Some rank will not wait for a fence of the whole job for ever. Comes before its node's part.
    Impatient { epoch: Epoch },
    /// A fence of the whole job took longer than a rank's patience.
    GiveUp { epoch: Epoch },
}

/// From the root, in frames of [`crate::frame::Kind::PmixDown`]; to all nodes but for `Answer`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Down {
    Answer {
        node: NodeId,
        id: u64,
        answer: Answer,
    },
    /// Tell of ranks that go.
    Watched,
    Event {
        code: Event,
        from: Option<Rank>,
        affected: Option<Rank>,
        to: Set,
        infos: Bytes,
    },
    /// Which processes are there?
    Procs {
        query: u32,
    },
    /// A fence of the whole job is over without an outcome.
    Over {
        epoch: Epoch,
        status: Status,
    },
    /// Send a signal to these ranks.
    Signal {
        ranks: Vec<Rank>,
        signal: i32,
    },
}

/// What a node brings to the fence of some ranks, or to a group: the bytes of its block.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Part {
    Fence {
        data: Bytes,
    },
    /// The smallest context is the group's.
    Group {
        name: alloc::string::String,
        context: u64,
        data: Bytes,
    },
    /// A member there has left, or all of them have: nothing will come.
    Gone,
}
