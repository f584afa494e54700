//! Finds out why a child was lost, and reports it. Its broken link shows at once that the agent is gone. The end of its
//! remote shell, or of a batch system's step, says whether it was killed or panicked, slightly earlier or later.
//!
//! So the loss of a child whose remote shell was called by this agent is reported only shortly after its link broke.

use crate::session::Cx;
use crate::time::Instant;
use std::collections::{BTreeMap, BTreeSet};
use wireup_wire::ids::AgentId;
use wireup_wire::peer::{Cause, MissingAgent, Problem, ProblemKind};

/// Time for which a lost child's shell is awaited (ns). Chosen: a remote shell needs one round trip, and a delay of a
/// fifth of a second in a failure report does not matter.
const LAST_WORDS_NS_MAX: u64 = 200_000_000;

#[derive(Default)]
pub struct Losses {
    /// Final messages of shells that ended before the link of their agent broke.
    said: BTreeMap<AgentId, Problem>,
    /// Children whose link broke: until when their shell is awaited, and the problem of the link.
    waiting: BTreeMap<AgentId, (Instant, Problem)>,
    /// Agents that this one has observed to be lost, in a standing session, and has not reported yet.
    pub observed: Vec<MissingAgent>,
}

impl Losses {
    pub fn deadline(&self) -> Option<Instant> {
        self.waiting.values().map(|(until, _)| *until).min()
    }

    /// Removes and returns the agents that this one has observed to be lost, in a standing session: the root decides
    /// about them.
    pub fn take_observed(&mut self) -> Vec<MissingAgent> {
        std::mem::take(&mut self.observed)
    }

    /// A child's link broke. `may_say`: whether the end of its remote shell, or of a step, may still explain why.
    pub fn on_link_down(&mut self, cx: &mut Cx, child: AgentId, problem: Problem, may_say: bool) {
        if may_say {
            self.waiting.insert(child, (cx.agent.now + LAST_WORDS_NS_MAX, problem));
        } else {
            let words = self.said.remove(&child).unwrap_or_default();
            self.lose(cx, child, problem, &words);
        }
    }

    /// Keeps a batch system's message about a linked agent until its link breaks, since the step's message that all
    /// agents were killed may follow and replaces it.
    pub fn keep(&mut self, child: AgentId, words: Problem) {
        self.said.insert(child, words);
    }

    /// The shell of a linked agent has ended. Its final message says why the agent has ended; the message is kept until
    /// the link breaks.
    pub fn on_shell_ended(&mut self, cx: &mut Cx, child: AgentId, words: Problem) {
        match self.waiting.remove(&child) {
            Some((_, problem)) => self.lose(cx, child, problem, &words),
            None => self.keep(child, words),
        }
    }

    /// The step of these agents has ended: no more messages about them will arrive. `words`: the step's final message.
    pub fn on_step_ended(&mut self, cx: &mut Cx, agents: &BTreeSet<AgentId>, words: &Problem) {
        let is_of_all = words.kind == ProblemKind::StepCancelled;
        for &agent in agents {
            let said = self.said.remove(&agent).filter(|_| !is_of_all);
            self.on_shell_ended(cx, agent, said.unwrap_or_else(|| words.clone()));
        }
    }

    /// Reports the lost children whose shell has not explained the loss in time.
    pub fn check(&mut self, cx: &mut Cx) {
        let late = |(_, (until, _)): &(&AgentId, &(Instant, Problem))| *until <= cx.agent.now;
        for child in self.waiting.iter().filter(late).map(|(child, _)| *child).collect::<Vec<_>>() {
            let words = self.said.remove(&child).unwrap_or_default();
            self.on_shell_ended(cx, child, words);
        }
    }

    pub fn forget(&mut self, child: AgentId) {
        self.said.remove(&child);
        self.waiting.remove(&child);
    }

    /// Reports everything that is known about a lost child: in a session of one run to the jobs, which end; in a
    /// standing session to the root.
    fn lose(&mut self, cx: &mut Cx, agent: AgentId, problem: Problem, words: &Problem) {
        let kind = if words.kind == ProblemKind::Other { problem.kind } else { words.kind };
        let problem = if words.is_empty() { problem } else { kind.with(format!("{problem}; {words}")) };
        if cx.policy.survives_losses() {
            return self.observed.push(MissingAgent { agent, problem });
        }
        let cause = Cause::AgentLost { agent, problem };
        cx.jobs
            .tell_each(&mut cx.agent, cx.jobs.of_child(agent), |job, cx| job.on_child_lost(cx, agent, cause.clone()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::in_session;

    const CHILD: AgentId = AgentId(1);

    fn lost(losses: &mut Losses) -> Vec<String> {
        losses.take_observed().into_iter().map(|missing| missing.problem.to_string()).collect()
    }

    #[test]
    fn last_words_are_kept_before_the_link_breaks_and_end_the_wait_after_it() {
        let (mut cx, mut losses) = (in_session(0), Losses::default());
        losses.on_shell_ended(&mut cx, CHILD, "killed".into());
        assert!(lost(&mut losses).is_empty());
        losses.on_link_down(&mut cx, CHILD, "its link broke".into(), false);
        assert_eq!(lost(&mut losses), ["its link broke; killed"]);
        losses.on_link_down(&mut cx, CHILD, "its link broke".into(), true);
        assert!(lost(&mut losses).is_empty());
        losses.on_shell_ended(&mut cx, CHILD, "killed".into());
        assert_eq!((lost(&mut losses), losses.deadline()), (vec!["its link broke; killed".into()], None));
    }

    #[test]
    fn the_wait_for_last_words_is_limited() {
        let (mut cx, mut losses) = (in_session(0), Losses::default());
        losses.on_link_down(&mut cx, CHILD, "its link broke".into(), true);
        losses.check(&mut cx);
        assert!(lost(&mut losses).is_empty());
        cx.agent.now = losses.deadline().expect("the wait is limited");
        losses.check(&mut cx);
        assert_eq!(lost(&mut losses), ["its link broke"]);
    }

    #[test]
    fn the_end_of_a_whole_step_outweighs_what_was_said_about_one_agent() {
        for (kind, words) in [(ProblemKind::Other, "no memory"), (ProblemKind::StepCancelled, "cancelled")] {
            let (mut cx, mut losses) = (in_session(0), Losses::default());
            losses.keep(CHILD, "no memory".into());
            losses.on_link_down(&mut cx, CHILD, "its link broke".into(), true);
            losses.on_step_ended(&mut cx, &[CHILD].into(), &kind.with("cancelled"));
            assert_eq!(lost(&mut losses), [format!("its link broke; {words}")]);
        }
    }
}
