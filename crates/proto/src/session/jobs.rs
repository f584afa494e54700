//! The jobs of one agent: what other parts may know about them, and which job a frame is for.
//!
//! A job's frames travel along its own tree. In a session of one run that is the session's tree; in a standing session
//! it is a tree of the job's nodes, so the frames may come from any agent.

use super::{Effect, Effects};
use crate::job::{Acts, Job, JobInput, Turn};
use std::collections::BTreeMap;
use std::sync::Arc;
use wireup_coll::tree::Tree;
use wireup_wire::frame::{Frame, Kind};
use wireup_wire::ids::{AgentId, JobId};
use wireup_wire::job::JobSpec;
use wireup_wire::modex::Between;
use wireup_wire::peer::{self, PeerError};
use wireup_wire::relay;
use wireup_wire::talk::{Control, JobDown, JobUp};

#[derive(Default)]
pub struct Jobs {
    /// Descriptions of all jobs here, and of a job that is about to start.
    specs: BTreeMap<JobId, Arc<JobSpec>>,
    jobs: BTreeMap<JobId, Job>,
}

impl Jobs {
    pub fn has(&self, id: JobId) -> bool {
        self.jobs.contains_key(&id)
    }

    pub fn get(&self, id: JobId) -> Option<&Job> {
        self.jobs.get(&id)
    }

    /// Passes an input to a job. Returns whether the job has ended and can be forgotten, and whether its ranks were told
    /// to end or killed by that.
    pub fn tell(&mut self, id: JobId, turn: &Turn<'_>, input: JobInput, acts: &mut Acts) -> (bool, bool) {
        let Some(job) = self.jobs.get_mut(&id) else { return (false, false) };
        let before = (job.is_ending(), job.is_forced());
        let is_over = job.handle(turn, input, acts);
        (is_over, before != (job.is_ending(), job.is_forced()))
    }

    pub fn iter(&self) -> impl Iterator<Item = (JobId, &Job)> {
        self.jobs.iter().map(|(id, job)| (*id, job))
    }

    pub fn all(&self) -> impl Iterator<Item = &Job> {
        self.jobs.values()
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.jobs.len()
    }

    pub fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    pub fn ids(&self) -> Vec<JobId> {
        self.jobs.keys().copied().collect()
    }

    /// The jobs for which `which` holds.
    pub fn ids_where(&self, which: impl Fn(&Job) -> bool) -> Vec<JobId> {
        self.iter().filter(|(_, job)| which(job)).map(|(id, _)| id).collect()
    }

    /// The jobs of which a child runs a part.
    pub fn of_child(&self, child: AgentId) -> Vec<JobId> {
        self.ids_where(|job| job.has_child(child))
    }

    pub fn spec(&self, id: JobId) -> Option<&Arc<JobSpec>> {
        self.specs.get(&id)
    }

    pub fn specs(&self) -> impl Iterator<Item = &Arc<JobSpec>> {
        self.specs.values()
    }

    /// A job is about to start.
    pub fn announce(&mut self, spec: Arc<JobSpec>) {
        self.specs.insert(spec.job, spec);
    }

    pub fn begin(&mut self, id: JobId, job: Job) {
        self.jobs.insert(id, job);
    }

    pub fn remove(&mut self, id: JobId) -> Option<Job> {
        self.specs.remove(&id);
        self.jobs.remove(&id)
    }

    /// Number of entries in all tables, for the simulator's checkers.
    pub fn size(&self) -> usize {
        self.jobs.len() + self.specs.len()
    }

    /// Finds the neighbour in a job's tree that has sent a frame: the parent (`Some(None)`), a child, or none that may
    /// send it (`None`).
    fn side(&self, id: JobId, from: Option<AgentId>) -> Option<Option<AgentId>> {
        let job = self.jobs.get(&id)?;
        from.map_or(Some(None), |agent| job.side(agent))
    }

    /// Handles a job's frame from a neighbour in its tree, or (`None`) from the launcher.
    pub fn on_frame(&self, from: Option<AgentId>, frame: Frame, fx: &mut Effects) {
        let id = JobId(frame.job);
        if let Some(from) = self.side(id, from) {
            fx.push(Effect::Job(id, JobInput::Frame { from, frame }));
        }
    }

    /// Handles a message from a job's parent in its tree, or (`None`) from the launcher.
    pub fn on_control_down(&self, from: Option<AgentId>, id: JobId, message: JobDown, fx: &mut Effects) {
        if self.side(id, from) == Some(None) {
            fx.push(Effect::Job(id, JobInput::ControlDown(message)));
        }
    }

    /// Handles a message from a job's child in its tree.
    pub fn on_control_up(&self, tree: Tree, from: Option<AgentId>, id: JobId, mut message: JobUp, fx: &mut Effects) {
        let Some(Some(from)) = self.side(id, from) else { return };
        if let JobUp::Missing(missing) = &mut message {
            missing.retain(|missing| tree.subtree_contains(from, missing.agent));
        }
        fx.push(Effect::Job(id, JobInput::ControlUp { from, message }));
    }

    /// A frame that another agent, anywhere in the tree, has sent for a job that is here.
    ///
    /// # Errors
    /// No correct agent has written the message.
    pub fn deliver(
        &self,
        tree: Tree,
        id: JobId,
        from: AgentId,
        frame: Frame,
        fx: &mut Effects,
    ) -> Result<(), PeerError> {
        let input = match frame.kind {
            Kind::Modex => {
                let message: Between = peer::decode(&frame.payload)?;
                JobInput::Between { from, message }
            }
            Kind::Addresses => JobInput::Addresses { from, message: peer::decode(&frame.payload)? },
            Kind::Relay => {
                let message = relay::Between::decode(frame.stream, frame.arg, frame.payload)?;
                JobInput::Relayed { from, message }
            }
            Kind::Direct => JobInput::Direct { from, frame },
            Kind::Control => {
                match peer::decode(&frame.payload)? {
                    Control::JobDown(message) => self.on_control_down(Some(from), id, message, fx),
                    Control::JobUp(message) => self.on_control_up(tree, Some(from), id, message, fx),
                    // Only neighbours in the session's tree exchange these.
                    Control::SessionDown(_)
                    | Control::SessionUp(_)
                    | Control::FromLauncher(_)
                    | Control::ToLauncher(_)
                    | Control::Pulse(_)
                    | Control::Note(_) => {}
                }
                return Ok(());
            }
            Kind::ExchangeUp
            | Kind::ExchangeDown
            | Kind::Output
            | Kind::OutputCredit
            | Kind::Input
            | Kind::InputCredit
            | Kind::Trace
            | Kind::Routed
            | Kind::Pair
            | Kind::GroupUp
            | Kind::GroupDown
            | Kind::PmixUp
            | Kind::PmixDown
            | Kind::NamesUp
            | Kind::NamesDown => {
                self.on_frame(Some(from), frame, fx);
                return Ok(());
            }
        };
        fx.push(Effect::Job(id, input));
        Ok(())
    }
}
