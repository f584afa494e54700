//! What a driver tells an agent, and what an agent asks of its driver.
//!
//! Everything here is data: an `Input` can be recorded at the rim and replayed, an `Output` carries bytes
//! and numbers, never handles.

use crate::memory::{Array, Content, ShareId};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use wireup_wire::frame::Frame;
use wireup_wire::ids::{AgentId, JobId, LocalRank, Rank};
use wireup_wire::job::{BindTo, Limit, StdinTarget};
use wireup_wire::peer::{Bootstrap, Orphan, SpawnError};
use wireup_wire::pmix::Begin;
use wireup_wire::route::Point;

/// A link as the agent's driver numbers it. Never used again after `LinkDown`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct LinkId(pub u32);

/// One call of a remote shell. Never used again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct ShellId(pub u32);

/// How a remote shell finds the agent's program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum How {
    /// Where the launcher's lies: plain words, which need no shell to be understood.
    Plain,
    /// By a line of shell: in the user's cache, where the launcher's lies, on the path.
    Look,
    /// It comes on standard input, before the message, and is kept in the user's cache.
    Send,
}

/// Who is at the other end of an authenticated link.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Peer {
    /// The agent nearer to the root.
    Parent,
    /// An agent that this one started, and the incarnation that it says it is.
    Child { agent: AgentId, life: u32 },
    /// Any other agent of the session: a link beside the tree.
    Direct(AgentId),
    /// A launcher attached to this agent, which is the root. A standing session has any number of them.
    Launcher,
    /// An agent of a standing session whose parent is gone: the root is to be its parent.
    Orphan { agent: AgentId, orphan: Orphan },
}

/// Standard output or standard error; the numbers of their descriptors.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[repr(u16)]
pub enum Stream {
    Out = 1,
    Err = 2,
}

/// How a process ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ExitStatus {
    Exited(u8),
    Signalled { signal: i32, core_dumped: bool },
}

/// Something that happened.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Input {
    /// A link is up and both ends have proved the secret.
    LinkUp {
        link: LinkId,
        peer: Peer,
        /// The address at this end, for a person; empty for a link in memory.
        local: String,
    },
    /// Bytes arrived, in order, cut anywhere.
    LinkBytes {
        link: LinkId,
        bytes: Bytes,
    },
    /// The link is gone; `problem` says why, in words for a person.
    LinkDown {
        link: LinkId,
        problem: String,
    },
    /// Where other agents can dial in, best first; told once, before the first remote shell can end or when it was asked
    /// for.
    Listening {
        addresses: Vec<String>,
    },
    /// Nobody can dial in here.
    ListenFailed {
        problem: String,
    },
    /// Where others reach this agent by the transport that was opened, or why they do not.
    TransportOpened {
        result: Result<Point, String>,
    },
    /// None of an agent's addresses led to it: each of them, with its problem, in words for a person.
    DialFailed {
        agent: AgentId,
        problem: String,
    },
    /// A remote shell ended, with the end of what it said on standard error.
    ShellExited {
        shell: ShellId,
        status: ExitStatus,
        stderr: String,
    },
    /// A remote shell could not even be called: `error.what` says what was tried and why it failed, in words for a person.
    ShellFailed {
        shell: ShellId,
        error: SpawnError,
    },
    /// The task of a step has begun with an agent, or something is wrong with it.
    StepTold {
        shell: ShellId,
        agent: AgentId,
        problem: Option<String>,
    },
    /// The batch system wants this agent to end, and says so by this signal.
    ToldToEnd {
        signal: i32,
    },
    /// A rank runs (its `exec` succeeded).
    ChildStarted {
        job: JobId,
        local: LocalRank,
        pid: u32,
        spawn_ns: u64,
        exec_ns: u64,
    },
    ChildFailed {
        job: JobId,
        local: LocalRank,
        error: SpawnError,
    },
    /// A rank is gone and was reaped; all PMI bytes that it sent came before. Its output may still be under way until
    /// `StdioClosed`.
    ChildExited {
        job: JobId,
        local: LocalRank,
        status: ExitStatus,
    },
    /// PMI bytes of a rank.
    ClientBytes {
        job: JobId,
        local: LocalRank,
        bytes: Bytes,
    },
    /// A rank closed its PMI socket.
    ClientGone {
        job: JobId,
        local: LocalRank,
    },
    /// A rank wrote.
    StdioBytes {
        job: JobId,
        local: LocalRank,
        stream: Stream,
        bytes: Bytes,
    },
    /// A rank's stream ended, or the rank is gone and all that it wrote was read.
    StdioClosed {
        job: JobId,
        local: LocalRank,
        stream: Stream,
    },
    /// A rank's standard input took `bytes` of what `Write` handed out (or threw them away with its end).
    StdinTaken {
        job: JobId,
        local: LocalRank,
        bytes: u32,
    },
    /// Bytes of a job's PMIx server process, cut anywhere.
    PmixBytes {
        job: JobId,
        bytes: Bytes,
    },
    /// It is gone and was reaped; all that it sent came before. `stderr` is the end of what it said.
    PmixGone {
        job: JobId,
        status: ExitStatus,
        stderr: String,
    },
    /// It could not be started: `error.what` says all of it, in words for a person.
    PmixFailed {
        job: JobId,
        error: SpawnError,
    },
    /// The keeper of a job's ranks here is gone: they are being killed by the kernel.
    KeeperLost {
        job: JobId,
    },
    /// The root could not be reached at the addresses that `Rejoin` named; for a person.
    RejoinFailed {
        problem: String,
    },
    /// At the root of a standing session: it is to end, and its jobs with it. Why, for a person.
    EndSession {
        reason: String,
    },
    /// Nothing but the passing of time.
    Tick,
    /// Memory of slots is there and can be written.
    Shared {
        job: JobId,
        share: ShareId,
    },
    /// Memory could not be made or written; `problem` says what was tried, why it failed and what to do, in words for a person.
    ShareFailed {
        job: JobId,
        share: ShareId,
        problem: String,
    },
}

/// Something to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Output {
    /// Call the remote shell for an agent's host, with this message on its standard input. The driver puts the session's
    /// secret into it, and the addresses where it listens unless others are there. No message: the host is only asked
    /// whether it answers.
    StartAgent {
        shell: ShellId,
        agent: AgentId,
        how: How,
        bootstrap: Option<Box<Bootstrap>>,
    },
    /// Call the batch system for a task on the host of each of these agents, with this message on the standard input of
    /// all. The driver puts secret and addresses in as above, tells each agent where its parent listens, and says who has
    /// begun; the end of the step is that of a remote shell.
    StartStep {
        shell: ShellId,
        agents: Vec<AgentId>,
        how: How,
        bootstrap: Box<Bootstrap>,
    },
    /// Kill a remote shell.
    StopShell {
        shell: ShellId,
    },
    /// Listen for other agents, unless this agent does already, and tell where.
    Listen,
    /// Make a link with an agent that listens at these addresses; `LinkUp` or `DialFailed` says what came of it.
    Dial {
        agent: AgentId,
        addresses: Vec<String>,
        /// To be tried first.
        point: Option<Point>,
    },
    /// The parent is gone: dial the root, which listens there. `LinkUp` with `Peer::Parent` or `RejoinFailed` says what came of it.
    Rejoin {
        root: Vec<String>,
        orphan: Orphan,
    },
    /// Open the session's transport that all agents must have, and tell where this agent is reached by it.
    OpenTransport,
    /// Put a frame on a link. The driver keeps the classes apart and never refuses.
    Send {
        link: LinkId,
        frame: Frame,
    },
    /// Flush what was sent, then close.
    CloseLink {
        link: LinkId,
    },
    /// Start a PMIx server process for a job on this node; it lives and dies with the job's ranks.
    StartPmix(Box<PmixPlan>),
    /// Bytes for it.
    PmixSend {
        job: JobId,
        bytes: Bytes,
    },
    /// Kill it.
    StopPmix {
        job: JobId,
    },
    /// Start the ranks of a job on this node.
    Spawn(Box<SpawnPlan>),
    /// Send a signal to ranks of a job (to their process groups).
    Signal {
        job: JobId,
        target: SignalTarget,
        signal: i32,
    },
    /// Kill whatever the job's ranks left behind on this node, however it is hidden. Comes when the last rank is gone.
    Sweep {
        job: JobId,
    },
    /// Make memory for the ranks of a job here, and keep it for replies that name it. That memory of slots was made is told by
    /// `Shared`, that any was not by `ShareFailed`; replies that name what is not there are dropped.
    Share {
        job: JobId,
        share: ShareId,
        content: Content,
    },
    /// Write an array into a slot of such memory, which no rank reads now. If it cannot be written, all later replies of the job
    /// are dropped, and `ShareFailed` tells why.
    WriteSlot {
        job: JobId,
        share: ShareId,
        slot: u32,
        array: Array,
    },
    /// No later reply names this memory. Ranks that have it keep it.
    Unshare {
        job: JobId,
        share: ShareId,
    },
    /// PMI bytes for a rank, and memory whose descriptors go along with the first of them.
    Reply {
        job: JobId,
        local: LocalRank,
        bytes: Bytes,
        shares: Vec<ShareId>,
    },
    /// Close a rank's PMI socket after what was replied.
    CloseClient {
        job: JobId,
        local: LocalRank,
    },
    /// Bytes for a rank's standard input; empty: its end.
    Write {
        job: JobId,
        local: LocalRank,
        bytes: Bytes,
    },
    /// Read a stream of all ranks of the job, or leave it until told otherwise. On at first.
    ReadStdio {
        job: JobId,
        stream: Stream,
        on: bool,
    },
    Resize {
        job: JobId,
        local: LocalRank,
        rows: u16,
        columns: u16,
    },
    /// A job is over on this node; the driver forgets it, with its memory.
    JobGone {
        job: JobId,
    },
    /// The agent has nothing left to do.
    Exit,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SignalTarget {
    All,
    One(LocalRank),
}

/// The ranks of one job on one node, ready to be started.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SpawnPlan {
    pub job: JobId,
    pub programs: Vec<Program>,
    pub ranks: Vec<RankPlan>,
    pub bind_to: BindTo,
    /// Other nodes of the job are on this machine too.
    pub shares_machine: bool,
    /// Whether standard output and error are pipes to the agent (always, today) and who reads standard input.
    pub stdin: StdinTarget,
    /// Rank `StdinTarget::One` inherits the agent's own standard input.
    pub stdin_inherit: bool,
    /// Give each rank a PMI socket (`PMI_FD`).
    pub pmi_socket: bool,
    /// GPUs for each rank; 0: they are not divided.
    pub gpus_per_rank: u32,
    pub umask: u32,
    pub limits: Vec<Limit>,
}

/// A PMIx server process, ready to be started.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PmixPlan {
    pub job: JobId,
    /// The driver adds the cpus of each rank and the directory, and sends it first of all.
    pub begin: Begin,
    /// How the ranks will be bound.
    pub bind_to: BindTo,
    /// Ranks of the job on this machine, as far as is known.
    pub ranks_here: u32,
    /// The job's environment, which may hold settings of the library.
    pub env: Vec<Vec<u8>>,
}

/// What several ranks have in common.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Program {
    pub argv: Vec<Vec<u8>>,
    pub cwd: Vec<u8>,
    /// The whole environment but the ranks' own variables, `NAME=VALUE`, each name once.
    pub env: Vec<Vec<u8>>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RankPlan {
    pub rank: Rank,
    pub local: LocalRank,
    /// Index into `programs`.
    pub program: u16,
    /// The rank's own variables, `NAME=VALUE`. `PMI_FD` is added by the driver, which knows the number.
    pub env: Vec<Vec<u8>>,
    /// Gets a pseudo-terminal of this size (rows, columns) for all three streams.
    pub pty: Option<(u16, u16)>,
}
