//! A descriptor that becomes readable at a time.

use super::{Descriptor, Result, checked};
use core::cell::Cell;
use core::ffi::c_int;

pub struct Timer {
    timer: Descriptor,
    /// The time at which the timer goes off (ms, by [`super::now_ms`]); `None`: not set.
    at: Cell<Option<u64>>,
}

impl Timer {
    /// # Errors
    /// There are no more descriptors.
    pub fn new() -> Result<Timer> {
        // SAFETY: no memory is passed.
        let fd = unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_NONBLOCK | libc::TFD_CLOEXEC) };
        checked(fd).map(|fd| Timer { timer: Descriptor::new(fd), at: Cell::new(None) })
    }

    pub fn fd(&self) -> c_int {
        self.timer.fd()
    }

    /// Sets the timer to go off at this time of [`super::now_ms`]. A timer that is set for an earlier time is left as
    /// it is, which saves a system call.
    pub fn set(&self, at: Option<u64>) {
        let Some(at) = at.filter(|at| self.at.get().is_none_or(|set| *at < set)) else { return };
        self.at.set(Some(at));
        let zero = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // A time of 0 would stop the timer instead.
        let at = at.max(1);
        let value = libc::timespec { tv_sec: (at / 1000) as _, tv_nsec: (at % 1000 * 1_000_000) as _ };
        let value = libc::itimerspec { it_interval: zero, it_value: value };
        // SAFETY: `value` is valid, and the old value is not wanted. The call fails only with a wrong descriptor or
        // value.
        unsafe { libc::timerfd_settime(self.fd(), libc::TFD_TIMER_ABSTIME, &value, core::ptr::null_mut()) };
    }

    /// Resets a timer that has gone off: its descriptor is not readable until the timer is set again.
    pub fn clear(&self) {
        let mut count = [0_u8; 8];
        self.at.set(None);
        // SAFETY: pointer and length are those of the array. If it has not gone off, nothing is read.
        unsafe { libc::read(self.fd(), count.as_mut_ptr().cast(), count.len()) };
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Epoll, now_ms};
    use super::*;
    use std::vec;

    #[test]
    fn it_goes_off_when_it_is_set_and_not_before() {
        let (timer, epoll, mut events) = (Timer::new().unwrap(), Epoll::new().unwrap(), vec![]);
        epoll.watch(timer.fd(), 3, false, true).unwrap();
        epoll.wait(0, &mut events);
        assert!(events.is_empty());
        let at = now_ms() + 30;
        timer.set(Some(at + 1_000_000));
        timer.set(Some(at));
        timer.set(None);
        epoll.wait(10_000, &mut events);
        assert!(now_ms() >= at && events.len() == 1);
        timer.clear();
        epoll.wait(0, &mut events);
        assert!(events.is_empty());
        timer.set(Some(0));
        epoll.wait(10_000, &mut events);
        assert_eq!(events.len(), 1);
    }
}
