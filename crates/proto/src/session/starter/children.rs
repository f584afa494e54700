//! The child agents of one agent: which were started, which linked in time, and what is known about the agents below
//! one that did not.

use crate::time::Instant;
use std::collections::{BTreeMap, BTreeSet};
use wireup_wire::ids::AgentId;
use wireup_wire::peer::{MissingAgent, Problem};

#[derive(Default)]
pub struct Children {
    children: BTreeMap<AgentId, Child>,
}

struct Child {
    state: State,
    started_at: Instant,
    /// Number of notes about the child's subtree that are still forwarded.
    notes_left: u32,
    /// Agents below the child that are being probed; `None`: no probes were made yet.
    probing: Option<BTreeSet<AgentId>>,
    /// Agents below the child that cannot be reached and were not reported yet.
    unreachable: Vec<MissingAgent>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// The link must be up by `until`. `delegated`: an ancestor starts it instead.
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
        let child = Child { state, started_at: now, notes_left: 0, probing: None, unreachable: Vec::new() };
        self.children.insert(agent, child);
    }

    /// Shortens the time of children that have not linked to `by`.
    pub fn hurry(&mut self, now: Instant, by: Instant) {
        for child in self.children.values_mut() {
            if let State::Starting { until, suspect_at, .. } = &mut child.state {
                *until = by.min(*until);
                *suspect_at = (now + (by - now) / 2).min(*suspect_at);
            }
        }
    }

    pub fn on_delegated(&mut self, agent: AgentId) {
        if let Some(Child { state: State::Starting { delegated, .. }, .. }) = self.children.get_mut(&agent) {
            *delegated = true;
        }
    }

    /// Takes over a child of another agent, which is lost.
    pub fn adopt(&mut self, agent: AgentId, notes_max: u32) {
        let child = Child {
            state: State::Up,
            started_at: Instant(0),
            notes_left: notes_max,
            probing: None,
            unreachable: Vec::new(),
        };
        self.children.insert(agent, child);
    }

    /// The child has linked and may send this many notes. Returns when it was started, and whether another agent had to
    /// start it.
    pub fn on_agent_up(&mut self, agent: AgentId, notes_max: u32) -> Option<(Instant, bool)> {
        let child = self.children.get_mut(&agent)?;
        let before = std::mem::replace(&mut child.state, State::Up);
        child.notes_left = notes_max;
        child.unreachable.clear();
        Some((child.started_at, matches!(before, State::Starting { delegated: true, .. })))
    }

    /// Counts a note of a child's subtree; returns whether it may be forwarded.
    pub fn may_note(&mut self, agent: AgentId) -> bool {
        let Some(child) = self.children.get_mut(&agent) else { return false };
        let may = child.notes_left > 0;
        child.notes_left = child.notes_left.saturating_sub(1);
        may
    }

    /// Records that a child is lost. Returns whether that is new.
    pub fn on_lost(&mut self, agent: AgentId) -> bool {
        self.children
            .get_mut(&agent)
            .is_some_and(|child| std::mem::replace(&mut child.state, State::Lost) != State::Lost)
    }

    pub fn forget(&mut self, agent: AgentId) {
        self.children.remove(&agent);
    }

    pub fn is_starting(&self, agent: AgentId) -> bool {
        self.children.get(&agent).is_some_and(|child| matches!(child.state, State::Starting { .. }))
    }

    pub fn is_lost(&self, agent: AgentId) -> bool {
        self.children.get(&agent).is_some_and(|child| child.state == State::Lost)
    }

    pub fn lost(&self) -> impl Iterator<Item = AgentId> {
        self.children.iter().filter(|(_, child)| child.state == State::Lost).map(|(agent, _)| *agent)
    }

    /// Children that have not linked yet.
    pub fn starting(&self) -> impl Iterator<Item = AgentId> {
        let starting = |child: &Child| matches!(child.state, State::Starting { .. });
        self.children.iter().filter(move |(_, child)| starting(child)).map(|(agent, _)| *agent)
    }

    /// Children that have not linked in time.
    pub fn late(&self, now: Instant) -> Vec<AgentId> {
        let late = |child: &Child| matches!(child.state, State::Starting { until, .. } if until <= now);
        self.children.iter().filter(|(_, child)| late(child)).map(|(agent, _)| *agent).collect()
    }

    /// Children that are slow to link: the agents below them should be probed.
    pub fn suspects(&self, now: Instant) -> Vec<AgentId> {
        let slow = |child: &Child| {
            matches!(child.state, State::Starting { suspect_at, .. } if suspect_at <= now) && child.probing.is_none()
        };
        self.children.iter().filter(|(_, child)| slow(child)).map(|(agent, _)| *agent).collect()
    }

    /// Whether the agents below a child are being, or were, probed.
    pub fn is_probed(&self, agent: AgentId) -> bool {
        self.children.get(&agent).is_some_and(|child| child.probing.is_some())
    }

    pub fn on_probing(&mut self, agent: AgentId, below: BTreeSet<AgentId>) {
        if let Some(child) = self.children.get_mut(&agent) {
            child.probing = Some(below);
        }
    }

    /// The result of probing `agent`, which is below a child.
    pub fn on_probed(&mut self, below: AgentId, agent: AgentId, problem: Option<Problem>) {
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

    /// The unreachable agents in a lost child's subtree; each is returned once.
    pub fn take_unreachable(&mut self, agent: AgentId) -> Vec<MissingAgent> {
        match self.children.get_mut(&agent) {
            Some(child) if child.state == State::Lost => std::mem::take(&mut child.unreachable),
            _ => Vec::new(),
        }
    }

    /// Whether no more reports about a lost child's subtree are expected.
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
