//! The effects that a part requests from links, the driver, the jobs or another part.

use super::Begin;
use super::inputs::heartbeat::Side;
use super::inputs::{across, agreement, early, heartbeat, launchers, membership, names, rank_ports, starter};
use crate::io::{LinkId, Output};
use crate::job::JobInput;
use crate::outbox::control_frame;
use bytes::Bytes;
use std::sync::Arc;
use wireup_wire::frame::Frame;
use wireup_wire::ids::{AgentId, JobId};
use wireup_wire::job::JobSpec;
use wireup_wire::peer::{Note, Problem};
use wireup_wire::route::Point;
use wireup_wire::session::Log;
use wireup_wire::talk::Control;

pub enum Effect {
    // Frames.
    /// Towards the root; at the root, to the launcher concerned.
    Up(JobId, Control),
    /// Sends a message about the session to a child.
    Child(AgentId, Control),
    /// Sends a message about the session to all children that are linked or expected.
    Children(Control),
    ChildFrame(AgentId, Frame),
    /// Sends a frame towards these agents, down the session's tree; each child gets the frame once.
    PassOn(Vec<AgentId>, Frame),
    /// Sends a frame to any other agent.
    Peer(AgentId, Frame),
    Send(LinkId, Frame),
    Output(Output),

    // Links.
    /// Bytes received on a link and not parsed yet.
    Bytes(LinkId, Bytes),
    LinkDown(LinkId, Problem),
    /// Closes the link of a neighbour that does not respond; the text is the reason.
    GiveUp(Side, Problem),
    /// A child was started: frames for it wait for its link.
    Expect(AgentId),
    /// A child will not link: drop the frames that wait for it.
    Forget(AgentId),
    /// Remove a child, whatever the state of its link.
    Cut(AgentId),
    /// Adopt an agent that has lost its parent, and send it the log entries that it lacks.
    TakeIn {
        link: LinkId,
        agent: AgentId,
        missed: Log,
    },
    /// The root, at the other end of this link, has adopted this agent.
    TakenIn(LinkId),
    /// Drop everything for an agent or from it.
    LoseDirect(AgentId),
    /// Frames that went through the tree to or from this agent, or agents below it in the original tree, may be lost:
    /// send them again.
    RouteAgain(AgentId),
    /// Forget frames that arrived for these jobs: nobody needs them.
    ForgetDirect(Vec<JobId>),
    /// Forget frames of all jobs that are not here and are known to have ended: nobody needs them.
    ForgetEnded,
    /// Deliver frames of an agent that waited for the frame before them.
    Followers(AgentId),
    /// Check timeouts of direct links.
    CheckDirect,
    UseTransport(Option<Point>),

    // Parts.
    Starter(starter::Input),
    Membership(membership::Input),
    Launchers(launchers::Input),
    Early(early::Input),
    Agreement(agreement::Input),
    Heartbeat(heartbeat::Input),
    Names(names::Input),
    Across(across::Input),
    RankPorts(rank_ports::Input),
    /// Ask the parent for its clock, once. `only_profiled`: only if some job here is profiled.
    AskClock {
        only_profiled: bool,
    },
    /// The parent's answer about its clock.
    ClockTold {
        asked_ns: u64,
        told_ns: u64,
    },
    /// The session ends here: tell the children, and leave when they all have.
    Shutdown,
    LeaveIfDone,
    LeaveIfTold,
    LeaveIfLate,
    Leave,

    /// The checks after each input, from this step on.
    LookAround(u8),

    // Jobs.
    /// Start a job here and on the children that run it.
    Launch(Arc<JobSpec>),
    /// Start a job here: the other agents that run it were told.
    Begin(Box<Begin>),
    Job(JobId, JobInput),
    TickJobs,
    /// Deliver a frame from another agent to a job that is here.
    Deliver {
        job: JobId,
        from: AgentId,
        frame: Frame,
    },
    JobOver(JobId),
}

/// Effects in the order in which they are to be carried out.
#[derive(Default)]
pub struct Effects(Vec<Effect>);

impl Effects {
    pub fn push(&mut self, effect: Effect) {
        self.0.push(effect);
    }

    pub fn up(&mut self, message: Control) {
        self.push(Effect::Up(JobId(0), message));
    }

    pub fn note(&mut self, note: Note) {
        self.up(Control::Note(note));
    }

    pub fn child(&mut self, agent: AgentId, message: Control) {
        self.push(Effect::Child(agent, message));
    }

    /// Sends a message about the session on a link.
    pub fn answer(&mut self, link: LinkId, message: &Control) {
        self.push(Effect::Send(link, control_frame(JobId(0), message)));
    }

    pub fn close(&mut self, link: LinkId) {
        self.push(Effect::Output(Output::CloseLink { link }));
    }

    /// Queues the same input for each of these jobs.
    pub fn jobs(&mut self, jobs: impl IntoIterator<Item = JobId>, input: impl Fn() -> JobInput) {
        self.0.extend(jobs.into_iter().map(|job| Effect::Job(job, input())));
    }

    /// Removes and returns all effects, last first, to be pushed onto a stack.
    pub fn reversed(&mut self) -> impl Iterator<Item = Effect> {
        self.0.drain(..).rev()
    }

    #[cfg(test)]
    pub fn iter(&self) -> impl Iterator<Item = &Effect> {
        self.0.iter()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
