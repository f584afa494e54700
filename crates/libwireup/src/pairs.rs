//! The job's key-value pairs: put, fence and get.
// SAFETY of every function here: C callers follow the rules of `wireup.h` for pointers and handles; null pointers are
// checked.

use crate::handles::{Ctx, handle};
use crate::status::{Result, Status, returned};
use core::ffi::{c_char, c_int};
use wireup_bootstrap::Error;
use wireup_capi::codes::Code;
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
