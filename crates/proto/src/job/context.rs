//! What a job may use while it handles one input, above all the ways to its neighbours in the job's tree.

use super::interface::{Act, Acts, Turn};
use crate::clock_offset::ClockOffset;
use crate::memory::Memory;
use crate::outbox::control_frame;
use crate::time::Instant;
use wireup_wire::frame::Frame;
use wireup_wire::ids::{AgentId, JobId};
use wireup_wire::peer::Control;

pub struct Context<'a> {
    pub now: Instant,
    /// Agents that were not there by then are missed.
    pub start_by: Instant,
    pub clock: &'a ClockOffset,
    pub standing: bool,
    pub is_linked: &'a dyn Fn(AgentId) -> bool,
    pub out: &'a mut Acts,
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

impl<'a> Context<'a> {
    pub fn new(turn: &'a mut Turn<'_>, up: Up, out: &'a mut Acts) -> Self {
        let Turn { now, start_by, clock, standing, is_linked, memory } = turn;
        Context {
            now: *now,
            start_by: *start_by,
            clock,
            standing: *standing,
            is_linked,
            out,
            memory: &mut **memory,
            up,
        }
    }
    pub fn send_up(&mut self, frame: Frame) {
        match self.up {
            Up::Launcher => self.out.act(Act::ToLauncher(frame)),
            Up::Agent(agent) => self.send_child(agent, frame),
            Up::Nowhere => {}
        }
    }

    pub fn control_up(&mut self, job: JobId, message: &Control) {
        self.send_up(control_frame(job, message));
    }

    pub fn send_child(&mut self, agent: AgentId, frame: Frame) {
        self.out.act(Act::ToAgent(agent, frame));
    }

    pub fn control_child(&mut self, agent: AgentId, job: JobId, message: &Control) {
        self.send_child(agent, control_frame(job, message));
    }
}
