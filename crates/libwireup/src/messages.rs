//! Messages between two members, and connections between two ranks.
// SAFETY of every function here: C callers follow the rules of `wireup.h` for pointers and handles; null pointers are
// checked.

use crate::handles::{Ctx, GroupHandle, Req, Sink, bytes, go_on, handle, room as room_for};
use crate::status::returned;
use core::ffi::c_int;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn wu_send(
    group: *mut GroupHandle,
    to: u32,
    tag: u32,
    message: *const u8,
    len: usize,
    req: *mut *mut Req,
) -> c_int {
    // SAFETY: see the top of the file.
    returned(|| unsafe {
        let (group, message) = (handle(group)?, bytes(message, len)?);
        let request = handle(group.ctx)?.with(|context| context.send(group.group, to, tag, message))?;
        go_on(group.ctx, request, Sink::Nothing, req)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn wu_recv(
    group: *mut GroupHandle,
    from: u32,
    tag: u32,
    buffer: *mut u8,
    room: usize,
    len: *mut usize,
    req: *mut *mut Req,
) -> c_int {
    // SAFETY: see the top of the file.
    returned(|| unsafe {
        let (group, to) = (handle(group)?, room_for(buffer, room)?);
        let request = handle(group.ctx)?.with(|context| context.receive(group.group, from, tag))?;
        go_on(group.ctx, request, Sink::Message { to, room, len }, req)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn wu_connect(ctx: *mut Ctx, rank: u32, fd: *mut c_int, req: *mut *mut Req) -> c_int {
    // SAFETY: see the top of the file.
    returned(|| unsafe {
        let (opened, len) = (handle(ctx)?, size_of::<c_int>());
        let to = room_for(fd.cast(), len)?;
        let request = opened.with(|context| context.worker.connect(rank))?;
        go_on(ctx, request, Sink::Bytes { to, len }, req)
    })
}
