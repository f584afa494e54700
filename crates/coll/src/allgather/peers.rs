//! The peers of an allgather, and the messages between them.

use alloc::vec::Vec;
use wireup_wire::collective::{ExchangeScheme, RoundTag, Tag};
use wireup_wire::rope::Rope;

/// A peer set as seen by one agent of its tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PeerSet {
    /// The peers are `0..count`.
    pub count: u32,
    /// This agent's index among the peers, if it is one.
    pub me: Option<u32>,
    /// This agent is the root: the gather up the tree ends here.
    pub root: bool,
    /// Children that are peers or have peers below them.
    pub children: usize,
}

/// How a peer set exchanges its blocks: the same for every peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rules {
    pub scheme: ExchangeScheme,
    /// Where the root may choose: if all peers together have more bytes than this, the blocks are not distributed.
    pub collect_max: Option<u64>,
}

/// Who sent a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sender {
    Parent(Tag),
    /// The child's index.
    Child(usize, Tag),
    Peer(u32, RoundTag),
}

/// Who receives a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Receiver {
    Parent(Tag),
    /// Every child.
    Children(Tag),
    Peer(u32, RoundTag),
}

/// The result of a start or of a message.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Progress {
    pub sends: Vec<(Receiver, Rope)>,
    /// All blocks, possibly without the empty ones; the parts are in any order. Returned once.
    pub done: Option<Vec<Rope>>,
}
