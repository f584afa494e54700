//! The members of a group as runs of consecutive ranks: their places without a list of all ranks.

use alloc::vec::Vec;
use wireup_wire::limits::GROUP_RUNS_MAX;

/// First and last rank of a run of consecutive ranks.
pub type Run = (u32, u32);

pub fn size(runs: &[Run]) -> u32 {
    runs.iter().map(|(first, last)| last - first + 1).sum()
}

/// The place of a rank among the members; `None`: the rank is not a member.
pub fn place_of(runs: &[Run], rank: u32) -> Option<u32> {
    let at = runs.iter().position(|(first, last)| (*first..=*last).contains(&rank))?;
    Some(size(&runs[..at]) + (rank - runs[at].0))
}

/// The rank of the member at this place; `None`: there is no such member.
pub fn rank_at(runs: &[Run], mut place: u32) -> Option<u32> {
    for (first, last) in runs {
        if place <= last - first {
            return Some(first + place);
        }
        place -= last - first + 1;
    }
    None
}

/// Converts ranks to runs; `None`: the ranks are not in ascending order, or form more than `GROUP_RUNS_MAX` runs.
pub fn runs(ranks: &[u32]) -> Option<Vec<Run>> {
    let mut runs: Vec<Run> = Vec::new();
    for &rank in ranks {
        match runs.last_mut() {
            Some((_, last)) if rank <= *last => return None,
            Some((_, last)) if rank == *last + 1 => *last = rank,
            _ => runs.push((rank, rank)),
        }
    }
    Some(runs).filter(|runs| runs.len() <= GROUP_RUNS_MAX)
}

/// Converts each rank to a run of its own.
pub fn listed(ranks: &[u32]) -> Vec<Run> {
    ranks.iter().map(|rank| (*rank, *rank)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_runs_in_ascending_order() {
        assert_eq!(runs(&[0, 1, 2, 5, 7, 8]), Some(vec![(0, 2), (5, 5), (7, 8)]));
        assert_eq!((runs(&[3, 2]), runs(&[3, 3]), runs(&[])), (None, None, Some(vec![])));
        let scattered: Vec<u32> = (0..=GROUP_RUNS_MAX as u32).map(|at| 2 * at).collect();
        assert!(runs(&scattered).is_none() && runs(&scattered[1..]).is_some());
    }

    #[test]
    fn each_member_has_its_place() {
        let ranks = [0, 1, 2, 5, 7, 8];
        for members in [vec![(0, 2), (5, 5), (7, 8)], listed(&ranks)] {
            for (place, rank) in (0..).zip(ranks) {
                assert_eq!((place_of(&members, rank), rank_at(&members, place)), (Some(place), Some(rank)));
            }
            assert_eq!((size(&members), place_of(&members, 3), rank_at(&members, 6)), (6, None, None));
        }
    }
}
