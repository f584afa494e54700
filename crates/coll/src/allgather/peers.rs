//! The peers of an allgather, and the messages between them.

use alloc::vec::Vec;
use wireup_wire::collective::{ExchangeScheme, RoundTag, Tag};
use wireup_wire::rope::Rope;

/// A peer set as seen by one agent of its tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PeerSet {
    /// Number of peers, which are numbered `0..count`.
    pub count: u32,
    /// This agent's index among the peers; `None`: it is no peer.
    pub me: Option<u32>,
    /// Whether this agent is the root, where the gather up the tree ends.
    pub root: bool,
    /// Number of children that are peers or have peers below them.
    pub children: usize,
}

/// The rules by which a peer set exchanges its blocks, which are the same for every peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rules {
    pub scheme: ExchangeScheme,
    /// Most bytes of all peers together that are distributed where the root may choose; `None`: no limit.
    pub collect_max: Option<u64>,
}

/// Who sent a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sender {
    Parent(Tag),
    /// A child, by its index.
    Child(usize, Tag),
    Peer(u32, RoundTag),
}

/// Who receives a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Receiver {
    Parent(Tag),
    /// A child, by its index.
    Child(usize, Tag),
    /// Every child of this agent.
    Children(Tag),
    Peer(u32, RoundTag),
}

/// The result of a start or of a message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Progress<T = Vec<Rope>> {
    pub sends: Vec<(Receiver, Rope)>,
    /// The outcome, once. That of an allgather is all blocks, possibly without the empty ones, in parts in any order.
    pub done: Option<T>,
}

impl<T> Default for Progress<T> {
    fn default() -> Self {
        Progress { sends: Vec::new(), done: None }
    }
}
