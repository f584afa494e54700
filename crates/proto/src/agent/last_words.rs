//! What is known of a child whose link broke: its remote shell may end at the same time, and say why.
//!
//! The link tells that the agent is gone, at once; the shell tells that it was killed, or panicked, perhaps a moment later,
//! perhaps earlier. A child whose shell was called here is therefore lost a moment after its link.

use super::Agent;
use crate::io::{ExitStatus, ShellId};
use crate::job::JobInput;
use crate::starts;
use crate::time::Instant;
use std::collections::{BTreeMap, BTreeSet};
use wireup_wire::ids::AgentId;
use wireup_wire::peer::Cause;

/// How long a lost child's shell is waited for (ns). Chosen: a remote shell needs a round trip, and nobody who is told of a
/// failure misses a fifth of a second.
const LAST_WORDS_NS_MAX: u64 = 200_000_000;

#[derive(Default)]
pub struct LastWords {
    /// Of shells that ended before the link.
    said: BTreeMap<AgentId, String>,
    /// Children whose link broke: until when their shell is waited for, and what was wrong with the link.
    waiting: BTreeMap<AgentId, (Instant, String)>,
}

impl LastWords {
    pub fn deadline(&self) -> Option<Instant> {
        self.waiting.values().map(|(until, _)| *until).min()
    }
}

impl Agent {
    pub(super) fn on_child_link_down(&mut self, now: Instant, agent: AgentId, problem: String) {
        if !self.children.on_lost(agent) || self.leaving.is_some() {
            return;
        }
        self.links.forget_child(agent);
        self.forget_wishes_below(agent);
        self.take_place_of(now, agent);
        let is_missed = self.is_standing() || self.jobs.values().any(|job| job.has_child(agent));
        if (self.starts.has_linked(agent) || self.steps.holds(agent)) && is_missed {
            self.last_words.waiting.insert(agent, (now + LAST_WORDS_NS_MAX, problem));
        } else {
            let words = self.last_words.said.remove(&agent).unwrap_or_default();
            self.lose_child(now, agent, problem, &words);
        }
    }

    /// If this was the shell of an agent that had linked: its last words.
    pub(super) fn on_linked_shell_exited(&mut self, now: Instant, shell: ShellId, status: ExitStatus, stderr: &str) {
        let Some(agent) = self.starts.linked_by(shell) else {
            return;
        };
        let words = starts::last_words(status, stderr, self.starts.is_remote());
        match self.last_words.waiting.remove(&agent) {
            Some((_, problem)) => self.lose_child(now, agent, problem, &words),
            None => drop(self.last_words.said.insert(agent, words)),
        }
    }

    /// What a batch system says of an agent that has linked: that it was killed, perhaps before it says that all were.
    pub(super) fn on_last_words(&mut self, agent: AgentId, words: String) {
        self.last_words.said.insert(agent, words);
    }

    /// The step of these agents is over: nothing more is said of them. `words` are of all.
    pub(super) fn end_last_words(&mut self, now: Instant, agents: &BTreeSet<AgentId>, words: &str) {
        for &agent in agents {
            let said = self.last_words.said.remove(&agent).filter(|_| !starts::is_cancelled(words));
            let words = said.unwrap_or_else(|| words.to_owned());
            match self.last_words.waiting.remove(&agent) {
                Some((_, problem)) => self.lose_child(now, agent, problem, &words),
                None => drop(self.last_words.said.insert(agent, words)),
            }
        }
    }

    pub(super) fn check_last_words(&mut self, now: Instant) {
        let late = |(agent, (until, _)): (&AgentId, &(Instant, String))| (*until <= now).then_some(*agent);
        let late: Vec<AgentId> = self.last_words.waiting.iter().filter_map(late).collect();
        for agent in late {
            if let Some((_, problem)) = self.last_words.waiting.remove(&agent) {
                let words = self.last_words.said.remove(&agent).unwrap_or_default();
                self.lose_child(now, agent, problem, &words);
            }
        }
    }

    fn lose_child(&mut self, now: Instant, agent: AgentId, problem: String, words: &str) {
        let problem = if words.is_empty() { problem } else { format!("{problem}; {words}") };
        if self.is_standing() {
            return self.report_lost(now, agent, problem);
        }
        let cause = Cause::AgentLost { agent, problem };
        self.tell_jobs_where(now, |job| job.has_child(agent), || JobInput::ChildLost { agent, cause: cause.clone() });
    }
}
