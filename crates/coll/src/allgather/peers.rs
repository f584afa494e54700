//! The peers of an allgather, and what they say to each other.

use alloc::vec::Vec;
use wireup_wire::collective::{ExchangeScheme, RoundTag, Tag};
use wireup_wire::rope::Rope;

/// A peer set as one of those sees it that its tree holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PeerSet {
    /// The peers are `0..count`.
    pub count: u32,
    /// This one among them, if it is one.
    pub me: Option<u32>,
    /// The way up the tree ends here.
    pub root: bool,
    /// Children in the tree with peers below them, or peers themselves.
    pub children: usize,
}

/// How a peer set exchanges its blocks: the same at each peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rules {
    pub scheme: ExchangeScheme,
    /// Where the root may choose: more bytes of all peers together stay where they are.
    pub collect_max: Option<u64>,
}

/// Whom a message comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sender {
    Parent(Tag),
    /// By its index.
    Child(usize, Tag),
    Peer(u32, RoundTag),
}

/// Whom a message is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Receiver {
    Parent(Tag),
    /// Each child.
    Children(Tag),
    Peer(u32, RoundTag),
}

/// What a start or a message leads to.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Progress {
    pub sends: Vec<(Receiver, Rope)>,
    /// All blocks, those of no bytes perhaps left out; the parts in any order. Given once.
    pub done: Option<Vec<Rope>>,
}
