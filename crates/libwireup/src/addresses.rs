//! Addresses of ranks: of the sockets that the server has bound for them, and in networks of the program's own.
// SAFETY of every function here: C callers follow the rules of `wireup.h` for pointers and handles; null pointers are
// checked.

use crate::handles::{Ctx, Req, Sink, bytes, go_on, handle, room as room_for};
use crate::pairs::required;
use crate::status::{Result, Status, returned};
use core::ffi::{c_char, c_int};
use wireup_bootstrap::{Context, Error};
use wireup_capi::codes::Code;
use wireup_capi::job::ADDRESS_NAME_LEN_MAX;
use wireup_capi::net::raw_address;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn wu_listen_fd(ctx: *mut Ctx) -> c_int {
    // SAFETY: see the top of the file.
    let found = unsafe { handle(ctx) }
        .and_then(|ctx| ctx.with(|Context { worker, .. }| worker.lazy_network.listening(&mut worker.job)));
    found.ok().flatten().unwrap_or(-1)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn wu_listen_address(ctx: *mut Ctx, rank: u32, address: *mut u8, len: *mut u32) -> c_int {
    // SAFETY: see the top of the file; at most `len` bytes are written.
    returned(|| unsafe {
        let (ctx, len) = (handle(ctx)?, handle(len)?);
        let found = ctx
            .with(|Context { worker, .. }| worker.lazy_network.listens_at(&mut worker.job, rank))?
            .unwrap_or_default();
        let raw = raw_address(found.first().ok_or(Status::NOT_FOUND)?);
        let room = core::mem::replace(len, raw.len() as u32) as usize;
        if address.is_null() || room < raw.len() {
            return Err(Status::TRUNCATED);
        }
        address.copy_from_nonoverlapping(raw.as_ptr(), raw.len());
        Ok(())
    })
}

/// Checks the name of a network: letters, digits, `-`, `_` and `.`.
///
/// # Safety
/// As [`text::bytes`](wireup_capi::text::bytes).
unsafe fn network<'a>(of: *const c_char) -> Result<&'a [u8]> {
    // SAFETY: guaranteed by the caller.
    let name = unsafe { required(of) }?;
    let is_plain = name.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte));
    if is_plain && name.len() <= ADDRESS_NAME_LEN_MAX { Ok(name) } else { Err(Status::ARG) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn wu_addr_set(ctx: *mut Ctx, name: *const c_char, address: *const u8, len: usize) -> c_int {
    // SAFETY: see the top of the file.
    returned(|| unsafe {
        let (name, address) = (network(name)?, bytes(address, len)?);
        let told = handle(ctx)?.with(|context| match context.worker.set_address(name, address) {
            Err(Error::Server(Code::OTHER)) => Ok(false),
            told => told.map(|()| true),
        })?;
        if told { Ok(()) } else { Err(Status::EXISTS) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn wu_addr_get(
    ctx: *mut Ctx,
    name: *const c_char,
    rank: u32,
    address: *mut u8,
    room: usize,
    len: *mut usize,
    req: *mut *mut Req,
) -> c_int {
    // SAFETY: see the top of the file.
    returned(|| unsafe {
        let (name, to) = (network(name)?, room_for(address, room)?);
        let request = handle(ctx)?.with(|context| context.worker.address(name, rank))?;
        go_on(ctx, request, Sink::Message { to, room, len }, req)
    })
}
