//! The inputs of a job, and what it requests from its agent.

use crate::clock_offset::ClockOffset;
use crate::io::{JobEvent, Output};
use crate::time::Instant;
use wireup_wire::addresses;
use wireup_wire::frame::Frame;
use wireup_wire::ids::AgentId;
use wireup_wire::modex::Between;
use wireup_wire::names::{Down, Up};
use wireup_wire::peer::{Cause, MissingAgent};
use wireup_wire::relay;
use wireup_wire::talk::{JobDown, JobUp};

/// An event for a job.
pub enum JobInput {
    /// Something has happened to the part of the job on this node.
    Event(JobEvent),
    /// The job starts here; the children were told, except those that were lost before.
    Begin {
        lost: Vec<MissingAgent>,
    },
    /// The link to the parent is up.
    Linked,
    /// The parent has answered about its clock, so the offset may be known.
    ClockTold,
    Tick,
    /// A frame along the job's tree, from a child or (`None`) from the parent.
    Frame {
        from: Option<AgentId>,
        frame: Frame,
    },
    /// A control message from the parent.
    ControlDown(JobDown),
    /// A control message from a child.
    ControlUp {
        from: AgentId,
        message: JobUp,
    },
    /// A collective's direct frame from another node's agent.
    Direct {
        from: AgentId,
        frame: Frame,
    },
    /// A request from another node's agent for data of local PMIx ranks, or its answer.
    Between {
        from: AgentId,
        message: Between,
    },
    /// A question of another node's agent about where local ranks are reached, or its answer.
    Addresses {
        from: AgentId,
        message: addresses::Between,
    },
    /// A message of another node's agent about a relay between ranks.
    Relayed {
        from: AgentId,
        message: relay::Between,
    },
    /// At the root: an answer about names for one of the job's agents.
    Named {
        agent: AgentId,
        down: Down,
    },
    /// A failure of this node.
    FailHere(Cause),
    /// A failure that happened on no node of the job. It ends the job.
    FailBy(Cause),
    LauncherGone,
    /// Too many bytes of frames arrived before the job started: some were dropped.
    EarlyOverflow(String),
    /// A direct link to an agent that is no neighbour in the tree could not be made, or broke.
    NoDirectLink {
        agent: AgentId,
        problem: String,
    },
    /// Agents that have not started or linked.
    Missing(Vec<MissingAgent>),
    /// A child has not linked. `settled`: no more reports about its subtree are expected. `missing`: the child and the
    /// agents below it that must be reported now.
    ChildMissing {
        agent: AgentId,
        settled: bool,
        missing: Vec<MissingAgent>,
    },
    /// A linked child is gone, in a session of one run.
    ChildLost {
        agent: AgentId,
        cause: Cause,
    },
    /// At the root of a standing session: an agent of the job is lost.
    AgentFailed {
        agent: AgentId,
        cause: Cause,
    },
    /// The root has decided that an agent is lost.
    AgentLost(AgentId),
    /// No ancestor waits for the job any more.
    Abandon,
}

/// What a job requests from its agent, in order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Act {
    /// A frame to the job's launcher, which is attached to this agent.
    ToLauncher(Frame),
    /// A frame to another agent.
    ToAgent(AgentId, Frame),
    /// A note for the user, towards the root along the session's tree.
    NoteUp(Frame),
    /// A request about names or other jobs, at the root.
    Names(Up),
    /// Links with these agents will be needed, and can be made ahead.
    Prepare(Vec<AgentId>),
    /// A child does not answer: its link is to be closed.
    DropChild(AgentId),
    Output(Output),
}

/// The list that a job fills while handling one input.
#[derive(Default)]
pub struct Acts(Vec<Act>);

impl Acts {
    pub fn act(&mut self, act: Act) {
        self.0.push(act);
    }

    /// Removes and returns all acts; the list keeps its memory.
    pub fn drain(&mut self) -> impl Iterator<Item = Act> {
        self.0.drain(..)
    }
}

/// What a job may know about its agent while handling one input.
pub struct Turn<'a> {
    pub now: Instant,
    /// Time by which agents must have linked; later they count as missing.
    pub start_by: Instant,
    pub clock: &'a ClockOffset,
    /// Whether the session outlives its jobs.
    pub standing: bool,
    /// Whether a child of the session's tree is linked.
    pub is_linked: &'a dyn Fn(AgentId) -> bool,
}
