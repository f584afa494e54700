//! The requests of `wireup.h`: waited for, tested, cancelled and freed.
// SAFETY of every function here: C callers follow the rules of `wireup.h` for pointers and handles; null pointers are
// checked.

use crate::handles::{Req, finish, handle};
use crate::status::{Result, Status, returned};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ffi::c_int;
use wireup_bootstrap::Request;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn wu_wait(req: *mut Req, ms: c_int) -> c_int {
    // SAFETY: see the top of the file.
    returned(|| unsafe { wait(req, ms) })
}

/// # Safety
/// The pointers and handles follow the rules of `wireup.h`.
unsafe fn wait(req: *mut Req, ms: c_int) -> Result {
    // SAFETY: guaranteed by the caller; the handle is freed once, when the request has completed.
    unsafe {
        let result = finish(handle(req)?, ms);
        if result != Err(Status::TIMEOUT) {
            drop(Box::from_raw(req));
        }
        result
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn wu_test(req: *mut Req, flag: *mut c_int) -> c_int {
    // SAFETY: see the top of the file.
    returned(|| unsafe {
        let (one, flag) = (handle(req)?, handle(flag)?);
        let is_over = match &one.request {
            Some(request) => handle(one.ctx)?.look(|context| context.worker.test(request)),
            None => Ok(true),
        };
        *flag = c_int::from(is_over != Ok(false));
        match is_over {
            Ok(false) => Ok(()),
            Ok(true) => wait(req, -1),
            Err(status) => {
                drop(Box::from_raw(req));
                Err(status)
            }
        }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn wu_free(req: *mut Req) -> c_int {
    if req.is_null() {
        return Status::ARG.0;
    }
    // SAFETY: see the top of the file; the request came from this library, and the program does not use it afterwards.
    returned(|| unsafe {
        let one = *Box::from_raw(req);
        handle(one.ctx)?.look(|context| one.request.iter().for_each(|request| context.worker.forget(request)))
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn wu_cancel(req: *mut Req) -> c_int {
    // SAFETY: see the top of the file.
    returned(|| unsafe {
        let one = handle(req)?;
        handle(one.ctx)?.look(|context| {
            // A request that has completed keeps its result.
            if let Some(request) = one.request.take_if(|request| !context.worker.test(request)) {
                context.worker.forget(&request);
            }
        })
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn wu_wait_any(reqs: *mut *mut Req, count: usize, which: *mut usize, ms: c_int) -> c_int {
    // SAFETY: see the top of the file; the handle of a request that has completed is freed once and set to null.
    returned(|| unsafe {
        let which = handle(which)?;
        if reqs.is_null() {
            return Err(Status::ARG);
        }
        let reqs = core::slice::from_raw_parts_mut(reqs, count);
        let places: Vec<usize> = (0..count).filter(|at| !reqs[*at].is_null()).collect();
        let first = *places.first().ok_or(Status::ARG)?;
        let ctx = handle(reqs[first])?.ctx;
        if places.iter().any(|at| (*reqs[*at]).ctx != ctx) {
            return Err(Status::ARG);
        }
        let cancelled = places.iter().position(|at| (*reqs[*at]).request.is_none());
        let at = match cancelled {
            Some(at) => at,
            None => {
                let requests: Vec<&Request> = places.iter().filter_map(|at| (*reqs[*at]).request.as_ref()).collect();
                handle(ctx)?.with(|context| context.worker.wait_any(&requests, ms))?
            }
        };
        *which = places[at];
        wait(core::mem::replace(&mut reqs[places[at]], core::ptr::null_mut()), -1)
    })
}
