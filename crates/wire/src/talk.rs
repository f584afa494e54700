//! The messages of the control class, one enum for each conversation. They travel in frames of
//! [`crate::frame::FrameKind::Control`], whose header names the job; job 0 is the session.
//!
//! ```text
//!   launcher ── FromLauncher, JobDown, Shutdown ──► root ── JobDown, SessionDown ──► children ──► …
//!            ◄── ToLauncher, JobUp ───────────────       ◄── JobUp, SessionUp ──────
//! ```
//!
//! The trees of jobs and of the session may differ: `Job…` follows the job's tree, `Session…` the session's. A [`Note`]
//! follows the session's tree up to the launcher, which trusts what it says of itself. Neighbours ask each other
//! whether they are alive. A message that its sender may not send is an error, and its link is closed; a launcher of a
//! standing session is answered with a refusal instead.

use crate::collective::Collective;
use crate::ids::{AgentId, JobId, Rank};
use crate::job::JobSpec;
use crate::names::NewJob;
use crate::peer::{
    Departed, Done, Ended, Failure, Gone, MissingAgent, Note, Opened, Problem, RankError, Stack, StallReport,
};
use crate::pmi::SpawnRequest;
use crate::session::{JobEntry, Log, NodeState, RankPortsReport, SeatRequest, SessionSnapshot, Welcome};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::SocketAddr;
use serde::{Deserialize, Serialize};

/// One message of the control class.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Control {
    JobDown(JobDown),
    JobUp(JobUp),
    SessionDown(SessionDown),
    SessionUp(SessionUp),
    FromLauncher(FromLauncher),
    ToLauncher(ToLauncher),
    /// A neighbour in the tree asks whether this agent still responds; sent only while a job runs or nodes are
    /// starting.
    AreYouAlive,
    /// The answer to `AreYouAlive`.
    Alive,
    /// Information for the user, on its way to the launcher.
    Note(Note),
}

macro_rules! into_control {
    ($($conversation:ident),*) => {
        $(impl From<$conversation> for Control {
            fn from(message: $conversation) -> Control {
                Control::$conversation(message)
            }
        })*
    };
}

into_control!(JobDown, JobUp, SessionDown, SessionUp, FromLauncher, ToLauncher, Note);

/// A message about a job, down the job's tree. The launcher sends `Signal`, `Resize`, `Kill`, `StallAsk` and `StackAsk`
/// to the root.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum JobDown {
    /// Send a signal to every rank of the job.
    Signal { signal: i32 },
    /// Set the size of the job's pseudo-terminal.
    Resize { rows: u16, columns: u16 },
    /// End all ranks: by SIGTERM, and by SIGKILL after `grace_ns`.
    Kill { grace_ns: u64 },
    /// Report the ranks that have not entered the collective.
    StallAsk { collective: Option<Collective> },
    /// In a standing session: the job has ended on all of its nodes. Forwarded to `agents`, the agents of these nodes.
    /// An agent that still has the job ends it locally.
    Over { agents: Vec<AgentId> },
    /// With `start_together`: all agents are linked, so the ranks start.
    StartRanks,
    /// Report the call stacks of all ranks.
    StackAsk,
    /// The address of the rendezvous of the ranks: a port that the agent of rank 0 has reserved.
    Rendezvous { address: SocketAddr },
}

impl JobDown {
    /// Whether a launcher sends such messages to the root; the others come from agents only.
    pub fn may_come_from_launcher(&self) -> bool {
        match self {
            JobDown::Signal { .. } | JobDown::Resize { .. } | JobDown::Kill { .. } => true,
            JobDown::StallAsk { .. } | JobDown::StackAsk => true,
            JobDown::Over { .. } | JobDown::StartRanks | JobDown::Rendezvous { .. } => false,
        }
    }
}

/// A message about a job, up the job's tree. The root sends `Started`, `Failed`, `Stall`, `Stacks`, `Missing` and
/// `RankError` to the job's launcher.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum JobUp {
    /// All ranks of the subtree are running; sent once per subtree.
    Started { ranks: u32, pmix: Option<Opened> },
    /// With `start_together`: all agents of the subtree are linked, except those that were reported as missing.
    Ready,
    /// The first failure of the subtree; later, a crash that may have caused the failure that was reported first.
    Failed(Failure),
    /// A rank of the subtree will enter no more fences; sent for the first such rank and for the first that exited
    /// without finalizing.
    Departed(Departed),
    /// All ranks of the subtree have ended, and all their output has been sent.
    Done(Done),
    /// A rank has waited for long: ask all agents for the ranks that have not entered the collective.
    StallAsk { collective: Option<Collective> },
    /// One agent's report of the ranks that have not entered; forwarded unchanged.
    Stall(StallReport),
    /// Agents of the subtree that are missing. From the root to the launcher, before each `Spawn`: all agents that are
    /// lost.
    Missing(Vec<MissingAgent>),
    /// The call stacks of the subtree's ranks, the answer to `StackAsk`.
    Stacks(Vec<Stack>),
    /// The agent of rank 0 has reserved this port for the rendezvous of the ranks.
    Rendezvous { address: SocketAddr },
    /// The earliest of the errors that ranks of the subtree have written; sent before `Done`.
    RankError(RankError),
}

/// A message about the session, down the session's tree.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum SessionDown {
    /// In a session of one run: start a job.
    Launch(Box<JobSpec>),
    /// End the session: agents leave when their jobs have ended.
    Shutdown,
    /// No ancestor could start this agent; each hop forwards it towards the agent's parent.
    NotStarted(MissingAgent),
    /// How much of the start timeout is left (ns). Sent to a child that took long to start, since the child measures
    /// the timeout from its own start.
    TimeLeft { left_ns: u64 },
    /// The result of a probe, for `asker`; `None`: the host answered, or the result is unknown.
    Probed { agent: AgentId, asker: AgentId, problem: Option<Problem> },
    /// Whether direct links, outside the tree, use UCX.
    UseTransport { yes: bool },
    /// In a standing session: start a job; forwarded towards its nodes. Of the jobs up to `newest` only those in `live`
    /// may still send frames.
    Start { spec: Box<JobSpec>, newest: JobId, live: Vec<JobId> },
    /// In a standing session: the root's decisions about which agents are lost and which are started.
    Log(Log),
    /// The answer to `ClockAsk`: the `asked_ns` of the question, and the time on the parent's clock.
    ClockTell { asked_ns: u64, told_ns: u64 },
}

/// A message about the session, up the session's tree.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum SessionUp {
    /// The sender's remote shell does not reach the host of its child `agent`: start the child in the sender's place,
    /// with these jobs and, in a standing session, with `snapshot`.
    StartFor {
        agent: AgentId,
        jobs: Vec<JobId>,
        /// The addresses at which the child must dial the sender.
        parent: Vec<String>,
        problem: Problem,
        snapshot: Box<SessionSnapshot>,
    },
    /// Check whether this agent's host answers: the sender's remote shell does not reach it, or may not be used.
    /// `asker` gets the result.
    Probe { agent: AgentId, asker: AgentId },
    /// All agents of the subtree have checked whether they can use UCX; `missing`: one that cannot.
    TransportLooked { missing: Option<MissingAgent> },
    /// In a standing session: these agents of the subtree are linked, with their incarnations. Agents repeat it to a
    /// new parent.
    Here(Vec<(AgentId, u32)>),
    /// In a standing session: an agent has reserved ports for ranks, or listens again on the ports of an ended job.
    RankPorts(RankPortsReport),
    /// In a standing session: agents of the subtree are gone. Repeated to a new parent, until the root has decided.
    Gone(Vec<Gone>),
    /// Requests the time on the parent's clock. `asked_ns`: the time on the sender's clock when it sent this.
    ClockAsk { asked_ns: u64 },
}

/// A message from a launcher to the root.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum FromLauncher {
    /// Start a job.
    Launch(Box<JobSpec>),
    /// The result for a job that a rank has requested: its ranks run, or the reason why they do not.
    Spawned(Result<NewJob, String>),

    // The variants below exist only in standing sessions.
    /// List the jobs.
    AskJobs,
    /// Choose the nodes of the launcher's job. The job counts as running on these nodes until it is launched or the
    /// launcher leaves.
    AskSeats(SeatRequest),
    /// List the nodes; with `revive`, restart the agents that are lost first.
    AskNodes { revive: bool },
    /// Send a signal to a job's ranks, whoever launched it; `None`: end the job. `by` names the requester.
    KillJob { job: JobId, signal: Option<i32>, by: String },
    /// End the session; without `kill` only if it has no jobs. The answer is a `JobList` of the jobs that are killed or
    /// prevent the end, then `Decided`. Once it is granted, further launches are refused.
    EndSession { kill: bool },
    /// Report where the ranks of this job wait. The answers are those of the job to `StallAsk` and `StackAsk`, or
    /// `Decided` with an error.
    Why { job: JobId },
}

/// A message from the root to a launcher.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ToLauncher {
    /// The job has ended.
    Ended(Ended),
    /// A rank of the job requests new processes; if the launcher starts them, they are job `job`.
    Spawn { job: JobId, from: Rank, request: Box<SpawnRequest> },
    /// The agents of the hosts that the job adds, in the order of its node list.
    Added { agents: Vec<AgentId> },
    /// Ranks of these jobs have connected, so that a failure of one ends all of them; or they have disconnected.
    Together { jobs: Vec<JobId>, connected: bool },

    // The variants below exist only in standing sessions.
    /// The first message that the launcher receives.
    Welcome(Welcome),
    /// `Ok`: a request without an answer of its own is done, or in progress. `Err`: a request was refused, for this
    /// reason.
    Decided(Result<(), String>),
    /// The jobs of the session.
    JobList(Vec<JobEntry>),
    /// The chosen nodes, in the order in which ranks are placed on them.
    Seats(Vec<AgentId>),
    /// The state of each node, by `AgentId`. With `revive` it is sent once all agents are up or known to be missing.
    Nodes(Vec<NodeState>),
}
