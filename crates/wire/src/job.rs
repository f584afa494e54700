//! The description of one job: everything that a node needs to start its share of the ranks.
//!
//! Its size is O(nodes + programs), never O(ranks): placement is a list of [`Block`]s, from which each
//! node derives its own ranks.

pub use crate::collective::ExchangeScheme;
use crate::ids::{AgentId, JobId, Rank};
use alloc::string::String;
use alloc::vec::Vec;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// Assigns `ppn` consecutive ranks to each of `nodes` consecutive nodes from `first_node` on: one triple of
/// `PMI_process_mapping`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Block {
    pub first_node: u32,
    pub nodes: u32,
    pub ppn: u32,
}

impl Block {
    /// Number of ranks that the block places when the list of blocks is applied once.
    pub fn ranks(&self) -> u64 {
        u64::from(self.nodes) * u64::from(self.ppn)
    }

    /// The number of the node after the last one of the block.
    pub fn end_node(&self) -> u64 {
        u64::from(self.first_node) + u64::from(self.nodes)
    }
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct JobSpec {
    pub job: JobId,
    /// The job's name (PMIx: nspace), which is also the name of its PMI kvs.
    pub nspace: String,
    /// Node list; a node's position is its `NodeId`.
    pub nodes: Vec<NodeSpec>,
    /// Placement: blocks, applied in order until all ranks are placed.
    pub blocks: Vec<Block>,
    /// Programs in rank order: the first `apps[0].ranks` ranks run `apps[0]`, and so on. Never empty.
    pub apps: Vec<AppSpec>,
    /// Environment of every rank, `NAME=VALUE`, before the per-program and per-rank variables.
    pub env: Vec<Vec<u8>>,
    /// For each node the address of its first rank's listening socket (`rank_address`), on ports that the session has
    /// reserved; filled in by the root. Empty: each agent finds ports and sends them to the others.
    pub endpoints: Vec<Bytes>,
    /// Set if a rank of another job has requested this job.
    pub spawned: Option<Spawned>,
    pub options: JobOptions,
}

/// What a job receives from the rank that has requested it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Spawned {
    /// The job, launched by the user, from which this job descends. Its ranks and those of all its descendants may
    /// communicate.
    pub family: JobId,
    /// The job whose rank has requested this one, and that job's name.
    pub by: JobId,
    pub nspace: String,
    pub rank: Rank,
    /// Pairs that are in the job's kvs before its first rank runs, encoded as the kvs stores them.
    pub preput: Vec<(Bytes, Bytes)>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NodeSpec {
    pub agent: AgentId,
    /// Host name as the user wrote it, `node3` for a virtual node.
    pub name: String,
    /// Whether this is a virtual node, which shares its machine with other nodes, so that its ranks are not bound.
    pub shared: bool,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AppSpec {
    pub ranks: u32,
    /// Program and arguments; never empty.
    pub argv: Vec<Vec<u8>>,
    pub cwd: Vec<u8>,
    /// Variables of this program alone, `NAME=VALUE`; they override the job's.
    pub env: Vec<Vec<u8>>,
}

/// Which ranks read the launcher's standard input.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum StdinTarget {
    #[default]
    None,
    All,
    One(Rank),
    /// All ranks read it, through memory that each shares with its agent. Only for wireup's own programs: their
    /// standard input is a socket.
    AllByMemory,
}

impl StdinTarget {
    pub fn is_all(self) -> bool {
        matches!(self, StdinTarget::All | StdinTarget::AllByMemory)
    }
}

/// The CPUs on which a rank's threads may run.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum BindTo {
    /// The node's cores, divided evenly among its ranks, if each rank gets at least two; otherwise a NUMA domain for
    /// each rank. Ranks are not bound if the node has only one domain, if there are more ranks than CPUs, or if several
    /// virtual nodes share the machine.
    #[default]
    Even,
    None,
    /// `count` objects for each rank, in turn.
    To {
        object: Object,
        count: u32,
    },
    /// The CPUs of each local rank, in the format `0-3,8`; if there are more ranks, the list is used again from its
    /// start.
    Lists(Vec<String>),
}

/// A part of a node's processors.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Object {
    Thread,
    Core,
    /// All hardware threads that share an L1 cache; for `L2` and `L3`, an L2 or L3 cache.
    L1,
    L2,
    L3,
    Numa,
    Socket,
    Machine,
}

/// How the ranks of a node are bound.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Binding {
    pub to: BindTo,
    /// The objects to which ranks are assigned in turn, before each rank is bound within its object.
    pub over: Option<Over>,
    /// Only these CPUs of each node are used, in the format `0-3,8`.
    pub cpus: Option<String>,
    /// The entry of each rank of the job in the user's rank file: `0-1`, `socket:cores` or `*`. Empty: there is no
    /// file.
    pub slots: Vec<String>,
}

impl Binding {
    pub const NONE: Binding = Binding { to: BindTo::None, over: None, cpus: None, slots: Vec::new() };

    /// The binding for these ranks of the job only; `slots` then has their entries, in their order.
    pub fn of_ranks(&self, ranks: impl Iterator<Item = Rank>) -> Binding {
        let slot = |rank: Rank| self.slots.get(rank.index()).cloned().unwrap_or_default();
        let slots = if self.slots.is_empty() { Vec::new() } else { ranks.map(slot).collect() };
        Binding { slots, to: self.to.clone(), over: self.over, cpus: self.cpus.clone() }
    }
}

/// The objects to which ranks are assigned before they are bound.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Over {
    pub object: Object,
    /// Each `step`-th object is used first.
    pub step: u32,
    /// Number of consecutive ranks that go to one object; 0: each object gets an equal number of consecutive ranks.
    pub ranks: u32,
}

/// The process-management interface offered to the ranks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum PmiFlavour {
    /// `PMI_FD`: PMI-1 or PMI-2, as the client requests on the wire.
    #[default]
    Simple,
    /// A PMIx server on each node.
    Pmix,
    /// Both: for programs whose interface is unknown.
    Both,
    None,
}

impl PmiFlavour {
    /// Whether ranks get a socket for PMI-1 or PMI-2.
    pub fn has_simple(self) -> bool {
        matches!(self, PmiFlavour::Simple | PmiFlavour::Both)
    }

    /// Whether nodes with ranks get a PMIx server.
    pub fn has_pmix(self) -> bool {
        matches!(self, PmiFlavour::Pmix | PmiFlavour::Both)
    }
}

/// When the data that PMIx clients commit is sent to other nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum Modex {
    /// With the fence that collects it, if all data of the fence is small; otherwise as for `Direct`.
    #[default]
    Auto,
    /// With the fence that collects it (S3: full modex).
    Full,
    /// When a rank first requests it (S3: direct modex).
    Direct,
}

/// Whether the links for the first exchange are made while ranks are still starting.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum EarlyWireup {
    /// Early, if it is known which links the first exchange uses.
    #[default]
    Auto,
    /// The links are made early even if the tree may suffice; in that case, the links of the logarithmic allgather.
    Yes,
    No,
}

/// When a fence of an unmodified PMI-1 or PMI-2 client is answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum PmiFence {
    /// When all ranks have entered.
    #[default]
    Strict,
    /// Immediately, if the rank has put something since its last fence: its later gets wait (S1 IV-E, note).
    Lazy,
}

/// Which PMI-1 version the server offers its clients.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum PmiVersion {
    /// The version that the client requests.
    #[default]
    Asked,
    /// 1.1: each barrier includes all ranks.
    Plain,
    /// 1.2: barriers may also include only a group of ranks.
    Groups,
}

/// The kind of file that a rank's standard output is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum RankStdout {
    #[default]
    Pipe,
    /// A pseudo-terminal in raw mode. A C program writes each line to a terminal at once, so that a line is not lost if
    /// the rank is killed; into a pipe it writes whole blocks.
    Pty,
}

/// The user's options, as given by the flags. The defaults: no input, no grace period, no report.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct JobOptions {
    pub pmi: PmiOptions,
    pub exchange: ExchangeOptions,
    pub stdio: StdioOptions,
    pub process: ProcessOptions,
    pub binding: Binding,
    /// Nodes report how they have bound their ranks.
    pub report_bindings: bool,
    /// Collect time stamps of all phases.
    pub profile: bool,
    /// Time between the graceful and the forced termination of ranks (ns).
    pub kill_grace_ns: u64,
    /// If a fence takes longer than this (ns), report the ranks that have not entered; 0: only on request.
    pub stall_report_ns: u64,
}

/// The services that ranks are offered through PMI and PMIx.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct PmiOptions {
    pub flavour: PmiFlavour,
    pub fence: PmiFence,
    pub version: PmiVersion,
    pub modex: Modex,
    /// The PMIx library to open on each node; tried before the usual locations.
    pub pmix_library: Option<String>,
    /// How many ranks could run at once, those of this job included, if there is a limit.
    pub universe_size: Option<u32>,
    /// Kinds of memory that the user requests of the MPI library (MPI-4.1, 12.4.3); MPICH asks for them.
    pub memory_alloc_kinds: Option<String>,
}

/// How nodes exchange the data of fences and allgathers.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ExchangeOptions {
    pub scheme: ExchangeScheme,
    pub early_wireup: EarlyWireup,
    /// A node's part of an exchange is compressed from this size on, if that makes it smaller (bytes); 0: never.
    pub compress_bytes_min: u32,
}

/// The ranks' standard input, output and error.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct StdioOptions {
    pub stdin: StdinTarget,
    /// Whether the rank that reads standard input may inherit the launcher's descriptor if it runs on the root's node.
    pub stdin_inherit: bool,
    pub stdout: RankStdout,
    /// The rank that gets a pseudo-terminal, and the terminal's size (rows, columns).
    pub pty: Option<PtySpec>,
    /// Prefix each line with `[rank] `.
    pub label: bool,
    /// Show only complete lines.
    pub line_buffered: bool,
    /// Keep the output of different ranks separate in transit (`--output-dir`).
    pub split_output: bool,
}

/// Settings of the environment, the limits, the sockets and the files with which the process of each rank starts.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ProcessOptions {
    /// Set the variables `RANK`, `WORLD_SIZE`, `LOCAL_RANK`, `LOCAL_WORLD_SIZE`, `MASTER_ADDR` and `MASTER_PORT` in the
    /// environment of each rank.
    pub rank_env: bool,
    /// Set the variables of this framework's launcher in the environment of each rank.
    pub framework: Option<Framework>,
    /// Ports for the rendezvous of a framework, on the node of rank 0.
    pub rendezvous_range: PortRange,
    /// Set the variables of Open MPI's and MVAPICH2's launchers in the environment of each rank, for scripts that read
    /// them: `OMPI_COMM_WORLD_RANK`, `MV2_COMM_WORLD_RANK` and so on.
    pub launcher_env: bool,
    pub umask: u32,
    /// Soft resource limits of the ranks, taken from the launcher; a node applies them as far as its hard limits allow.
    pub limits: Vec<Limit>,
    /// Each rank gets a socket on a port of its own before it starts; all ranks know the ports of the others.
    pub rank_ports: Option<RankPorts>,
    /// Number of GPUs for each rank, out of those that its node offers; 0: GPUs are not assigned.
    pub gpus_per_rank: u32,
    /// Copies of files, staged to the nodes, that the ranks see in place of the originals.
    pub staged: Option<Staged>,
    /// Paths of files that each node reads into its page cache, in this order, while the ranks start.
    pub prefetch: Vec<Vec<u8>>,
    pub preload: Option<Preload>,
}

/// Python modules that one interpreter on each node imports before the ranks are forked from it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Preload {
    /// Names of modules; none: those that earlier runs of the program have imported, as recorded on the node.
    pub modules: Vec<String>,
    /// Time limit of the imports (ns); when it has passed, the ranks start without the imported modules.
    pub limit_ns: u64,
    /// Whether the job fails if its ranks cannot be forked from the importer.
    pub required: bool,
    /// Whether the job's own command requests the imports. If only the session does, the ranks of a program that is not
    /// Python start without a message about it.
    pub asked: bool,
    /// Whether the session imports these modules for its jobs: each node then keeps the importer for the next job.
    pub keep: bool,
}

/// An AI framework, by its launcher.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Framework {
    /// PyTorch: `torchrun`.
    Torch,
    /// PyTorch, for programs that open stores of their own next to that of `MASTER_ADDR` and `MASTER_PORT`: these name
    /// an address that all nodes reach, and the three ports that follow are free.
    TorchRoutable,
    /// JAX: `jax.distributed.initialize()` without arguments.
    Jax,
    DeepSpeed,
}

/// A set of files that were copied to each node, and that its ranks see instead of the originals.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Staged {
    /// The digest of the set's manifest.
    pub set: [u8; 32],
    /// The folder in which nodes keep staged files; empty: each node chooses one in its memory file system.
    pub store: Vec<u8>,
    /// Whether a rank that cannot see the staged files is not started. If not, the ranks of its node use the originals.
    pub required: bool,
    /// Whether a library in each process shows the staged files where nothing may be mounted.
    pub by_library: bool,
    /// Ancestor folders of staged files that have no other entries. A node with the same folders need not list them.
    pub bare: Vec<BareFolder>,
}

/// A folder that the launcher has listed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct BareFolder {
    pub path: Vec<u8>,
    /// The name of the folder on its server: the path may lead elsewhere on another node.
    pub name: Vec<u8>,
    /// The folder's permission bits.
    pub mode: u32,
}

/// The sockets that ranks get before they start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RankPorts {
    pub range: PortRange,
    /// Whether these sockets listen. If not, they only reserve the ports for sockets that the ranks open later.
    pub listen: bool,
}

/// TCP ports, both ends included.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct PortRange {
    pub low: u16,
    pub high: u16,
}

/// A soft resource limit (`setrlimit`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Limit {
    pub resource: Resource,
    /// The soft limit; `u64::MAX`: unlimited.
    pub soft: u64,
}

/// The resource limits that are sent with a job. Limits that count all processes of the user together are not included.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum Resource {
    Nofile,
    /// Size of a core file (bytes).
    Core,
    /// Size of the stack (bytes).
    Stack,
    /// Locked memory (bytes): RDMA libraries need a lot.
    Memlock,
    /// Size of the data segment (bytes).
    Data,
    /// Address space (bytes).
    As,
    /// Size of a written file (bytes).
    Fsize,
    /// CPU time (seconds).
    Cpu,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PtySpec {
    pub rank: Rank,
    pub rows: u16,
    pub columns: u16,
}

impl ProcessOptions {
    /// Whether the job's agents serve PyTorch's store.
    pub fn has_store(&self) -> bool {
        self.framework == Some(Framework::Torch)
    }
}

impl JobSpec {
    /// The job's number, which messages show with its ranks; `None`: the user has launched this job.
    pub fn shown_number(&self) -> Option<JobId> {
        self.spawned.as_ref().map(|_| self.job)
    }

    pub fn job_size(&self) -> u32 {
        self.apps.iter().map(|app| app.ranks).sum()
    }
}
