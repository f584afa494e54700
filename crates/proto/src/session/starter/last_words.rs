//! What is known of a child whose link broke: its remote shell may end at the same time, and say why.
//!
//! The link tells that the agent is gone, at once; the shell tells that it was killed, or panicked, perhaps a moment later,
//! perhaps earlier. A child whose shell was called here is therefore lost a moment after its link.

use super::Starter;
use crate::io::{ExitStatus, ShellId};
use crate::job::JobInput;
use crate::session::{Effect, Effects, View, membership, starts};
use crate::time::Instant;
use std::collections::{BTreeMap, BTreeSet};
use wireup_wire::ids::AgentId;
use wireup_wire::peer::{Cause, MissingAgent};

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

    /// A child's link broke; its shell is waited for.
    fn wait(&mut self, now: Instant, child: AgentId, problem: String) {
        self.waiting.insert(child, (now + LAST_WORDS_NS_MAX, problem));
    }

    /// What was wrong with a child's link, if its shell is waited for; else `words` wait for the link.
    fn said(&mut self, child: AgentId, words: &str) -> Option<String> {
        let waited = self.waiting.remove(&child).map(|(_, problem)| problem);
        if waited.is_none() {
            self.said.insert(child, words.to_owned());
        }
        waited
    }

    /// What was said of a child.
    fn take(&mut self, child: AgentId) -> Option<String> {
        self.said.remove(&child)
    }

    /// Children whose shell was waited for long enough, and what was wrong with their links.
    fn take_late(&mut self, now: Instant) -> Vec<(AgentId, String)> {
        let late = |(_, (until, _)): &(&AgentId, &(Instant, String))| *until <= now;
        let late: Vec<AgentId> = self.waiting.iter().filter(late).map(|(child, _)| *child).collect();
        late.into_iter().filter_map(|child| Some((child, self.waiting.remove(&child)?.1))).collect()
    }
}

impl Starter {
    pub(super) fn on_link_down(&mut self, view: &View<'_>, child: AgentId, problem: String, fx: &mut Effects) {
        if !self.children.on_lost(child) || view.is_leaving {
            return;
        }
        fx.push(Effect::Forget(child));
        self.forget_wishes_below(child, fx);
        if view.policy.survives_losses() {
            fx.push(Effect::Membership(membership::Input::TakePlaceOf(child)));
        }
        let is_missed = view.policy.survives_losses() || !view.jobs.of_child(child).is_empty();
        if (self.starts.has_linked(child) || self.steps.holds(child)) && is_missed {
            self.last_words.wait(view.now, child, problem);
        } else {
            let words = self.last_words.take(child).unwrap_or_default();
            lose_child(view, child, problem, &words, fx);
        }
    }

    /// If this was the shell of an agent that had linked: its last words.
    pub(super) fn on_linked_shell_exited(
        &mut self,
        view: &View<'_>,
        shell: ShellId,
        status: ExitStatus,
        stderr: &str,
        fx: &mut Effects,
    ) {
        let Some(child) = self.starts.linked_by(shell) else {
            return;
        };
        let words = starts::last_words(status, stderr, self.starts.is_remote());
        if let Some(problem) = self.last_words.said(child, &words) {
            lose_child(view, child, problem, &words, fx);
        }
    }

    /// What a batch system says of an agent that has linked: that it was killed, perhaps before it says that all were.
    pub(super) fn on_last_words(&mut self, child: AgentId, words: String) {
        self.last_words.said.insert(child, words);
    }

    /// The step of these agents is over: nothing more is said of them. `words` are of all.
    pub(super) fn end_last_words(
        &mut self,
        view: &View<'_>,
        agents: &BTreeSet<AgentId>,
        words: &str,
        fx: &mut Effects,
    ) {
        for &agent in agents {
            let said = self.last_words.take(agent).filter(|_| !starts::is_cancelled(words));
            let words = said.unwrap_or_else(|| words.to_owned());
            if let Some(problem) = self.last_words.said(agent, &words) {
                lose_child(view, agent, problem, &words, fx);
            }
        }
    }

    pub(super) fn check_last_words(&mut self, view: &View<'_>, fx: &mut Effects) {
        for (child, problem) in self.last_words.take_late(view.now) {
            let words = self.last_words.take(child).unwrap_or_default();
            lose_child(view, child, problem, &words, fx);
        }
    }
}

/// All that is known is said: in one run to the jobs, which end; in a standing session to those above.
fn lose_child(view: &View<'_>, agent: AgentId, problem: String, words: &str, fx: &mut Effects) {
    let problem = if words.is_empty() { problem } else { format!("{problem}; {words}") };
    if view.policy.survives_losses() {
        return fx.push(Effect::Membership(membership::Input::ReportLost(MissingAgent { agent, problem })));
    }
    let cause = Cause::AgentLost { agent, problem };
    fx.jobs(view.jobs.of_child(agent), || JobInput::ChildLost { agent, cause: cause.clone() });
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHILD: AgentId = AgentId(1);
    const T: Instant = Instant(1_000_000_000);

    #[test]
    fn words_before_the_link_breaks_are_kept_and_later_ones_end_the_wait() {
        let mut words = LastWords::default();
        assert_eq!(words.said(CHILD, "killed"), None);
        assert_eq!(words.take(CHILD).as_deref(), Some("killed"));
        words.wait(T, CHILD, "its link broke".into());
        assert_eq!(words.said(CHILD, "killed").as_deref(), Some("its link broke"));
        assert_eq!((words.take(CHILD), words.deadline()), (None, None));
    }

    #[test]
    fn nobody_waits_for_ever() {
        let mut words = LastWords::default();
        words.wait(T, CHILD, "its link broke".into());
        assert!(words.take_late(T).is_empty());
        let due = words.deadline().expect("it waits");
        assert_eq!(words.take_late(due), [(CHILD, "its link broke".to_owned())]);
    }
}
