//! The root's log, and whom it waits for.

use super::nodes::Nodes;
use crate::time::Instant;
use std::collections::{BTreeMap, VecDeque};
use wireup_wire::ids::AgentId;
use wireup_wire::peer::SessionSpec;
use wireup_wire::session::Entry;

/// Entries that are kept for agents that come back. Chosen: more losses than any session sees in the time of a lease.
const KEPT_MAX: usize = 4096;

#[cfg_attr(test, derive(Clone, PartialEq, Eq, Hash, Debug))]
pub struct Writer {
    pub nodes: Nodes,
    /// The end of the log.
    kept: VecDeque<Entry>,
    /// Agents that are to dial the root by then, or have and were told to come again.
    pub leases: BTreeMap<AgentId, Instant>,
}

impl Writer {
    pub fn new(session: &SessionSpec) -> Writer {
        Writer { nodes: Nodes::new(session), kept: VecDeque::new(), leases: BTreeMap::new() }
    }

    pub fn deadline(&self) -> Option<Instant> {
        self.leases.values().copied().min()
    }

    /// Whether an agent was heard of: it is there, or on its way to a new parent.
    pub fn is_known(&self, agent: AgentId) -> bool {
        self.nodes.is_up(agent) || self.leases.contains_key(&agent)
    }

    /// An agent has the root for a new parent, and is to dial it by then. Until it does it is not up: no job begins there.
    pub fn await_orphan(&mut self, agent: AgentId, until: Instant) {
        self.nodes.on_return(agent);
        self.leases.insert(agent, until);
    }

    pub fn keep(&mut self, entry: Entry) {
        self.kept.push_back(entry);
        if self.kept.len() > KEPT_MAX {
            self.kept.pop_front();
        }
    }

    /// What comes after the first `at` of `all` entries. `None`: it is not kept any more, or never was.
    pub fn since(&self, at: u32, all: u32) -> Option<Vec<Entry>> {
        let missed = all.checked_sub(at)? as usize;
        let first = self.kept.len().checked_sub(missed)?;
        Some(self.kept.range(first..).cloned().collect())
    }
}
