//! `pmix_ext.h`: collectives that a program may start and finish later, and the ring.
//!
//! Source: S1 IV; the forms with a length, without a copy, and the test are our own.
// SAFETY of every function here: C callers follow the rules of `pmix_ext.h` for pointers; null pointers are checked.

use crate::handles::{Array, Into};
use crate::state::{JOB, Job, given};
use alloc::vec::Vec;
use core::ffi::{c_char, c_int, c_void};
use wireup_capi::codes::{Code, Result, returned};
use wireup_capi::job::{Gathered, MAX_LEN};
use wireup_capi::text::{self, required};
use wireup_client::requests::{CollectiveKind, Id};
use wireup_wire::limits::VALUE_LEN_MAX;
use wireup_wire::shared::rows::Rows;

/// The opaque handle of a request; never dereferenced.
pub type Request = *mut c_void;

/// The value and the row length that the caller passed.
///
/// # Safety
/// `value` is null or a C string.
unsafe fn checked<'a>(value: *const c_char, max_len: c_int) -> Result<(&'a [u8], usize)> {
    // SAFETY: guaranteed by the caller.
    let value = unsafe { required(value)? };
    let max_len =
        usize::try_from(max_len).ok().filter(|len| (1..=MAX_LEN).contains(len)).ok_or(Code::INVALID_LENGTH)?;
    if value.len() > max_len { Err(Code::INVALID_VAL_LENGTH) } else { Ok((value, max_len)) }
}

/// Starts an allgather.
///
/// # Safety
/// `value` is null or a C string.
unsafe fn start(job: &mut Job, value: *const c_char, max_len: c_int, into: Into) -> Result<Id> {
    // SAFETY: guaranteed by the caller.
    let (value, max_len) = unsafe { checked(value, max_len)? };
    match into {
        Into::Buffer(buffer) => drop(given(buffer)?),
        Into::Shared(array) => drop(given(array)?),
        Into::Later => {}
    }
    let id = job.start_allgather(value, max_len, matches!(into, Into::Shared(_)));
    job.handles.set_place(id, into);
    Ok(id)
}

/// Finishes any request. `array` is where MVAPICH's functions want the result of an allgather that was started without
/// a buffer.
///
/// # Safety
/// The buffers passed at the start and here have the sizes that their forms require.
pub unsafe fn finish(job: &mut Job, id: Id, array: Into) -> Result {
    let outstanding = job.collectives.requests.get(id).ok_or(Code::INVALID_ARG)?;
    let CollectiveKind::Allgather { max_len, .. } = outstanding.kind else {
        return job.finish(id);
    };
    let place = job.handles.take_place(id);
    let into = if place == Into::Later { array } else { place };
    if into == Into::Later {
        return Err(Code::INVALID_ARG);
    }
    let gathered = job.collect(id)?;
    let bytes = job.size as usize * max_len;
    match into {
        Into::Later => Err(Code::INVALID_ARG),
        Into::Buffer(buffer) => {
            // SAFETY: the caller lent `job_size` rows of `max_len` bytes exclusively until the end of the request.
            let rows = unsafe { core::slice::from_raw_parts_mut(buffer, bytes) };
            job.fill(&gathered, max_len, rows)
        }
        Into::Shared(array) => {
            let rows = shareable(job, gathered, max_len, bytes)?;
            // SAFETY: the caller lent the pointer.
            unsafe { array.write(rows.start()) };
            job.handles.keep(rows);
            Ok(())
        }
    }
}

/// Rows that stay valid: the server's array if it has this layout, otherwise a copy.
fn shareable(job: &mut Job, gathered: Gathered, max_len: usize, bytes: usize) -> Result<Array> {
    if let Gathered::Array(array) = gathered {
        let rows = Rows::read(&array).map_err(|_| Code::FAIL)?;
        if rows.stride() == max_len && rows.array().is_some_and(|rows| rows.len() == bytes) {
            return Ok(Array::Shared(array));
        }
        return copied(job, &Gathered::Array(array), max_len, bytes);
    }
    copied(job, &gathered, max_len, bytes)
}

fn copied(job: &mut Job, gathered: &Gathered, max_len: usize, bytes: usize) -> Result<Array> {
    let mut rows = Vec::new();
    rows.try_reserve_exact(bytes).map_err(|_| Code::NOMEM)?;
    rows.resize(bytes, 0);
    job.fill(gathered, max_len, &mut rows)?;
    Ok(Array::SharedWithServer(rows))
}

/// # Safety
/// As the C functions below.
unsafe fn blocking(value: *const c_char, max_len: c_int, into: Into) -> c_int {
    // SAFETY: guaranteed by the caller.
    returned(JOB.with(|job| unsafe {
        let id = start(job, value, max_len, into)?;
        finish(job, id, Into::Later)
    }))
}

/// # Safety
/// As the C functions below.
unsafe fn started(value: *const c_char, max_len: c_int, into: Into, request: *mut Request) -> c_int {
    // SAFETY: guaranteed by the caller.
    returned(JOB.with(|job| unsafe {
        given(request)?;
        request.write(start(job, value, max_len, into)? as Request);
        Ok(())
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMIX_Allgather(value: *const c_char, buffer: *mut c_void) -> c_int {
    // SAFETY: see the top of the file.
    unsafe { blocking(value, VALUE_LEN_MAX as c_int, Into::Buffer(buffer.cast())) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMIX_Allgather_len(value: *const c_char, maxlen: c_int, buffer: *mut c_void) -> c_int {
    // SAFETY: see the top of the file.
    unsafe { blocking(value, maxlen, Into::Buffer(buffer.cast())) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMIX_Allgather_shared(
    value: *const c_char,
    maxlen: c_int,
    array: *mut *const c_void,
) -> c_int {
    // SAFETY: see the top of the file.
    unsafe { blocking(value, maxlen, Into::Shared(array)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMIX_Iallgather(
    value: *const c_char,
    buffer: *mut c_void,
    request_ptr: *mut Request,
) -> c_int {
    // SAFETY: see the top of the file.
    unsafe { started(value, VALUE_LEN_MAX as c_int, Into::Buffer(buffer.cast()), request_ptr) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMIX_Iallgather_len(
    value: *const c_char,
    maxlen: c_int,
    buffer: *mut c_void,
    request_ptr: *mut Request,
) -> c_int {
    // SAFETY: see the top of the file.
    unsafe { started(value, maxlen, Into::Buffer(buffer.cast()), request_ptr) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMIX_Iallgather_shared(
    value: *const c_char,
    maxlen: c_int,
    array: *mut *const c_void,
    request_ptr: *mut Request,
) -> c_int {
    // SAFETY: see the top of the file.
    unsafe { started(value, maxlen, Into::Shared(array), request_ptr) }
}

#[unsafe(no_mangle)]
pub extern "C" fn PMIX_Release_shared(array: *const c_void) -> c_int {
    returned(JOB.with(|job| job.handles.release(array)))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMIX_KVS_Ifence(request_ptr: *mut Request) -> c_int {
    returned(JOB.with(|job| {
        given(request_ptr)?;
        let id = job.start_fence();
        // SAFETY: see the top of the file.
        unsafe { request_ptr.write(id as Request) };
        Ok(())
    }))
}

#[unsafe(no_mangle)]
pub extern "C" fn PMIX_Wait(request: Request) -> c_int {
    // SAFETY: the buffers were lent when the request was started.
    returned(JOB.with(|job| unsafe { finish(job, request as Id, Into::Later) }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMIX_Test(request: Request, flag: *mut c_int) -> c_int {
    returned(JOB.with(|job| {
        given(flag)?;
        let over = job.is_over(request as Id)?;
        // SAFETY: see the top of the file; the buffers were lent when the request was started.
        unsafe {
            flag.write(c_int::from(over));
            if over { finish(job, request as Id, Into::Later) } else { Ok(()) }
        }
    }))
}

/// The values of both neighbours.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMIX_Ring(
    value: *const c_char,
    rank: *mut c_int,
    ranks: *mut c_int,
    left: *mut c_char,
    right: *mut c_char,
    maxvalue: c_int,
) -> c_int {
    // SAFETY: see the top of the file.
    returned(JOB.with(|job| unsafe {
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
