//! The job's key-value pairs (put, fence and get), and services that are published and looked up by name within a
//! session.
// SAFETY of every function here: C callers follow the rules of `wireup.h` for pointers and handles; null pointers are
// checked.

use crate::handles::{Ctx, handle};
use crate::status::{Result, Status, returned};
use core::ffi::{c_char, c_int};
use wireup_bootstrap::Error;
use wireup_capi::codes::{self, Code};
use wireup_capi::job::{Job, NAME_LEN_MAX, Wish};
use wireup_capi::text;

/// # Safety
/// As [`text::bytes`].
pub unsafe fn required<'a>(of: *const c_char) -> Result<&'a [u8]> {
    // SAFETY: guaranteed by the caller.
    unsafe { text::bytes(of) }.filter(|text| !text.is_empty()).ok_or(Status::ARG)
}

/// Checks the buffer for a text, and converts its length.
pub fn room_at(to: *const c_char, room: usize) -> Result<c_int> {
    c_int::try_from(room).ok().filter(|room| !to.is_null() && *room > 0).ok_or(Status::ARG)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn wu_put(ctx: *mut Ctx, key: *const c_char, value: *const c_char) -> c_int {
    // SAFETY: see the top of the file.
    returned(|| unsafe {
        let (key, value) = (required(key)?, required(value)?);
        handle(ctx)?.with(|context| context.put(key, value))
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn wu_fence(ctx: *mut Ctx) -> c_int {
    // SAFETY: see the top of the file.
    returned(|| unsafe { handle(ctx)? }.with(wireup_bootstrap::Context::fence))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn wu_get(ctx: *mut Ctx, key: *const c_char, value: *mut c_char, room: usize) -> c_int {
    // SAFETY: see the top of the file.
    returned(|| unsafe {
        let (key, room) = (required(key)?, room_at(value, room)?);
        let mut is_whole = true;
        let take = &mut |found: &[u8]| is_whole = text::write(found, value, room);
        let found = handle(ctx)?.with(|context| match context.get(key, take) {
            // Some servers refuse a get of a key that does not exist.
            Err(Error::Server(Code::OTHER)) => Ok(false),
            found => found,
        })?;
        match (found, is_whole) {
            (false, _) => Err(Status::NOT_FOUND),
            (true, false) => Err(Status::TRUNCATED),
            (true, true) => Ok(()),
        }
    })
}

/// # Safety
/// As [`text::bytes`].
unsafe fn short<'a>(of: *const c_char) -> Result<&'a [u8]> {
    // SAFETY: guaranteed by the caller.
    unsafe { required(of) }.and_then(|text| if text.len() > NAME_LEN_MAX { Err(Status::ARG) } else { Ok(text) })
}

/// Sends a request to the server; if the server refuses it, returns `refused`.
///
/// # Safety
/// As [`handle`].
unsafe fn ask<T>(ctx: *mut Ctx, refused: Status, ask: impl FnOnce(&mut Job) -> codes::Result<T>) -> Result<T> {
    // SAFETY: guaranteed by the caller.
    let answer = unsafe { handle(ctx) }?.with(|context| match ask(&mut context.worker.job) {
        Err(Code::OTHER) => Ok(None),
        answer => answer.map(Some).map_err(Error::Server),
    })?;
    answer.ok_or(refused)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn wu_publish(ctx: *mut Ctx, name: *const c_char, value: *const c_char) -> c_int {
    // SAFETY: see the top of the file.
    returned(|| unsafe {
        let (name, value) = (short(name)?, short(value)?);
        ask(ctx, Status::EXISTS, |job| match job.name(name, Wish::Publish(value)) {
            // Servers do not say why they refuse: if the name is not published, the reason is not that it exists.
            Err(Code::OTHER) if job.name(name, Wish::LookUp).is_err() => Err(Code::FAIL),
            answer => answer.map(drop),
        })
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn wu_lookup(ctx: *mut Ctx, name: *const c_char, value: *mut c_char, room: usize) -> c_int {
    // SAFETY: see the top of the file.
    returned(|| unsafe {
        let (name, room) = (short(name)?, room_at(value, room)?);
        let found = ask(ctx, Status::NOT_FOUND, |job| job.name(name, Wish::LookUp))?;
        if text::write(&found, value, room) { Ok(()) } else { Err(Status::TRUNCATED) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn wu_unpublish(ctx: *mut Ctx, name: *const c_char) -> c_int {
    // SAFETY: see the top of the file.
    returned(|| unsafe {
        let name = short(name)?;
        ask(ctx, Status::NOT_FOUND, |job| job.name(name, Wish::Unpublish).map(drop))
    })
}
