//! What an agent tells a job, and what a job wants of its agent.

use crate::clock_offset::ClockOffset;
use crate::io::{ExitStatus, Output, Stream};
use crate::memory::ShareId;
use crate::time::Instant;
use bytes::Bytes;
use wireup_wire::frame::Frame;
use wireup_wire::ids::{AgentId, LocalRank};
use wireup_wire::modex::Between;
use wireup_wire::peer::{Cause, Control, MissingAgent, SpawnError};

/// One thing that happened to a job.
pub enum JobInput {
    /// It begins; the children were told, except those that were lost before.
    Begin {
        lost: Vec<MissingAgent>,
    },
    /// The link to the parent is up.
    Linked,
    /// How far the parent's clock is off may be known now.
    ClockTold,
    Tick,
    Started {
        local: LocalRank,
        pid: u32,
        spawn_ns: u64,
        exec_ns: u64,
    },
    StartFailed {
        local: LocalRank,
        error: SpawnError,
    },
    Exited {
        local: LocalRank,
        status: ExitStatus,
    },
    KeeperLost,
    ClientBytes {
        local: LocalRank,
        bytes: Bytes,
    },
    ClientGone {
        local: LocalRank,
    },
    /// Memory of slots is there.
    Shared(ShareId),
    ShareFailed {
        share: ShareId,
        problem: String,
    },
    StdioBytes {
        local: LocalRank,
        stream: Stream,
        bytes: Bytes,
    },
    StdioClosed {
        local: LocalRank,
        stream: Stream,
    },
    StdinTaken {
        local: LocalRank,
        bytes: u32,
    },
    PmixBytes(Bytes),
    PmixGone {
        status: ExitStatus,
        stderr: String,
    },
    PmixFailed(SpawnError),
    /// A frame along the job's tree: a child's, or (`None`) from above.
    Frame {
        from: Option<AgentId>,
        frame: Frame,
    },
    /// A control message from above.
    ControlDown(Control),
    /// A control message of a child.
    ControlUp {
        from: AgentId,
        message: Control,
    },
    /// A collective's frame of another node's agent, straight.
    Direct {
        from: AgentId,
        frame: Frame,
    },
    /// What another node's agent wants of PMIx ranks here, or has.
    Between {
        from: AgentId,
        message: Between,
    },
    /// A message of an agent with which links are measured.
    Bench {
        from: AgentId,
        frame: Frame,
    },
    /// Something is wrong with this node.
    FailHere(Cause),
    /// Something that is no node's fault ends it.
    FailBy(Cause),
    LauncherGone,
    /// More frames came before the job than may wait.
    EarlyOverflow(String),
    /// No link beside the tree could be made, or it broke.
    NoDirectLink {
        agent: AgentId,
        problem: String,
    },
    /// Agents are not there.
    Missing(Vec<MissingAgent>),
    /// A child was never there. `settled`: nothing more will be learnt about those behind it. `missing`: it and those behind it
    /// that are to be named now.
    ChildMissing {
        agent: AgentId,
        settled: bool,
        missing: Vec<MissingAgent>,
    },
    /// A child that was there is gone, in a session of one run.
    ChildLost {
        agent: AgentId,
        cause: Cause,
    },
    /// At the root of a standing session: an agent of the job is lost.
    AgentFailed {
        agent: AgentId,
        cause: Cause,
    },
    /// The root has said that an agent is lost.
    AgentLost(AgentId),
    /// Nobody above waits for the job any more.
    Abandon,
}

/// What a job wants of its agent, in order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Act {
    /// A frame to the job's launcher, which is attached to this agent.
    ToLauncher(Frame),
    /// A frame to another agent.
    ToAgent(AgentId, Frame),
    /// Towards the root along the session's tree: a note for a person.
    NoteUp(Frame),
    /// Links with these agents will be wanted.
    Prepare(Vec<AgentId>),
    /// A child does not answer: its link is of no use any more.
    DropChild(AgentId),
    Do(Output),
}

/// The list that a job fills while it handles one input.
#[derive(Default)]
pub struct Acts(Vec<Act>);

impl Acts {
    pub fn act(&mut self, act: Act) {
        self.0.push(act);
    }

    /// All of them; the list keeps its memory.
    pub fn drain(&mut self) -> impl Iterator<Item = Act> {
        self.0.drain(..)
    }
}

/// What a job may know of its agent while it handles one input.
pub struct Turn<'a> {
    pub now: Instant,
    /// Agents that were not there by then are missed.
    pub start_by: Instant,
    pub clock: &'a ClockOffset,
    /// The session outlives its jobs.
    pub standing: bool,
    /// Whether a child of the session's tree is linked.
    pub is_linked: &'a dyn Fn(AgentId) -> bool,
}
