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

/// Between two agents, in frames of [`crate::frame::PeerFrame::Addresses`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Between {
    /// Where are these ranks of your node?
    Want { name: Bytes, ranks: Vec<Rank> },
    /// What ranks of this node have told under this name. Those that were not asked for save a question.
    Have { name: Bytes, cards: Vec<Card> },
}

/// Where a rank is reached.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Card {
    pub rank: Rank,
    /// As the rank has told it. `None`: it has left without telling.
    pub value: Option<Bytes>,
}
