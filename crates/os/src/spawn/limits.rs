//! Sets soft resource limits of children. Each child sets its own, so that they never apply to the process that starts
//! it.

use crate::process::limit;
use rustix::process::Resource;

/// Limits that differ from this process's own: for the other limits a child makes no system call.
#[derive(Clone, Default, Debug)]
pub struct Limits(Vec<One>);

#[derive(Clone, Copy, Debug)]
pub(super) struct One {
    pub resource: u32,
    pub bounds: libc::rlimit64,
}

impl Limits {
    /// Each limit is capped at the hard limit of this process; `u64::MAX`: none.
    pub fn new(soft: impl IntoIterator<Item = (Resource, u64)>) -> Limits {
        Limits(soft.into_iter().filter_map(|(resource, soft)| One::new(resource, soft)).collect())
    }

    pub(super) fn list(&self) -> &[One] {
        &self.0
    }
}

impl One {
    fn new(resource: Resource, soft: u64) -> Option<One> {
        // A limit that cannot be read is left as it is.
        let own = limit(resource).ok()?;
        // `RLIM64_INFINITY` is the largest number.
        let number = |bound: Option<u64>| bound.unwrap_or(libc::RLIM64_INFINITY);
        let (rlim_cur, rlim_max) = (soft.min(number(own.maximum)), number(own.maximum));
        let bounds = libc::rlimit64 { rlim_cur, rlim_max };
        (rlim_cur != number(own.current)).then_some(One { resource: resource as u32, bounds })
    }
}
