//! The sockets that the server has given to the ranks.
// SAFETY of every function here: C callers follow the rules of `wireup.h` for pointers and handles; null pointers are checked.

use crate::handles::{Ctx, handle};
use crate::status::{Result, Status, returned};
use core::ffi::c_int;
use wireup_capi::net::raw_address;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn wu_listen_fd(ctx: *mut Ctx) -> c_int {
    // SAFETY: see the top of the file.
    let found = unsafe { handle(ctx) }.and_then(|ctx| ctx.with(wireup_bootstrap::Context::listening));
    found.ok().flatten().unwrap_or(-1)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn wu_listen_address(ctx: *mut Ctx, rank: u32, address: *mut u8, len: *mut u32) -> c_int {
    // SAFETY: see the top of the file.
    returned(unsafe { listen_address(ctx, rank, address, len) })
}

/// # Safety
/// As for every function here.
unsafe fn listen_address(ctx: *mut Ctx, rank: u32, address: *mut u8, len: *mut u32) -> Result {
    // SAFETY: guaranteed by the caller; at most `len` bytes are written.
    unsafe {
        let (ctx, len) = (handle(ctx)?, handle(len)?);
        let found = ctx.with(|context| context.listens_at(rank))?.unwrap_or_default();
        let raw = raw_address(found.first().ok_or(Status::NOT_FOUND)?);
        let room = core::mem::replace(len, raw.len() as u32) as usize;
        if address.is_null() || room < raw.len() {
            return Err(Status::TRUNCATED);
        }
        address.copy_from_nonoverlapping(raw.as_ptr(), raw.len());
    }
    Ok(())
}
