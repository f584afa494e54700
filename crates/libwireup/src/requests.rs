//! Requests.
// SAFETY of every function here: C callers follow the rules of `wireup.h` for pointers and handles; null pointers are checked.

use crate::handles::{Req, finish, handle};
use crate::status::{Result, Status, returned};
use alloc::boxed::Box;
use core::ffi::c_int;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn wu_wait(req: *mut Req, ms: c_int) -> c_int {
    // SAFETY: see the top of the file.
    returned(unsafe { wait(req, ms) })
}

/// # Safety
/// As for every function here.
unsafe fn wait(req: *mut Req, ms: c_int) -> Result {
    // SAFETY: guaranteed by the caller; the handle is freed once, when the request is over.
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
    returned(unsafe {
        handle(req).and_then(|one| {
            let flag = handle(flag)?;
            let is_over = handle(one.ctx)?.with(|context| context.test(&one.request));
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
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn wu_free(req: *mut Req) -> c_int {
    if req.is_null() {
        return Status::ARG.0;
    }
    // SAFETY: it came from this library, and the program does not use it afterwards.
    let one = *unsafe { Box::from_raw(req) };
    // SAFETY: see the top of the file.
    let ctx = unsafe { handle(one.ctx) };
    returned(ctx.and_then(|ctx| ctx.context().map(|context| context.forget(one.request))))
}
