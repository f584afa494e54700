//! The look-ups that wait for names.

use crate::session::JobNode;
use crate::time::Instant;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use wireup_wire::ids::JobId;
use wireup_wire::names::{Asker, Range};

/// A look-up, and where to send the answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LookUp {
    pub at: JobNode,
    pub asker: Asker,
    pub names: Vec<Bytes>,
    pub range: Range,
    /// The number of names to wait for.
    pub wait: u32,
    pub until: Option<Instant>,
}

#[derive(Default)]
pub struct Waiting {
    /// Look-ups by number, in order of arrival.
    all: BTreeMap<u64, LookUp>,
    by_name: BTreeSet<(Bytes, u64)>,
    due: BTreeSet<(Instant, u64)>,
    next: u64,
}

impl Waiting {
    pub fn len(&self) -> usize {
        self.all.len()
    }

    pub fn push(&mut self, lookup: LookUp) {
        let number = self.next;
        self.next += 1;
        self.by_name.extend(lookup.names.iter().map(|name| (name.clone(), number)));
        self.due.extend(lookup.until.map(|until| (until, number)));
        self.all.insert(number, lookup);
    }

    pub fn get(&self, number: u64) -> Option<&LookUp> {
        self.all.get(&number)
    }

    pub fn remove(&mut self, number: u64) -> Option<LookUp> {
        let lookup = self.all.remove(&number)?;
        for name in &lookup.names {
            self.by_name.remove(&(name.clone(), number));
        }
        if let Some(until) = lookup.until {
            self.due.remove(&(until, number));
        }
        Some(lookup)
    }

    /// Numbers of the look-ups that wait for one of these names, in order of arrival.
    pub fn that_want(&self, names: &[Bytes]) -> BTreeSet<u64> {
        let of = |name: &Bytes| self.by_name.range((name.clone(), 0)..=(name.clone(), u64::MAX));
        names.iter().flat_map(of).map(|(_, number)| *number).collect()
    }

    pub fn of_job(&self, job: JobId) -> Vec<u64> {
        self.all.iter().filter(|(_, lookup)| lookup.at.job == job).map(|(number, _)| *number).collect()
    }

    /// Numbers of the look-ups whose time has passed.
    pub fn late(&self, now: Instant) -> Vec<u64> {
        self.due.iter().take_while(|(until, _)| *until <= now).map(|(_, number)| *number).collect()
    }

    pub fn deadline(&self) -> Option<Instant> {
        self.due.first().map(|(until, _)| *until)
    }

    #[cfg(test)]
    pub fn iter(&self) -> impl Iterator<Item = &LookUp> {
        let names: usize = self.all.values().map(|lookup| lookup.names.len()).sum();
        assert_eq!((self.by_name.len(), self.due.len() <= self.all.len()), (names, true));
        self.all.values()
    }
}
