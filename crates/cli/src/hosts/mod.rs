//! The hosts of a job: from `--hosts` and host files to a list of nodes with their slots.
//!
//! There is one rule for slots: the number of ranks is limited only if the user states a number of slots or names a
//! host more than once. Then a host without a number has one slot for each mention (or `--slots`). So files that name
//! each host once per cpu, as batch systems write them, work as users expect.

pub mod allocation;
mod file;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod machine_names;

pub use file::{Entry, list, list_of_flags, read_file};
pub use machine_names::{HostTable, Names, addresses};
pub use wireup_node::hosts::collapse_short;

use std::collections::HashMap;

const NO_SLOTS: &str = "all hosts have 0 slots; give at least one host 1 slot or more";

/// A host with its slots.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Host {
    /// The host's name as first mentioned.
    pub name: String,
    pub slots: u32,
    /// A limit that `--oversubscribe` does not lift.
    pub slots_max: Option<u32>,
    /// Whether the host is the machine that the launcher runs on.
    pub is_local: bool,
}

/// All hosts of a job, in the order in which they were first named. Never empty.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hosts {
    pub list: Vec<Host>,
    /// Whether the user stated a number of slots.
    pub stated: bool,
    /// For each mention of a host in the user's list, the host's index in `list`.
    pub order: Vec<u32>,
    /// The batch system's job that the numbers of slots come from.
    pub slots_of: Option<String>,
}

impl Hosts {
    /// Sums up what was stated about each host. `slots` is the default for hosts without a number.
    pub fn new(entries: Vec<Entry>, slots: Option<u32>, names: &Names) -> Result<Hosts, String> {
        let mut sums: Vec<Sum> = Vec::new();
        let mut places: HashMap<String, usize> = HashMap::with_capacity(entries.len());
        let mut local_at = None;
        let mut stated = slots.is_some();
        let mut mentions = Vec::with_capacity(entries.len());
        for entry in entries {
            let is_local = names.is_local(&entry.name);
            let known = if is_local { local_at } else { places.get(&entry.name).copied() };
            stated |= known.is_some() || entry.slots.is_some() || entry.slots_max.is_some();
            let at = known.unwrap_or(sums.len());
            if known.is_none() {
                if is_local {
                    local_at = Some(at);
                } else {
                    places.insert(entry.name.clone(), at);
                }
                sums.push(Sum { name: entry.name.clone(), is_local, ..Sum::default() });
            }
            sums[at].add(&entry);
            mentions.push(at);
        }
        let hosts = sums.into_iter().map(|sum| sum.host(slots)).collect();
        let order = mentions.into_iter().map(|at| at as u32).collect();
        let all = Hosts { list: hosts, stated, order, slots_of: None };
        let used = all.retain(|host| host.slots > 0);
        if used.list.is_empty() { Err(NO_SLOTS.to_owned()) } else { Ok(used) }
    }

    /// Keeps only the hosts for which `keeps` returns `true`.
    pub fn retain(self, keeps: impl FnMut(&Host) -> bool) -> Hosts {
        let kept: Vec<bool> = self.list.iter().map(keeps).collect();
        let places: Vec<Option<u32>> = kept
            .iter()
            .scan(0, |next, &keeps| {
                *next += u32::from(keeps);
                Some(keeps.then(|| *next - 1))
            })
            .collect();
        let order = self.order.iter().filter_map(|&at| places.get(at as usize).copied().flatten()).collect();
        let hosts = self.list.into_iter().zip(kept).filter_map(|(host, keeps)| keeps.then_some(host));
        Hosts { list: hosts.collect(), order, ..self }
    }

    /// The message that `ranks` ranks do not fit on these hosts: `count` hosts with `slots` slots in total.
    pub fn refusal(&self, ranks: u32, slots: u64, count: usize) -> String {
        match &self.slots_of {
            Some(allocation) => format!(
                "{ranks} ranks do not fit into the {slots} slots that {allocation} has on {count} node(s); lower -n, \
                 ask the batch system for more tasks, or add --oversubscribe to run more ranks than slots"
            ),
            None => format!(
                "{ranks} ranks do not fit into the {slots} slots of {count} host(s); lower -n, give the hosts more \
                 slots (n0:16), name more hosts, or add --oversubscribe to run more ranks than slots"
            ),
        }
    }

    /// The total number of slots.
    pub fn slots(&self) -> u64 {
        self.list.iter().map(|host| u64::from(host.slots)).sum()
    }
}

/// The sum of all mentions of one host.
#[derive(Default)]
struct Sum {
    name: String,
    is_local: bool,
    stated: Option<u32>,
    /// The number of mentions without a number of slots.
    bare: u32,
    slots_max: Option<u32>,
}

impl Sum {
    fn add(&mut self, entry: &Entry) {
        match entry.slots.or(entry.slots_max) {
            Some(slots) => self.stated = Some(self.stated.unwrap_or(0).saturating_add(slots)),
            None => self.bare += 1,
        }
        if let Some(max) = entry.slots_max {
            self.slots_max = Some(self.slots_max.unwrap_or(0).saturating_add(max));
        }
    }

    fn host(self, default: Option<u32>) -> Host {
        let slots = match (self.stated, default) {
            (Some(stated), _) => stated.saturating_add(self.bare),
            (None, Some(default)) => default,
            (None, None) => self.bare,
        };
        // The limit is never less than the slots, for example when another mention has no limit.
        let slots_max = self.slots_max.map(|max| max.max(slots));
        Host { name: self.name, slots, slots_max, is_local: self.is_local }
    }
}

#[cfg(test)]
mod tests;
