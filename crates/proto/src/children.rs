//! The child agents of one agent: which were started, which linked back in time, and what is known of those behind one
//! that did not.

use crate::time::Instant;
use std::collections::{BTreeMap, BTreeSet};
use wireup_wire::ids::AgentId;
use wireup_wire::peer::MissingAgent;

#[derive(Default)]
pub struct Children {
    children: BTreeMap<AgentId, Child>,
}

struct Child {
    state: State,
    /// Agents below it that are being asked whether they can be reached at all; `None`: not asked yet.
    probing: Option<BTreeSet<AgentId>>,
    /// Those that cannot, not told yet.
    unreachable: Vec<MissingAgent>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// The link must be up by then. `delegated`: somebody above starts it in our stead.
    Starting {
        until: Instant,
        suspect_at: Instant,
        delegated: bool,
    },
    Up,
    Lost,
}

impl Children {
    /// Whether this child was never started.
    pub fn is_new(&self, agent: AgentId) -> bool {
        !self.children.contains_key(&agent)
    }

    pub fn on_start(&mut self, now: Instant, agent: AgentId, until: Instant) {
        let suspect_at = now + (until - now) / 2;
        let state = State::Starting { until, suspect_at, delegated: false };
        self.children.insert(agent, Child { state, probing: None, unreachable: Vec::new() });
    }

    pub fn on_delegated(&mut self, agent: AgentId) {
        if let Some(Child { state: State::Starting { delegated, .. }, .. }) = self.children.get_mut(&agent) {
            *delegated = true;
        }
    }

    /// True if another agent had to start it.
    pub fn on_up(&mut self, agent: AgentId) -> bool {
        let Some(child) = self.children.get_mut(&agent) else {
            return false;
        };
        let before = std::mem::replace(&mut child.state, State::Up);
        child.unreachable.clear();
        matches!(before, State::Starting { delegated: true, .. })
    }

    /// True if the child was not known to be lost.
    pub fn on_lost(&mut self, agent: AgentId) -> bool {
        self.children
            .get_mut(&agent)
            .is_some_and(|child| std::mem::replace(&mut child.state, State::Lost) != State::Lost)
    }

    pub fn is_starting(&self, agent: AgentId) -> bool {
        self.children.get(&agent).is_some_and(|child| matches!(child.state, State::Starting { .. }))
    }

    pub fn starting(&self) -> Vec<AgentId> {
        self.children.keys().copied().filter(|agent| self.is_starting(*agent)).collect()
    }

    /// Children whose time to link back is over.
    pub fn late(&self, now: Instant) -> Vec<AgentId> {
        let late = |child: &Child| matches!(child.state, State::Starting { until, .. } if until <= now);
        self.children.iter().filter(|(_, child)| late(child)).map(|(agent, _)| *agent).collect()
    }

    /// Children that are slow to link back: those below them had better be looked at.
    pub fn suspects(&self, now: Instant) -> Vec<AgentId> {
        let slow = |child: &Child| {
            matches!(child.state, State::Starting { suspect_at, .. } if suspect_at <= now) && child.probing.is_none()
        };
        self.children.iter().filter(|(_, child)| slow(child)).map(|(agent, _)| *agent).collect()
    }

    /// Whether those below a child are, or were, asked.
    pub fn is_probed(&self, agent: AgentId) -> bool {
        self.children.get(&agent).is_some_and(|child| child.probing.is_some())
    }

    pub fn on_probing(&mut self, agent: AgentId, below: BTreeSet<AgentId>) {
        if let Some(child) = self.children.get_mut(&agent) {
            child.probing = Some(below);
        }
    }

    /// What came of asking `agent`, which is below a child.
    pub fn on_probed(&mut self, below: AgentId, agent: AgentId, problem: Option<String>) {
        let Some(child) = self.children.get_mut(&below) else {
            return;
        };
        if let Some(probing) = &mut child.probing {
            probing.remove(&agent);
        }
        if child.state != State::Up {
            child.unreachable.extend(problem.map(|problem| MissingAgent { agent, problem }));
        }
    }

    /// What is to be told of a lost child's subtree, once.
    pub fn take_unreachable(&mut self, agent: AgentId) -> Vec<MissingAgent> {
        match self.children.get_mut(&agent) {
            Some(child) if child.state == State::Lost => std::mem::take(&mut child.unreachable),
            _ => Vec::new(),
        }
    }

    /// Whether nothing more will be learnt about a lost child's subtree.
    pub fn is_settled(&self, agent: AgentId) -> bool {
        let settled =
            |child: &Child| child.state == State::Lost && child.probing.as_ref().is_none_or(BTreeSet::is_empty);
        self.children.get(&agent).is_none_or(settled)
    }

    pub fn deadline(&self) -> Option<Instant> {
        let due = |child: &Child| match child.state {
            State::Starting { suspect_at, .. } if child.probing.is_none() => Some(suspect_at),
            State::Starting { until, .. } => Some(until),
            State::Up | State::Lost => None,
        };
        self.children.values().filter_map(due).min()
    }
}
