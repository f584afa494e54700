//! Processes by pid: this process's own, signals to others, and a descriptor that reports the end of a process.

use rustix::io::Errno;
use rustix::process::Pid;
use std::io;
use std::os::fd::OwnedFd;

/// The pid of this process.
pub fn own_pid() -> u32 {
    rustix::process::getpid().as_raw_nonzero().get() as u32
}

/// Sends a signal to one process.
///
/// # Errors
/// `ESRCH`: there is no such process. `EPERM`: the process belongs to another user.
pub fn kill(pid: u32, signal: i32) -> io::Result<()> {
    kill_raw(pid as i32, signal)
}

/// Sends a signal to a process group.
///
/// # Errors
/// The errors of [`kill`].
pub fn kill_group(group: u32, signal: i32) -> io::Result<()> {
    kill_raw(-(group as i32), signal)
}

fn kill_raw(target: i32, signal: i32) -> io::Result<()> {
    assert!(target.unsigned_abs() > 1, "a signal needs one process or one group, not all processes or init");
    // SAFETY: `kill` touches no memory.
    match unsafe { libc::kill(target, signal) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A descriptor (pidfd) that becomes readable when the process has ended.
///
/// # Errors
/// Linux before 5.3, or the process has ended and been reaped.
pub fn open_pid(pid: u32) -> io::Result<OwnedFd> {
    let pid = Pid::from_raw(pid as i32).ok_or(Errno::SRCH)?;
    Ok(rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty())?)
}
