//! The unanswered requests of a server process, and their timeouts.

use crate::time::Instant;
use std::collections::{BTreeMap, BTreeSet};
use wireup_wire::ids::Epoch;
use wireup_wire::limits::PMIX_ASKS_MAX;

/// What a request waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Waits {
    /// A fence of the whole job, with this epoch.
    Fence(Epoch),
    Subset,
    Modex,
    /// An answer of the root, which checks the timeout itself.
    Root,
    /// Ranks of other jobs, by way of the root.
    Across,
}

#[derive(Default)]
pub struct Asks {
    pub all: BTreeMap<u64, Waiting>,
    due: BTreeSet<(Instant, u64)>,
}

pub struct Waiting {
    waits: Waits,
    until: Option<Instant>,
}

impl Asks {
    /// Accepts a request.
    ///
    /// # Errors
    /// How the process violates the protocol: the number is already outstanding, or there are too many.
    pub fn insert(&mut self, id: u64, waits: Waits, until: Option<Instant>) -> Result<(), String> {
        if self.all.contains_key(&id) {
            return Err(format!("it used request number {id} twice"));
        }
        if self.all.len() >= PMIX_ASKS_MAX {
            return Err(format!("it has more than {PMIX_ASKS_MAX} requests outstanding"));
        }
        self.all.insert(id, Waiting { waits, until });
        self.due.extend(until.map(|until| (until, id)));
        Ok(())
    }

    /// Removes an answered request; `None`: it was answered before.
    pub fn finish(&mut self, id: u64) -> Option<Waits> {
        let Waiting { waits, until } = self.all.remove(&id)?;
        if let Some(until) = until {
            self.due.remove(&(until, id));
        }
        Some(waits)
    }

    pub fn deadline(&self) -> Option<Instant> {
        self.due.first().map(|(until, _)| *until)
    }

    /// The first request whose timeout has expired.
    pub fn overdue(&self, now: Instant) -> Option<(u64, Waits)> {
        let (until, id) = self.due.first()?;
        (*until <= now).then(|| (*id, self.all[id].waits))
    }

    /// Drops all requests: no answer is needed any more.
    pub fn clear(&mut self) {
        *self = Asks::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_numbers_are_unique_and_time_out() {
        let mut asks = Asks::default();
        assert_eq!(asks.insert(1, Waits::Modex, Some(Instant(9))), Ok(()));
        assert_eq!(asks.insert(2, Waits::Root, None), Ok(()));
        assert_eq!(asks.insert(3, Waits::Subset, Some(Instant(5))), Ok(()));
        assert_eq!(asks.insert(1, Waits::Root, None), Err("it used request number 1 twice".into()));
        assert_eq!((asks.deadline(), asks.overdue(Instant(4))), (Some(Instant(5)), None));
        assert_eq!(asks.overdue(Instant(5)), Some((3, Waits::Subset)));
        assert_eq!(asks.finish(3), Some(Waits::Subset));
        assert_eq!(asks.finish(3), None);
        assert_eq!(asks.finish(1), Some(Waits::Modex));
        assert_eq!((asks.deadline(), asks.all.len()), (None, 1));
        for id in 10..10 + PMIX_ASKS_MAX as u64 - 1 {
            assert_eq!(asks.insert(id, Waits::Root, None), Ok(()));
        }
        assert!(asks.insert(5, Waits::Root, None).is_err_and(|problem| problem.contains("requests outstanding")));
    }
}
