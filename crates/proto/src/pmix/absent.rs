//! Ranks that exit without ever connecting to PMIx, while others of their node have connected.
//!
//! The library makes the ranks of a node wait for each other, and its server only reports when all have entered: so only the library knows
//! whether a rank waits for one that never connected. Such a rank counts as one that has connected and left without finalizing: this is no
//! failure if the job ends soon. Open MPI's own launchers have the same rule: if one process calls init, all must.

use crate::job::ranks::{Process, ProcessState};
use wireup_wire::ids::LocalRank;

/// Whether a connected local rank may wait inside the library for this one, which has ended without connecting.
pub fn is_awaited_in_library(ranks: &[Process], local: LocalRank) -> bool {
    let process = &ranks[local.index()];
    let joined = |other: &Process| other.spoke_pmix && !other.finalized && other.state == ProcessState::Running;
    process.state == ProcessState::Gone { exit: Some(0) } && !process.spoke_pmi && ranks.iter().any(joined)
}

#[cfg(test)]
mod tests {
    use super::*;
    use wireup_wire::ids::Rank;

    #[test]
    fn a_rank_that_left_is_missed_once_another_has_joined() {
        let mut ranks = [0, 1, 2].map(|rank| Process::new(Rank(rank), 0));
        ranks.iter_mut().for_each(|process| process.state = ProcessState::Running);
        ranks[1].state = ProcessState::Gone { exit: Some(0) };
        let awaited = |ranks: &[Process]| (0..3).map(LocalRank).find(|local| is_awaited_in_library(ranks, *local));
        assert_eq!(awaited(&ranks), None, "no rank has connected");
        (ranks[2].spoke_pmi, ranks[2].spoke_pmix) = (true, true);
        assert_eq!(awaited(&ranks), Some(LocalRank(1)));
        ranks[1].state = ProcessState::Gone { exit: None };
        assert_eq!(awaited(&ranks), None, "its signal is reported instead");
        ranks[1].state = ProcessState::Gone { exit: Some(0) };
        ranks[2].finalized = true;
        assert_eq!(awaited(&ranks), None, "no rank waits any more");
    }
}
