//! Gives up late children, requests for other agents, and everything once the jobs end.

use super::elsewhere::tell_not_started;
use super::{Starter, next, stop};
use crate::job::Job;
use crate::session::inputs::starter::Next;
use crate::session::starts::Purpose;
use crate::session::{Effects, View};
use wireup_wire::ids::AgentId;
use wireup_wire::peer::{MissingAgent, Problem};

impl Starter {
    pub(super) fn check(&mut self, view: &View<'_>, fx: &mut Effects) {
        if view.now >= self.start_by && self.starts.serves_others() {
            for wish in self.starts.give_up_uncalled(|wish| wish.purpose.is_probe()) {
                self.on_reached(view, &wish, fx);
            }
            let (wishes, shells) = self.starts.give_up(|wish| wish.purpose != Purpose::Child);
            stop(shells, fx);
            for wish in wishes {
                let problem = too_late(view, "it did not answer");
                self.conclude(view, wish, problem.into(), fx);
            }
        }
        if view.now >= self.start_by {
            self.name_unheard(view, fx);
        }
        fx.push(next(Next::CheckLate));
        fx.push(next(Next::CheckSuspects));
        fx.push(next(Next::CheckLastWords));
    }

    pub(super) fn check_late(&mut self, view: &View<'_>, fx: &mut Effects) {
        self.children.late(view.now).into_iter().for_each(|child| fx.push(next(Next::Late(child))));
    }

    pub(super) fn on_late(&mut self, view: &View<'_>, child: AgentId, fx: &mut Effects) {
        let what = if view.is_by_step() {
            self.late_task(view, child)
        } else if self.starts.is_queued(child) {
            "its remote shell, which had to wait for others, was not started"
        } else {
            "its remote shell did not start an agent"
        };
        let mut problem = Problem::from(too_late(view, what));
        if let Some(reason) = self.refused.remove(&child).or_else(|| self.starts.busy_words(child).map(Problem::from)) {
            problem = reason.kind.with(format!("{problem}: {reason}"));
        }
        self.give_up_child(child, fx);
        let unheard = self.unheard_below(view, child).into_iter();
        let below = unheard
            .map(|agent| MissingAgent { agent, problem: too_late(view, self.late_task(view, agent)).into() })
            .collect();
        self.on_missing_with(view, child, problem, below, fx);
    }

    pub(super) fn check_suspects(&mut self, view: &View<'_>, fx: &mut Effects) {
        self.children.suspects(view.now).into_iter().for_each(|child| self.probe_below(view, child, fx));
    }

    pub(super) fn give_up_child(&mut self, child: AgentId, fx: &mut Effects) {
        let (_, shells) = self.starts.give_up(|wish| wish.agent == child);
        stop(shells, fx);
    }

    /// A child is lost: drops the requests of its subtree.
    pub(super) fn forget_wishes_below(&mut self, child: AgentId, fx: &mut Effects) {
        let (_, shells) = self.starts.give_up(|wish| match wish.purpose {
            Purpose::Stead { branch, .. } | Purpose::ProbeFor { branch, .. } => branch == child,
            Purpose::Child | Purpose::Probe { .. } => false,
        });
        stop(shells, fx);
    }

    /// Gives up agents that are starting when all jobs are ending. They get as long as the ranks do, so that their
    /// reports arrive.
    pub(super) fn stop_if_ending(&mut self, view: &View<'_>, fx: &mut Effects) {
        let stays = view.policy.outlives_jobs() && !view.is_leaving;
        if stays || !view.jobs.all().all(Job::is_ending) {
            return;
        }
        self.forget_unheard(view, fx);
        if !self.starts.is_busy() && self.children.starting().next().is_none() {
            return;
        }
        let forced = view.jobs.all().all(Job::is_forced);
        let (mut wishes, shells) = self.starts.give_up(|wish| forced || wish.purpose.is_probe());
        wishes.extend(self.starts.give_up_uncalled(|_| true));
        stop(shells, fx);
        for wish in wishes {
            match wish.purpose {
                Purpose::Child => self.forget_starting(view, wish.agent, fx),
                Purpose::Stead { branch, .. } => {
                    tell_not_started(branch, wish.agent, "the job was ended meanwhile".into(), fx);
                }
                Purpose::Probe { .. } | Purpose::ProbeFor { .. } => self.on_reached(view, &wish, fx),
            }
        }
        if forced {
            // An ancestor may still be starting these agents.
            let starting: Vec<AgentId> = self.children.starting().collect();
            starting.into_iter().for_each(|child| self.forget_starting(view, child, fx));
        }
    }
}

pub(super) fn too_late(view: &View<'_>, what: &str) -> String {
    let seconds = view.session.start_timeout_ns.div_ceil(1_000_000_000);
    format!("{what} within {seconds} s")
}
