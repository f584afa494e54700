//! The collectives of this process that are outstanding.
//!
//! All ranks start them in the same order, which is therefore the order in which the server sees their fences; they may be
//! finished in any order. A fence is on the wire at a time, so those behind it wait here:
//!
//! ```text
//!   Queued ──first of its kind──► UnderWay ──fence answered──► Over ──Wait──► (forgotten)
//! ```
//!
//! A request's handle is a number that never comes again, so that a stale one is known for what it is.

use crate::exchange::Kind;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::ffi::c_void;
use wireup_capi::Failure;
use wireup_capi::codes::{Code, Result};

/// A handle's number; 0 is none.
pub type Id = usize;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    Queued,
    UnderWay,
    Over(core::result::Result<(), Failure>),
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
    /// This rank's part of an allgather.
    pub value: Vec<u8>,
}

#[derive(Default)]
pub struct Requests {
    /// In the order of their start.
    all: VecDeque<Outstanding>,
    last: Id,
    /// MVAPICH's calls know one of each kind and no handles.
    pub only_fence: Option<Id>,
    pub only_gather: Option<Id>,
    pub only_shared: Option<Id>,
    /// Results handed out without a copy.
    pub arrays: Vec<Vec<u8>>,
}

impl Requests {
    pub fn push(&mut self, kind: Kind, value: &[u8]) -> Id {
        self.last += 1;
        self.all.push_back(Outstanding {
            id: self.last,
            kind,
            stage: Stage::Queued,
            into: Into::Later,
            value: value.to_vec(),
        });
        self.last
    }

    pub fn get(&mut self, id: Id) -> Result<&mut Outstanding> {
        self.all.iter_mut().find(|one| one.id == id).ok_or(Code::INVALID_ARG)
    }

    /// The first that is not over.
    pub fn first(&mut self) -> Option<&mut Outstanding> {
        self.all.iter_mut().find(|one| !matches!(one.stage, Stage::Over(_)))
    }

    /// Takes a request off the list.
    pub fn remove(&mut self, id: Id) -> Result<Outstanding> {
        let at = self.all.iter().position(|one| one.id == id).ok_or(Code::INVALID_ARG)?;
        self.all.remove(at).ok_or(Code::INVALID_ARG)
    }

    /// Whether a fence was started and not finished: no get may be made.
    pub fn has_fence(&self) -> bool {
        self.all.iter().any(|one| one.kind == Kind::Fence)
    }

    /// Ends the life of an array that was handed out.
    pub fn release(&mut self, array: *const c_void) -> Result {
        let at = self.arrays.iter().position(|one| one.as_ptr().cast() == array).ok_or(Code::INVALID_ARG)?;
        self.arrays.swap_remove(at);
        Ok(())
    }
}
