//! The child agents of one agent: which were started, which linked back in time.

use crate::time::Instant;
use std::collections::BTreeMap;
use wireup_wire::ids::AgentId;

#[derive(Default)]
pub struct Children {
    states: BTreeMap<AgentId, ChildState>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ChildState {
    /// The remote shell runs; the link must be up by then.
    Starting {
        until: Instant,
    },
    Up,
    Lost,
}

impl Children {
    /// Whether this child was never started.
    pub fn is_new(&self, agent: AgentId) -> bool {
        !self.states.contains_key(&agent)
    }

    pub fn on_start(&mut self, agent: AgentId, until: Instant) {
        self.states.insert(agent, ChildState::Starting { until });
    }

    pub fn on_up(&mut self, agent: AgentId) {
        self.states.insert(agent, ChildState::Up);
    }

    /// True if the child was not known to be lost.
    pub fn on_lost(&mut self, agent: AgentId) -> bool {
        self.states.insert(agent, ChildState::Lost) != Some(ChildState::Lost)
    }

    pub fn is_starting(&self, agent: AgentId) -> bool {
        matches!(self.states.get(&agent), Some(ChildState::Starting { .. }))
    }

    /// Children whose time to link back is over.
    pub fn late(&self, now: Instant) -> Vec<AgentId> {
        let late = |state: &ChildState| matches!(state, ChildState::Starting { until } if *until <= now);
        self.states.iter().filter(|(_, state)| late(state)).map(|(agent, _)| *agent).collect()
    }

    pub fn deadline(&self) -> Option<Instant> {
        let until = |state: &ChildState| match state {
            ChildState::Starting { until } => Some(*until),
            ChildState::Up | ChildState::Lost => None,
        };
        self.states.values().filter_map(until).min()
    }
}
