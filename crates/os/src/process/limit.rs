//! Reads resource limits of this process.

use rustix::process::{Resource, Rlimit};
use std::io;

/// A resource limit of this process. (rustix's function panics if a sandbox refuses the system call.)
///
/// # Errors
/// A sandbox refuses the system call.
pub fn limit(resource: Resource) -> io::Result<Rlimit> {
    let mut bounds = libc::rlimit64 { rlim_cur: 0, rlim_max: 0 };
    let new = std::ptr::null::<libc::rlimit64>();
    // SAFETY: the kernel reads no new limit and writes the old one to `bounds`.
    if unsafe { libc::syscall(libc::SYS_prlimit64, 0, resource as u32, new, &raw mut bounds) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let bound = |number| (number != libc::RLIM64_INFINITY).then_some(number);
    Ok(Rlimit { current: bound(bounds.rlim_cur), maximum: bound(bounds.rlim_max) })
}
