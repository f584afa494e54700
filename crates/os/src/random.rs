//! Gets random bytes of the kernel.

use rustix::rand::{GetRandomFlags, getrandom};
use std::io;

/// Random bytes for a secret, `N` of them.
///
/// # Errors
/// The kernel has no such call.
///
/// # Panics
/// If `N` is more than 256: the kernel may then give fewer at once.
pub fn bytes<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    let length = getrandom(&mut bytes[..], GetRandomFlags::empty())?;
    assert_eq!(length, N, "the kernel gives up to 256 random bytes at once");
    Ok(bytes)
}

/// A random number, which nobody else can guess.
///
/// # Errors
/// The kernel has no such call.
pub fn number() -> io::Result<u64> {
    bytes().map(u64::from_ne_bytes)
}
