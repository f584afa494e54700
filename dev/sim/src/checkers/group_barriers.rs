//! Barriers of groups: each member leaves each round once, and only after all members have entered it.

use std::collections::{BTreeMap, BTreeSet};

/// Number of rounds that each member of each group has entered and left so far.
#[derive(Debug, Default)]
pub struct GroupBarriers {
    groups: BTreeMap<String, BTreeMap<u32, Member>>,
    /// Ranks for which the others no longer wait.
    lost: BTreeSet<u32>,
}

/// The rounds of one member.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Member {
    entered: u32,
    released: u32,
}

impl GroupBarriers {
    pub fn on_enter(&mut self, rank: u32, name: &str, members: &[u32]) {
        let group = self.groups.entry(name.to_owned()).or_default();
        members.iter().for_each(|member| {
            group.entry(*member).or_default();
        });
        group.entry(rank).or_default().entered += 1;
    }

    pub fn on_release(&mut self, rank: u32, name: &str) -> Result<(), String> {
        let group = self.groups.get_mut(name).ok_or_else(|| format!("released from {name}, which no rank entered"))?;
        let member = group.entry(rank).or_default();
        member.released += 1;
        let round = member.released;
        if let Some((missing, _)) =
            group.iter().find(|(rank, member)| member.entered < round && !self.lost.contains(rank))
        {
            return Err(format!("released from round {round} of {name} without rank {missing}"));
        }
        Ok(())
    }

    /// Other ranks may continue without this one.
    pub fn on_lost(&mut self, rank: u32) {
        self.lost.insert(rank);
    }

    /// A round ended for this member without the others.
    pub fn on_excused(&mut self, rank: u32, name: &str) {
        if let Some(member) = self.groups.get_mut(name).and_then(|group| group.get_mut(&rank)) {
            member.released += 1;
        }
    }

    /// Whether another member has entered a round that this rank has not.
    pub fn is_missed(&self, rank: u32) -> bool {
        let is_behind = |group: &BTreeMap<u32, Member>| {
            let most = group.values().map(|member| member.entered).max();
            group.get(&rank).is_some_and(|member| Some(member.entered) < most)
        };
        self.groups.values().any(is_behind)
    }

    /// Whether any member waits in a round.
    pub fn is_waited_in(&self) -> bool {
        self.groups.values().flat_map(BTreeMap::values).any(|member| member.entered > member.released)
    }

    /// Whether in every group all members have entered the same rounds.
    pub fn all_entered(&self) -> bool {
        let is_even = |group: &BTreeMap<u32, Member>| {
            let mut entered = group.values().map(|member| member.entered);
            let first = entered.next();
            entered.all(|entered| Some(entered) == first)
        };
        self.groups.values().all(is_even)
    }

    /// The number of rounds that released all members.
    pub fn complete(&self) -> u32 {
        let least = |group: &BTreeMap<u32, Member>| group.values().map(|member| member.released).min().unwrap_or(0);
        self.groups.values().map(least).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_early_release_is_seen() {
        let mut barriers = GroupBarriers::default();
        barriers.on_enter(1, "a", &[1, 2]);
        assert!(barriers.is_missed(2) && !barriers.is_missed(1) && barriers.is_waited_in() && !barriers.all_entered());
        assert!(barriers.on_release(1, "a").unwrap_err().contains("without rank 2"));
        let mut barriers = GroupBarriers::default();
        [1, 2].iter().for_each(|rank| barriers.on_enter(*rank, "a", &[1, 2]));
        assert_eq!([1, 2].map(|rank| barriers.on_release(rank, "a")), [Ok(()), Ok(())]);
        assert_eq!((barriers.complete(), barriers.is_waited_in(), barriers.all_entered()), (1, false, true));
        assert!(barriers.on_release(1, "a").is_err(), "a second release from one round");
    }
}
