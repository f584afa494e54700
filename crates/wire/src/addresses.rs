//! Messages between agents about where ranks are reached: plain structs, encoded by `postcard`.
//!
//! ```text
//!   agent of the rank that asks           agent of the rank that is looked for
//!     ── Want { name, ranks } ──────────►
//!     ◄─────── Have { name, cards } ──    when a rank has told its address, or has left
//! ```

use crate::ids::Rank;
use alloc::vec::Vec;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// A message between two agents, in frames of [`crate::frame::PeerFrame::Addresses`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Between {
    /// Requests the addresses of these ranks, which run on the receiver's node.
    Want { name: Bytes, ranks: Vec<Rank> },
    /// Addresses that ranks of this node have announced under this name, including some that were not requested, in
    /// order to save later requests.
    Have { name: Bytes, cards: Vec<Card> },
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Card {
    pub rank: Rank,
    /// The address as the rank has announced it; `None`: the rank has left without announcing one.
    pub value: Option<Bytes>,
}
