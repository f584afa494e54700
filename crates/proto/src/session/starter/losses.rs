//! Finds out why a child's link broke: its remote shell may end at the same time and report the reason.
//!
//! The link reports at once that the agent is gone; the shell reports that it was killed, or panicked, possibly
//! slightly later or earlier. So a child whose shell was called here is considered lost shortly after its link broke.

use super::Starter;
use crate::io::{ExitStatus, ShellId};
use crate::session::{Cx, starts};
use std::collections::BTreeSet;
use wireup_wire::ids::AgentId;
use wireup_wire::peer::{Cause, MissingAgent, Problem, ProblemKind};

impl Starter {
    pub fn on_link_down(&mut self, cx: &mut Cx, child: AgentId, problem: Problem) {
        if !self.children.on_lost(child) || cx.is_leaving {
            return;
        }
        if cx.jobs.of_child(child).is_empty() {
            self.forget_added(cx, child);
        }
        drop(cx.links.neighbours.forget(child));
        self.forget_wishes_below(cx, child);
        let is_missed = cx.policy.survives_losses() || !cx.jobs.of_child(child).is_empty();
        if (self.starts.has_linked(child) || self.steps.holds(child)) && is_missed {
            self.last_words.wait(cx.now, child, problem);
        } else {
            let words = self.last_words.take(child).unwrap_or_default();
            self.lose_child(cx, child, problem, &words);
        }
    }

    /// Forgets a child that was added for a job: it does not return.
    pub(super) fn forget_added(&mut self, cx: &mut Cx, child: AgentId) {
        if cx.tree.is_beside(child) {
            self.children.forget(child);
            cx.added.remove(&child);
        }
    }

    /// Handles the end of the shell of a linked agent: its final message says why the agent has ended.
    pub(super) fn on_linked_shell_exited(&mut self, cx: &mut Cx, shell: ShellId, status: ExitStatus, stderr: &str) {
        let Some(child) = self.starts.linked_by(shell) else {
            return;
        };
        let words = starts::last_words(status, stderr, self.starts.is_remote());
        if let Some(problem) = self.last_words.said(child, &words) {
            self.lose_child(cx, child, problem, &words);
        }
    }

    /// A batch system's message that a linked agent was killed; the message that all agents were killed may follow.
    pub(super) fn on_last_words(&mut self, child: AgentId, words: Problem) {
        self.last_words.keep(child, words);
    }

    /// The step of these agents has ended: no more messages about them will arrive. `words` concern all of them.
    pub(super) fn end_last_words(&mut self, cx: &mut Cx, agents: &BTreeSet<AgentId>, words: &Problem) {
        let is_of_all = words.kind == ProblemKind::StepCancelled;
        for &agent in agents {
            let said = self.last_words.take(agent).filter(|_| !is_of_all);
            let words = said.unwrap_or_else(|| words.clone());
            if let Some(problem) = self.last_words.said(agent, &words) {
                self.lose_child(cx, agent, problem, &words);
            }
        }
    }

    pub(super) fn check_last_words(&mut self, cx: &mut Cx) {
        for (child, problem) in self.last_words.take_late(cx.now) {
            let words = self.last_words.take(child).unwrap_or_default();
            self.lose_child(cx, child, problem, &words);
        }
    }

    /// Reports everything that is known about a lost child: in a session of one run to the jobs, which end; in a
    /// standing session to the root.
    fn lose_child(&mut self, cx: &mut Cx, agent: AgentId, problem: Problem, words: &Problem) {
        let kind = if words.kind == ProblemKind::Other { problem.kind } else { words.kind };
        let problem = if words.is_empty() { problem } else { kind.with(format!("{problem}; {words}")) };
        if cx.policy.survives_losses() {
            return self.lost.push(MissingAgent { agent, problem });
        }
        let cause = Cause::AgentLost { agent, problem };
        cx.tell_jobs(cx.jobs.of_child(agent), |job, cx| job.on_child_lost(cx, agent, cause.clone()));
    }
}

/// Reports about a child that has not linked and never will.
impl Starter {
    pub(super) fn on_missing(&mut self, cx: &mut Cx, child: AgentId, problem: Problem) {
        self.on_missing_with(cx, child, problem, Vec::new());
    }

    /// Reports a missing child, with the agents in `below`, which are known to be missing too.
    pub(super) fn on_missing_with(&mut self, cx: &mut Cx, child: AgentId, problem: Problem, below: Vec<MissingAgent>) {
        if !self.children.is_starting(child) || !self.children.on_lost(child) {
            return;
        }
        drop(cx.links.neighbours.forget(child));
        if cx.policy.survives_losses() {
            return self.lost.push(MissingAgent { agent: child, problem });
        }
        if cx.now < cx.start_by {
            self.probe_below(cx, child);
        }
        let mut missing = vec![MissingAgent { agent: child, problem }];
        missing.extend(below);
        missing.extend(self.children.take_unreachable(child));
        self.report_missing(cx, child, missing);
    }

    pub(super) fn report_missing(&self, cx: &mut Cx, child: AgentId, missing: Vec<MissingAgent>) {
        let settled = self.children.is_settled(child);
        let jobs = cx.jobs.of_child(child);
        cx.tell_jobs(jobs, |job, cx| job.on_child_missing(cx, child, settled, missing.clone()));
    }

    pub(super) fn forget_starting(&mut self, cx: &mut Cx, child: AgentId) {
        self.children.on_lost(child);
        drop(cx.links.neighbours.forget(child));
        cx.tell_jobs(cx.jobs.ids(), |job, cx| job.on_child_missing(cx, child, true, Vec::new()));
    }
}
