//! Sets soft resource limits of children. Each child sets its own limits, so that they never apply to its parent.

use crate::process::limit;
use rustix::process::Resource;

/// The limits that differ from this process's own; for all others a child makes no system call.
#[derive(Clone, Default, Debug)]
pub struct Limits(Vec<One>);

#[derive(Clone, Copy, Debug)]
pub(super) struct One {
    pub resource: u32,
    pub bounds: libc::rlimit64,
}

impl Limits {
    /// Soft limits of children, each capped at the hard limit of this process; `u64::MAX`: unlimited.
    pub fn new(soft: impl IntoIterator<Item = (Resource, u64)>) -> Limits {
        Limits(soft.into_iter().filter_map(|(resource, soft)| One::new(resource, soft)).collect())
    }

    pub(super) fn list(&self) -> &[One] {
        &self.0
    }
}

impl One {
    fn new(resource: Resource, soft: u64) -> Option<One> {
        // A limit that cannot be read is not changed.
        let own = limit(resource).ok()?;
        // Unlimited: `RLIM64_INFINITY` is the largest number, so `min` works.
        let number = |bound: Option<u64>| bound.unwrap_or(libc::RLIM64_INFINITY);
        let (rlim_cur, rlim_max) = (soft.min(number(own.maximum)), number(own.maximum));
        let bounds = libc::rlimit64 { rlim_cur, rlim_max };
        (rlim_cur != number(own.current)).then_some(One { resource: resource as u32, bounds })
    }
}
