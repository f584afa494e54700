//! Barriers of groups: each member leaves each round once, and only after all members have entered it.

use std::collections::{BTreeMap, BTreeSet};

/// Number of rounds that each member of each group has entered and left so far.
#[derive(Debug, Default)]
pub struct Teams {
    teams: BTreeMap<String, BTreeMap<u32, Member>>,
    /// Ranks for which the others no longer wait.
    lost: BTreeSet<u32>,
}

/// The rounds of one member.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Member {
    entered: u32,
    released: u32,
}

impl Teams {
    pub fn on_enter(&mut self, rank: u32, name: &str, members: &[u32]) {
        let team = self.teams.entry(name.to_owned()).or_default();
        members.iter().for_each(|member| {
            team.entry(*member).or_default();
        });
        team.entry(rank).or_default().entered += 1;
    }

    pub fn on_release(&mut self, rank: u32, name: &str) -> Result<(), String> {
        let team = self.teams.get_mut(name).ok_or_else(|| format!("released from {name}, which no rank entered"))?;
        let member = team.entry(rank).or_default();
        member.released += 1;
        let round = member.released;
        if let Some((missing, _)) =
            team.iter().find(|(rank, member)| member.entered < round && !self.lost.contains(rank))
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
        if let Some(member) = self.teams.get_mut(name).and_then(|team| team.get_mut(&rank)) {
            member.released += 1;
        }
    }

    /// Whether another member has entered a round that this rank has not.
    pub fn is_missed(&self, rank: u32) -> bool {
        let is_behind = |team: &BTreeMap<u32, Member>| {
            let most = team.values().map(|member| member.entered).max();
            team.get(&rank).is_some_and(|member| Some(member.entered) < most)
        };
        self.teams.values().any(is_behind)
    }

    /// Whether any member waits in a round.
    pub fn is_waited_in(&self) -> bool {
        self.teams.values().flat_map(BTreeMap::values).any(|member| member.entered > member.released)
    }

    /// Whether in every group all members have entered the same rounds.
    pub fn all_entered(&self) -> bool {
        let is_even = |team: &BTreeMap<u32, Member>| {
            let mut entered = team.values().map(|member| member.entered);
            let first = entered.next();
            entered.all(|entered| Some(entered) == first)
        };
        self.teams.values().all(is_even)
    }

    /// The number of rounds that released all members.
    pub fn complete(&self) -> u32 {
        let least = |team: &BTreeMap<u32, Member>| team.values().map(|member| member.released).min().unwrap_or(0);
        self.teams.values().map(least).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_early_release_is_seen() {
        let mut teams = Teams::default();
        teams.on_enter(1, "a", &[1, 2]);
        assert!(teams.is_missed(2) && !teams.is_missed(1) && teams.is_waited_in() && !teams.all_entered());
        assert!(teams.on_release(1, "a").unwrap_err().contains("without rank 2"));
        let mut teams = Teams::default();
        [1, 2].iter().for_each(|rank| teams.on_enter(*rank, "a", &[1, 2]));
        assert_eq!([1, 2].map(|rank| teams.on_release(rank, "a")), [Ok(()), Ok(())]);
        assert_eq!((teams.complete(), teams.is_waited_in(), teams.all_entered()), (1, false, true));
        assert!(teams.on_release(1, "a").is_err(), "a second release from one round");
    }
}
