//! Takes over descriptors that the parent process left open for this one and named in the environment.

use rustix::fs::fstat;
use std::io;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// Asks about the descriptor with this number, which remains open and owned as before. `None`: [`take`] would refuse
/// it.
pub fn ask<T>(number: RawFd, ask: impl FnOnce(BorrowedFd<'_>) -> T) -> Option<T> {
    if number < 3 {
        return None;
    }
    // SAFETY: used after `fstat` has shown that it is open, and not kept; nothing else in this process owns it, since
    // the parent created it and passed on its number.
    let fd = unsafe { BorrowedFd::borrow_raw(number) };
    fstat(fd).ok()?;
    Some(ask(fd))
}

/// Takes ownership of the descriptor with that number. Call it at most once per number.
///
/// # Errors
/// No descriptor with this number is open, or it is one of the three standard descriptors, which belong to the process.
pub fn take(number: RawFd) -> io::Result<OwnedFd> {
    if number < 3 {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "a standard descriptor or a negative number"));
    }
    // SAFETY: borrowed only to ask whether it is open; if it is not, `fstat` returns EBADF.
    fstat(unsafe { BorrowedFd::borrow_raw(number) })?;
    // SAFETY: it is open, as `fstat` has just shown. The caller takes each number once, and nothing else in this
    // process owns it: the parent created it and passed on its number.
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
