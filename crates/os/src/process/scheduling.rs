//! What a process asks of the scheduler; needs no privilege. If the kernel refuses, everything still works, but more slowly on a loaded
//! machine.
//!
//! *The time slice* (EEVDF, Linux 6.12 and later). A process with a short slice gets no more CPU time in total than others, but gets it
//! sooner and in shorter turns. Also, `sched_yield` gives up one slice: with the usual 3 ms, a rank that polls and yields waits until every
//! busy process in its scheduling group has had as much.
//!
//! Measured with 4 ranks on 2 CPUs that synchronize 2,000 times beside two busy processes, all in one group: 5.8 s with the usual slice,
//! 0.29 s with the shortest.
//!
//! *The policy* `BATCH` in place of `OTHER`: the same share of the CPU, but a process does not interrupt another one when it begins to run.

use libc::{SCHED_BATCH, SCHED_OTHER, SYS_sched_getattr, SYS_sched_setattr};

/// The shortest slice that Linux grants (ns).
const SLICE_NS: u64 = 100_000;
/// Asks for the kernel's own slice.
const USUAL_SLICE: u64 = 0;

/// The first version of Linux's `struct sched_attr`.
#[repr(C)]
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Scheduling {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    /// For the policies `OTHER` and `BATCH`: the slice. Older kernels report 0.
    runtime_ns: u64,
    deadline_ns: u64,
    period_ns: u64,
}

impl Scheduling {
    /// That of the calling thread; `None`: its policy has no slice, or a sandbox denies the call.
    pub fn own() -> Option<Scheduling> {
        Scheduling::any_own().filter(|own| [SCHED_OTHER, SCHED_BATCH].contains(&(own.policy as i32)))
    }

    fn any_own() -> Option<Scheduling> {
        let mut own = Scheduling::default();
        // SAFETY: the kernel writes at most `size_of::<Scheduling>()` bytes there, and any bytes are a valid value.
        let told = unsafe { libc::syscall(SYS_sched_getattr, 0, &raw mut own, size_of::<Scheduling>(), 0) };
        (told == 0).then_some(own)
    }

    pub fn with_short_slice(self) -> Scheduling {
        Scheduling { runtime_ns: self.runtime_ns.min(SLICE_NS), ..self }
    }

    pub fn with_usual_slice(self) -> Scheduling {
        Scheduling { runtime_ns: USUAL_SLICE, ..self }
    }

    /// For a thread that starts several processes: they do not interrupt it when they begin to run, nor does the end of a short slice. If all
    /// CPUs are busy, it would continue only at a later tick of the kernel's clock, milliseconds later.
    pub fn of_starter(self) -> Scheduling {
        Scheduling { policy: SCHED_BATCH as u32, ..self.with_usual_slice() }
    }

    /// Changes the calling thread, and the threads and processes that it starts from now on. Returns `false` if the kernel refuses.
    pub fn apply(&self) -> bool {
        // SAFETY: the kernel reads `size` bytes, the size that it reported itself in `own`.
        unsafe { libc::syscall(SYS_sched_setattr, 0, &raw const *self, 0) == 0 }
    }
}

/// Shortens the slice of the calling thread and of threads and processes that it starts from now on. Policy and niceness stay the same.
pub fn shorten_slice() {
    if let Some(own) = Scheduling::own().filter(|own| own.with_short_slice() != *own) {
        own.with_short_slice().apply();
    }
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
            let before = Scheduling::any_own().unwrap();
            shorten_slice();
            let inherited = || Scheduling::any_own().unwrap();
            for after in [inherited(), std::thread::spawn(inherited).join().unwrap()] {
                // Linux before 6.12 reports 0 and has no slice to change.
                assert_eq!(after.runtime_ns, before.runtime_ns.min(SLICE_NS));
                assert_eq!((after.policy, after.flags, after.nice), (before.policy, before.flags, before.nice));
            }
        });
    }

    #[test]
    fn a_starter_has_the_usual_slice_and_returns_to_what_it_was() {
        alone(|| {
            let before = Scheduling::own().unwrap();
            shorten_slice();
            let short = Scheduling::own().unwrap();
            assert!(short.of_starter().apply());
            let starter = Scheduling::own().unwrap();
            assert_eq!((starter.policy, starter.nice), (SCHED_BATCH as u32, before.nice));
            assert!(starter.runtime_ns >= before.runtime_ns.min(SLICE_NS), "{starter:?}");
            assert!(short.apply());
            assert_eq!(Scheduling::own(), Some(short));
        });
    }

    #[test]
    fn another_scheduling_policy_is_left_unchanged() {
        alone(|| {
            let before = Scheduling::any_own().unwrap();
            assert!(Scheduling { policy: libc::SCHED_IDLE as u32, ..before }.apply());
            let idle = Scheduling::any_own().unwrap();
            shorten_slice();
            let after = Scheduling::any_own().unwrap();
            assert_eq!((after.policy, after.runtime_ns), (libc::SCHED_IDLE as u32, idle.runtime_ns));
        });
    }
}
