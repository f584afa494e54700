//! Jobs that wait for nodes that are starting.
//!
//! An agent that does not link may be started again, and only one of the two incarnations stays linked. So no agent is
//! sent a job before all of the job's agents are up.

use super::asks::jobs_entry;
use super::deferred::{DeferredJob, Later, are_up};
use super::{Launchers, refuse_launch};
use crate::io::LinkId;
use crate::job::agents_of;
use crate::outbox::control_frame;
use crate::session::membership::Nodes;
use crate::session::{Cx, placement};
use wireup_wire::ids::JobId;
use wireup_wire::job::JobSpec;
use wireup_wire::peer::{Cause, Note};
use wireup_wire::session::{JobEntry, JobState};
use wireup_wire::signal::is_fatal;
use wireup_wire::talk::{Control, JobDown};

impl Launchers {
    pub(super) fn defer(&mut self, cx: &mut Cx, link: LinkId, spec: JobSpec, later: Vec<Later>) {
        cx.links.owners.own(spec.job, link);
        self.deferred.insert(spec.job, DeferredJob::new(link, spec, cx.now, later));
    }

    /// Tells launchers that have waited for long for which nodes they wait.
    pub fn tell_of_deferred(&mut self, cx: &mut Cx, nodes: &Nodes) {
        let is_due = |deferred: &DeferredJob| deferred.deadline().is_some_and(|at| at <= cx.now);
        let due: Vec<JobId> =
            self.deferred.iter().filter(|(_, deferred)| is_due(deferred)).map(|(job, _)| *job).collect();
        for job in due {
            let Some(deferred) = self.deferred.get_mut(&job) else { continue };
            deferred.is_told = true;
            let (link, spec) = (deferred.link, deferred.spec.clone());
            let Ok((_, mut agents)) = self.look_at(nodes, &spec) else { continue };
            agents.retain(|agent| !nodes.is_up(*agent));
            cx.send(link, control_frame(job, &Control::Note(Note::Waits { agents })));
        }
    }

    /// The state of some nodes has changed.
    pub(super) fn look_at_held(&mut self, cx: &mut Cx, nodes: &Nodes) {
        let is_waiting = |deferred: &DeferredJob| {
            matches!(self.look_at(nodes, &deferred.spec), Ok((_, agents))
            if !are_up(nodes, &agents))
        };
        let ready = self.deferred.iter().filter(|(_, deferred)| !is_waiting(deferred));
        for job in ready.map(|(job, _)| *job).collect::<Vec<_>>() {
            if let Some(DeferredJob { link, spec, later, .. }) = self.deferred.remove(&job) {
                self.begin_or_hold(cx, nodes, link, spec, later);
            }
        }
    }

    /// Handles a message for a waiting job, which has no ranks: a message that would end ranks ends the job, other
    /// messages wait as well. Returns whether the job is waiting.
    pub(super) fn tell_held(&mut self, cx: &mut Cx, job: JobId, message: &JobDown) -> bool {
        let Some(deferred) = self.deferred.get_mut(&job) else { return false };
        match message {
            JobDown::Signal { signal } if !is_fatal(*signal) => {}
            JobDown::Signal { .. } | JobDown::Kill { .. } => {
                self.end_held(cx, job, Cause::Killed { by: "its launcher".into() });
            }
            JobDown::Resize { .. } => deferred.keep_size(message.clone()),
            JobDown::StallAsk { .. } | JobDown::Over { .. } | JobDown::StartRanks => {}
        }
        true
    }

    /// Ends a waiting job before it has started.
    pub(super) fn end_held(&mut self, cx: &mut Cx, job: JobId, cause: Cause) {
        if let Some(deferred) = self.deferred.remove(&job) {
            self.loads.remove(job);
            cx.links.owners.forget_job(job);
            refuse_launch(cx, deferred.link, job, String::new(), cause);
        }
    }

    pub(super) fn end_all_held(&mut self, cx: &mut Cx, cause: &Cause) {
        let waiting: Vec<JobId> = self.deferred.keys().copied().collect();
        for job in waiting {
            self.end_held(cx, job, cause.clone());
        }
    }

    pub(super) fn forget_held_of(&mut self, link: LinkId) {
        let loads = &mut self.loads;
        self.deferred.retain(|job, deferred| {
            let is_kept = deferred.link != link;
            if !is_kept {
                loads.remove(*job);
            }
            is_kept
        });
    }

    pub(super) fn held_entries(&self, cx: &Cx) -> Vec<JobEntry> {
        let entry = |deferred: &DeferredJob| {
            let nodes = placement(&deferred.spec).map(|mapping| agents_of(&deferred.spec, &mapping));
            jobs_entry(
                cx.tree,
                &deferred.spec,
                nodes.unwrap_or_default(),
                self.loads.order_of(deferred.spec.job),
                cx.now - deferred.since,
                JobState::Starting,
            )
        };
        self.deferred.values().map(entry).collect()
    }
}
