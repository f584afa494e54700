//! Gives up late children, requests for other agents, and everything once the jobs end.

use super::elsewhere::tell_not_started;
use super::{Starter, stop};
use crate::job::Job;
use crate::session::Cx;
use crate::session::starts::Purpose;
use wireup_wire::ids::AgentId;
use wireup_wire::peer::{MissingAgent, Problem};

impl Starter {
    /// Gives up what has taken too long.
    pub fn check(&mut self, cx: &mut Cx) {
        if cx.now >= cx.start_by && self.starts.serves_others() {
            for wish in self.starts.give_up_uncalled(|wish| wish.purpose.is_probe()) {
                self.on_reached(cx, &wish);
            }
            let (wishes, shells) = self.starts.give_up(|wish| wish.purpose != Purpose::Child);
            stop(cx, shells);
            for wish in wishes {
                let problem = too_late(cx, "it did not answer");
                self.conclude(cx, wish, problem.into());
            }
        }
        if cx.now >= cx.start_by {
            self.name_unheard(cx);
        }
        self.children.late(cx.now).into_iter().for_each(|child| self.on_late(cx, child));
        self.children.suspects(cx.now).into_iter().for_each(|child| self.probe_below(cx, child));
        self.check_last_words(cx);
    }

    fn on_late(&mut self, cx: &mut Cx, child: AgentId) {
        let what = if cx.is_by_step() {
            self.late_task(cx, child)
        } else if self.starts.is_queued(child) {
            "its remote shell, which had to wait for others, was not started"
        } else {
            "its remote shell did not start an agent"
        };
        let mut problem = Problem::from(too_late(cx, what));
        if let Some(reason) = self.refused.remove(&child).or_else(|| self.starts.busy_words(child).map(Problem::from)) {
            problem = reason.kind.with(format!("{problem}: {reason}"));
        }
        self.give_up_child(cx, child);
        let unheard = self.unheard_below(cx, child).into_iter();
        let below = unheard
            .map(|agent| MissingAgent { agent, problem: too_late(cx, self.late_task(cx, agent)).into() })
            .collect();
        self.on_missing_with(cx, child, problem, below);
    }

    pub(super) fn give_up_child(&mut self, cx: &mut Cx, child: AgentId) {
        let (_, shells) = self.starts.give_up(|wish| wish.agent == child);
        stop(cx, shells);
    }

    /// A child is lost: drops the requests of its subtree.
    pub(super) fn forget_wishes_below(&mut self, cx: &mut Cx, child: AgentId) {
        let (_, shells) = self.starts.give_up(|wish| match wish.purpose {
            Purpose::Stead { branch, .. } | Purpose::ProbeFor { branch, .. } => branch == child,
            Purpose::Child | Purpose::Probe { .. } => false,
        });
        stop(cx, shells);
    }

    /// Gives up agents that are starting when all jobs are ending. They get as long as the ranks do, so that their
    /// reports arrive.
    pub fn stop_if_ending(&mut self, cx: &mut Cx) {
        let stays = cx.policy.outlives_jobs() && !cx.is_leaving;
        if stays || !cx.jobs.all().all(Job::is_ending) {
            return;
        }
        self.forget_unheard(cx);
        if !self.starts.is_busy() && self.children.starting().next().is_none() {
            return;
        }
        let forced = cx.jobs.all().all(Job::is_forced);
        let (mut wishes, shells) = self.starts.give_up(|wish| forced || wish.purpose.is_probe());
        wishes.extend(self.starts.give_up_uncalled(|_| true));
        stop(cx, shells);
        for wish in wishes {
            match wish.purpose {
                Purpose::Child => self.forget_starting(cx, wish.agent),
                Purpose::Stead { branch, .. } => {
                    tell_not_started(cx, branch, wish.agent, "the job was ended meanwhile".into());
                }
                Purpose::Probe { .. } | Purpose::ProbeFor { .. } => self.on_reached(cx, &wish),
            }
        }
        if forced {
            // An ancestor may still be starting these agents.
            let starting: Vec<AgentId> = self.children.starting().collect();
            starting.into_iter().for_each(|child| self.forget_starting(cx, child));
        }
    }
}

pub(super) fn too_late(cx: &Cx, what: &str) -> String {
    let seconds = cx.session.start_timeout_ns.div_ceil(1_000_000_000);
    format!("{what} within {seconds} s")
}
