//! The functions that MVAPICH2 looks for: one request of each kind at a time, no handles, rows of 1,024 bytes.
// SAFETY of every function here: C callers follow the rules of `pmix_ext.h` for pointers; null pointers are checked.

use crate::extensions::finish;
use crate::handles::{Handles, Into};
use crate::state::{JOB, Job, given};
use core::ffi::{c_char, c_int, c_void};
use wireup_capi::codes::{Code, Result, returned};
use wireup_capi::text::required;
use wireup_client::requests::Id;
use wireup_wire::limits::VALUE_LEN_MAX;

type Slot = fn(&mut Handles) -> &mut Option<Id>;

const FENCE: Slot = |handles| &mut handles.only_fence;
const GATHER: Slot = |handles| &mut handles.only_gather;
const SHARED: Slot = |handles| &mut handles.only_shared;

fn start(slot: Slot, begin: impl FnOnce(&mut Job) -> Result<Id>) -> c_int {
    returned(JOB.with(|job| {
        if slot(&mut job.handles).is_some() {
            return Err(Code::FAIL);
        }
        let id = begin(job)?;
        *slot(&mut job.handles) = Some(id);
        Ok(())
    }))
}

/// # Safety
/// `into` has room for the result.
unsafe fn wait(slot: Slot, into: Into) -> c_int {
    returned(JOB.with(|job| {
        let id = slot(&mut job.handles).take().ok_or(Code::FAIL)?;
        // SAFETY: guaranteed by the caller.
        unsafe { finish(job, id, into) }
    }))
}

fn begin_gather(job: &mut Job, value: *const c_char, shared: bool) -> Result<Id> {
    // SAFETY: see the top of the file.
    let value = unsafe { required(value)? };
    if value.len() > VALUE_LEN_MAX {
        return Err(Code::INVALID_VAL_LENGTH);
    }
    Ok(job.start_allgather(value, VALUE_LEN_MAX, shared))
}

#[unsafe(no_mangle)]
pub extern "C" fn PMI2_KVS_Ifence() -> c_int {
    start(FENCE, |job| Ok(job.start_fence()))
}

#[unsafe(no_mangle)]
pub extern "C" fn PMI2_KVS_Wait() -> c_int {
    // SAFETY: a fence has no result.
    unsafe { wait(FENCE, Into::Later) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI2_Iallgather(value: *const c_char) -> c_int {
    start(GATHER, |job| begin_gather(job, value, false))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI2_Iallgather_wait(buf: *mut c_void) -> c_int {
    match given(buf) {
        // SAFETY: see the top of the file.
        Ok(buf) => unsafe { wait(GATHER, Into::Buffer(buf.cast())) },
        Err(code) => returned(Err(code)),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI2_SHMEM_Iallgather(value: *const c_char) -> c_int {
    start(SHARED, |job| begin_gather(job, value, true))
}

/// The array stays valid until `PMI2_Finalize`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI2_SHMEM_Iallgather_wait(buf: *mut *mut c_void) -> c_int {
    match given(buf) {
        // SAFETY: see the top of the file.
        Ok(buf) => unsafe { wait(SHARED, Into::Shared(buf.cast())) },
        Err(code) => returned(Err(code)),
    }
}
