//! Settings of the scheduler: the time slice that a process requests (EEVDF, Linux 6.12 and later; needs no privilege),
//! and the weight of a session, where Linux schedules sessions as groups (autogroups).
//!
//! A process with a short slice gets no more CPU time in total than others, but gets it sooner and in shorter turns.
//! Also, `sched_yield` gives up one slice: with the usual 3 ms, a rank that polls and yields waits until every busy
//! process in its scheduling group has run for as long.
//!
//! Measured with 4 ranks on 2 CPUs that synchronize 2,000 times beside two busy processes, all in one group: 5.8 s with
//! the usual slice, 0.29 s with the shortest.

use libc::{SCHED_BATCH, SCHED_OTHER, SYS_sched_getattr, SYS_sched_setattr};
use rustix::process::{Pid, getsid};
use std::fs;
use std::io;

/// The shortest slice that Linux grants (ns).
const SLICE_NS: u64 = 100_000;

/// The value that requests the kernel's default slice.
const USUAL: u64 = 0;

/// Scheduling attributes of a thread: the first version of Linux's `struct sched_attr`.
#[repr(C)]
#[derive(Default)]
pub struct Attributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    /// The time slice (ns), for the policies `OTHER` and `BATCH`. Older kernels report 0.
    runtime_ns: u64,
    deadline_ns: u64,
    period_ns: u64,
}

impl Attributes {
    /// Attributes of the calling thread; `None`: a sandbox denies the call.
    fn own() -> Option<Attributes> {
        let mut attributes = Attributes::default();
        // SAFETY: the kernel writes at most `size_of::<Attributes>()` bytes there, and any bytes are a valid value.
        let told = unsafe { libc::syscall(SYS_sched_getattr, 0, &raw mut attributes, size_of::<Attributes>(), 0) };
        (told == 0).then_some(attributes)
    }

    /// Applies the attributes to the calling thread. Returns `false` if the kernel refuses.
    fn apply(&self) -> bool {
        // SAFETY: the kernel reads `size` bytes, the size that it reported itself in `own`.
        unsafe { libc::syscall(SYS_sched_setattr, 0, &raw const *self, 0) == 0 }
    }

    /// Attributes of the calling thread with the shortest slice; `None`: the thread already has it, or its slice cannot
    /// be changed.
    pub fn with_short_slice() -> Option<Attributes> {
        let now = Attributes::own().filter(|now| now.has_slice() && now.runtime_ns > SLICE_NS)?;
        Some(Attributes { runtime_ns: SLICE_NS, ..now })
    }

    fn has_slice(&self) -> bool {
        [SCHED_OTHER, SCHED_BATCH].contains(&(self.policy as i32))
    }
}

/// Shortens the slice of the calling thread and of threads and processes that it starts from now on. Policy and
/// niceness do not change. If the kernel refuses, the only effect is a slower job on a loaded machine.
pub fn shorten_slice() {
    if let Some(short) = Attributes::with_short_slice() {
        short.apply();
    }
}

/// Restores the kernel's default slice for the calling thread.
pub fn restore_slice() {
    if let Some(now) = Attributes::own().filter(Attributes::has_slice) {
        Attributes { runtime_ns: USUAL, ..now }.apply();
    }
}

/// Sets the weight of the session led by `leader`, as a nice value; 0 is the default. Without autogroups, or in a
/// control group with its own CPU limits, this has no effect.
///
/// # Errors
/// `WouldBlock`: without `CAP_SYS_ADMIN` only one change per 0.1 s is permitted, for all users together. `NotFound`:
/// there is no such process, it leads no session (yet), or the kernel has no autogroups. Others: the process belongs to
/// another user; descriptors have run out.
pub fn set_group_nice(leader: u32, nice: i32) -> io::Result<()> {
    let pid = Pid::from_raw(leader as i32).ok_or(io::ErrorKind::NotFound)?;
    if getsid(Some(pid)) != Ok(pid) {
        return Err(io::ErrorKind::NotFound.into());
    }
    fs::write(format!("/proc/{leader}/autogroup"), nice.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a test in its own thread, since scheduling attributes belong to a thread.
    fn alone(test: impl FnOnce() + Send + 'static) {
        std::thread::spawn(test).join().unwrap();
    }

    #[test]
    fn only_the_slice_changes_and_threads_inherit_it() {
        alone(|| {
            let before = Attributes::own().unwrap();
            shorten_slice();
            let inherited = || Attributes::own().unwrap();
            for after in [inherited(), std::thread::spawn(inherited).join().unwrap()] {
                // Linux before 6.12 reports 0 and has no slice to change.
                assert_eq!(after.runtime_ns, before.runtime_ns.min(SLICE_NS));
                assert_eq!((after.policy, after.flags, after.nice), (before.policy, before.flags, before.nice));
            }
        });
    }

    #[test]
    fn a_short_slice_is_replaced_by_the_usual_one() {
        alone(|| {
            let usual = || {
                restore_slice();
                Attributes::own().unwrap()
            };
            let before = usual();
            shorten_slice();
            let after = usual();
            assert_eq!((after.runtime_ns, after.policy, after.nice), (before.runtime_ns, before.policy, before.nice));
        });
    }

    #[test]
    fn another_scheduling_policy_is_left_unchanged() {
        alone(|| {
            let before = Attributes::own().unwrap();
            assert!(Attributes { policy: libc::SCHED_IDLE as u32, ..before }.apply());
            let idle = Attributes::own().unwrap();
            shorten_slice();
            let after = Attributes::own().unwrap();
            assert_eq!((after.policy, after.runtime_ns), (libc::SCHED_IDLE as u32, idle.runtime_ns));
        });
    }
}
