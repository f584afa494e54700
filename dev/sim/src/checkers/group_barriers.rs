//! Barriers of groups: each member leaves each round once, and only after all members have entered it.

use std::collections::{BTreeMap, BTreeSet};

/// Number of barrier rounds that each member of each group has entered and left so far.
#[derive(Debug, Default)]
pub struct GroupBarriers {
    groups: BTreeMap<String, Group>,
    /// Ranks that have ended: the other members complete their barriers without these ranks.
    lost: BTreeSet<u32>,
}

#[derive(Debug, Default)]
struct Group {
    members: BTreeMap<u32, Member>,
    /// Highest round that all members except those in `lost` are known to have entered.
    whole: u32,
}

/// Number of rounds that one member has entered and left.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Member {
    entered: u32,
    released: u32,
}

impl GroupBarriers {
    /// `members`: the members of the group; every rank passes the same ones.
    pub fn on_enter<M: Iterator<Item = u32>>(&mut self, rank: u32, name: &str, members: impl FnOnce() -> M) {
        let new = || Group { members: members().map(|member| (member, Member::default())).collect(), whole: 0 };
        let group = self.groups.entry(name.to_owned()).or_insert_with(new);
        group.members.entry(rank).or_default().entered += 1;
    }

    pub fn on_release(&mut self, rank: u32, name: &str) -> Result<(), String> {
        let group = self.groups.get_mut(name).ok_or_else(|| format!("released from {name}, which no rank entered"))?;
        let member = group.members.entry(rank).or_default();
        member.released += 1;
        let round = member.released;
        if round <= group.whole {
            return Ok(());
        }
        let is_missing = |(rank, member): &(&u32, &Member)| member.entered < round && !self.lost.contains(rank);
        if let Some((missing, _)) = group.members.iter().find(is_missing) {
            return Err(format!("released from round {round} of {name} without rank {missing}"));
        }
        group.whole = round;
        Ok(())
    }

    /// Records that other ranks may complete their barriers without this rank.
    pub fn on_lost(&mut self, rank: u32) {
        self.lost.insert(rank);
    }

    /// This member's current round ended although other members may not have entered it.
    pub fn on_excused(&mut self, rank: u32, name: &str) {
        if let Some(member) = self.groups.get_mut(name).and_then(|group| group.members.get_mut(&rank)) {
            member.released += 1;
        }
    }

    /// Whether another member has entered a round that this rank has not entered.
    pub fn is_missed(&self, rank: u32) -> bool {
        let is_behind = |group: &Group| {
            let most = group.members.values().map(|member| member.entered).max();
            group.members.get(&rank).is_some_and(|member| Some(member.entered) < most)
        };
        self.groups.values().any(is_behind)
    }

    /// Whether any member of any group waits in a round.
    pub fn is_waited_in(&self) -> bool {
        self.groups.values().flat_map(|group| group.members.values()).any(|member| member.entered > member.released)
    }

    /// Whether in every group all members have entered the same rounds.
    pub fn all_entered(&self) -> bool {
        let is_even = |group: &Group| {
            let mut entered = group.members.values().map(|member| member.entered);
            let first = entered.next();
            entered.all(|entered| Some(entered) == first)
        };
        self.groups.values().all(is_even)
    }

    /// Number of barrier rounds that released all members.
    pub fn complete(&self) -> u32 {
        let least = |group: &Group| group.members.values().map(|member| member.released).min().unwrap_or(0);
        self.groups.values().map(least).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_early_release_is_seen() {
        let mut barriers = GroupBarriers::default();
        barriers.on_enter(1, "a", || 1..=2);
        assert!(barriers.is_missed(2) && !barriers.is_missed(1) && barriers.is_waited_in() && !barriers.all_entered());
        assert!(barriers.on_release(1, "a").unwrap_err().contains("without rank 2"));
        let mut barriers = GroupBarriers::default();
        [1, 2].iter().for_each(|rank| barriers.on_enter(*rank, "a", || 1..=2));
        assert_eq!([1, 2].map(|rank| barriers.on_release(rank, "a")), [Ok(()), Ok(())]);
        assert_eq!((barriers.complete(), barriers.is_waited_in(), barriers.all_entered()), (1, false, true));
        assert!(barriers.on_release(1, "a").is_err(), "a second release from one round");
    }
}
