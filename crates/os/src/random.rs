//! Gets random bytes from the kernel.

use rustix::rand::{GetRandomFlags, getrandom};
use std::io;

/// `N` random bytes, suitable for a secret.
///
/// # Errors
/// The kernel has no `getrandom`.
///
/// # Panics
/// If `N` is more than 256: the kernel may return fewer bytes at once.
pub fn bytes<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    let length = getrandom(&mut bytes[..], GetRandomFlags::empty())?;
    assert_eq!(length, N, "the kernel gives up to 256 random bytes at once");
    Ok(bytes)
}

/// A random number that other users cannot guess.
///
/// # Errors
/// The kernel has no `getrandom`.
pub fn number() -> io::Result<u64> {
    bytes().map(u64::from_ne_bytes)
}
