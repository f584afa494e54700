//! What comes over links: bytes to frames, frames to whom they are for.

use super::Agent;
use crate::io::{LinkId, Peer};
use crate::job::JobInput;
use crate::starts::{Purpose, Wish};
use crate::time::Instant;
use bytes::Bytes;
use wireup_wire::frame::{Frame, Kind};
use wireup_wire::ids::{AgentId, JobId};
use wireup_wire::peer::{self, Control, PeerError};

impl Agent {
    pub(super) fn on_link_bytes(&mut self, now: Instant, link: LinkId, mut bytes: Bytes) {
        loop {
            let problem = match self.links.next_frame(link, &mut bytes) {
                Ok(None) => return self.answer_questions(now, link),
                Ok(Some(frame)) => match self.on_frame(now, link, frame) {
                    Ok(()) => continue,
                    Err(error) => error.to_string(),
                },
                Err(error) => error.to_string(),
            };
            self.refuse_launcher(link, &problem);
            self.out.push(crate::io::Output::CloseLink { link });
            return self.on_link_down(now, link, problem);
        }
    }

    fn on_frame(&mut self, now: Instant, link: LinkId, frame: Frame) -> Result<(), PeerError> {
        let Some(peer) = self.links.peer(link) else {
            return Ok(());
        };
        let branch = match peer {
            Peer::Child(agent) => Some(agent),
            Peer::Launcher if self.standing.is_some() => return self.on_launcher_frame(now, link, frame),
            Peer::Parent | Peer::Launcher => None,
            Peer::Direct(agent) => {
                self.on_beside(now, link, agent, frame);
                return Ok(());
            }
            // They are children as soon as they are taken in.
            Peer::Orphan { .. } => return Ok(()),
        };
        if frame.kind == Kind::Routed {
            return self.on_routed(now, branch, frame);
        }
        let neighbour = self.links.agent_at(peer);
        if matches!(frame.kind, Kind::Direct | Kind::Modex | Kind::Bench) {
            if let Some(from) = neighbour {
                self.on_peer_frame(now, from, frame);
            }
            return Ok(());
        }
        if frame.kind != Kind::Control {
            self.on_job_frame(now, neighbour, frame);
            return Ok(());
        }
        let message: Control = peer::decode(&frame.payload)?;
        let message = self
            .on_session_control(now, branch, message)
            .and_then(|message| self.on_standing_control(now, branch, &frame, message));
        if let Some(message) = message {
            self.on_job_control(now, neighbour, JobId(frame.job), message);
        }
        Ok(())
    }

    /// What is about the session, or about a job that is not there yet. `branch`: the child that says it; `None`: from above.
    /// Handed back: what is a job's own.
    fn on_session_control(&mut self, now: Instant, branch: Option<AgentId>, message: Control) -> Option<Control> {
        match (branch, message) {
            (None, Control::Launch(spec)) => {
                self.start_by = now + self.config.session.start_timeout_ns;
                self.hurried = false;
                self.launch(now, spec);
            }
            (None, Control::Shutdown) => self.on_shutdown(now),
            (None, Control::NotStarted(missing)) => self.on_not_started(now, missing),
            (None, Control::ClockTell { asked_ns, told_ns }) => {
                if let Some(message) = self.clock.on_told(now, asked_ns, told_ns) {
                    self.links.control_up(JobId(0), &message, &mut self.out);
                }
                // Whose trace waited for it is over now.
                self.tell_all_jobs(now, || JobInput::ClockTold);
            }
            (None, Control::TimeLeft { left_ns }) => self.on_time_left(now, left_ns),
            (None, Control::Probed { agent, asker, problem }) => self.on_probed_above(now, agent, asker, problem),
            (Some(branch), Control::StartFor { agent, jobs, parent, problem, kin }) => {
                let wish = Wish { agent, jobs, purpose: Purpose::Stead { branch, parent, kin } };
                self.on_start_for(now, branch, wish, problem);
            }
            (Some(branch), Control::Probe { agent, asker }) => self.on_probe_for(now, branch, agent, asker),
            (Some(branch), Control::UcxLooked { missing }) => self.on_ucx_looked(branch, missing),
            (None, Control::UseUcx { yes }) => self.on_use_ucx(yes),
            (Some(branch), Control::Note(note)) => self.on_note(branch, note),
            (Some(agent), Control::ClockAsk { asked_ns }) => {
                let message = Control::ClockTell { asked_ns, told_ns: now.0 };
                self.links.control_child(agent, JobId(0), &message, &mut self.out);
            }
            (_, message) => return Some(message),
        }
        None
    }

    /// A job's frame from a neighbour in its tree, or (`None`) from the launcher.
    pub(super) fn on_job_frame(&mut self, now: Instant, from: Option<AgentId>, frame: Frame) {
        let id = JobId(frame.job);
        if let Some(side) = self.side(id, from) {
            self.tell_job(now, id, JobInput::Frame { from: side, frame });
        }
    }

    /// The same of the control class.
    pub(super) fn on_job_control(&mut self, now: Instant, from: Option<AgentId>, id: JobId, message: Control) {
        match (self.side(id, from), message) {
            (Some(Some(branch)), Control::Missing(mut missing)) => {
                missing.retain(|missing| self.tree.subtree_contains(branch, missing.agent));
                self.tell_job(now, id, JobInput::ControlUp { from: branch, message: Control::Missing(missing) });
            }
            (Some(Some(from)), message) => self.tell_job(now, id, JobInput::ControlUp { from, message }),
            (Some(None), message) => self.tell_job(now, id, JobInput::ControlDown(message)),
            (None, _) => {}
        }
    }

    /// From where in a job's tree a frame comes: from above (`Some(None)`), from a child, or from where none should.
    fn side(&self, id: JobId, from: Option<AgentId>) -> Option<Option<AgentId>> {
        let job = self.jobs.get(&id)?;
        from.map_or(Some(None), |agent| job.side(agent))
    }
}
