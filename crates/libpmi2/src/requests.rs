//! The collectives of this process that are outstanding.
//!
//! All ranks start them in the same order; they may be finished in any order.
//!
//! ```text
//!   Queued ──sent──► UnderWay ──answered──► Over ──Wait──► (forgotten)
//! ```
//!
//! Our own server takes each at once; others one fence at a time, so that those behind it wait as `Queued`. A request's
//! handle is a number that never comes again, so that a stale one is known for what it is.

use crate::arena::Values;
use crate::exchange::Kind;
use alloc::vec::Vec;
use core::ffi::c_void;
use wireup_capi::Failure;
use wireup_capi::codes::{Code, Result};
use wireup_wire::shared::rows;

/// A handle's number; 0 is none.
pub type Id = usize;

#[derive(Debug)]
pub enum Stage {
    Queued,
    UnderWay,
    /// With the allgather's array, if the server has made one.
    Over(core::result::Result<Option<Values>, Failure>),
}

/// Where an allgather's result goes when the request is finished.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Into {
    /// Whoever waits says.
    Later,
    Buffer(*mut u8),
    Shared(*mut *const c_void),
}

// SAFETY: the pointers are the caller's, who lends them until the request is finished, whichever thread does that.
unsafe impl Send for Into {}

pub struct Outstanding {
    pub id: Id,
    pub kind: Kind,
    pub stage: Stage,
    pub into: Into,
    /// This rank's part of an allgather, where the server does not give it back.
    pub value: Vec<u8>,
    /// Puts that were posted before.
    pub posted: u64,
}

/// A result handed out without a copy.
pub enum Array {
    Own(Vec<u8>),
    Shared(Values),
}

impl Array {
    /// The first row.
    pub fn start(&self) -> *const c_void {
        match self {
            Array::Own(rows) => rows.as_ptr().cast(),
            Array::Shared(values) => values.get(rows::HEADER_LEN..).unwrap_or_default().as_ptr().cast(),
        }
    }
}

#[derive(Default)]
pub struct Requests {
    /// In the order of their start, which is that of their numbers.
    all: Vec<Outstanding>,
    last: Id,
    fences: usize,
    /// MVAPICH's calls know one of each kind and no handles.
    pub only_fence: Option<Id>,
    pub only_gather: Option<Id>,
    pub only_shared: Option<Id>,
    /// Results handed out without a copy.
    pub arrays: Vec<Array>,
}

impl Requests {
    pub fn push(&mut self, kind: Kind, value: Vec<u8>) -> Id {
        self.last += 1;
        self.fences += usize::from(kind == Kind::Fence);
        let (id, into) = (self.last, Into::Later);
        self.all.push(Outstanding { id, kind, stage: Stage::Queued, into, value, posted: 0 });
        id
    }

    fn position(&self, id: Id) -> Result<usize> {
        self.all.binary_search_by_key(&id, |one| one.id).map_err(|_| Code::INVALID_ARG)
    }

    pub fn get(&mut self, id: Id) -> Result<&mut Outstanding> {
        self.position(id).map(|at| &mut self.all[at])
    }

    /// The one that is `number` on the wire: the last 2^32 differ there.
    pub fn by_number(&mut self, number: u32) -> Option<&mut Outstanding> {
        let id = self.last.checked_sub((self.last as u32).wrapping_sub(number) as usize)?;
        self.get(id).ok()
    }

    /// The first that is not over.
    pub fn first(&mut self) -> Option<&mut Outstanding> {
        self.all.iter_mut().find(|one| !matches!(one.stage, Stage::Over(_)))
    }

    /// Takes a request off the list.
    pub fn remove(&mut self, id: Id) -> Result<Outstanding> {
        let at = self.position(id)?;
        let one = self.all.remove(at);
        self.fences -= usize::from(one.kind == Kind::Fence);
        Ok(one)
    }

    /// All that is not over fails.
    pub fn break_all(&mut self) {
        for one in &mut self.all {
            if !matches!(one.stage, Stage::Over(_)) {
                one.stage = Stage::Over(Err(Failure::Broken));
            }
        }
    }

    /// Whether a fence was started and not finished: no get may be made.
    pub fn has_fence(&self) -> bool {
        self.fences > 0
    }

    /// Ends the life of an array that was handed out.
    pub fn release(&mut self, array: *const c_void) -> Result {
        let at = self.arrays.iter().position(|one| one.start() == array).ok_or(Code::INVALID_ARG)?;
        self.arrays.swap_remove(at);
        Ok(())
    }
}
