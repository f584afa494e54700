//! `PMIX_Ring`: the values of both neighbours.

use crate::state::{given, required, with_job};
use core::ffi::{c_char, c_int};
use wireup_capi::codes::{Code, returned};
use wireup_capi::text;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMIX_Ring(
    value: *const c_char,
    rank: *mut c_int,
    ranks: *mut c_int,
    left: *mut c_char,
    right: *mut c_char,
    maxvalue: c_int,
) -> c_int {
    // SAFETY: C callers follow the rules of `pmix_ext.h` for pointers; null pointers are checked.
    returned(with_job(|job| unsafe {
        let value = required(value)?;
        given(left)?;
        given(right)?;
        let ring = job.ring(value)?;
        text::set(rank, ring.position as c_int);
        text::set(ranks, job.size as c_int);
        let whole = text::write(&ring.left, left, maxvalue) & text::write(&ring.right, right, maxvalue);
        if whole { Ok(()) } else { Err(Code::INVALID_LENGTH) }
    }))
}
