//! Decides which connections exist without a message to carry: above a bound, the least recently used ones are closed;
//! a rank that this process has waited for is connected to.
//!
//! A process's exit is noticed by its connection. So a connection over which an end waits is not closed, and a rank
//! that has waited for another for a while connects to it.

use alloc::collections::BTreeSet;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_is_still_awaited_at_the_second_look() {
        let mut upkeep = Upkeep::new();
        assert!(upkeep.still_awaited(5, [1, 2].into()).is_empty());
        assert_eq!((upkeep.still_awaited(9, [2, 3].into()), upkeep.due), ([2].into(), 9 + WATCH_MS));
    }
}
