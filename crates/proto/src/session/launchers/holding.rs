//! Jobs that wait for nodes that are starting.
//!
//! An agent that does not link may be started again, and only one of the two incarnations stays linked. So no agent is sent a job before
//! all of the job's agents are up.

use super::entry::jobs_entry;
use super::held::{Held, are_up, is_fatal};
use super::{Launchers, refuse_launch};
use crate::io::LinkId;
use crate::job::agents_of;
use crate::outbox::control_frame;
use crate::session::membership::Nodes;
use crate::session::{Effect, Effects, View, placement};
use wireup_wire::ids::JobId;
use wireup_wire::job::JobSpec;
use wireup_wire::peer::{Cause, Control, Note};
use wireup_wire::session::{JobEntry, JobState};

impl Launchers {
    pub(super) fn hold(&mut self, view: &View<'_>, link: LinkId, spec: JobSpec) {
        self.held.insert(spec.job, Held::new(link, spec, view.now));
    }

    /// Tells launchers that have waited for long for which nodes they wait.
    pub(super) fn tell_of_held(&mut self, view: &View<'_>, nodes: &Nodes, fx: &mut Effects) {
        let is_due = |held: &Held| held.deadline().is_some_and(|at| at <= view.now);
        let due: Vec<JobId> = self.held.iter().filter(|(_, held)| is_due(held)).map(|(job, _)| *job).collect();
        for job in due {
            let Some(held) = self.held.get_mut(&job) else { continue };
            held.is_told = true;
            let (link, spec) = (held.link, held.spec.clone());
            let Ok((_, mut agents)) = self.look_at(view, nodes, &spec) else { continue };
            agents.retain(|agent| !nodes.is_up(*agent));
            fx.push(Effect::Send(link, control_frame(job, &Control::Note(Note::Waits { agents }))));
        }
    }

    /// The state of some nodes has changed.
    pub(super) fn look_at_held(&mut self, view: &View<'_>, nodes: &Nodes, fx: &mut Effects) {
        let is_waiting =
            |held: &Held| matches!(self.look_at(view, nodes, &held.spec), Ok((_, agents)) if !are_up(nodes, &agents));
        let ready = self.held.iter().filter(|(_, held)| !is_waiting(held));
        for job in ready.map(|(job, _)| *job).collect::<Vec<_>>() {
            if let Some(Held { link, spec, later, .. }) = self.held.remove(&job) {
                self.begin_or_hold(view, nodes, link, spec, fx);
                later.into_iter().for_each(|input| fx.push(Effect::Launchers(input)));
            }
        }
    }

    /// A message for a waiting job, which has no ranks: one that would end ranks ends the job, others wait as well. Returns whether the job
    /// is waiting.
    pub(super) fn tell_held(&mut self, job: JobId, message: &Control, fx: &mut Effects) -> bool {
        let Some(held) = self.held.get_mut(&job) else { return false };
        match message {
            Control::Signal { signal } if is_fatal(*signal) => {
                self.end_held(job, Cause::Killed { by: "its launcher".into() }, fx);
            }
            Control::Kill { .. } => {
                self.end_held(job, Cause::Killed { by: "its launcher".into() }, fx);
            }
            Control::Resize { .. } => held.keep_size(job, message.clone()),
            _ => {}
        }
        true
    }

    /// Ends a waiting job before it has started. Returns whether it was waiting.
    pub(super) fn end_held(&mut self, job: JobId, cause: Cause, fx: &mut Effects) -> bool {
        let held = self.held.remove(&job);
        held.map(|held| refuse_launch(held.link, job, String::new(), cause, fx)).is_some()
    }

    pub(super) fn end_all_held(&mut self, cause: &Cause, fx: &mut Effects) {
        let waiting: Vec<JobId> = self.held.keys().copied().collect();
        for job in waiting {
            self.end_held(job, cause.clone(), fx);
        }
    }

    pub(super) fn forget_held_of(&mut self, link: LinkId) {
        self.held.retain(|_, held| held.link != link);
    }

    pub(super) fn held_entries(&self, view: &View<'_>) -> Vec<JobEntry> {
        let entry = |held: &Held| {
            let nodes = placement(view.session, &held.spec).map(|mapping| agents_of(&held.spec, &mapping));
            jobs_entry(&held.spec, nodes.unwrap_or_default(), view.now - held.since, JobState::Starting)
        };
        self.held.values().map(entry).collect()
    }
}
