//! The inputs that a driver gives an agent, and the outputs that an agent requests of its driver.
//!
//! Everything here is data: an `Input` can be recorded in the driver and replayed, an `Output` contains bytes and
//! numbers, never handles.

use crate::memory::{Array, Content, ShareId};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use wireup_wire::frame::Frame;
use wireup_wire::ids::{AgentId, Client, JobId, LocalRank, Rank};
use wireup_wire::job::{Binding, Limit, PortRange, RankPorts, RankStdout, Staged, StdinTarget};
use wireup_wire::peer::{Bootstrap, Lacking, Problem, Rejoin, Secret, SpawnError};
use wireup_wire::pmix::Begin;
use wireup_wire::route::Point;

/// A link, as numbered by the agent's driver. Not reused after `LinkDown`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct LinkId(pub u32);

/// One call of a remote shell. Never reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct ShellId(pub u32);

/// How a remote shell finds the agent's program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum How {
    /// At the path of the launcher's program: plain words, which need no shell.
    Plain,
    /// By a shell command line: in the user's cache, at the path of the launcher's program, in `PATH`.
    Look,
    /// The program is sent on standard input, before the message, and stored in the user's cache.
    Send,
}

/// The other end of an authenticated link.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Peer {
    /// The agent's parent.
    Parent,
    /// An agent that this one started, with the incarnation that it presents.
    Child { agent: AgentId, incarnation: u32 },
    /// Any other agent of the session: a link beside the tree.
    Direct(AgentId),
    /// A launcher attached to this agent, which is the root. A standing session has any number of them.
    Launcher,
    /// An agent of a standing session that has lost its parent: the root is to adopt it.
    Rejoin { agent: AgentId, rejoin: Rejoin },
}

/// Standard output or standard error; the values are their descriptors.
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

/// This end of a connection between two ranks that agents relay. Not reused in a job.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct RelayId(pub u32);

/// What has happened to the socket of a relay.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum RelayEvent {
    /// The connection is made, or there is a socket for datagrams.
    Connected,
    /// The rank has sent bytes, or a datagram.
    Bytes(Bytes),
    /// So many bytes of [`RelayAct::Write`] have left this process.
    Taken(u32),
    /// The rank sends no more.
    End,
    /// There is no socket, or it is of no more use.
    Gone,
}

/// What to do with the socket of a relay.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RelayAct {
    /// Make a pair of sockets and give one end to a rank, with this reply on its PMI socket; if there is none, send the
    /// other reply.
    Hand { client: Client, datagrams: bool, reply: Bytes, refusal: Bytes },
    /// Connect to a rank of this node, which listens at this address (see `wireup_wire::rank_address`), or has a socket
    /// of UDP there.
    Connect { address: Bytes, datagrams: bool },
    /// Bytes, or one datagram.
    Write(Bytes),
    /// Nothing follows what was written.
    EndOutput,
    /// Start or stop reading. Initially on.
    Read(bool),
    /// Close the socket when everything is written.
    Close,
}

/// An event.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Input {
    /// A link is up, and both ends have proved the secret.
    LinkUp {
        link: LinkId,
        peer: Peer,
        /// The address at this end, for messages; empty for a link in memory.
        local: String,
    },
    /// This agent has reached the parent by which it was started: as in [`Note::Dialled`].
    ParentReached {
        address: String,
        took_ns: u64,
        failed: String,
    },
    /// Bytes arrived, in order, split anywhere.
    LinkBytes {
        link: LinkId,
        bytes: Bytes,
    },
    /// The link is down; `problem` says why, for the user.
    LinkDown {
        link: LinkId,
        problem: Problem,
    },
    /// The addresses at which other agents can dial in, best first; reported once, before the first remote shell can
    /// end or on request.
    Listening {
        addresses: Vec<String>,
    },
    /// Other agents cannot dial this one.
    ListenFailed {
        problem: String,
    },
    /// The address of this agent in the opened transport, or why there is none.
    TransportOpened {
        result: Result<Point, String>,
    },
    /// An agent could not be reached at any of its addresses; lists each with its problem, for the user.
    DialFailed {
        agent: AgentId,
        problem: String,
    },
    /// A remote shell ended; with the end of its standard error.
    ShellExited {
        shell: ShellId,
        status: ExitStatus,
        stderr: String,
    },
    /// A remote shell could not be called: `error.what` says what was tried and why it failed, for the user.
    ShellFailed {
        shell: ShellId,
        error: SpawnError,
    },
    /// The task of a step has started an agent, or has failed.
    StepTold {
        shell: ShellId,
        agent: AgentId,
        problem: Option<Problem>,
    },
    /// The bootstrap message of a step could not be sealed, for this reason, and travels as it is.
    StepNotSealed {
        problem: String,
    },
    /// The batch system tells this agent to end, by this signal.
    ToldToEnd {
        signal: i32,
    },
    /// A rank is running (its `exec` succeeded).
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
    /// A rank has ended and was reaped; all PMI bytes that it sent came before. Its output may still be in transit
    /// until `StdioClosed`.
    ChildExited {
        job: JobId,
        local: LocalRank,
        status: ExitStatus,
    },
    /// The kernel has killed a rank because memory ran out; its end is reported next.
    OutOfMemory {
        job: JobId,
        local: LocalRank,
    },
    /// The ranks of a job on this node run without something.
    RanksLack {
        job: JobId,
        what: Lacking,
    },
    /// How the ranks of a job on this node are bound, as a picture in lines of text.
    RanksBound {
        job: JobId,
        picture: String,
    },
    /// A further library of a rank has joined.
    ClientJoined {
        job: JobId,
        client: Client,
    },
    /// PMI bytes from a rank.
    ClientBytes {
        job: JobId,
        client: Client,
        bytes: Bytes,
    },
    /// A rank closed its PMI socket.
    ClientGone {
        job: JobId,
        client: Client,
    },
    /// A rank wrote output.
    StdioBytes {
        job: JobId,
        local: LocalRank,
        stream: Stream,
        bytes: Bytes,
    },
    /// A rank's stream ended, or the rank has ended and everything that it wrote was read.
    StdioClosed {
        job: JobId,
        local: LocalRank,
        stream: Stream,
    },
    /// A rank's standard input took `bytes` of the `Write` outputs (or they were discarded because it was closed).
    StdinTaken {
        job: JobId,
        local: LocalRank,
        bytes: u32,
    },
    /// Ports for ranks are reserved: the address with the lowest one; or why not, for the user.
    RankPortsReserved {
        result: Result<Bytes, String>,
    },
    /// Those of a job are for others now.
    RankPortsRenewed {
        job: JobId,
    },
    /// A listening socket for each rank of a job on this node is bound: the address of the first (see
    /// `wireup_wire::rank_address`), whose port is the lowest of consecutive ones.
    RanksListen {
        job: JobId,
        address: Bytes,
    },
    /// What has happened at this end of a relay between two ranks.
    Relay {
        job: JobId,
        relay: RelayId,
        event: RelayEvent,
    },
    /// The secret of the job's ranks, the same on all nodes.
    SecretOfRanks {
        job: JobId,
        secret: Secret,
    },
    /// There are no such sockets, or no secret; `error.what` says what was tried, for the user.
    RanksListenFailed {
        job: JobId,
        error: SpawnError,
    },
    /// Bytes from a job's PMIx server process, split anywhere.
    PmixBytes {
        job: JobId,
        bytes: Bytes,
    },
    /// Whole lines that the PMIx server process has written on its standard error.
    PmixSaid {
        job: JobId,
        text: String,
    },
    /// The PMIx server process has ended and was reaped; all that it sent came before. `stderr` is the end of its
    /// standard error.
    PmixGone {
        job: JobId,
        status: ExitStatus,
        stderr: String,
        /// Its directory's file system is full: what is left there, in words.
        no_room: Option<String>,
    },
    /// It could not be started: `error.what` has the complete description, for the user.
    PmixFailed {
        job: JobId,
        error: SpawnError,
    },
    /// The keeper of a job's local ranks has ended, after this error or because it was killed: the kernel kills the
    /// ranks.
    KeeperLost {
        job: JobId,
        problem: Option<SpawnError>,
    },
    /// The root could not be reached at the addresses in `Rejoin`; for the user.
    RejoinFailed {
        problem: String,
    },
    /// At the root of a standing session: end it and its jobs. The reason is for the user.
    EndSession {
        reason: String,
    },
    /// Only time has passed.
    Tick,
    /// Memory for slots exists and can be written.
    Shared {
        job: JobId,
        share: ShareId,
    },
    /// Memory could not be created or written; `problem` says what was tried, why it failed and what to do, for the
    /// user.
    ShareFailed {
        job: JobId,
        share: ShareId,
        problem: String,
    },
}

/// The kernel session of the processes of a job on one node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum KernelSession {
    /// One of their own, or one for each.
    Own,
    /// That of their agent.
    Agents,
}

/// An action for the driver.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Output {
    /// Call the remote shell for an agent's host, with this message on its standard input. The driver adds the
    /// session's secret and, unless the message has addresses, its own listening addresses. No message: only check
    /// whether the host answers.
    StartAgent {
        shell: ShellId,
        agent: AgentId,
        host: String,
        how: How,
        bootstrap: Option<Box<Bootstrap>>,
    },
    /// Call the batch system for a task on the host of each of these agents, with this message on the standard input of
    /// all. The driver adds secret and addresses as above, tells each agent where its parent listens, and reports which
    /// agents have started; the end of the step is reported as that of a remote shell.
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
    /// Listen for other agents, unless already listening, and report the addresses.
    Listen,
    /// Make a link with an agent that listens at these addresses; the result is `LinkUp` or `DialFailed`.
    Dial {
        agent: AgentId,
        addresses: Vec<String>,
        /// Try this first.
        point: Option<Point>,
    },
    /// The parent is lost: dial the root at these addresses. The result is `LinkUp` with `Peer::Parent` or
    /// `RejoinFailed`.
    Rejoin {
        root: Vec<String>,
        rejoin: Rejoin,
    },
    /// Open the session's transport that all agents must have, and report this agent's address in it.
    OpenTransport,
    /// Send a frame on a link. The driver keeps the classes separate and never refuses.
    Send {
        link: LinkId,
        frame: Frame,
    },
    /// Flush what was sent, then close.
    CloseLink {
        link: LinkId,
    },
    /// Start a PMIx server process for a job on this node; it ends with the job's ranks.
    StartPmix(Box<PmixPlan>),
    /// Send bytes to the PMIx server process.
    PmixSend {
        job: JobId,
        bytes: Bytes,
    },
    /// Kill the PMIx server process.
    StopPmix {
        job: JobId,
    },
    /// Reserve ports for ranks of jobs to come, and listen on them.
    ReserveRankPorts {
        count: u16,
        range: PortRange,
    },
    /// The ports that a job has had are for others: listen on them anew.
    RenewRankPorts {
        job: JobId,
    },
    /// Listen on a socket for each of the ranks of a job on this node, which are to be started next. `base`: take
    /// reserved ports from this one on; otherwise bind sockets on consecutive ports of the range.
    ListenForRanks {
        job: JobId,
        count: u32,
        ports: RankPorts,
        base: Option<u16>,
        kernel_session: KernelSession,
    },
    /// Do something at this end of a relay between two ranks.
    Relay {
        job: JobId,
        relay: RelayId,
        act: RelayAct,
    },
    /// Answer with the secret of the job's ranks ([`Input::SecretOfRanks`]).
    TellSecret {
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
    /// Kill all processes that the job's ranks left behind on this node, even if they are hidden. Sent after the last
    /// rank has ended.
    Sweep {
        job: JobId,
    },
    /// Create memory for the job's local ranks, and keep it for replies that name it. `Shared` reports that memory for
    /// slots was created, `ShareFailed` that any memory was not; replies that name memory which does not exist are
    /// dropped.
    Share {
        job: JobId,
        share: ShareId,
        content: Content,
    },
    /// Write an array into a slot of such memory; no rank reads the slot at this time. If it cannot be written, all
    /// later replies of the job are dropped, and `ShareFailed` reports why.
    WriteSlot {
        job: JobId,
        share: ShareId,
        slot: u32,
        array: Array,
    },
    /// No later reply names this memory. Ranks that have mapped it keep it.
    Unshare {
        job: JobId,
        share: ShareId,
    },
    /// PMI bytes for a rank, and memory whose descriptors are sent with the first of them.
    Reply {
        job: JobId,
        client: Client,
        bytes: Bytes,
        shares: Vec<ShareId>,
    },
    /// Close a rank's PMI socket after the pending replies.
    CloseClient {
        job: JobId,
        client: Client,
    },
    /// Bytes for a rank's standard input; empty: end of file.
    Write {
        job: JobId,
        local: LocalRank,
        bytes: Bytes,
    },
    /// Start or stop reading a stream of all ranks of the job. Initially on.
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
    /// The ranks of a job that is about to start talk with those of the job `family`, and of all others of this family:
    /// libraries must find each other's processes.
    OfFamily {
        job: JobId,
        family: JobId,
        /// The job whose ranks have asked for it.
        by: JobId,
    },
    /// A local rank of such a job is about to connect with those that have asked for it.
    MeetsFamily {
        job: JobId,
    },
    /// A job has ended on this node; the driver forgets it and its memory.
    JobGone {
        job: JobId,
    },
    /// The agent has finished.
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
    pub binding: Binding,
    /// The binding is reported.
    pub report_bindings: bool,
    /// Other nodes of the job share this machine.
    pub shares_machine: bool,
    pub kernel_session: KernelSession,
    /// The ranks that read standard input.
    pub stdin: StdinTarget,
    pub stdout: RankStdout,
    /// Rank `StdinTarget::One` inherits the agent's own standard input.
    pub stdin_inherit: bool,
    /// Whether each rank gets a PMI socket (`PMI_FD`).
    pub pmi_socket: bool,
    /// Whether each rank gets one of the sockets of `ListenForRanks` (`WIREUP_LISTEN_FD`).
    pub listens: bool,
    /// Number of GPUs for each rank; 0: GPUs are not assigned.
    pub gpus_per_rank: u32,
    pub umask: u32,
    pub limits: Vec<Limit>,
    /// Files that the ranks see in place of others.
    pub staged: Option<Staged>,
}

/// A PMIx server process, ready to be started.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PmixPlan {
    pub job: JobId,
    /// The driver adds the CPUs of each rank and the directory, and sends this first.
    pub begin: Begin,
    /// How the ranks will be bound.
    pub binding: Binding,
    /// Ranks of the job on this machine, as far as known.
    pub ranks_here: u32,
    pub kernel_session: KernelSession,
    /// The job's environment, which may contain settings of the library.
    pub env: Vec<Vec<u8>>,
}

/// The properties that several ranks share.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Program {
    pub argv: Vec<Vec<u8>>,
    pub cwd: Vec<u8>,
    /// The complete environment except for the ranks' own variables, `NAME=VALUE`, each name once.
    pub env: Vec<Vec<u8>>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RankPlan {
    pub rank: Rank,
    pub local: LocalRank,
    /// Index into `programs`.
    pub program: u16,
    /// The rank's own variables, `NAME=VALUE`. The driver adds `PMI_FD`, since it knows the number.
    pub env: Vec<Vec<u8>>,
    /// Gets a pseudo-terminal of this size (rows, columns) for all three streams.
    pub pty: Option<(u16, u16)>,
}
