//! The collectives of this process that are outstanding.
//!
//! All ranks start them in the same order; they may be finished in any order.
//!
//! ```text
//!   Queued ──sent──► UnderWay ──answered──► Over ──removed──► (forgotten)
//!     └─► Putting ───────▲          a long value, with a server that is not ours: in several batches
//! ```
//!
//! Our own server accepts each at once. Others accept one fence at a time: the requests behind it wait as `Queued`. A
//! request's number is never used again, so a stale one is recognised.

use crate::arena::Values;
use crate::link::Failure;
use crate::memory::Memory;
use alloc::vec::Vec;

/// A request's number; 0 is none.
pub type Id = usize;

/// What a collective does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CollectiveKind {
    Fence,
    Allgather {
        /// Number of the allgather, equal on all ranks, since every rank starts the same allgathers in the same order.
        generation: usize,
        max_len: usize,
        /// Whether the caller wants the result as rows in memory, without a copy.
        shared: bool,
    },
}

pub enum Stage<M: Memory> {
    Queued,
    /// The pieces of a value that are still to be put, the next one last.
    Putting(Vec<Vec<u8>>),
    UnderWay,
    /// The request has completed. `Ok`: the allgather's array, if the server has made one.
    Over(Result<Option<Values<M>>, Failure>),
}

pub struct Outstanding<M: Memory> {
    pub id: Id,
    pub kind: CollectiveKind,
    pub stage: Stage<M>,
    /// This rank's part of an allgather, where the server does not give it back.
    pub value: Vec<u8>,
    /// Number of puts that this process had posted before this collective.
    pub posted: u64,
}

pub struct Requests<M: Memory> {
    /// The outstanding requests in the order of their start, which is that of their numbers.
    all: Vec<Outstanding<M>>,
    last: Id,
    fences: usize,
}

impl<M: Memory> Default for Requests<M> {
    fn default() -> Self {
        Requests { all: Vec::new(), last: 0, fences: 0 }
    }
}

impl<M: Memory> Requests<M> {
    pub fn push(&mut self, kind: CollectiveKind, value: Vec<u8>, posted: u64) -> &mut Outstanding<M> {
        self.last += 1;
        self.fences += usize::from(kind == CollectiveKind::Fence);
        self.all.push(Outstanding { id: self.last, kind, stage: Stage::Queued, value, posted });
        let last = self.all.len() - 1;
        &mut self.all[last]
    }

    fn position(&self, id: Id) -> Option<usize> {
        self.all.binary_search_by_key(&id, |one| one.id).ok()
    }

    /// The request with this [`Id`]; `None`: there is no such request, or it was removed.
    pub fn get(&mut self, id: Id) -> Option<&mut Outstanding<M>> {
        self.position(id).map(|at| &mut self.all[at])
    }

    /// The request with this number on the wire, which is the low 32 bits of its [`Id`].
    pub fn by_number(&mut self, number: u32) -> Option<&mut Outstanding<M>> {
        let id = self.last.checked_sub((self.last as u32).wrapping_sub(number) as usize)?;
        self.get(id)
    }

    /// The first request that is not complete.
    pub fn first(&mut self) -> Option<&mut Outstanding<M>> {
        self.all.iter_mut().find(|one| !matches!(one.stage, Stage::Over(_)))
    }

    pub fn remove(&mut self, id: Id) -> Option<Outstanding<M>> {
        let one = self.all.remove(self.position(id)?);
        self.fences -= usize::from(one.kind == CollectiveKind::Fence);
        Some(one)
    }

    /// Fails all requests that are not complete.
    pub fn break_all(&mut self) {
        for one in &mut self.all {
            if !matches!(one.stage, Stage::Over(_)) {
                one.stage = Stage::Over(Err(Failure::Broken));
            }
        }
    }

    /// Whether a fence was started that the caller has not finished: no get may be made meanwhile.
    pub fn has_fence(&self) -> bool {
        self.fences > 0
    }
}
