//! What a part wants done, by links, by the driver, by the jobs, or by another part.

use super::Begin;
use super::inputs::heartbeat::Side;
use super::inputs::{agreement, early, heartbeat, launchers, membership, starter};
use crate::io::{LinkId, Output};
use crate::job::JobInput;
use crate::outbox::control_frame;
use bytes::Bytes;
use wireup_wire::frame::Frame;
use wireup_wire::ids::{AgentId, JobId};
use wireup_wire::job::JobSpec;
use wireup_wire::peer::{Control, Note};
use wireup_wire::route::Point;
use wireup_wire::session::Log;

pub enum Effect {
    // Frames.
    /// Towards the root; at the root, to the launcher that it is for.
    Up(JobId, Control),
    /// About the session, to a child.
    Child(AgentId, Control),
    /// The same, to all children that are linked or expected.
    Children(Control),
    ChildFrame(AgentId, Frame),
    /// Towards these agents, down the session's tree; each child gets it once.
    PassOn(Vec<AgentId>, Frame),
    /// To any other agent.
    Peer(AgentId, Frame),
    Send(LinkId, Frame),
    Do(Output),

    // Links.
    /// What came over a link and is not read yet.
    Bytes(LinkId, Bytes),
    LinkDown(LinkId, String),
    /// This neighbour does nothing any more, for the reason: its link is given up as if it were broken.
    GiveUp(Side, String),
    /// A child was started: what is sent to it waits for its link.
    Expect(AgentId),
    /// A child will not link back: what waits for it is dropped.
    Forget(AgentId),
    /// A child is none any more, whatever its link still does.
    Cut(AgentId),
    /// An agent that has lost its parent becomes a child, and hears what it has missed.
    TakeIn {
        link: LinkId,
        agent: AgentId,
        missed: Log,
    },
    /// The root, at the other end of this link, is this agent's parent.
    TakenIn(LinkId),
    /// Nothing is for an agent, or from it, any more.
    LoseDirect(AgentId),
    /// What went through the tree to this agent or those that were drawn below it, or came from them, may be lost.
    RouteAgain(AgentId),
    /// Of these jobs frames had come that nobody will want.
    ForgetDirect(Vec<JobId>),
    /// Frames of an agent that had waited for the one before them.
    Followers(AgentId),
    /// Time has passed for links beside the tree.
    CheckDirect,
    UseTransport(Option<Point>),

    // Parts.
    Starter(starter::Input),
    Membership(membership::Input),
    Launchers(launchers::Input),
    Early(early::Input),
    Agreement(agreement::Input),
    Heartbeat(heartbeat::Input),
    /// The parent is asked for its clock, once. `only_profiled`: if a job here wants to know.
    AskClock {
        only_profiled: bool,
    },
    /// The parent's answer.
    ClockTold {
        asked_ns: u64,
        told_ns: u64,
    },
    /// The session ends here: what is below is told, and the agent leaves when all have.
    Shutdown,
    LeaveIfDone,
    LeaveIfTold,
    LeaveIfLate,
    Leave,

    /// What is looked at after each input, from this step on.
    LookAround(u8),

    // Jobs.
    /// A job is taken on, together with those below that run it.
    Launch(Box<JobSpec>),
    /// A job is taken on here: others that run it were told.
    Begin(Box<Begin>),
    Job(JobId, JobInput),
    TickJobs,
    /// A frame of another agent for a job that is here.
    Deliver {
        job: JobId,
        from: AgentId,
        frame: Frame,
    },
    JobOver(JobId),
}

/// Effects in the order in which they are to happen.
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

    /// To a link, about the session.
    pub fn answer(&mut self, link: LinkId, message: &Control) {
        self.push(Effect::Send(link, control_frame(JobId(0), message)));
    }

    pub fn close(&mut self, link: LinkId) {
        self.push(Effect::Do(Output::CloseLink { link }));
    }

    /// The same to each of these jobs.
    pub fn jobs(&mut self, jobs: impl IntoIterator<Item = JobId>, input: impl Fn() -> JobInput) {
        self.0.extend(jobs.into_iter().map(|job| Effect::Job(job, input())));
    }

    /// All of them, the first last: how a stack takes them.
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
