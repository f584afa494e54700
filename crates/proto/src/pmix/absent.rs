//! Ranks that leave without ever having joined, while others of their node have.
//!
//! The library lets the ranks of a node wait for each other by itself, and its server speaks when all are in: whether somebody
//! waits for a rank that never connected is seen by nobody else. Such a rank counts as one that has joined and left without a
//! goodbye: it is no failure if the job is over soon. Open MPI's own launchers have the same rule: if one process calls init, all
//! must.

use crate::job::ranks::{Life, Process};
use wireup_wire::ids::LocalRank;

/// A rank here that has joined may wait inside the library for this one, which is gone and has not.
pub fn is_awaited_in_library(ranks: &[Process], local: LocalRank) -> bool {
    let process = &ranks[local.index()];
    let joined = |other: &Process| other.spoke_pmix && !other.finalized && other.life == Life::Running;
    process.life == Life::Gone { exit: Some(0) } && !process.spoke_pmi && ranks.iter().any(joined)
}

#[cfg(test)]
mod tests {
    use super::*;
    use wireup_wire::ids::Rank;

    #[test]
    fn a_rank_that_left_is_missed_once_another_has_joined() {
        let mut ranks = [0, 1, 2].map(|rank| Process::new(Rank(rank), 0));
        ranks.iter_mut().for_each(|process| process.life = Life::Running);
        ranks[1].life = Life::Gone { exit: Some(0) };
        let awaited = |ranks: &[Process]| (0..3).map(LocalRank).find(|local| is_awaited_in_library(ranks, *local));
        assert_eq!(awaited(&ranks), None, "nobody has joined");
        (ranks[2].spoke_pmi, ranks[2].spoke_pmix) = (true, true);
        assert_eq!(awaited(&ranks), Some(LocalRank(1)));
        ranks[1].life = Life::Gone { exit: None };
        assert_eq!(awaited(&ranks), None, "its signal says enough");
        ranks[1].life = Life::Gone { exit: Some(0) };
        ranks[2].finalized = true;
        assert_eq!(awaited(&ranks), None, "nobody waits any more");
    }
}
