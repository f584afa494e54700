//! Finds out why a child's link broke: its remote shell may end at the same time and report the reason.
//!
//! The link reports at once that the agent is gone; the shell reports that it was killed, or panicked, possibly
//! slightly later or earlier. So a child whose shell was called here is considered lost shortly after its link broke.

use super::Starter;
use crate::io::{ExitStatus, ShellId};
use crate::job::JobInput;
use crate::session::inputs::membership;
use crate::session::{Effect, Effects, View, starts};
use std::collections::BTreeSet;
use wireup_wire::ids::AgentId;
use wireup_wire::peer::{Cause, MissingAgent, Problem, ProblemKind};

impl Starter {
    pub(super) fn on_link_down(&mut self, view: &View<'_>, child: AgentId, problem: Problem, fx: &mut Effects) {
        if !self.children.on_lost(child) || view.is_leaving {
            return;
        }
        if view.jobs.of_child(child).is_empty() {
            self.forget_added(view, child);
        }
        fx.push(Effect::Forget(child));
        self.forget_wishes_below(child, fx);
        let is_missed = view.policy.survives_losses() || !view.jobs.of_child(child).is_empty();
        if (self.starts.has_linked(child) || self.steps.holds(child)) && is_missed {
            self.last_words.wait(view.now, child, problem);
        } else {
            let words = self.last_words.take(child).unwrap_or_default();
            lose_child(view, child, problem, &words, fx);
        }
    }

    /// Forgets a child that was added for a job: it does not return.
    pub(super) fn forget_added(&mut self, view: &View<'_>, child: AgentId) {
        if view.tree.is_beside(child) {
            self.children.forget(child);
            self.added.remove(&child);
        }
    }

    /// Handles the end of the shell of a linked agent: its final message says why the agent has ended.
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

    /// A batch system's message that a linked agent was killed; the message that all agents were killed may follow.
    pub(super) fn on_last_words(&mut self, child: AgentId, words: Problem) {
        self.last_words.keep(child, words);
    }

    /// The step of these agents has ended: no more messages about them will arrive. `words` concern all of them.
    pub(super) fn end_last_words(
        &mut self,
        view: &View<'_>,
        agents: &BTreeSet<AgentId>,
        words: &Problem,
        fx: &mut Effects,
    ) {
        let is_of_all = words.kind == ProblemKind::StepCancelled;
        for &agent in agents {
            let said = self.last_words.take(agent).filter(|_| !is_of_all);
            let words = said.unwrap_or_else(|| words.clone());
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

/// Reports everything that is known about a lost child: in a session of one run to the jobs, which end; in a standing
/// session to the ancestors.
fn lose_child(view: &View<'_>, agent: AgentId, problem: Problem, words: &Problem, fx: &mut Effects) {
    let kind = if words.kind == ProblemKind::Other { problem.kind } else { words.kind };
    let problem = if words.is_empty() { problem } else { kind.with(format!("{problem}; {words}")) };
    if view.policy.survives_losses() {
        return fx.push(Effect::Membership(membership::Input::ReportLost(MissingAgent { agent, problem })));
    }
    let cause = Cause::AgentLost { agent, problem };
    fx.jobs(view.jobs.of_child(agent), || JobInput::ChildLost { agent, cause: cause.clone() });
}

/// Reports about a child that has not linked and never will.
impl Starter {
    pub(super) fn on_missing(&mut self, view: &View<'_>, child: AgentId, problem: Problem, fx: &mut Effects) {
        self.on_missing_with(view, child, problem, Vec::new(), fx);
    }

    /// Reports a missing child, with the agents in `below`, which are known to be missing too.
    pub(super) fn on_missing_with(
        &mut self,
        view: &View<'_>,
        child: AgentId,
        problem: Problem,
        below: Vec<MissingAgent>,
        fx: &mut Effects,
    ) {
        if !self.children.is_starting(child) || !self.children.on_lost(child) {
            return;
        }
        fx.push(Effect::Forget(child));
        if view.policy.survives_losses() {
            return fx.push(Effect::Membership(membership::Input::ReportLost(MissingAgent { agent: child, problem })));
        }
        if view.now < self.start_by {
            self.probe_below(view, child, fx);
        }
        let mut missing = vec![MissingAgent { agent: child, problem }];
        missing.extend(below);
        missing.extend(self.children.take_unreachable(child));
        self.report_missing(view, child, missing, fx);
    }

    pub(super) fn report_missing(&self, view: &View<'_>, child: AgentId, missing: Vec<MissingAgent>, fx: &mut Effects) {
        let settled = self.children.is_settled(child);
        let input = || JobInput::ChildMissing { agent: child, settled, missing: missing.clone() };
        fx.jobs(view.jobs.of_child(child), input);
    }

    pub(super) fn forget_starting(&mut self, view: &View<'_>, child: AgentId, fx: &mut Effects) {
        self.children.on_lost(child);
        fx.push(Effect::Forget(child));
        let input = || JobInput::ChildMissing { agent: child, settled: true, missing: Vec::new() };
        fx.jobs(view.jobs.ids(), input);
    }
}
