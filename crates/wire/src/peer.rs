//! What agents tell each other on the control path: plain structs, encoded by `postcard`.
//!
//! `Bootstrap` travels over the remote shell's standard input; `Control` inside frames of
//! [`crate::frame::Kind::Control`]; `Hello` inside the link's handshake.

use crate::collective::Collective;
use crate::ids::{AgentId, Epoch, JobId, NodeId, Rank};
use crate::job::JobSpec;
use crate::session::{JobEntry, Kin, NodeState, Standing, Welcome};
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use thiserror::Error;

/// Version of everything agents say to each other. Raised with any change of `frame`, `peer`, `job`, `session`.
pub const PROTOCOL_VERSION: u16 = 7;
/// First bytes of a bootstrap message: magic, then the version and the length of what follows.
pub const BOOTSTRAP_MAGIC: [u8; 4] = *b"WUP\n";
/// Bytes before a bootstrap's body: magic, version (u16), zero (u16), length (u32), all little-endian.
pub const BOOTSTRAP_HEADER_LEN: usize = 12;
/// Longest bootstrap body, deflated or not: a job message with a full environment (2 MiB is Linux' own bound) and a node list.
pub const BOOTSTRAP_LEN_MAX: usize = 64 << 20;

/// How hard a body is deflated, and up to which length well: an environment and a node list of that many bytes take a
/// few milliseconds, which are spent for each child (chosen).
const DEFLATE_WELL: u8 = 6;
const DEFLATE_FAST: u8 = 1;
const DEFLATE_WELL_MAX: usize = 64 << 10;

/// The secret that every link of a session proves to know.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Secret(pub [u8; 32]);

impl core::fmt::Debug for Secret {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// The agents of a session: a k-ary tree over their ids.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SessionSpec {
    /// Names the session in messages and file names.
    pub name: String,
    pub fanout: u32,
    /// How to start each agent; a position is an `AgentId`. Position 0 is the root.
    pub agents: Vec<AgentSpec>,
    pub remote_shell: RemoteShell,
    /// Remote shells under way at once below one agent; each leaves room when its agent has linked.
    pub shells_max: u32,
    /// Where the launcher's program lies: the first place where a node looks for its own.
    pub program: String,
    /// An agent that has not linked back by then is lost (ns). In a bootstrap message: what is left of it.
    pub start_timeout_ns: u64,
    /// A link that is silent for so long is lost (ns).
    pub node_timeout_ns: u64,
    /// Keep Noise's transport phase on the links after the handshake.
    pub encrypt: bool,
    /// Links use addresses of this interface only: a name, an address or a network as `10.1.0.0/16`.
    pub interface: Option<String>,
    /// Agents tell which address their children dialled.
    pub verbose: bool,
    /// In a bootstrap message: ranks wait for the link, since another copy of this agent may be on its way.
    pub hold_ranks: bool,
    /// Write a recording of all inputs of every agent into this directory.
    pub record_dir: Option<String>,
    /// How agents that are no neighbours in the tree reach each other.
    pub transport: AgentTransport,
    /// Frames of collectives wait so long before they leave (ns): a slow network where there is none, for measurements.
    pub link_delay_ns: u64,
    /// The session outlives its jobs, launchers attach to its root; `None`: it is there for one job and one launcher.
    pub standing: Option<Standing>,
}

/// How frames between agents that are no neighbours in the tree travel.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum AgentTransport {
    /// As for `Tcp`.
    #[default]
    Auto,
    /// From hop to hop through the tree (S3: sRPC).
    Tree,
    /// The first through the tree, the others over a TCP connection of the two (S3: dTCP).
    Tcp,
    /// The same with endpoints of UCX (S3: dUCX).
    Ucx,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AgentSpec {
    /// Host for the remote shell; the node's name for `Local`.
    pub host: String,
}

/// How an agent's process is started on its host.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum RemoteShell {
    /// A child process on this machine: virtual nodes.
    Local,
    /// Any program called as `argv… host command…`.
    Command(Vec<String>),
    /// `ssh` or what understands its command line: called as `argv… host "one line for the user's shell"`.
    Ssh(Vec<String>),
    /// `srun`, called once by the root for all agents: `argv… --nodelist=… command…`. Each agent is told everything that all
    /// are told, and finds itself by the name of its node.
    Srun(Vec<String>),
}

/// What a starting agent reads from its standard input.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Bootstrap {
    pub secret: Secret,
    pub agent: AgentId,
    /// Addresses of the parent, `ip:port`, best first.
    pub parent: Vec<String>,
    /// The parent itself called the remote shell: where that came from is an address of the parent.
    pub by_parent: bool,
    pub session: SessionSpec,
    /// Jobs to start at once, without waiting for the link.
    pub jobs: Vec<JobSpec>,
    /// Of a standing session.
    pub kin: Kin,
}

/// Who dials, inside the handshake's first message.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Hello {
    pub version: u16,
    pub agent: AgentId,
    pub host: String,
    pub pid: u32,
    pub role: Role,
}

/// What an agent that dials is to the one that listens.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Role {
    /// Its child in the tree.
    Child,
    /// Any other agent of the session: a link beside the tree.
    Direct,
    /// An agent further down whose parent is gone: the one that listens is to be its parent. It lives this of its lives.
    Orphan { life: u32 },
}

/// An agent that is not there: it could not be started, or did not link back.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MissingAgent {
    pub agent: AgentId,
    pub problem: String,
}

/// Something that a person may want to read; changes nothing.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Note {
    /// A child dialled this address of its parent.
    Linked { agent: AgentId, parent: AgentId, address: String },
    /// `agent` was to be started by `parent`, which could not reach it; `starter` did.
    StartedFor { agent: AgentId, parent: AgentId, starter: AgentId, problem: String },
    /// wireup was missing on the agent's host, or of another version, and was sent there.
    Sent { agent: AgentId },
    /// The remote shell was refused for the time being and is tried again.
    Retry { agent: AgentId, attempt: u32, problem: String },
    /// A node offers its ranks no PMIx; they may do without.
    NoPmix { node: NodeId, host: String, problem: String },
    /// What the agents measured: this many exchanges of so many bytes. Times are of one: there and back, or until the node had all.
    Measured { agent: AgentId, bytes: u32, iterations: u32, total_ns: u64, median_ns: u64, least_ns: u64 },
    /// This agent cannot use UCX, so nobody does.
    NoUcx(MissingAgent),
    /// There is no link between these two beside the tree, or no longer: what they say to each other goes through the tree.
    Routed { agent: AgentId, peer: AgentId, problem: String },
    /// The last that a node's PMIx server process wrote to its standard error, in a job that it did not fail.
    PmixSaid { host: String, text: String },
}

/// One message of the control class. ↓ goes from the root outward, ↑ towards it; jobs are named by the frame.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Control {
    /// ↓ Start a job.
    Launch(JobSpec),
    /// ↑ All ranks of the subtree run; sent once per subtree.
    Started {
        ranks: u32,
        pmix: Option<Opened>,
    },
    /// ↑ The first failure of the subtree; sent at most once per subtree.
    Failed(Failure),
    /// ↑ A rank of the subtree has left the job's fences; sent for the first one and for the first deserter.
    Departed(Departed),
    /// ↑ All ranks of the subtree are gone, all their output is sent.
    Done(Done),
    /// ↓ Send a signal to every rank of the job.
    Signal {
        signal: i32,
    },
    /// ↓ Set the size of the job's pseudo-terminal.
    Resize {
        rows: u16,
        columns: u16,
    },
    /// ↓ End all ranks: gently, after `grace_ns` by force.
    Kill {
        grace_ns: u64,
    },
    /// ↓ Say who has not arrived.
    StallAsk {
        collective: Option<Collective>,
    },
    /// ↑ The answer of one agent; passed on as it is.
    Stall(StallReport),
    /// ↓ End the session: agents leave when their jobs have.
    Shutdown,
    /// ↑ Start this agent of mine in my stead, with these jobs: my remote shell does not reach its host. It is to dial me at
    /// `parent`; of a standing session it is told of its `kin`.
    StartFor {
        agent: AgentId,
        jobs: Vec<JobId>,
        parent: Vec<String>,
        problem: String,
        kin: Kin,
    },
    /// ↓ Nobody on the way up to the root could start this agent; each hop passes it on towards its parent.
    NotStarted(MissingAgent),
    /// ↓ So much is left of the start time (ns). Told to a child that was long on its way, since it counts from its birth.
    TimeLeft {
        left_ns: u64,
    },
    /// ↑ Ask this agent's host whether it answers: my remote shell does not reach it, or may not. `asker` wants to know.
    Probe {
        agent: AgentId,
        asker: AgentId,
    },
    /// ↓ What came of it, for `asker`; `None`: it answered, or nobody knows.
    Probed {
        agent: AgentId,
        asker: AgentId,
        problem: Option<String>,
    },
    /// ↑ All agents of the subtree have looked for UCX; one that cannot use it.
    UcxLooked {
        missing: Option<MissingAgent>,
    },
    /// ↓ Whether links beside the tree are made by UCX.
    UseUcx {
        yes: bool,
    },
    /// ↑ Agents of the subtree that are not there.
    Missing(Vec<MissingAgent>),
    /// ↑ Passed on to the launcher as it is.
    Note(Note),
    /// ↑ and ↓ between neighbours: what does your clock say? Sent `asked_ns` by the asker's clock.
    ClockAsk {
        asked_ns: u64,
    },
    /// The answer: the question, and the answering agent's clock.
    ClockTell {
        asked_ns: u64,
        told_ns: u64,
    },
    /// Root to launcher: the job is over.
    Ended(Ended),

    // Of standing sessions alone.
    /// Root to launcher, first of all.
    Welcome(Welcome),
    /// Root to launcher: what was asked for is not done.
    Refused {
        problem: String,
    },
    /// Root to launcher: what was asked for, and has no other answer, is done or begun.
    Granted,
    /// Launcher to root: which jobs are there?
    AskJobs,
    JobList(Vec<JobEntry>),
    /// Launcher to root: which nodes are there?
    AskNodes,
    /// Also the answer to `Revive`, once all are up or known to be missing. A position is an `AgentId`.
    Nodes(Vec<NodeState>),
    /// Launcher to root: start the agents that are lost again.
    Revive,
    /// Launcher to root: send a signal to a job's ranks, whoever launched it; none: end it. `by` says who wants that.
    KillJob {
        job: JobId,
        signal: Option<i32>,
        by: String,
    },
    /// ↓ Start a job; passed on towards its nodes. Of jobs up to `newest` only those of `live` may still have something to say.
    Start {
        spec: JobSpec,
        newest: JobId,
        live: Vec<JobId>,
    },
    /// ↓ A job is over on all of its nodes, which are these agents'; passed on towards them. Whoever still has it ends it for itself.
    Over {
        agents: Vec<AgentId>,
    },
    /// ↑ These agents of the subtree are linked. With their new parent agents say it again.
    Here(Vec<AgentId>),
    /// ↓ An agent is lost, with its ranks. To the agent itself: others take it for lost, so it is to leave.
    Lost {
        agent: AgentId,
    },
    /// ↓ These lost agents are started again by those above them, to live this of their lives.
    Return {
        agents: Vec<AgentId>,
        life: u32,
    },
}

/// Which PMIx library a node has opened.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Opened {
    pub node: NodeId,
    /// Empty: none, and the ranks do without.
    pub version: String,
}

/// Something that ends a job.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Failure {
    pub node: NodeId,
    /// Name of the node.
    pub host: String,
    pub rank: Option<Rank>,
    pub pid: Option<u32>,
    pub cause: Cause,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Cause {
    /// The rank left with this exit code, not 0.
    Exited(u8),
    /// The rank was killed by this signal.
    Signalled { signal: i32, core_dumped: bool },
    /// The program could not be started.
    Spawn(SpawnError),
    /// The rank called PMI abort.
    Aborted { code: i32, message: String },
    /// Others wait in a fence that this rank can no longer enter.
    LeftFence { epoch: Epoch, collective: Collective, exit: Option<u8>, finalized: bool, waiting: u32 },
    /// The rank left with exit code 0 after PMI init and without finalize; others may wait for it for ever.
    NotFinalized,
    /// The rank's PMI requests broke the protocol.
    Pmi { problem: String },
    /// Agents could not be started or did not link back: all of them.
    AgentsMissing { missing: Vec<MissingAgent> },
    /// The link to a running agent broke.
    AgentLost { agent: AgentId, problem: String },
    /// What came from this agent, on node `host`, beside the tree cannot be put in order.
    NoDirectLink { agent: AgentId, host: String, problem: String },
    /// The process that forks and watches the ranks of a node is gone.
    KeeperLost,
    /// The time limit of the job is over.
    TimedOut { after_ns: u64 },
    /// The user asked for the end.
    Interrupted { signal: i32 },
    /// The launcher's own work failed (a full disk below `--output-dir`, for one).
    Launcher { problem: String },
    /// Others wait in the barrier of a group that this rank can no longer enter: it has said PMI finalize, or is gone.
    LeftGroup { group: String, exit: Option<u8> },
    /// The PMIx server process of a node could not begin, died, or broke its rules; or nodes opened libraries that do not fit.
    PmixServer { problem: String },
    /// The batch system has told the agent of a node to end, by this signal.
    ToldToEnd { signal: i32 },
    /// Somebody else than its launcher wanted its end.
    Killed { by: String },
    /// The session is being ended.
    SessionEnded { reason: String },
}

/// A program that could not be started: which step failed on what, with the `errno`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SpawnError {
    pub step: SpawnStep,
    /// The path or name that the step worked on.
    pub what: String,
    pub errno: i32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum SpawnStep {
    /// No such program in `PATH` or at the path given.
    Find,
    /// The program exists; its interpreter (`#!` or ELF) does not.
    Interpreter,
    Exec,
    Cwd,
    /// Pipes, sockets, pseudo-terminals.
    Stdio,
    Fork,
    /// Giving GPUs to ranks.
    Devices,
}

impl SpawnStep {
    /// What was tried, for a person.
    pub fn words(self) -> &'static str {
        match self {
            SpawnStep::Find => "finding the program",
            SpawnStep::Interpreter => "finding the program's interpreter",
            SpawnStep::Exec => "executing the program",
            SpawnStep::Cwd => "changing to the working directory",
            SpawnStep::Stdio => "making pipes and sockets",
            SpawnStep::Fork => "creating a process",
            SpawnStep::Devices => "giving GPUs to ranks",
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Departed {
    pub rank: Rank,
    pub pid: u32,
    pub node: NodeId,
    /// The first fence that the rank will never enter.
    pub epoch: Epoch,
    /// The same of PMIx fences.
    pub modex_epoch: Epoch,
    /// Whether it said goodbye by PMI finalize.
    pub finalized: bool,
    /// It had said init, is gone, and has not said goodbye.
    pub deserted: bool,
    /// Its exit code, if it is gone.
    pub exit: Option<u8>,
}

/// What a finished subtree reports.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Done {
    pub ranks: u32,
    /// Ranks that ever spoke PMI.
    pub pmi_clients: u32,
}

/// The end of a job, told to its launcher.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Ended {
    pub failure: Option<Failure>,
    pub done: Done,
}

/// What one agent knows about a fence that is not complete.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StallReport {
    pub node: NodeId,
    pub host: String,
    pub epoch: Epoch,
    /// What the epoch is, if somebody waits in it.
    pub collective: Option<Collective>,
    /// Ranks of the node inside the fence.
    pub arrived: u32,
    /// Ranks of the node that have not entered, the first few, with their pids.
    pub missing: Vec<(Rank, u32)>,
    /// How many have not entered.
    pub missing_count: u32,
    /// Barriers of groups that ranks of the node wait in, or are waited for; the first few.
    pub groups: Vec<GroupStall>,
}

/// What one agent knows about the barrier of a group that is not complete.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct GroupStall {
    /// In words: which ranks.
    pub group: String,
    /// Members on the node that wait in it, and that have not entered: the first few with their pids, and how many.
    pub arrived: u32,
    pub missing: Vec<(Rank, u32)>,
    pub missing_count: u32,
}

/// The time stamps of one agent, in nanoseconds of its monotonic clock.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct TracePart {
    pub agent: AgentId,
    pub node: NodeId,
    pub host: String,
    /// Process started; bootstrap read; linked to its parent; job message seen; all children linked.
    pub process_ns: u64,
    pub bootstrap_ns: u64,
    pub linked_ns: u64,
    pub job_ns: u64,
    pub children_ns: u64,
    /// This agent's clock minus its parent's (ns), as estimated when they linked; and how far off that may be.
    pub clock_offset_ns: i64,
    pub clock_error_ns: u64,
    pub ranks: Vec<RankTrace>,
    pub fences: Vec<FenceTrace>,
    /// Frames of collectives on the agent's links, and their payload.
    pub traffic: ExchangeTraffic,
}

/// What an agent's links carried for a job's collectives, by way.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ExchangeTraffic {
    /// Towards the root.
    pub up: Traffic,
    /// From the root outward.
    pub down: Traffic,
    /// Between any two nodes.
    pub direct: Traffic,
}

/// Frames and payload bytes, in and out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Traffic {
    pub frames_in: u64,
    pub bytes_in: u64,
    pub frames_out: u64,
    pub bytes_out: u64,
}

impl Traffic {
    /// A frame with that much payload came in.
    pub fn count_in(&mut self, bytes: usize) {
        self.frames_in += 1;
        self.bytes_in += bytes as u64;
    }

    /// A frame with that much payload went out.
    pub fn count_out(&mut self, bytes: usize) {
        self.frames_out += 1;
        self.bytes_out += bytes as u64;
    }
}

/// Time stamps of one rank; 0 where it never happened.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct RankTrace {
    pub rank: Rank,
    pub pid: u32,
    pub spawn_ns: u64,
    pub exec_ns: u64,
    pub init_ns: u64,
    pub finalize_ns: u64,
    pub exit_ns: u64,
}

/// One fence, or another collective, as an agent saw it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct FenceTrace {
    pub epoch: Epoch,
    pub collective: Collective,
    /// First and last local rank in.
    pub first_in_ns: u64,
    pub last_in_ns: u64,
    /// Local ranks released.
    pub out_ns: u64,
    /// Who came last.
    pub last_rank: Rank,
    /// Payload bytes of the node's own pairs, and of the job's.
    pub bytes_up: u64,
    pub bytes_down: u64,
}

/// A peer sent what is no message.
#[derive(Error, Clone, Copy, PartialEq, Eq, Debug)]
pub enum PeerError {
    #[error("message does not decode")]
    Malformed,
    #[error("not a wireup bootstrap message")]
    Magic,
    #[error("protocol version {theirs}, mine is {PROTOCOL_VERSION}: install the same wireup on every node")]
    Version { theirs: u16 },
    #[error("bootstrap of {0} bytes is longer than {BOOTSTRAP_LEN_MAX}")]
    TooLong(u32),
}

/// Encodes any control-path struct.
///
/// # Panics
/// Never for the types of this crate: they hold no unsized maps and no foreign types.
pub fn encode<T: Serialize>(value: &T) -> Vec<u8> {
    postcard::to_allocvec(value).expect("plain structs always encode")
}

/// Decodes one control-path struct that fills `bytes`.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, PeerError> {
    match postcard::take_from_bytes(bytes) {
        Ok((value, [])) => Ok(value),
        Ok(_) | Err(_) => Err(PeerError::Malformed),
    }
}

/// What asks a host only whether an agent could begin there: a header with nothing behind it.
pub fn probe() -> Vec<u8> {
    header(0).to_vec()
}

fn header(length: u32) -> [u8; BOOTSTRAP_HEADER_LEN] {
    let mut header = [0; BOOTSTRAP_HEADER_LEN];
    header[..4].copy_from_slice(&BOOTSTRAP_MAGIC);
    header[4..6].copy_from_slice(&PROTOCOL_VERSION.to_le_bytes());
    header[8..].copy_from_slice(&length.to_le_bytes());
    header
}

impl Bootstrap {
    /// Header and deflated body, ready for the remote shell's standard input.
    pub fn encode(&self) -> Vec<u8> {
        let plain = encode(self);
        let level = if plain.len() > DEFLATE_WELL_MAX { DEFLATE_FAST } else { DEFLATE_WELL };
        let body = miniz_oxide::deflate::compress_to_vec(&plain, level);
        let mut bytes = Vec::with_capacity(BOOTSTRAP_HEADER_LEN + body.len());
        bytes.extend_from_slice(&header(body.len() as u32));
        bytes.extend_from_slice(&body);
        bytes
    }

    /// The body behind a header.
    pub fn decode_body(body: &[u8]) -> Result<Bootstrap, PeerError> {
        let plain = miniz_oxide::inflate::decompress_to_vec_with_limit(body, BOOTSTRAP_LEN_MAX);
        decode(&plain.map_err(|_| PeerError::Malformed)?)
    }

    /// The length of the body that follows a header; 0: a probe.
    pub fn decode_header(header: &[u8; BOOTSTRAP_HEADER_LEN]) -> Result<usize, PeerError> {
        if header[..4] != BOOTSTRAP_MAGIC {
            return Err(PeerError::Magic);
        }
        let theirs = u16::from_le_bytes([header[4], header[5]]);
        if theirs != PROTOCOL_VERSION {
            return Err(PeerError::Version { theirs });
        }
        let length = u32::from_le_bytes([header[8], header[9], header[10], header[11]]);
        if length as usize > BOOTSTRAP_LEN_MAX {
            return Err(PeerError::TooLong(length));
        }
        Ok(length as usize)
    }
}
