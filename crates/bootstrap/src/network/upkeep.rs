//! Decides which connections exist without a message to carry: above a bound, the least recently used ones are closed;
//! a rank that this process has waited for is connected to; a rank that has refused a connection is dialled again.
//!
//! A process's exit is noticed by its connection. So a connection over which an end waits is not closed, and a rank
//! that has waited for another for a while connects to it.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use wireup_capi::net;

/// How long a rank waits for another one before it connects to it (ms). Chosen: a message that arrives in this time
/// brings a connection with it, and the exit of a rank is still noticed soon.
const WATCH_MS: u64 = 1_000;

pub struct Upkeep {
    /// Maximum number of open connections; `None`: no limit.
    pub open_max: Option<usize>,
    /// Time of the next check of which ranks this process waits for (ms).
    pub due: u64,
    /// Ranks that this process waited for at the last check.
    awaited: BTreeSet<u32>,
}

impl Upkeep {
    pub fn new() -> Upkeep {
        Upkeep { open_max: None, due: net::now_ms() + WATCH_MS, awaited: BTreeSet::new() }
    }

    /// Records the ranks for which this process waits now; returns those for which it also waited at the last check.
    pub fn still_awaited(&mut self, now: u64, ranks: BTreeSet<u32>) -> Vec<u32> {
        self.due = now + WATCH_MS;
        let before = core::mem::replace(&mut self.awaited, ranks);
        before.intersection(&self.awaited).copied().collect()
    }
}

/// How often a rank that refuses is dialled again, and the pause before each dial (ms). Within the time of all these
/// dials, the other rank's own dial arrives or, if the other rank has given up because a third rank is lost, its report
/// of that loss.
const DIALS_MAX: u32 = 8;
const PAUSE_MS: u64 = 50;

/// Ranks that have refused a connection, and when they are dialled again. A rank refuses because it dials this rank at
/// the same time, or has exited. During the pause, the rank's own connection, or the report of its exit, may arrive.
#[derive(Default)]
pub struct Redials {
    /// For each rank: how often it has refused, and when to dial it next (ms; `None`: it is being dialled).
    refused: BTreeMap<u32, (u32, Option<u64>)>,
}

impl Redials {
    pub fn on_refused(&mut self, now: u64, rank: u32) {
        let (count, at) = self.refused.entry(rank).or_default();
        (*count, *at) = (*count + 1, Some(now + PAUSE_MS));
    }

    /// Whether a rank has refused, and has neither been connected to nor lost since.
    pub fn has(&self, rank: u32) -> bool {
        self.refused.contains_key(&rank)
    }

    pub fn remove(&mut self, rank: u32) {
        self.refused.remove(&rank);
    }

    /// When to call [`Redials::take_due`] next (ms).
    pub fn deadline(&self) -> Option<u64> {
        self.refused.values().filter_map(|(_, at)| *at).min()
    }

    /// The ranks to dial now, and whether each has refused often enough to be lost.
    pub fn take_due(&mut self, now: u64) -> Vec<(u32, bool)> {
        let due = self.refused.iter_mut().filter_map(|(rank, (count, at))| {
            at.take_if(|at| *at <= now)?;
            Some((*rank, *count > DIALS_MAX))
        });
        due.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_is_still_awaited_at_the_second_look() {
        let mut upkeep = Upkeep::new();
        assert!(upkeep.still_awaited(5, [1, 2].into()).is_empty());
        assert_eq!((upkeep.still_awaited(9, [2, 3].into()), upkeep.due), ([2].into(), 9 + WATCH_MS));
    }

    #[test]
    fn a_rank_that_refuses_is_dialled_after_a_pause_and_not_for_ever() {
        let mut redials = Redials::default();
        let mut now = 0;
        for _ in 0..DIALS_MAX {
            redials.on_refused(now, 7);
            assert_eq!((redials.take_due(now), redials.deadline()), ([].into(), Some(now + PAUSE_MS)));
            now += PAUSE_MS;
            assert_eq!((redials.take_due(now), redials.deadline(), redials.has(7)), ([(7, false)].into(), None, true));
        }
        redials.on_refused(now, 7);
        assert_eq!(redials.take_due(now + PAUSE_MS), [(7, true)]);
        redials.remove(7);
        assert!(!redials.has(7));
    }
}
