//! All peers' blocks to all peers; one algorithm per file.
//!
//! ```text
//!            messages a peer      after    bytes into a peer       for
//! tree       1 up, k down         2 log_k  up: its subtree's,      few bytes: the links are there already
//!                                          down: all
//! ring       N-1                  N-1      all but its own, once   many bytes: each crosses each link once
//! bruck      ceil(log2 N)         log2 N   all but its own, once   between: few messages, no byte twice
//! ```
//!
//! The tree gathers over the links of the session's tree. Ring and Bruck ([`Direct`]) are over links of their own
//! between peers `0..n`, which are the nodes of a job that have ranks; which agent is which peer is the caller's. There
//! a peer contributes exactly one block: one of no bytes where its node has nothing, so that contributions can be
//! counted. [`choice`] picks by nodes and bytes.

use alloc::vec::Vec;
use bytes::{Bytes, BytesMut};
use thiserror::Error;
use wireup_wire::block::{self, Block};
use wireup_wire::collective::Algorithm;

pub mod bruck;
pub mod choice;
pub mod ring;
pub mod tree;

use bruck::Bruck;
use ring::Ring;

/// A message to another peer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Message {
    pub to: u32,
    pub round: u16,
    /// One or more blocks.
    pub payload: Bytes,
}

/// What a start or a message leads to.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Step {
    pub sends: Vec<Message>,
    /// The blocks of all peers, one of each, the own included; the parts in any order. Given once.
    pub done: Option<Vec<Bytes>>,
}

/// Another peer sent what cannot be right.
#[derive(Error, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    #[error("peer {from} sent for round {round}, expected one of {rounds} rounds")]
    NoSuchRound { from: u32, round: u16, rounds: u32 },
    #[error("round {round} came from peer {from}, expected from peer {expected}")]
    WrongSender { from: u32, round: u16, expected: u32 },
    #[error("peer {from} sent round {round} a second time, expected once")]
    Twice { from: u32, round: u16 },
    #[error("peer {from} sent {found} blocks in round {round}, expected {expected}")]
    Blocks { from: u32, round: u16, found: usize, expected: usize },
    #[error("the subtree of child {0} contributed a second time, expected once")]
    ChildTwice(usize),
    #[error("this peer contributed a second time, expected once")]
    OwnTwice,
    #[error("a subtree's size came in {0} bytes, expected 8")]
    NoSize(usize),
    #[error(transparent)]
    Truncated(#[from] block::Truncated),
}

/// One peer's part in one allgather over direct links. Messages may come before [`Direct::start`], and a round's
/// before those of the rounds ahead of it.
pub enum Direct {
    Ring(Ring),
    Bruck(Bruck),
}

impl Direct {
    /// The part of peer `me` among peers `0..n`.
    ///
    /// # Panics
    /// If `me` is not one of them, or the rounds are more than `u16` can count (a ring of more than 65,537).
    pub fn new(algorithm: Algorithm, me: u32, n: u32) -> Self {
        assert!(me < n, "peer {me} is one of {n}");
        match algorithm {
            Algorithm::Ring => Direct::Ring(Ring::new(me, n)),
            Algorithm::Bruck => Direct::Bruck(Bruck::new(me, n)),
        }
    }

    /// This peer's own block, of no bytes where it has nothing to say.
    ///
    /// # Panics
    /// If called twice.
    pub fn start(&mut self, own: &Block) -> Step {
        match self {
            Direct::Ring(ring) => ring.start(own.encode()),
            Direct::Bruck(bruck) => bruck.start(own.encode()),
        }
    }

    /// The message of peer `from` for `round`. Whose blocks they are is for the reader of all of them to check; their
    /// number is checked here.
    pub fn on_message(&mut self, from: u32, round: u16, payload: Bytes) -> Result<Step, Refused> {
        match self {
            Direct::Ring(ring) => ring.on_message(from, round, payload),
            Direct::Bruck(bruck) => bruck.on_message(from, round, payload),
        }
    }

    /// The peers whose messages are missing, each once: whom this peer waits for.
    pub fn awaited(&self) -> Vec<u32> {
        match self {
            Direct::Ring(ring) => ring.awaited(),
            Direct::Bruck(bruck) => bruck.awaited(),
        }
    }
}

/// The peers that peer `me` of `0..n` sends to, in the order of its rounds.
pub fn receivers(algorithm: Algorithm, me: u32, n: u32) -> Vec<u32> {
    match algorithm {
        Algorithm::Ring if n > 1 => [(me + 1) % n].into(),
        Algorithm::Ring => Vec::new(),
        Algorithm::Bruck => {
            (0..u32::BITS).map(|round| 1 << round).take_while(|d| *d < n).map(|d| (me + n - d) % n).collect()
        }
    }
}

/// Refuses a payload of another number of blocks than `expected`.
fn check_blocks(from: u32, round: u16, payload: &[u8], expected: usize) -> Result<(), Refused> {
    let found = block::count(payload)?;
    if found == expected { Ok(()) } else { Err(Refused::Blocks { from, round, found, expected }) }
}

/// The bytes of all parts; a single one is not copied.
fn join(mut parts: Vec<Bytes>) -> Bytes {
    if parts.len() <= 1 {
        return parts.pop().unwrap_or_default();
    }
    let mut joined = BytesMut::with_capacity(parts.iter().map(Bytes::len).sum());
    for part in parts {
        joined.extend_from_slice(&part);
    }
    joined.freeze()
}

#[cfg(test)]
mod tests;
