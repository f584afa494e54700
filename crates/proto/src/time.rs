//! Time as a number: the state machines have no clock of their own.

use core::ops::{Add, Sub};
use serde::{Deserialize, Serialize};

/// Nanoseconds of a monotonic clock owned by the driver.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
pub struct Instant(pub u64);

const SECOND_NS: u64 = 1_000_000_000;

impl Instant {
    /// When a client's timeout expires; `None` if it has not set one.
    pub fn until(self, timeout_s: Option<u32>) -> Option<Instant> {
        timeout_s.filter(|seconds| *seconds > 0).map(|seconds| self + u64::from(seconds) * SECOND_NS)
    }
}

impl Add<u64> for Instant {
    type Output = Instant;

    fn add(self, ns: u64) -> Instant {
        Instant(self.0.saturating_add(ns))
    }
}

impl Sub for Instant {
    type Output = u64;

    fn sub(self, earlier: Instant) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_of_zero_is_none() {
        assert_eq!(Instant(5).until(Some(0)), None);
        assert_eq!(Instant(5).until(Some(2)), Some(Instant(2_000_000_005)));
    }
}
