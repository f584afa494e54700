//! The child agents of one agent: which were started, and which linked in time.

use crate::time::Instant;
use std::collections::BTreeMap;
use wireup_coll::tree::Tree;
use wireup_wire::ids::AgentId;

#[derive(Default)]
pub struct Children {
    children: BTreeMap<AgentId, Child>,
}

struct Child {
    state: State,
    started_at: Instant,
    /// Number of notes about the child's subtree that are still forwarded.
    notes_left: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// The link must be up by `until`. `suspect_at`: when the agents below the child should be probed; `None`: the
    /// probes have begun. `delegated`: an ancestor starts the child instead of this agent.
    Starting { until: Instant, suspect_at: Option<Instant>, delegated: bool },
    /// The child is linked.
    Up,
    /// The child is not coming, or its link broke.
    Lost,
}

impl Children {
    /// Whether this child was never started.
    pub fn is_new(&self, agent: AgentId) -> bool {
        !self.children.contains_key(&agent)
    }

    pub fn on_start(&mut self, now: Instant, agent: AgentId, until: Instant) {
        let state = State::Starting { until, suspect_at: Some(now + (until - now) / 2), delegated: false };
        self.children.insert(agent, Child { state, started_at: now, notes_left: 0 });
    }

    /// Children that have not linked must link by the time `by`, if their own limit is later.
    pub fn hurry(&mut self, now: Instant, by: Instant) {
        for child in self.children.values_mut() {
            if let State::Starting { until, suspect_at, .. } = &mut child.state {
                *until = by.min(*until);
                *suspect_at = suspect_at.map(|at| at.min(now + (by - now) / 2));
            }
        }
    }

    pub fn on_delegated(&mut self, agent: AgentId) {
        if let Some(Child { state: State::Starting { delegated, .. }, .. }) = self.children.get_mut(&agent) {
            *delegated = true;
        }
    }

    /// Adds a linked child whose previous parent is lost.
    pub fn adopt(&mut self, agent: AgentId, notes_max: u32) {
        self.children.insert(agent, Child { state: State::Up, started_at: Instant(0), notes_left: notes_max });
    }

    /// The child has linked and may send this many notes. Returns when it was started, and whether another agent had to
    /// start it.
    pub fn on_agent_up(&mut self, agent: AgentId, notes_max: u32) -> Option<(Instant, bool)> {
        let child = self.children.get_mut(&agent)?;
        let before = std::mem::replace(&mut child.state, State::Up);
        child.notes_left = notes_max;
        Some((child.started_at, matches!(before, State::Starting { delegated: true, .. })))
    }

    /// Counts a note of a child's subtree; returns whether it may be forwarded.
    pub fn may_note(&mut self, agent: AgentId) -> bool {
        let Some(child) = self.children.get_mut(&agent) else { return false };
        let may = child.notes_left > 0;
        child.notes_left = child.notes_left.saturating_sub(1);
        may
    }

    /// Records that a child is lost. Returns `false` if it was recorded as lost before, or is no child.
    pub fn on_lost(&mut self, agent: AgentId) -> bool {
        self.children
            .get_mut(&agent)
            .is_some_and(|child| std::mem::replace(&mut child.state, State::Lost) != State::Lost)
    }

    pub fn forget(&mut self, agent: AgentId) {
        self.children.remove(&agent);
    }

    pub fn is_starting(&self, agent: AgentId) -> bool {
        matches!(self.state(agent), Some(State::Starting { .. }))
    }

    pub fn is_up(&self, agent: AgentId) -> bool {
        self.state(agent) == Some(State::Up)
    }

    pub fn is_lost(&self, agent: AgentId) -> bool {
        self.state(agent) == Some(State::Lost)
    }

    fn state(&self, agent: AgentId) -> Option<State> {
        Some(self.children.get(&agent)?.state)
    }

    /// Children that are lost, and the agents below them in the original tree.
    pub fn lost_branches(&self, tree: Tree) -> Vec<AgentId> {
        self.that(|state| state == State::Lost).into_iter().flat_map(|agent| tree.subtree(agent)).collect()
    }

    /// Children that have not linked yet.
    pub fn starting(&self) -> Vec<AgentId> {
        self.that(|state| matches!(state, State::Starting { .. }))
    }

    /// Children that have not linked in time.
    pub fn late(&self, now: Instant) -> Vec<AgentId> {
        self.that(|state| matches!(state, State::Starting { until, .. } if until <= now))
    }

    /// Children that are slow to link: the agents below them should be probed.
    pub fn suspects(&self, now: Instant) -> Vec<AgentId> {
        self.that(|state| matches!(state, State::Starting { suspect_at: Some(at), .. } if at <= now))
    }

    fn that(&self, is_meant: impl Fn(State) -> bool) -> Vec<AgentId> {
        self.children.iter().filter(|(_, child)| is_meant(child.state)).map(|(agent, _)| *agent).collect()
    }

    /// Records that the agents below a child are being probed.
    pub fn on_probing(&mut self, agent: AgentId) {
        if let Some(Child { state: State::Starting { suspect_at, .. }, .. }) = self.children.get_mut(&agent) {
            *suspect_at = None;
        }
    }

    pub fn deadline(&self) -> Option<Instant> {
        let due = |child: &Child| match child.state {
            State::Starting { until, suspect_at, .. } => Some(suspect_at.unwrap_or(until)),
            State::Up | State::Lost => None,
        };
        self.children.values().filter_map(due).min()
    }
}
