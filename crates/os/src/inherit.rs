//! Descriptors that a parent process left open for this one and named in the environment.

use rustix::fs::fstat;
use std::io;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// Takes the descriptor with that number, once per number and process.
///
/// # Errors
/// Nothing is open under the number, or it is one of the three standard descriptors, which belong to the process.
pub fn take(number: RawFd) -> io::Result<OwnedFd> {
    if number < 3 {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "a standard descriptor or a negative number"));
    }
    // SAFETY: only borrowed to ask whether it is open; a number that is not gives EBADF.
    fstat(unsafe { BorrowedFd::borrow_raw(number) })?;
    // SAFETY: it is open, as fstat has just seen. The caller takes each number once: nothing else in this
    // process made it, because its parent did and told its number.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::IntoRawFd;

    #[test]
    fn only_what_is_open_is_taken() {
        let number = crate::files::null().expect("a free descriptor").into_raw_fd();
        drop(take(number).expect("it is open"));
        assert!(take(999_999).is_err());
        assert!(take(1).is_err() && take(-1).is_err());
    }
}
