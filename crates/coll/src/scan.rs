//! Scans a ring of processes up and down a tree (S2, `PMIX_Ring`): each process learns its position and both
//! neighbours' values.
//!
//! ```text
//! up:    count, leftmost and rightmost value of a subtree            order of a subtree: the peer's own processes in
//! down:  count before it, value on its left and on its right         local order, then child 0's, child 1's, ...
//! ```
//!
//! A peer waits for its own processes and an [`Up`] from each child, and sends their combination to its parent. The
//! root closes the ring: the left neighbour of the first process is the last one. On the way down a peer splits the
//! [`Down`] that it received into one for each process and one for each child. So the processes of a node are
//! adjacent, and a position in the ring is not a rank. A subtree without processes takes no position: its count is 0
//! and its values are ignored.
//!
//! Cost per peer: 1 message in per child, 1 out; the same on the way down. Bytes of each: a count and two values,
//! whatever the job size. Time and memory: O(processes + children) per peer, 2 log N hops.

use super::allgather::{Progress, Receiver, Sender};
use alloc::vec;
use alloc::vec::Vec;
use bytes::Bytes;
use thiserror::Error;
use wireup_wire::collective::{Collective, Form, Tag};
use wireup_wire::values;

/// The processes of a subtree, seen from its parent.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Up {
    pub count: u32,
    /// The first process's value.
    pub left: Bytes,
    /// The last process's value.
    pub right: Bytes,
}

/// The ring positions and values around the processes of a subtree, or around one process.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Down {
    /// Number of processes before the first one, counted from the beginning of the ring: the first one's position.
    pub before: u32,
    /// Value of the process to the left of the first one.
    pub left: Bytes,
    /// Value of the process to the right of the last one.
    pub right: Bytes,
}

/// Another peer sent an invalid message.
#[derive(Error, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    #[error("the subtree of child {0} contributed to the ring a second time, expected once")]
    ChildTwice(usize),
    #[error("this peer contributed to the ring a second time, expected once")]
    OwnTwice,
    #[error("{found} processes of this peer entered the ring, expected {expected}")]
    Own { found: usize, expected: usize },
    #[error("the subtrees of a ring count more processes than there can be")]
    TooMany,
    #[error("a place in the ring came before this subtree was complete, or a second time")]
    TooEarly,
    #[error("a ring's message is a count and two values, this is not")]
    Malformed,
    #[error("a ring goes along the tree")]
    BesideTheTree,
}

impl Up {
    /// Encodes `count` as u32 LE, then both values as in [`values`].
    pub fn encode(&self) -> Bytes {
        encode(self.count, &self.left, &self.right)
    }

    pub fn decode(payload: &Bytes) -> Result<Self, Refused> {
        decode(payload).map(|(count, left, right)| Up { count, left, right })
    }
}

impl Down {
    /// Encodes `before` as u32 LE, then both values as in [`values`].
    pub fn encode(&self) -> Bytes {
        encode(self.before, &self.left, &self.right)
    }

    pub fn decode(payload: &Bytes) -> Result<Self, Refused> {
        decode(payload).map(|(before, left, right)| Down { before, left, right })
    }
}

fn encode(count: u32, left: &[u8], right: &[u8]) -> Bytes {
    let mut out = Vec::with_capacity(4 + values::encoded_len(left.len()) + values::encoded_len(right.len()));
    out.extend_from_slice(&count.to_le_bytes());
    values::push(&mut out, left);
    values::push(&mut out, right);
    out.into()
}

fn decode(payload: &Bytes) -> Result<(u32, Bytes, Bytes), Refused> {
    let (count, both) = payload.split_first_chunk().ok_or(Refused::Malformed)?;
    let mut both = values::values(both);
    let mut value = || both.next().and_then(Result::ok).ok_or(Refused::Malformed);
    let (left, right) = (value()?, value()?);
    match both.next() {
        None => Ok((u32::from_le_bytes(*count), payload.slice_ref(left), payload.slice_ref(right))),
        Some(_) => Err(Refused::Malformed),
    }
}

/// One peer's part in one ring scan.
pub struct RingScan {
    is_root: bool,
    local_size: usize,
    own: Option<Vec<Bytes>>,
    children: Vec<Option<Up>>,
    /// Summary of the whole subtree: set when the subtree is complete, taken when its surroundings arrive.
    total: Option<Up>,
}

/// What a peer sends next, and the surroundings of its own processes in local order, once they are known.
pub type RingProgress = Progress<Vec<Down>>;

impl RingScan {
    /// The state of a peer with this many children and processes.
    pub fn new(is_root: bool, children: usize, local_size: usize) -> Self {
        RingScan { is_root, local_size, own: None, children: vec![None; children], total: None }
    }

    /// Starts with the values of this peer's own processes, in local order. A peer without processes need not start.
    ///
    /// # Errors
    /// [`Refused`]: it has already started, or there is not one value for each process.
    pub fn start(&mut self, own: Vec<Bytes>) -> Result<RingProgress, Refused> {
        if own.len() != self.local_size {
            return Err(Refused::Own { found: own.len(), expected: self.local_size });
        }
        if self.own.is_some() {
            return Err(Refused::OwnTwice);
        }
        self.own = Some(own);
        self.sum_up()
    }

    /// # Errors
    /// [`Refused`]: no correct peer sends this.
    ///
    /// # Panics
    /// If there is no such child.
    pub fn on_message(&mut self, from: Sender, payload: &Bytes) -> Result<RingProgress, Refused> {
        match from {
            Sender::Child(child, _) => self.on_child(child, Up::decode(payload)?),
            Sender::Parent(_) => self.on_down(Down::decode(payload)?),
            Sender::Peer(..) => Err(Refused::BesideTheTree),
        }
    }

    fn on_child(&mut self, index: usize, up: Up) -> Result<RingProgress, Refused> {
        let child = &mut self.children[index];
        if child.is_some() {
            return Err(Refused::ChildTwice(index));
        }
        *child = Some(up);
        match self.own {
            None if self.local_size == 0 => self.start(Vec::new()),
            _ => self.sum_up(),
        }
    }

    /// Whether the whole subtree has contributed.
    pub fn is_gathered(&self) -> bool {
        self.own.is_some() && self.children.iter().all(Option::is_some)
    }

    /// Handles the surroundings of this subtree: sends each child those of its subtree, and returns those of this
    /// peer's processes.
    fn on_down(&mut self, down: Down) -> Result<RingProgress, Refused> {
        self.total.take().ok_or(Refused::TooEarly)?;
        let own = self.own.iter().flatten().map(|value| Up { count: 1, left: value.clone(), right: value.clone() });
        let ups: Vec<Up> = own.chain(self.children.iter().flatten().cloned()).collect();
        let mut downs = surroundings(&ups, down);
        let children = downs.split_off(self.local_size).into_iter().enumerate();
        let sends = children.map(|(child, down)| (Receiver::Child(child, TAG), down.encode().into()));
        Ok(Progress { sends: sends.collect(), done: Some(downs) })
    }

    /// Sends the summary of the subtree to the parent, if the subtree is complete. The surroundings of the whole ring,
    /// at the root, are its own opposite ends.
    fn sum_up(&mut self) -> Result<RingProgress, Refused> {
        let Some(own) = self.own.as_ref().filter(|_| self.children.iter().all(Option::is_some)) else {
            return Ok(Progress::default());
        };
        let inner = self.children.iter().flatten().filter(|up| up.count > 0);
        let count = inner.clone().try_fold(own.len() as u32, |sum, up| sum.checked_add(up.count));
        let left = own.first().or_else(|| inner.clone().next().map(|up| &up.left));
        let right = inner.clone().next_back().map(|up| &up.right).or_else(|| own.last());
        let total = Up {
            count: count.ok_or(Refused::TooMany)?,
            left: left.cloned().unwrap_or_default(),
            right: right.cloned().unwrap_or_default(),
        };
        self.total = Some(total.clone());
        match self.is_root {
            true => self.on_down(Down { before: 0, left: total.right, right: total.left }),
            false => Ok(Progress { sends: vec![(Receiver::Parent(TAG), total.encode().into())], done: None }),
        }
    }
}

const TAG: Tag = Tag { collective: Collective::Ring, form: Form::Data };

/// The surroundings of each element of `ups`, which follow one another in the ring; `outer`: the surroundings of all of
/// them together.
fn surroundings(ups: &[Up], outer: Down) -> Vec<Down> {
    let mut downs = vec![Down::default(); ups.len()];
    let (mut before, mut left) = (outer.before, outer.left);
    for (down, up) in downs.iter_mut().zip(ups).filter(|(_, up)| up.count > 0) {
        (down.before, down.left) = (before, core::mem::replace(&mut left, up.right.clone()));
        before = before.saturating_add(up.count);
    }
    let mut right = outer.right;
    for (down, up) in downs.iter_mut().zip(ups).rev().filter(|(_, up)| up.count > 0) {
        down.right = core::mem::replace(&mut right, up.left.clone());
    }
    downs
}

#[cfg(test)]
mod tests;
