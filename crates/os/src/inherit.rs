//! Uses descriptors that the parent process has left open for this process and whose numbers are in the environment.

use rustix::fs::fstat;
use std::io;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// Calls `ask` with the descriptor of this number, which remains open and is not taken over. `None`: [`take`] would
/// refuse the descriptor.
pub fn ask<T>(number: RawFd, ask: impl FnOnce(BorrowedFd<'_>) -> T) -> Option<T> {
    if number < 3 {
        return None;
    }
    // SAFETY: `fd` is used only after `fstat` has shown that it is open, and is not kept; nothing else in this process
    // owns it, since the parent created it and passed on its number.
    let fd = unsafe { BorrowedFd::borrow_raw(number) };
    fstat(fd).ok()?;
    Some(ask(fd))
}

/// Takes ownership of the descriptor with this number. Call it at most once per number.
///
/// # Errors
/// No descriptor with this number is open, or it is one of the three standard descriptors, which belong to the process.
pub fn take(number: RawFd) -> io::Result<OwnedFd> {
    if number < 3 {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "a standard descriptor or a negative number"));
    }
    // SAFETY: the descriptor is borrowed only to check whether it is open; if it is not, `fstat` returns EBADF.
    fstat(unsafe { BorrowedFd::borrow_raw(number) })?;
    // SAFETY: the descriptor is open, as `fstat` has just shown. The caller takes each number once, and nothing else in
    // this process owns it: the parent created it and passed on its number.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::IntoRawFd;

    #[test]
    fn only_open_nonstandard_descriptors_are_taken() {
        let number = crate::files::null().expect("a free descriptor").into_raw_fd();
        assert_eq!(ask(number, |fd| std::os::fd::AsRawFd::as_raw_fd(&fd)), Some(number));
        drop(take(number).expect("it is open"));
        assert!(take(999_999).is_err());
        assert!(ask(999_999, |_| ()).is_none() && ask(1, |_| ()).is_none());
        assert!(take(1).is_err() && take(-1).is_err());
    }
}
