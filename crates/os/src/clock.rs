//! Reads the machine's monotonic clock as one number.
//!
//! All processes of one machine share this clock, so time stamps of launcher, agents, keepers and ranks can be
//! compared.

use rustix::time::{ClockId, clock_gettime};

/// `CLOCK_MONOTONIC` in nanoseconds.
pub fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
