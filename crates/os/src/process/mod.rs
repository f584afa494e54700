//! Changes settings of this process; finds and ends its descendants.

mod arguments;
mod bound;
mod confined;
mod descendants;
mod isolated;
mod pid;
mod signals;
mod slice;

pub use arguments::Argv;
pub use bound::{Inherited, start_bound};
pub use confined::{Confinement, confine};
pub use descendants::{Identity, Killed, descendants, is_stopped, kill_descendants, start_ticks, tree};
pub use isolated::{Isolated, PidNamespace, fork_isolated, may_isolate};
pub use pid::{kill, kill_group, limit, open_pid, own_pid, ran_out_of_memory};
pub use signals::{
    SavedMask, SignalFd, block_all_signals, deliver, end_by, ignore, ignore_write_errors, is_ignored,
    reset_dispositions, restore_write_errors, unblock,
};
pub use slice::{Attributes, restore_slice, set_group_nice, shorten_slice};

use crate::socket;
use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, retry_on_intr};
use rustix::process::{Pid, Resource, Rlimit, WaitOptions, WaitStatus};
use std::io;
use std::iter;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Limits on open files, before and after the soft limit was raised.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpenFiles {
    /// The soft limit at the start of the process; [`u64::MAX`]: unlimited.
    pub soft_before: u64,
    /// The soft limit now, equal to the hard limit.
    pub soft_now: u64,
}

/// Raises the soft limit of open files to the hard limit.
///
/// # Errors
/// A sandbox refuses the system call.
pub fn raise_open_files() -> io::Result<OpenFiles> {
    let limit = limit(Resource::Nofile)?;
    rustix::process::setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })?;
    let number = |bound: Option<u64>| bound.unwrap_or(u64::MAX);
    Ok(OpenFiles { soft_before: number(limit.current), soft_now: number(limit.maximum) })
}

/// Makes orphaned descendants children of this process.
///
/// # Errors
/// Linux before 3.4.
pub fn set_subreaper() -> io::Result<()> {
    Ok(rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?)
}

/// Sets the calling thread's name (15 bytes are kept), which `ps` shows.
pub fn set_name(name: &std::ffi::CStr) {
    // The name is only for people, so failure does not matter.
    let _ = rustix::thread::set_name(name);
}

/// The leader of this process's session (usually its login shell), which may have ended; `None`: the leader is outside
/// this PID namespace.
pub fn session_leader() -> Option<u32> {
    // SAFETY: `getsid` touches no memory. (rustix's version does not accept 0, which means a leader in another
    // namespace.)
    u32::try_from(unsafe { libc::getsid(0) }).ok().filter(|&pid| pid > 0)
}

/// The topmost ancestor of this process that is in the same session, usually a script. Used if the session's leader has
/// ended or is not visible.
pub fn eldest_of_session() -> Option<u32> {
    let own = own_pid();
    let own_session = descendants::session(own)?;
    let is_of_it = |&pid: &u32| pid > 0 && descendants::session(pid) == Some(own_session);
    // The number of steps is limited, in case processes end, or pids are reused, during the walk.
    iter::successors(Some(own), |&pid| descendants::parent(pid).filter(is_of_it))
        .take(ANCESTORS_MAX)
        .skip(1)
        .filter(|&pid| pid > 1)
        .last()
}

/// The topmost ancestor of this process in an unbroken line of ancestors that were all started with this `NAME=VALUE`
/// in their environment.
pub fn eldest_with(variable: &[u8]) -> Option<u32> {
    let has_it = |&pid: &u32| {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|&byte| byte == 0).any(|pair| pair == variable)
    };
    iter::successors(parent(), |&pid| descendants::parent(pid))
        .take(ANCESTORS_MAX)
        .take_while(|pid| *pid > 1 && has_it(pid))
        .last()
}

/// Most ancestors that are examined: more than any real nesting of shells.
const ANCESTORS_MAX: usize = 4096;

/// The parent of this process: the process that started it, or the reaper that adopted it. `None`: the parent is not
/// visible in this PID namespace.
pub fn parent() -> Option<u32> {
    rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get() as u32)
}

/// Whether this process is in the process group of its parent: then the parent can signal it only by its pid.
pub fn shares_group_with_parent() -> bool {
    let of_parent = rustix::process::getppid().and_then(|parent| rustix::process::getpgid(Some(parent)).ok());
    of_parent == Some(rustix::process::getpgrp())
}

/// The process in which [`fork`] returned.
#[derive(Debug)]
pub enum Fork {
    Parent { child: u32 },
    Child,
}

/// Whether forks are permitted in a process with several threads. They are in tests, since the test harness has
/// threads.
static THREADS_ALLOWED: AtomicBool = AtomicBool::new(cfg!(test));

/// From now on [`fork`] works with any number of threads.
///
/// # Safety
/// No child uses memory that another thread may be changing when it is forked, except by the C library's allocator,
/// which stays usable.
pub unsafe fn allow_threads_at_forks() {
    THREADS_ALLOWED.store(true, Ordering::Relaxed);
}

/// Forks without `exec`, if this process has one thread: a lock that another thread holds would stay locked in the
/// child forever.
///
/// # Errors
/// The process has several threads, or `/proc` is not mounted and they cannot be counted; the limit of processes is
/// reached; no memory is left.
pub fn fork() -> io::Result<Fork> {
    if !THREADS_ALLOWED.load(Ordering::Relaxed) {
        expect_one_thread()?;
    }
    // SAFETY: this process has one thread, as was just checked, and only that thread could start another one; or
    // `allow_threads_at_forks` was called. The child gets copies of all memory and of all descriptors, and each process
    // continues with its own copies.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(Fork::Child),
        child => Ok(Fork::Parent { child: child as u32 }),
    }
}

fn expect_one_thread() -> io::Result<()> {
    let mut looks = 0;
    loop {
        let counted = rustix::fs::stat("/proc/self/task").map_err(|error| {
            io::Error::other(format!(
                "the threads of this process cannot be counted (/proc/self/task: {error}); is /proc mounted?"
            ))
        })?;
        // In `/proc/self/task` each thread is a directory, whose entry `..` is a link to `task`, which has two more
        // links: its own name and its entry `.`.
        let threads = counted.st_nlink.saturating_sub(2);
        if threads == 1 {
            return Ok(());
        }
        if looks == LOOKS {
            return Err(io::Error::other(format!(
                "this process cannot be forked, because it has {threads} threads; if a library of LD_PRELOAD has \
                 started them, run wireup without it"
            )));
        }
        looks += 1;
        std::thread::sleep(PAUSE_MIN);
    }
}

/// Number of checks for a single thread: for some microseconds the kernel may still count a thread that was joined.
const LOOKS: u32 = 100;

/// Like [`fork`], but the child starts with all signals blocked, so that none ends it before it has set up its own
/// handling.
pub fn fork_with_signals_blocked() -> io::Result<Fork> {
    let before = block_all_signals();
    let forked = fork();
    if !matches!(forked, Ok(Fork::Child)) {
        before.restore();
    }
    forked
}

/// Makes this process the leader of a new session without a controlling terminal.
///
/// # Errors
/// This process already leads a process group.
pub fn new_session() -> io::Result<()> {
    rustix::process::setsid()?;
    Ok(())
}

/// Makes this process the leader of a process group without a controlling terminal, in its present session, which
/// another process leads.
///
/// # Errors
/// This process leads the session, or its terminal cannot be opened; then nothing has changed.
pub fn new_group() -> io::Result<()> {
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let terminal = match rustix::fs::open("/dev/tty", flags, Mode::empty()) {
        Ok(terminal) => Some(terminal),
        // This process has no controlling terminal.
        Err(Errno::NXIO) => None,
        Err(error) => return Err(error.into()),
    };
    rustix::process::setpgid(None, None)?;
    if let Some(terminal) = terminal {
        // SAFETY: the request has no argument. For a process that does not lead the session it only detaches this
        // process, and those that it starts later, from the terminal.
        unsafe { libc::ioctl(terminal.as_raw_fd(), libc::TIOCNOTTY) };
    }
    Ok(())
}

/// Exits at once: no exit handlers, no flushing, no destructors.
pub fn leave(code: i32) -> ! {
    // SAFETY: `_exit` only ends the process.
    unsafe { libc::_exit(code) }
}

/// How a child ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    Exited(u8),
    Signalled { signal: i32, core_dumped: bool },
}

/// The result of [`reap`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reaped {
    Child {
        pid: u32,
        ended: Ended,
    },
    /// There are children, but none has ended.
    NoneEnded,
    /// There are no children.
    NoChildren,
}

/// Reaps one child that has ended, without waiting.
pub fn reap() -> Reaped {
    match retry_on_intr(|| rustix::process::wait(WaitOptions::NOHANG)) {
        Ok(Some((pid, status))) => Reaped::Child { pid: pid.as_raw_nonzero().get() as u32, ended: ended(status) },
        Ok(None) => Reaped::NoneEnded,
        // `ECHILD` is the only error that these options allow.
        Err(_) => Reaped::NoChildren,
    }
}

/// Waits for one child to end.
///
/// # Errors
/// `ECHILD`: `pid` is not a child of this process, or was already reaped.
pub fn wait_for(pid: u32) -> io::Result<Ended> {
    let pid = Pid::from_raw(pid as i32).ok_or(Errno::CHILD)?;
    // Without `NOHANG`, `waitpid` always returns a status.
    let (_, status) =
        retry_on_intr(|| rustix::process::waitpid(Some(pid), WaitOptions::empty()))?.ok_or(Errno::CHILD)?;
    Ok(ended(status))
}

/// Waits for one child to end, at most `limit`.
///
/// # Errors
/// `TimedOut`: the child still runs. Other errors are those of [`wait_for`].
pub fn wait_for_within(pid: u32, limit: Duration) -> io::Result<Ended> {
    let until = Instant::now() + limit;
    let mut pause = PAUSE_MIN;
    loop {
        if let Some(ended) = try_wait_for(pid)? {
            return Ok(ended);
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        match open_pid(pid) {
            Ok(process) => {
                socket::wait(process, true, false, Some(left))?;
            }
            // No pidfd could be opened: Linux before 5.3, a container's filter, or no descriptor is left.
            Err(_) => std::thread::sleep(pause.min(left)),
        }
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

/// First pause between two checks of a child without a pidfd; the pauses double. `PAUSE_MAX`: the longest pause.
const PAUSE_MIN: Duration = Duration::from_micros(100);
const PAUSE_MAX: Duration = Duration::from_millis(10);

/// How a child has ended, without waiting for it; `None`: it still runs.
///
/// # Errors
/// `pid` is not a child of this process, or was reaped already.
pub fn try_wait_for(pid: u32) -> io::Result<Option<Ended>> {
    let pid = Pid::from_raw(pid as i32).ok_or(Errno::CHILD)?;
    let waited = retry_on_intr(|| rustix::process::waitpid(Some(pid), WaitOptions::NOHANG))?;
    Ok(waited.map(|(_, status)| ended(status)))
}

fn ended(status: WaitStatus) -> Ended {
    match status.terminating_signal() {
        Some(signal) => Ended::Signalled { signal, core_dumped: status.as_raw() & CORE_DUMPED != 0 },
        None => Ended::Exited(status.exit_status().unwrap_or(0) as u8),
    }
}

/// The bit of a wait status that marks a core dump (`WCOREFLAG`).
const CORE_DUMPED: i32 = 0x80;

#[cfg(test)]
mod tests;
