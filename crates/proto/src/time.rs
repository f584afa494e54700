//! Time as a number: the state machines have no clock of their own.

use core::ops::{Add, Sub};
use serde::{Deserialize, Serialize};

/// Nanoseconds of a monotonic clock owned by the driver.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
pub struct Instant(pub u64);

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
