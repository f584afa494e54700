//! Reading and writing C strings, and reading the environment.

use crate::codes::{Code, Result};
use alloc::vec::Vec;
use core::ffi::{CStr, c_char, c_int};

/// The bytes of a C string without the terminating zero; `None` for a null pointer.
///
/// # Safety
/// `text` is null or points to a string that ends with a zero byte and does not change during the call.
pub unsafe fn bytes<'a>(text: *const c_char) -> Option<&'a [u8]> {
    if text.is_null() {
        return None;
    }
    // SAFETY: guaranteed by the caller.
    Some(unsafe { CStr::from_ptr(text) }.to_bytes())
}

/// A text that must not be null.
///
/// # Errors
/// It is null, or longer than [`TEXT_LEN_MAX`].
///
/// # Safety
/// As [`bytes`].
pub unsafe fn required<'a>(text: *const c_char) -> Result<&'a [u8]> {
    // SAFETY: guaranteed by the caller.
    match unsafe { bytes(text) } {
        None => Err(Code::INVALID_ARG),
        Some(text) if text.len() > TEXT_LEN_MAX => Err(Code::INVALID_LENGTH),
        Some(text) => Ok(text),
    }
}

/// The longest name, port or word of a spawn: several of them, each `;` doubled, fit the six digits of a message's
/// length.
pub const TEXT_LEN_MAX: usize = 64 << 10;

/// Writes `text` and a zero byte; `false` if it was truncated to fit.
///
/// # Safety
/// `room` bytes may be written at `to`, which is not null.
pub unsafe fn write(text: &[u8], to: *mut c_char, room: c_int) -> bool {
    let Some(room) = usize::try_from(room).ok().filter(|room| *room > 0) else {
        return false;
    };
    let fits = text.len().min(room - 1);
    // SAFETY: `fits + 1` is at most `room`; the caller's buffer and our bytes do not overlap.
    unsafe {
        to.cast::<u8>().copy_from_nonoverlapping(text.as_ptr(), fits);
        to.add(fits).write(0);
    }
    fits == text.len()
}

/// Writes `value` unless the pointer is null.
///
/// # Safety
/// `to` is null or may be written.
pub unsafe fn set<T>(to: *mut T, value: T) {
    if !to.is_null() {
        // SAFETY: guaranteed by the caller.
        unsafe { to.write(value) }
    }
}

/// The value of an environment variable.
pub fn variable(name: &str) -> Option<Vec<u8>> {
    let mut text = Vec::from(name);
    text.push(0);
    // SAFETY: the name ends with a zero byte; the value is copied before anything may change it.
    unsafe { bytes(libc::getenv(text.as_ptr().cast())).map(<[u8]>::to_vec) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_that_does_not_fit_is_cut_and_terminated() {
        let mut buffer = [b'x' as c_char; 4];
        // SAFETY: the buffer has the stated length.
        unsafe {
            assert!(write(b"abc", buffer.as_mut_ptr(), 4));
            assert_eq!(bytes(buffer.as_ptr()), Some(&b"abc"[..]));
            assert!(!write(b"abcd", buffer.as_mut_ptr(), 4));
            assert_eq!(bytes(buffer.as_ptr()), Some(&b"abc"[..]));
            assert!(!write(b"abcd", buffer.as_mut_ptr(), 0));
            assert_eq!(bytes(core::ptr::null()), None);
        }
    }
}
