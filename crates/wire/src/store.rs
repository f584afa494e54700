//! Messages between agents about the store of a job: plain structs, encoded by `postcard`.
//!
//! Each key belongs to one agent of the job, its owner. In a large job an agent sends its questions to its parent in
//! the job's tree, which passes them on to the owner.
//!
//! ```text
//!   agent of a client                     owner of the keys
//!     ── Ask { 5, 6 } ──────────────────────►
//!     ◄──────── Answer { taken, 5 } ──        at once; again when key 6 exists, if it was awaited
//!     ◄──────── Forget { keys } ──            the values will change: copies must go first
//!     ── Forgotten { keys } ────────────────►
//! ```
//!
//! The next `Ask` is sent when the previous one was acknowledged; further questions are collected in it meanwhile.

use alloc::vec::Vec;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// A message between two agents, in frames of [`crate::frame::PeerFrame::Store`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Between {
    Ask(Vec<Question>),
    /// `taken`: acknowledges the last `Ask`. `answers`: the outcomes, each with the number of its question.
    Answer {
        taken: bool,
        answers: Vec<(u32, Outcome)>,
    },
    /// The receiver has copies of these values, which are about to change.
    Forget {
        keys: Vec<Bytes>,
    },
    /// The sender has no copies of these values any more.
    Forgotten {
        keys: Vec<Bytes>,
    },
}

/// A request about one key; for `Count` and `List` the key is the number of the owner (4 bytes, little-endian).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Question {
    /// The asking agent's number for the question.
    pub id: u32,
    pub key: Bytes,
    pub operation: Operation,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Operation {
    Set {
        value: Bytes,
    },
    CompareSet {
        expected: Bytes,
        desired: Bytes,
    },
    Get,
    Add {
        amount: i64,
    },
    Check,
    /// Answered when the key has a value, or a value is in its queue that was pushed after push number `seen`.
    Wait {
        seen: u64,
    },
    /// `count` clients enter a barrier of `world_size`; answered when it is complete.
    Arrive {
        count: u32,
        world_size: i64,
    },
    /// Nobody waits any more for the answer to question `id`, a `Wait` or an `Arrive`. This question has no answer of
    /// its own.
    Cancel {
        id: u32,
    },
    Delete,
    Append {
        value: Bytes,
    },
    Push {
        value: Bytes,
    },
    Pop,
    Length,
    /// Requests the number of keys that this owner has.
    Count,
    /// Requests all keys that this owner has.
    List,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Outcome {
    Done,
    /// The value of the key; `None`: the key has none.
    Value(Option<Bytes>),
    Number(i64),
    /// The key has a value, which is sent along if it is short. The agent may keep it as a copy until it is told to
    /// forget it.
    Exists {
        value: Option<Bytes>,
    },
    /// The key has no value, but its queue has values; `pushes`: the number of the push of one of them.
    Queued {
        pushes: u64,
    },
    Missing,
    Cancelled,
    Popped {
        length: u64,
        value: Option<Bytes>,
    },
    Keys(Vec<Bytes>),
    /// The owner's memory for the store is full, or the result would be too long.
    Full,
    /// The key's value is not a number.
    NoNumber,
}

impl Outcome {
    /// Total length of the values in the outcome (bytes).
    pub fn len(&self) -> usize {
        match self {
            Outcome::Value(value) | Outcome::Exists { value } | Outcome::Popped { value, .. } => {
                value.as_ref().map_or(0, Bytes::len)
            }
            Outcome::Keys(keys) => keys.iter().map(Bytes::len).sum(),
            Outcome::Done | Outcome::Number(_) | Outcome::Queued { .. } | Outcome::Missing => 0,
            Outcome::Cancelled | Outcome::Full | Outcome::NoNumber => 0,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the request cannot be carried out.
    pub fn is_failure(&self) -> bool {
        matches!(self, Outcome::Full | Outcome::NoNumber)
    }
}

impl Question {
    /// Length of the key and the values in the question (bytes).
    pub fn bytes(&self) -> usize {
        self.key.len()
            + match &self.operation {
                Operation::Set { value } | Operation::Append { value } | Operation::Push { value } => value.len(),
                Operation::CompareSet { expected, desired } => expected.len() + desired.len(),
                _ => 0,
            }
    }
}
