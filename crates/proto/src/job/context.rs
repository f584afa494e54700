//! What a job may use while it handles one input, above all the ways to its neighbours in the job's tree.

use crate::clock_offset::ClockOffset;
use crate::links::Links;
use crate::memory::Memory;
use crate::outbox::{Outbox, control_frame};
use crate::time::Instant;
use wireup_wire::frame::Frame;
use wireup_wire::ids::{AgentId, JobId};
use wireup_wire::peer::Control;

pub struct Context<'a> {
    pub now: Instant,
    /// Agents that were not there by then are missed.
    pub start_by: Instant,
    pub clock: &'a ClockOffset,
    pub links: &'a mut Links,
    pub out: &'a mut Outbox,
    /// Makes what the ranks here read.
    pub memory: &'a mut dyn Memory,
    pub up: Up,
}

/// Where a job's frames go from here towards its launcher.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Up {
    /// This agent is the root.
    Launcher,
    Agent(AgentId),
    /// The way is lost.
    Nowhere,
}

impl Context<'_> {
    pub fn send_up(&mut self, frame: Frame) {
        match self.up {
            Up::Launcher => self.links.send_up(frame, self.out),
            Up::Agent(agent) => self.links.send_peer(agent, frame, self.out),
            Up::Nowhere => {}
        }
    }

    pub fn control_up(&mut self, job: JobId, message: &Control) {
        self.send_up(control_frame(job, message));
    }

    pub fn send_child(&mut self, agent: AgentId, frame: Frame) {
        self.links.send_peer(agent, frame, self.out);
    }

    pub fn control_child(&mut self, agent: AgentId, job: JobId, message: &Control) {
        self.send_child(agent, control_frame(job, message));
    }
}
