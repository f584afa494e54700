//! The time slice that a process asks the scheduler for (EEVDF, Linux 6.12 and later; no privilege is needed).
//!
//! A process with a short slice has the cpu no longer than others in all, but it gets it sooner and for less long at a time. What counts
//! here is that `sched_yield` gives up one slice: with the usual 3 ms a rank that polls and yields is not looked at again until every
//! busy process in its scheduling group has had as much.

use super::raw::syscall;

/// The shortest slice that Linux grants (ns).
const SLICE_NS: u64 = 100_000;
/// Only these policies have such a slice.
const POLICIES: [u32; 2] = [libc::SCHED_OTHER as u32, libc::SCHED_BATCH as u32];

/// `struct sched_attr` of Linux, as it was at first.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    /// Of the policies above: the slice. Older kernels tell and take 0.
    runtime_ns: u64,
    deadline_ns: u64,
    period_ns: u64,
}

/// Shortens the slice of the calling process. An error leaves it as it is, with which it runs as well. Raw system calls only: see `child`.
#[inline(always)]
pub(super) fn shorten() {
    const BYTES: usize = size_of::<Attributes>();
    let mut attributes = Attributes::default();
    let place: *mut Attributes = &mut attributes;
    // SAFETY: the kernel writes at most so many bytes there.
    let told = unsafe { syscall(libc::SYS_sched_getattr, [0, place as usize, BYTES, 0]) };
    // SAFETY: it is ours, and all bytes make a value.
    let now = unsafe { &mut *place };
    if told < 0 || now.runtime_ns <= SLICE_NS || !(now.policy == POLICIES[0] || now.policy == POLICIES[1]) {
        return;
    }
    // All else is set to what it is.
    now.runtime_ns = SLICE_NS;
    // SAFETY: the kernel reads as many bytes as `size` says, which is what it has told.
    unsafe { syscall(libc::SYS_sched_setattr, [0, place as usize, 0, 0]) };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own() -> Attributes {
        let mut attributes = Attributes::default();
        let place: *mut Attributes = &mut attributes;
        // SAFETY: as above.
        let told = unsafe { syscall(libc::SYS_sched_getattr, [0, place as usize, size_of::<Attributes>(), 0]) };
        assert_eq!(told, 0);
        attributes
    }

    /// Attributes are a thread's own.
    #[test]
    fn only_the_slice_changes() {
        std::thread::spawn(|| {
            let before = own();
            shorten();
            let after = own();
            // Before Linux 6.12 there is none to change.
            assert_eq!(after.runtime_ns, before.runtime_ns.min(SLICE_NS));
            assert_eq!((after.policy, after.flags, after.nice), (before.policy, before.flags, before.nice));
        })
        .join()
        .unwrap();
    }

    #[test]
    fn another_policy_stays() {
        std::thread::spawn(|| {
            let idle = Attributes { size: size_of::<Attributes>() as u32, policy: libc::SCHED_IDLE as u32, ..own() };
            // SAFETY: the kernel reads it only.
            let set = unsafe { syscall(libc::SYS_sched_setattr, [0, &raw const idle as usize, 0, 0]) };
            assert_eq!(set, 0);
            let before = own();
            shorten();
            assert_eq!((own().policy, own().runtime_ns), (libc::SCHED_IDLE as u32, before.runtime_ns));
        })
        .join()
        .unwrap();
    }
}
