//! What C programs hold: request handles, result buffers, and arrays that were returned without a copy.

use alloc::vec::Vec;
use core::ffi::c_void;
use wireup_capi::codes::{Code, Result};
use wireup_capi::job::Values;
use wireup_client::requests::Id;
use wireup_wire::shared::rows;

/// Where the result of an allgather is written when the request is finished.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Into {
    /// Where the function that waits for the request says.
    Later,
    Buffer(*mut u8),
    Shared(*mut *const c_void),
}

// SAFETY: the pointers belong to the caller, who lends them until the request is finished, on whichever thread that
// happens.
unsafe impl Send for Into {}

/// A result that was returned without a copy.
pub enum Array {
    SharedWithServer(Vec<u8>),
    Shared(Values),
}

impl Array {
    /// The first row.
    pub fn start(&self) -> *const c_void {
        match self {
            Array::SharedWithServer(rows) => rows.as_ptr().cast(),
            Array::Shared(values) => values.get(rows::HEADER_LEN..).unwrap_or_default().as_ptr().cast(),
        }
    }
}

#[derive(Default)]
pub struct Handles {
    /// Result buffers of unfinished allgathers whose callers stated them at the start.
    places: Vec<(Id, Into)>,
    /// The unfinished requests of MVAPICH's functions, which have no handles: at most one of each kind.
    pub only_fence: Option<Id>,
    pub only_gather: Option<Id>,
    pub only_shared: Option<Id>,
    arrays: Vec<Array>,
}

impl Handles {
    pub fn set_place(&mut self, id: Id, into: Into) {
        if into != Into::Later {
            self.places.push((id, into));
        }
    }

    /// Removes the result buffer that the request was started with, and returns it.
    pub fn take_place(&mut self, id: Id) -> Into {
        let at = self.places.iter().position(|(of, _)| *of == id);
        at.map_or(Into::Later, |at| self.places.swap_remove(at).1)
    }

    pub fn keep(&mut self, array: Array) {
        self.arrays.push(array);
    }

    /// Frees an array that was returned to the program.
    pub fn release(&mut self, array: *const c_void) -> Result {
        let at = self.arrays.iter().position(|one| one.start() == array).ok_or(Code::INVALID_ARG)?;
        self.arrays.swap_remove(at);
        Ok(())
    }
}
