//! The root's log, and the agents for which the root waits.

use super::nodes::Nodes;
use crate::time::Instant;
use std::collections::{BTreeMap, VecDeque};
use wireup_wire::ids::AgentId;
use wireup_wire::peer::SessionSpec;
use wireup_wire::session::Entry;

/// Number of entries kept for agents that rejoin. Chosen: more losses than occur in any session during one lease.
const KEPT_MAX: usize = 4096;

#[cfg_attr(test, derive(Clone, PartialEq, Eq, Hash, Debug))]
pub struct Writer {
    pub nodes: Nodes,
    /// The most recent entries of the log.
    kept: VecDeque<Entry>,
    /// Agents that must dial the root by this time, including those that were told to try again.
    pub leases: BTreeMap<AgentId, Instant>,
}

impl Writer {
    pub fn new(session: &SessionSpec) -> Writer {
        Writer { nodes: Nodes::new(session), kept: VecDeque::new(), leases: BTreeMap::new() }
    }

    pub fn deadline(&self) -> Option<Instant> {
        self.leases.values().copied().min()
    }

    /// Whether an agent is known to have started: it is up, or on its way to a new parent.
    pub fn is_known(&self, agent: AgentId) -> bool {
        self.nodes.is_up(agent) || self.leases.contains_key(&agent)
    }

    /// The root is an agent's new parent, and the agent must dial it by this time. Until then it is not up: no job starts there.
    pub fn await_rejoin(&mut self, agent: AgentId, until: Instant) {
        self.nodes.on_return(agent);
        self.leases.insert(agent, until);
    }

    pub fn keep(&mut self, entry: Entry) {
        self.kept.push_back(entry);
        if self.kept.len() > KEPT_MAX {
            self.kept.pop_front();
        }
    }

    /// The entries after the first `at` of `all`. `None`: they are no longer kept, or never existed.
    pub fn since(&self, at: u32, all: u32) -> Option<Vec<Entry>> {
        let missed = all.checked_sub(at)? as usize;
        let first = self.kept.len().checked_sub(missed)?;
        Some(self.kept.range(first..).cloned().collect())
    }
}
