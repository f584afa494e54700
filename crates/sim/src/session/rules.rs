//! The rules that hold after every event of a session.
//!
//! - At most one copy of an incarnation is linked.
//! - An agent that the root has not lost does not exit by itself as long as it can reach the root.
//! - An agent is lost only with a cause.
//! - After a loss, an agent dials the root a bounded number of times.
//!
//! The root's decisions are read from the messages that it sends.

use super::hosts::AgentCopy;
use super::world::World;
use crate::net::End;
use std::collections::{BTreeMap, BTreeSet};
use wireup_proto::io::Peer;
use wireup_wire::frame::{Frame, Kind};
use wireup_wire::peer::{self, Bootstrap, Control};
use wireup_wire::session::{Entry, Log, SessionSnapshot};

/// The most times that an agent dials the root for one loss. Chosen: twice the number for the longest chain of leases.
const DIALS_MAX: u32 = 60;
/// The root is the first copy that is started.
const ROOT: u32 = 0;

#[derive(Default)]
pub struct Rules {
    decided: Decided,
    is_ending: bool,
    /// Links that were broken by a fault.
    broken: BTreeSet<u32>,
    /// Links that the parent has accepted, each with the copy at its lower end.
    linked: BTreeMap<u32, u32>,
    /// The same for links about which the parent has not decided yet.
    fresh: BTreeMap<u32, u32>,
    /// How often a copy has dialled the root since it lost its parent.
    dials: BTreeMap<u32, u32>,
    /// Copies whose last dial to the root got no answer.
    unanswered: BTreeSet<u32>,
    /// Copies that were told to exit, or whose links the root has closed, whatever the log contains.
    dismissed: BTreeSet<u32>,
}

/// The state after the root's log, as far as the root has sent it to any agent.
#[derive(Default)]
struct Decided {
    at: u32,
    lives: BTreeMap<u32, u32>,
    lost: BTreeSet<u32>,
}

impl Decided {
    /// The entries that are new.
    fn news<'a>(&self, log: &'a Log) -> &'a [Entry] {
        let known = self.at.saturating_sub(log.at) as usize;
        log.entries.get(known..).unwrap_or_default()
    }

    fn fold(&mut self, at: u32, entry: &Entry) {
        self.at = at;
        match entry {
            Entry::Lost(agents) => self.lost.extend(agents.iter().map(|agent| agent.0)),
            Entry::Return(agents) => {
                for agent in agents {
                    self.lost.remove(&agent.0);
                    self.lives.insert(agent.0, at);
                }
            }
        }
    }

    /// The state for a new agent includes everything that was decided before.
    fn learn(&mut self, snapshot: &SessionSnapshot) {
        if snapshot.at > self.at {
            self.at = snapshot.at;
            self.lives = snapshot.places.iter().map(|(agent, place)| (agent.0, place.incarnation)).collect();
            self.lost = snapshot.places.iter().filter(|(_, place)| place.is_lost).map(|(agent, _)| agent.0).collect();
        }
    }

    fn has(&self, agent: u32, incarnation: u32) -> bool {
        self.lives.get(&agent).copied().unwrap_or(0) == incarnation && !self.lost.contains(&agent)
    }
}

impl Rules {
    pub fn on_ending(&mut self) {
        self.is_ending = true;
    }

    pub fn on_broken(&mut self, link: u32) {
        self.broken.insert(link);
    }

    pub fn on_unlinked(&mut self, link: u32) {
        self.linked.remove(&link);
        self.fresh.remove(&link);
    }

    pub fn on_gone(&mut self, copy: u32) {
        self.linked.retain(|_, child| *child != copy);
        self.fresh.retain(|_, child| *child != copy);
    }

    pub fn on_silent(&mut self, copy: u32) {
        self.unanswered.insert(copy);
    }

    pub fn on_reached(&mut self, copy: u32) {
        self.unanswered.remove(&copy);
    }
}

impl World {
    /// An agent is being started.
    pub(super) fn on_calls(&mut self, copy: u32, bootstrap: &Bootstrap) {
        self.trace(|| format!("{} calls for agent {}", self.name(copy), bootstrap.agent));
        if copy == ROOT {
            self.rules.decided.learn(&bootstrap.snapshot);
        }
    }

    pub(super) fn on_seeks(&mut self, copy: u32) {
        let dials = self.rules.dials.entry(copy).or_default();
        *dials += 1;
        if *dials == DIALS_MAX {
            self.checks.problem(format!("{} has dialled the root {DIALS_MAX} times", self.name(copy)));
        }
    }

    /// An agent closes one of its links.
    pub(super) fn on_closes(&mut self, copy: u32, link: u32) {
        self.rules.on_unlinked(link);
        // For a child of the root this is final. An agent that seeks a parent is only told to try again.
        if copy == ROOT && matches!(self.peers[link as usize][0], Peer::Child { .. }) {
            let child = self.lower_end(link);
            self.rules.dismissed.extend(child);
        }
    }

    /// A child's link is up at its parent, which may accept it.
    pub(super) fn on_child_link(&mut self, link: u32) {
        if let Some(copy) = self.lower_end(link) {
            self.rules.fresh.insert(link, copy);
        }
    }

    fn lower_end(&self, link: u32) -> Option<u32> {
        match self.net.ends(link)[1] {
            End::Agent(copy, _) => Some(copy),
            End::Launcher(_) => None,
        }
    }

    pub(super) fn upper_end(&self, link: u32) -> Option<u32> {
        match self.net.ends(link)[0] {
            End::Agent(copy, _) => Some(copy),
            End::Launcher(_) => None,
        }
    }

    /// The root sends entries of its log.
    pub(super) fn on_sends(&mut self, copy: u32, link: u32, frame: &Frame) {
        if frame.kind != Kind::Control || frame.job != 0 {
            return;
        }
        let Ok(Control::Log(log)) = peer::decode(&frame.payload) else { return };
        let is_rejoining = matches!(self.peers[link as usize][0], Peer::Rejoin { .. });
        if log.at == u32::MAX {
            // A parent may send this too, if it has another copy of that incarnation.
            let copy = self.lower_end(link);
            self.rules.dismissed.extend(copy);
        } else if copy == ROOT {
            self.on_decided(&log);
            if is_rejoining {
                self.on_child_link(link);
            }
        }
    }

    fn on_decided(&mut self, log: &Log) {
        let first = log.at.max(self.rules.decided.at);
        for (at, entry) in (first + 1..).zip(self.rules.decided.news(log).to_vec()) {
            self.rules.decided.fold(at, &entry);
            self.trace(|| format!("entry {at}: {entry:?}"));
            if !self.rules.is_ending {
                self.checks.on_entry(&entry, self.clock.now());
            }
        }
    }

    /// An agent exits by itself, for any reason.
    pub(super) fn check_leaves(&mut self, copy: u32) {
        let (agent, rules) = (&self.copies[copy as usize], &self.rules);
        let is_wanted = rules.decided.has(agent.host, agent.incarnation) && !rules.dismissed.contains(&copy);
        let up = agent.living.as_ref().and_then(|living| living.up);
        let was_roots = up.is_some_and(|up| rules.broken.contains(&up) && self.upper_end(up) == Some(ROOT));
        if !rules.is_ending && is_wanted && !was_roots && !rules.unanswered.contains(&copy) {
            self.checks.problem(format!("{} exits, and the root has not lost it", self.name(copy)));
        }
    }

    /// Called after every event.
    pub(super) fn check_rules(&mut self) {
        if self.rules.fresh.is_empty() {
            return;
        }
        let is_settled = |link: u32| {
            let parent = self.upper_end(link).and_then(|parent| self.living(parent));
            parent.is_none_or(super::hosts::Living::is_settled)
        };
        let settled: Vec<u32> = self.rules.fresh.keys().copied().filter(|link| is_settled(*link)).collect();
        for link in &settled {
            if let Some(copy) = self.rules.fresh.remove(link) {
                self.rules.linked.insert(*link, copy);
                self.rules.dials.remove(&copy);
            }
        }
        if !settled.is_empty() {
            self.check_twins();
        }
    }

    /// At most one copy of an incarnation is connected to the root.
    fn check_twins(&mut self) {
        let mut seen = BTreeMap::new();
        let above: BTreeMap<u32, u32> =
            self.rules.linked.iter().filter_map(|(link, copy)| Some((*copy, self.upper_end(*link)?))).collect();
        let is_in_tree =
            |copy: u32| std::iter::successors(Some(copy), |copy| above.get(copy).copied()).any(|at| at == ROOT);
        for copy in above.keys().copied().filter(|copy| is_in_tree(*copy)) {
            let AgentCopy { host, incarnation, .. } = self.copies[copy as usize];
            if let Some(twin) = seen.insert((host, incarnation), copy) {
                self.checks.problem(format!(
                    "{} and {} are linked, and have the same incarnation",
                    self.name(twin),
                    self.name(copy)
                ));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wireup_wire::ids::AgentId;

    #[test]
    fn the_log_is_folded_once_however_often_it_is_told() {
        let mut decided = Decided::default();
        let entries = vec![Entry::Lost(vec![AgentId(3)]), Entry::Return(vec![AgentId(3)])];
        let log = Log { entries, ..Log::default() };
        assert!(decided.has(3, 0));
        decided.fold(1, &log.entries[0]);
        assert!(!decided.has(3, 0));
        assert_eq!(decided.news(&log), &log.entries[1..]);
        decided.fold(2, &log.entries[1]);
        assert!(decided.has(3, 2) && !decided.has(3, 0) && decided.news(&log).is_empty());
    }
}
