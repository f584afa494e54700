//! Groups whose collectives the agents carry out. A group's members are a few runs of consecutive ranks, in ascending
//! order.
//!
//! Messages between members, and collectives that agents cannot carry out, use the ranks' own network, in a group with
//! the same context that is formed when it is first needed. Every member makes the same groups in the same order, so
//! all derive the same contexts without a message.

use crate::error::Error;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use wireup_capi::job::Job;
use wireup_group::{Context, Failure, WORLD, derived};
use wireup_wire::limits::GROUP_RUNS_MAX;

/// First and last rank of a run of consecutive ranks.
pub type Run = (u32, u32);

/// The context from which the contexts of groups of the whole job are derived. It differs from [`WORLD`], because the
/// ranks' network numbers its groups separately.
pub const JOB: Context = !WORLD;

/// The context of the group of all ranks for the secondary library of this name: the same on all ranks, and different
/// for each name.
pub fn named(name: &[u8]) -> Context {
    name.iter().fold(JOB, |of, byte| derived(of, u32::from(*byte), u32::MAX))
}

#[derive(Default)]
pub struct AgentGroups {
    by_context: BTreeMap<Context, AgentGroup>,
    /// `children`: number of groups made from the whole job; `defined`: number of all groups defined at the server.
    children: u32,
    defined: u32,
}

impl AgentGroups {
    /// # Errors
    /// There is no such group: it was freed.
    pub fn get(&mut self, context: Context) -> Result<&mut AgentGroup, Error> {
        self.by_context.get_mut(&context).ok_or(Error::Group(Failure::NoGroup))
    }

    /// The context from which a new group derives its own, and the new group's number; `of`: the group that it is made
    /// from (`None`: the whole job).
    pub fn origin(&mut self, of: Option<Context>) -> Result<(Context, u32), Error> {
        let Some(context) = of else {
            self.children += 1;
            return Ok((JOB, self.children));
        };
        Ok((context, self.get(context)?.next_child()))
    }

    /// Defines a group of ranks at the server, and keeps it under `context`.
    pub fn define(&mut self, job: &mut Job, context: Context, runs: Vec<Run>) -> Result<(), Error> {
        let group = AgentGroup::new(self.defined, job.rank, runs).ok_or(Error::Mismatch)?;
        self.defined += 1;
        let set = job.server().and_then(|server| server.set_group(group.number, group.runs(), context));
        set.map_err(Error::Server)?;
        self.by_context.insert(context, group);
        Ok(())
    }

    /// Removes a group. Returns whether the ranks' network has the group too.
    pub fn free(&mut self, job: &mut Job, context: Context) -> bool {
        self.by_context.remove(&context).is_some_and(|group| {
            // If the server is gone, the next wait reports that.
            let _ = job.server().and_then(|server| server.free_group(group.number));
            group.is_formed
        })
    }
}

pub struct AgentGroup {
    /// The server's number for the group.
    pub number: u32,
    /// This rank's place among the members.
    pub me: u32,
    runs: Vec<Run>,
    /// Number of groups that were made from this one.
    children: u32,
    /// Whether the ranks' network has the group too.
    is_formed: bool,
}

impl AgentGroup {
    /// `None`: this rank is not a member.
    pub fn new(number: u32, rank: u32, runs: Vec<Run>) -> Option<AgentGroup> {
        let me = all(&runs).position(|one| one == rank)? as u32;
        Some(AgentGroup { number, me, runs, children: 0, is_formed: false })
    }

    pub fn size(&self) -> u32 {
        self.runs.iter().map(|(first, last)| last - first + 1).sum()
    }

    pub fn runs(&self) -> &[Run] {
        &self.runs
    }

    pub fn ranks(&self) -> Vec<u32> {
        all(&self.runs).collect()
    }

    /// The ranks of all members if the ranks' network does not have the group yet, which the caller must then form
    /// there; otherwise `None`.
    pub fn unformed(&mut self) -> Option<Vec<u32>> {
        (!core::mem::replace(&mut self.is_formed, true)).then(|| self.ranks())
    }

    pub fn next_child(&mut self) -> u32 {
        self.children += 1;
        self.children
    }
}

fn all(runs: &[Run]) -> impl Iterator<Item = u32> {
    runs.iter().flat_map(|(first, last)| *first..=*last)
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;

    #[test]
    fn members_are_runs_in_ascending_order() {
        assert_eq!(runs(&[0, 1, 2, 5, 7, 8]), Some(vec![(0, 2), (5, 5), (7, 8)]));
        assert_eq!((runs(&[3, 2]), runs(&[3, 3]), runs(&[])), (None, None, Some(vec![])));
        let scattered: Vec<u32> = (0..=GROUP_RUNS_MAX as u32).map(|at| 2 * at).collect();
        assert!(runs(&scattered).is_none() && runs(&scattered[1..]).is_some());
    }

    #[test]
    fn a_member_has_its_place() {
        let mut group = AgentGroup::new(1, 7, vec![(0, 2), (5, 5), (7, 8)]).unwrap();
        assert_eq!((group.me, group.size(), group.ranks()), (4, 6, vec![0, 1, 2, 5, 7, 8]));
        assert_eq!((group.next_child(), group.next_child()), (1, 2));
        assert!(AgentGroup::new(1, 3, vec![(0, 2), (5, 5)]).is_none());
    }
}
