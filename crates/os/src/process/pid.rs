//! This process's pid and resource limits; signals to other processes, and how they end: a descriptor that reports the
//! end, and the kernel's log, which alone shows that the kernel killed a process because memory ran out.

use rustix::fs::{Mode, OFlags, open};
use rustix::io::{Errno, read};
use rustix::process::{Pid, Resource, Rlimit};
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

/// Longest record of the kernel's log (the kernel's `PRINTKRB_RECORD_MAX`, doubled); each read returns one record.
const RECORD_BYTES_MAX: usize = 16 << 10;
/// Most records that are read: more than a log of 16 MiB can have.
const RECORDS_MAX: usize = 1 << 18;

/// Whether the kernel's log contains that this process was killed because memory ran out. Always `false` if this user
/// may not read the log, or if pids differ from those in the log because this process is in a PID namespace.
pub fn ran_out_of_memory(pid: u32) -> bool {
    let Ok(log) = open("/dev/kmsg", OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty()) else {
        return false;
    };
    let mut buffer = vec![0; RECORD_BYTES_MAX];
    for _ in 0..RECORDS_MAX {
        match read(&log, &mut buffer) {
            Ok(length @ 1..) if is_about(&String::from_utf8_lossy(&buffer[..length]), pid) => return true,
            // `EPIPE`: the record was overwritten before it was read.
            Ok(1..) | Err(Errno::PIPE | Errno::INTR) => {}
            Ok(0) | Err(_) => return false,
        }
    }
    false
}

/// Whether a record is about the kill of this process: `3,1042,5123456789,-;Memory cgroup out of memory: Killed process
/// 4711 (app) total-vm:…`
fn is_about(record: &str, pid: u32) -> bool {
    record.contains("ut of memory") && record.contains(&format!(" process {pid} ("))
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_about_lack_of_memory_name_the_process() {
        let record = |text: &str| format!("3,1042,5123456789,-;{text}\n SUBSYSTEM=memory\n");
        let killed = record("Out of memory: Killed process 471 (app) total-vm:9kB, UID:0");
        assert_eq!([471, 47, 71, 4711].map(|pid| is_about(&killed, pid)), [true, false, false, false]);
        assert!(is_about(&record("Memory cgroup out of memory: Killed process 471 (app)"), 471));
        assert!(!is_about(&record("sending signal to process 471 (app)"), 471));
        assert!(!ran_out_of_memory(0), "no process has this number");
    }
}
