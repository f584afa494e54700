//! The description of one job: what every node needs to start its share of the ranks.
//!
//! Its size is O(nodes + programs), never O(ranks): placement is a list of [`Block`]s, from which each
//! node derives its own ranks.

pub use crate::collective::ExchangeScheme;
use crate::ids::{AgentId, JobId, NodeId, Rank};
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// `nodes` consecutive nodes from `first_node` on get `ppn` consecutive ranks each: one triple of
/// `PMI_process_mapping`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Block {
    pub first_node: u32,
    pub nodes: u32,
    pub ppn: u32,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct JobSpec {
    pub job: JobId,
    /// The job's name on the wire; PMI's kvs name.
    pub nspace: String,
    /// Node list; a node's position is its `NodeId`.
    pub nodes: Vec<NodeSpec>,
    /// Placement, applied in order until all ranks are placed.
    pub blocks: Vec<Block>,
    /// Programs in rank order: the first `apps[0].ranks` ranks run `apps[0]`, and so on. Never empty.
    pub apps: Vec<AppSpec>,
    /// Environment of every rank, `NAME=VALUE`, before the per-program and per-rank variables.
    pub env: Vec<Vec<u8>>,
    pub options: JobOptions,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NodeSpec {
    pub agent: AgentId,
    /// Host name as the user wrote it, `node3` for a virtual node.
    pub name: String,
    /// Virtual nodes share their machine: their ranks are not bound.
    pub shared: bool,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AppSpec {
    pub ranks: u32,
    /// Program and arguments; never empty.
    pub argv: Vec<Vec<u8>>,
    pub cwd: Vec<u8>,
    /// Variables of this program alone, `NAME=VALUE`; they win over the job's.
    pub env: Vec<Vec<u8>>,
}

/// Who reads the launcher's standard input.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum StdinTarget {
    #[default]
    None,
    All,
    One(Rank),
}

/// Where a rank's threads may run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum BindTo {
    /// The node's allowed cpus divided evenly among its ranks; not bound when there are more ranks than cpus
    /// or when several virtual nodes share the machine.
    #[default]
    Even,
    None,
    /// One core (all its hardware threads) a rank, in turn.
    Core,
    /// One hardware thread a rank, in turn.
    Thread,
    /// One socket a rank, in turn.
    Socket,
}

/// Which process-management interface the ranks are offered.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum PmiFlavour {
    /// `PMI_FD`: PMI-1 or PMI-2, as the client asks on the wire.
    #[default]
    Simple,
    /// A PMIx server on each node.
    Pmix,
    /// Both: for programs that nobody has looked into.
    Both,
    None,
}

impl PmiFlavour {
    /// Ranks get a socket for PMI-1 or PMI-2.
    pub fn has_simple(self) -> bool {
        matches!(self, PmiFlavour::Simple | PmiFlavour::Both)
    }

    /// Nodes with ranks get a PMIx server.
    pub fn has_pmix(self) -> bool {
        matches!(self, PmiFlavour::Pmix | PmiFlavour::Both)
    }
}

/// When what PMIx clients commit reaches other nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum Modex {
    /// With the fence that collects it while that is little, else as for `Direct`.
    #[default]
    Auto,
    /// With the fence that collects it (S3: full modex).
    Full,
    /// When a rank first asks for it (S3: direct modex).
    Direct,
}

/// Whether the links that the first exchange needs are made while ranks still start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum EarlyWireup {
    /// Where it is known which these are.
    #[default]
    Auto,
    /// Also where the tree may do: those of the logarithmic allgather.
    Yes,
    No,
}

/// When a fence of an unmodified PMI-1 or PMI-2 client is answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum PmiFence {
    /// When all ranks have entered.
    #[default]
    Strict,
    /// At once, if the rank has put something since its last one: what it gets later waits (S1 IV-E, note).
    Lazy,
}

/// Which PMI-1 its clients are answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum PmiVersion {
    /// The one that they ask for.
    #[default]
    Asked,
    /// 1.1: barriers are of all ranks.
    Plain,
    /// 1.2: barriers of groups too.
    Groups,
}

/// What a user asks for, as the flags say it. By default nothing: no input, no grace, no report.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct JobOptions {
    pub pmi: PmiFlavour,
    pub bind_to: BindTo,
    pub stdin: StdinTarget,
    /// Prefix each line with `[rank] `.
    pub label: bool,
    /// Never show a part of a line before its end is there.
    pub line_buffered: bool,
    /// Keep output apart by rank on its way (`--output-dir`).
    pub split_output: bool,
    /// The rank that gets a pseudo-terminal, with the terminal's size (rows, columns).
    pub pty: Option<PtySpec>,
    /// Also set `RANK`, `WORLD_SIZE`, `LOCAL_RANK`, `LOCAL_WORLD_SIZE`.
    pub rank_env: bool,
    /// Collect time stamps of all phases.
    pub profile: bool,
    pub umask: u32,
    /// Soft resource limits of the ranks, as the launcher was started with; a node gives as much as its hard limits allow.
    pub limits: Vec<Limit>,
    /// Between the gentle and the forced end of ranks (ns).
    pub kill_grace_ns: u64,
    /// A fence that waits longer names who has not arrived (ns); 0: only when asked.
    pub stall_report_ns: u64,
    /// How nodes exchange what fences and allgathers bring.
    pub exchange: ExchangeScheme,
    pub early_wireup: EarlyWireup,
    /// A node's part of an exchange is compressed from so many bytes on, if that makes it smaller; 0: never.
    pub exchange_compress: u32,
    pub pmi_fence: PmiFence,
    pub pmi_version: PmiVersion,
    pub modex: Modex,
    /// The PMIx library to open on each node, before the usual places are tried.
    pub pmix_library: Option<String>,
    /// The launcher's standard input may be handed to its rank as it is, if that rank is on the root's node.
    pub stdin_inherit: bool,
    /// GPUs for each rank, of those that its node offers; 0: they are not divided.
    pub gpus_per_rank: u32,
    /// What the agents measure among themselves before the ranks start.
    pub bench: Option<AgentBench>,
}

/// A micro-benchmark inside the agents (S3, backup slides 1 and 2): messages between two of them, or allgathers among all.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AgentBench {
    pub task: BenchTask,
    /// Sizes, and how often each is measured; ascending.
    pub steps: Vec<BenchStep>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum BenchTask {
    /// Messages there and back between the agents of two nodes.
    PingPong { first: NodeId, second: NodeId },
    /// Allgathers among the agents of all nodes, by the job's exchange scheme.
    Allgather,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct BenchStep {
    /// Of a message, or of a node's part.
    pub bytes: u32,
    pub iterations: u32,
}

/// A soft resource limit (`setrlimit`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Limit {
    pub resource: Resource,
    /// `u64::MAX`: none.
    pub soft: u64,
}

/// The limits that travel with a job. Not among them: those that count processes or time for the user as a whole.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum Resource {
    /// Open files.
    Nofile,
    /// Size of a core file (bytes).
    Core,
    /// Size of the stack (bytes).
    Stack,
    /// Locked memory (bytes): RDMA libraries need much.
    Memlock,
    /// Size of the data segment (bytes).
    Data,
    /// Address space (bytes).
    As,
    /// Size of a file that is written (bytes).
    Fsize,
    /// Processor time (seconds).
    Cpu,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PtySpec {
    pub rank: Rank,
    pub rows: u16,
    pub columns: u16,
}

impl JobSpec {
    /// How many ranks (P).
    pub fn job_size(&self) -> u32 {
        self.apps.iter().map(|app| app.ranks).sum()
    }
}
