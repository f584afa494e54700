//! The inputs that a driver gives an agent, and the outputs that an agent requests of its driver.
//!
//! Everything here is data: an `Input` can be recorded in the driver and replayed, an `Output` contains bytes and
//! numbers, never handles.

use crate::memory::{Array, Content, ShareId};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use wireup_wire::frame::Frame;
use wireup_wire::ids::{AgentId, Client, JobId, LocalRank, Rank};
use wireup_wire::job::{Binding, Limit, PortRange, Preload, RankPorts, Staged, StdioOptions};
pub use wireup_wire::peer::ExitStatus;
use wireup_wire::peer::{Bootstrap, Lacking, Problem, Rejoin, Secret, SpawnError, Stack};
use wireup_wire::pmix::Begin;
use wireup_wire::route::Point;

/// The driver's number for a link. Numbers are not reused after `LinkDown`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct LinkId(pub u32);

/// The number of one remote shell, or one step of a batch system, that an agent starts. Numbers are never reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct ShellId(pub u32);

/// How a remote shell finds the agent's program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum How {
    /// The remote shell executes the path of the launcher's program, as plain words.
    Plain,
    /// A command line looks for the program: in the user's cache, at the path of the launcher's program, in `PATH`.
    Look,
    /// The program is sent on standard input, before the bootstrap message, and stored in the user's cache.
    Send,
}

/// The remote end of an authenticated link.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Peer {
    /// The agent's parent.
    Parent,
    /// An agent that this one started, with the incarnation that it presents.
    Child { agent: AgentId, incarnation: u32 },
    /// Any other agent of the session, over a link outside the tree.
    Direct(AgentId),
    /// A launcher attached to this agent, which is the root. A standing session has any number of them.
    Launcher,
    /// An agent of a standing session that has lost its parent and asks the root to adopt it.
    Rejoin { agent: AgentId, rejoin: Rejoin },
}

/// Standard output or standard error; the values are their descriptors.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[repr(u16)]
pub enum Stream {
    Out = 1,
    Err = 2,
}

/// This agent's number for its end of a connection between two ranks that agents relay. Numbers are not reused within a
/// job.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct RelayId(pub u32);

/// What has happened to the socket of a relay.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum RelayEvent {
    /// The connection is established, or the socket for datagrams is bound.
    Connected,
    /// The rank has sent bytes, or a datagram.
    Bytes(Bytes),
    /// Number of bytes of [`RelayAct::Write`] that the kernel has accepted.
    Taken(u32),
    /// The rank sends nothing more.
    End,
    /// The socket could not be opened, or has closed.
    Gone,
}

/// What to do with the socket of a relay.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RelayAct {
    /// Make a pair of sockets and give one end to a rank, with `reply` on its PMI socket. If no pair can be made, send
    /// `refusal` instead.
    Hand { client: Client, datagrams: bool, reply: Bytes, refusal: Bytes },
    /// Connect to a rank of this node that listens at this address (see `wireup_wire::rank_address`); with `datagrams`,
    /// the address is that of a UDP socket.
    Connect { address: Bytes, datagrams: bool },
    /// Bytes to write, or one datagram.
    Write(Bytes),
    /// Shut down the write direction of the connection after everything was written.
    EndOutput,
    /// Start (`true`) or stop reading the socket. A new socket is read.
    Read(bool),
    /// Close the socket when everything is written.
    Close,
}

/// The driver's number for a connection to a job's store. Numbers are not reused within a job.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct StoreClient(pub u32);

/// What has happened to a connection to a job's store.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum StoreEvent {
    /// The connection is new.
    Opened,
    Bytes(Bytes),
    /// Whether bytes of [`StoreAct::Write`] wait until the client reads; while they do, the client is not read.
    Full(bool),
    /// The client has closed the connection, or it broke.
    Gone,
}

/// What to do with a connection to a job's store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StoreAct {
    Write(Bytes),
    /// Start (`true`) or stop reading the connection. A new connection is read.
    Read(bool),
    /// Close the connection at once.
    Close,
}

/// An event that the driver reports to an agent.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Input {
    /// A link is up, and both ends have proved that they know the session's secret.
    LinkUp {
        link: LinkId,
        peer: Peer,
        /// The address at this end of the link, for messages to the user; empty for a link in memory.
        local: String,
    },
    /// This agent has connected to the parent that started it; the fields are those of
    /// [`wireup_wire::peer::Note::Dialled`].
    ParentReached { address: String, took_ns: u64, failed: String },
    /// Bytes arrived on a link, in order; frames may be split anywhere.
    LinkBytes { link: LinkId, bytes: Bytes },
    /// The link is down; `problem` says why, for the user.
    LinkDown { link: LinkId, problem: Problem },
    /// The addresses at which other agents can connect to this agent, best first; or why no agent can. Reported before
    /// the first remote shell can end, or in answer to [`Output::Listen`].
    Listening { result: Result<Vec<String>, String> },
    /// The address of this agent in the opened transport, or why there is none.
    TransportOpened { result: Result<Point, String> },
    /// An agent could not be reached at any of its addresses; `problem` lists each address with its problem, for the
    /// user. `agent: None`: the root could not be reached at the addresses of [`Output::Rejoin`].
    DialFailed { agent: Option<AgentId>, problem: String },
    /// A remote shell has ended, with this exit status and this last part of its standard error; or it could not be
    /// started: the error's `what` says what was tried and why it failed, for the user.
    ShellEnded { shell: ShellId, end: Result<(ExitStatus, String), SpawnError> },
    /// A task of a batch system's step has started this agent, or (`problem`) has failed.
    StepTold { shell: ShellId, agent: AgentId, problem: Option<Problem> },
    /// The bootstrap message of a step could not be encrypted, for the reason in `problem`, and is sent as plain text.
    StepNotSealed { problem: String },
    /// The batch system tells this agent to end, by this signal.
    ToldToEnd { signal: i32 },
    /// The answer to [`Output::ReserveRankPorts`]: the address with the lowest reserved port, or text for the user that
    /// says why no ports are reserved.
    RankPortsReserved { result: Result<Bytes, String> },
    /// The answer to [`Output::RenewRankPorts`]: the driver listens again on the ports that this job has used.
    RankPortsRenewed { job: JobId },
    /// At the root of a standing session: end the session and its jobs, for this reason, which is text for the user.
    EndSession { reason: String },
    /// A deadline has passed, and nothing else has happened.
    Tick,
    /// Something has happened to the part of a job on this node.
    Job { job: JobId, event: JobEvent },
}

/// What has happened to the part of a job on this node: to its ranks, their keeper, or their PMIx server.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum JobEvent {
    /// A rank is running (its `exec` succeeded), or could not be started.
    RankStarted { local: LocalRank, result: Result<Started, SpawnError> },
    /// A rank has ended and was reaped; all PMI bytes that it sent were reported before. Its output may still be in
    /// transit until `StdioClosed`.
    RankExited {
        local: LocalRank,
        status: ExitStatus,
        /// Whether the kernel has killed the rank because memory ran out.
        out_of_memory: bool,
    },
    /// The error file that a rank wrote at `at_ns` (ns since 1970). The report that the rank has ended follows.
    RankError { local: LocalRank, at_ns: u64, text: Bytes },
    /// The ranks of a job on this node run without something that the job has asked for.
    RanksLack { what: Lacking },
    /// The call stacks of the ranks of a job on this node.
    Stacks { stacks: Vec<Stack> },
    /// How the ranks of a job on this node are bound, as a picture in lines of text.
    RanksBound { picture: String },
    /// The modules that are imported once for all ranks of a job on this node, and where their names were found.
    RanksPreload { modules: String },
    /// Another PMI library in a rank's process has connected.
    ClientJoined { client: Client },
    /// PMI bytes from a rank.
    ClientBytes { client: Client, bytes: Bytes },
    /// A rank closed its PMI socket.
    ClientGone { client: Client },
    /// A rank wrote output.
    StdioBytes { local: LocalRank, stream: Stream, bytes: Bytes },
    /// A rank's stream ended, or the rank has ended and everything that it wrote was read.
    StdioClosed { local: LocalRank, stream: Stream },
    /// A rank's standard input took `bytes` of the `Write` outputs, or the bytes were dropped because the input was
    /// closed.
    StdinTaken { local: LocalRank, bytes: u32 },
    /// A listening socket is bound for each rank of a job on this node, at the address of the first rank (see
    /// `wireup_wire::rank_address`) and the ports that follow. Or the sockets, or the secret of the ranks, could not be
    /// made: the error's `what` says what was tried, for the user.
    RanksListen { result: Result<Bytes, SpawnError> },
    /// The ports of the job's rendezvous are reserved on this node; this is the first one, at an address that all nodes
    /// reach. Or they could not be reserved: the error's `what` says what was tried, for the user.
    RendezvousReserved { result: Result<SocketAddr, SpawnError> },
    /// The port of 127.0.0.1 at which the job's store listens on this node. Or it could not listen: the error's `what`
    /// says what was tried, for the user.
    StoreListens { result: Result<u16, SpawnError> },
    /// What has happened to a connection to the job's store.
    Store { client: StoreClient, event: StoreEvent },
    /// What has happened at this end of a relay between two ranks.
    Relay { relay: RelayId, event: RelayEvent },
    /// The secret of the job's ranks, the same on all nodes.
    SecretOfRanks { secret: Secret },
    /// Bytes from a job's PMIx server process, split anywhere.
    PmixBytes { bytes: Bytes },
    /// Whole lines that the PMIx server process has written on its standard error.
    PmixSaid { text: String },
    /// The PMIx server process has ended and was reaped; everything that it sent has been reported before. Or it could
    /// not be started: the error's `what` has the complete description, for the user.
    PmixGone { end: Result<PmixEnd, SpawnError> },
    /// The keeper of a job's local ranks has ended, after this error or because it was killed: the kernel kills the
    /// ranks.
    KeeperLost { problem: Option<SpawnError> },
    /// Shared memory for array slots exists and can be written. Or shared memory could not be created or written: the
    /// text says what was tried, why it failed and what to do, for the user.
    Shared { share: ShareId, result: Result<(), String> },
}

/// A rank that runs: its pid, and when it was spawned and has executed its program (ns).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Started {
    pub pid: u32,
    pub spawn_ns: u64,
    pub exec_ns: u64,
}

/// How a PMIx server process has ended.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PmixEnd {
    pub status: ExitStatus,
    /// The last part of what the server has written on its standard error.
    pub stderr: String,
    /// Advice about the free space, if the file system of the server's directory is full.
    pub no_room: Option<String>,
}

/// The kernel session (`setsid`) of a job's processes on one node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum KernelSession {
    /// A session separate from the agent's: one for all processes, or one for each process.
    Own,
    /// The session of the agent.
    Agents,
}

/// An action for the driver.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Output {
    /// Start the remote shell for an agent's host, with the message `bootstrap` on its standard input. The driver adds
    /// the session's secret and, unless the message has addresses, its own listening addresses. `bootstrap: None`: only
    /// check whether the host answers.
    StartAgent { shell: ShellId, agent: AgentId, host: String, how: How, bootstrap: Option<Box<Bootstrap>> },
    /// Start a step of the batch system with a task on the host of each of these agents, with the message `bootstrap`
    /// on the standard input of all tasks. As with `StartAgent`, the driver adds the session's secret and the driver's
    /// listening addresses to the message. The driver tells each agent where the agent's parent listens, and reports
    /// which agents have started. The end of the step is reported as the end of a remote shell.
    StartStep { shell: ShellId, agents: Vec<AgentId>, how: How, bootstrap: Box<Bootstrap> },
    /// Kill a remote shell.
    StopShell { shell: ShellId },
    /// Listen for other agents, unless already listening, and report the addresses.
    Listen,
    /// Make a link with an agent that listens at these addresses; the result is `LinkUp` or `DialFailed`.
    Dial {
        agent: AgentId,
        addresses: Vec<String>,
        /// Address in another transport, which is tried before `addresses`.
        point: Option<Point>,
    },
    /// The parent is lost: dial the root at these addresses. The result is `LinkUp` with `Peer::Parent` or
    /// `DialFailed`.
    Rejoin { root: Vec<String>, rejoin: Rejoin },
    /// Open the transport that the agents use only if all of them have it, such as UCX. The answer is
    /// [`Input::TransportOpened`].
    OpenTransport,
    /// Send a frame on a link. The driver keeps frames of different classes separate, and accepts every frame.
    Send { link: LinkId, frame: Frame },
    /// Close a link after everything queued for it was sent.
    CloseLink { link: LinkId },
    /// Start a PMIx server process for a job on this node; it ends with the job's ranks.
    StartPmix(Box<PmixPlan>),
    /// Send bytes to the PMIx server process.
    PmixSend { job: JobId, bytes: Bytes },
    /// Reserve ports for ranks of jobs to come, and listen on them.
    ReserveRankPorts { count: u16, range: PortRange },
    /// The ports that a job has used are free: listen on them again, for the ranks of later jobs.
    RenewRankPorts { job: JobId },
    /// Bind a listening socket for each of the `count` ranks of a job on this node, which are started next. `base`: the
    /// first of the reserved ports to use; `None`: bind sockets on consecutive ports of the range.
    ListenForRanks { job: JobId, count: u32, ports: RankPorts, base: Option<u16>, kernel_session: KernelSession },
    /// Reserve `count` consecutive ports of the range on this node until the job ends; the answer is
    /// `JobEvent::RendezvousReserved`.
    ReserveRendezvous { job: JobId, count: u16, range: PortRange, kernel_session: KernelSession },
    /// Listen for connections to the job's store from the job's local ranks, which are started next. The answer is
    /// [`JobEvent::StoreListens`].
    ListenForStore { job: JobId, kernel_session: KernelSession },
    /// Carry out `act` on a connection to a job's store.
    Store { job: JobId, client: StoreClient, act: StoreAct },
    /// Carry out `act` on the socket at this end of a relay between two ranks.
    Relay { job: JobId, relay: RelayId, act: RelayAct },
    /// Report the secret of the job's ranks ([`JobEvent::SecretOfRanks`]).
    TellSecret { job: JobId },
    /// Start the ranks of a job on this node.
    Spawn(Box<SpawnPlan>),
    /// Send a signal to ranks of a job (to their process groups), or to its PMIx server process.
    Signal { job: JobId, target: SignalTarget, signal: i32 },
    /// Kill all processes that the job's ranks left behind on this node, even if they are hidden. Sent after the last
    /// rank has ended.
    Sweep { job: JobId },
    /// Create memory for the job's local ranks, and keep it for replies that refer to it. [`JobEvent::Shared`] reports
    /// success only for [`Content::Slots`], failure for any content. Replies that refer to memory which does not exist
    /// are dropped.
    Share { job: JobId, share: ShareId, content: Content },
    /// Write an array into a slot of shared memory; no rank reads the slot at this time. If it cannot be written, all
    /// later replies of the job are dropped, and `Shared` reports why.
    WriteSlot { job: JobId, share: ShareId, slot: u32, array: Array },
    /// Release shared memory: no later reply refers to it. Ranks that have mapped it keep their mapping.
    Unshare { job: JobId, share: ShareId },
    /// PMI bytes for a rank, and shared memory whose descriptors are sent with the first of these bytes.
    Reply { job: JobId, client: Client, bytes: Bytes, shares: Vec<ShareId> },
    /// Close a rank's PMI socket after the pending replies.
    CloseClient { job: JobId, client: Client },
    /// Bytes for a rank's standard input; empty: end of file.
    Write { job: JobId, local: LocalRank, bytes: Bytes },
    /// Start (`on`) or stop reading this stream of all ranks of the job. When a job starts, its streams are read.
    ReadStdio { job: JobId, stream: Stream, on: bool },
    /// Set the size of a rank's pseudo-terminal.
    Resize { job: JobId, local: LocalRank, rows: u16, columns: u16 },
    /// Take the call stacks of these running ranks, with their pids; the answer is `JobEvent::Stacks`.
    TakeStacks { job: JobId, processes: Vec<(Rank, u32)> },
    /// A job that is about to start belongs to the job `family` and to the other jobs that its ranks have spawned: the
    /// PMI libraries must find each other's processes.
    OfFamily {
        job: JobId,
        family: JobId,
        /// The job whose rank has spawned this job.
        by: JobId,
    },
    /// A local rank of this spawned job is about to connect to ranks of the job that has spawned it.
    MeetsFamily { job: JobId },
    /// A job has ended on this node; the driver forgets it and its memory.
    JobGone { job: JobId },
    /// The agent has finished: the driver can exit.
    Exit,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SignalTarget {
    All,
    One(LocalRank),
    /// The PMIx server process; the signal is SIGKILL.
    Server,
}

/// The ranks of one job on one node, ready to be started.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SpawnPlan {
    pub job: JobId,
    pub programs: Vec<Program>,
    pub ranks: Vec<RankPlan>,
    pub binding: Binding,
    /// Whether the user wants a report of the binding.
    pub report_bindings: bool,
    /// Whether other nodes of the job share this machine.
    pub shares_machine: bool,
    pub kernel_session: KernelSession,
    pub stdio: StdioOptions,
    pub sockets: SocketPlan,
    pub framework: FrameworkPlan,
    /// Number of GPUs for each rank; 0: GPUs are not assigned.
    pub gpus_per_rank: u32,
    pub umask: u32,
    pub limits: Vec<Limit>,
    pub files: FilePlan,
    /// Modules that are imported once for all ranks.
    pub preload: Option<Preload>,
}

/// What is done about the files that the ranks read.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FilePlan {
    /// Staged files that the ranks see instead of the originals.
    pub staged: Option<Staged>,
    /// Files that are read into the page cache while the ranks start, in this order.
    pub prefetch: Vec<Vec<u8>>,
}

/// The sockets that each rank inherits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SocketPlan {
    /// A PMI socket (`PMI_FD`).
    pub pmi: bool,
    /// One of the sockets of `ListenForRanks` (`WIREUP_LISTEN_FD`).
    pub listening: bool,
}

/// What the driver adds to the environment of ranks for their framework.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FrameworkPlan {
    /// The variable by which each rank gets the path of an error file, which the driver makes; `None`: no error files.
    pub error_file: Option<&'static str>,
    /// Variables about this node's network, which are added if agents communicate through an interface.
    pub network: Vec<(&'static str, NetworkValue)>,
}

/// A fact about the interface through which a node's agent communicates with other agents.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NetworkValue {
    /// The interface's name.
    Interface,
    /// The node's address on that interface.
    Address,
}

/// A PMIx server process, ready to be started.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PmixPlan {
    pub job: JobId,
    /// First message to the server process. The driver adds the CPUs of each rank and the directory.
    pub begin: Begin,
    /// How the ranks will be bound.
    pub binding: Binding,
    /// Number of ranks of the job on this machine, as far as the agent knows.
    pub ranks_here: u32,
    pub kernel_session: KernelSession,
    /// The job's environment, which may contain settings of the library.
    pub env: Vec<Vec<u8>>,
}

/// The program, directory and environment that several ranks have in common.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Program {
    /// Arguments; not empty. The first one is looked up in the `PATH` of `env`.
    pub argv: Vec<Vec<u8>>,
    /// Working directory; empty: that of the process that starts the program.
    pub cwd: Vec<u8>,
    /// The complete environment except for the ranks' own variables, `NAME=VALUE`; the last entry for a name takes
    /// precedence.
    pub env: Vec<Vec<u8>>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RankPlan {
    pub rank: Rank,
    pub local: LocalRank,
    /// Index into `SpawnPlan::programs`.
    pub program: u16,
    /// The rank's own variables, `NAME=VALUE`. The driver adds `PMI_FD`, since it knows the number.
    pub env: Vec<Vec<u8>>,
    /// Size (rows, columns) of the pseudo-terminal that the rank gets for standard input, output and error; `None`: no
    /// terminal.
    pub pty: Option<(u16, u16)>,
}
