//! The description of one world: its size, its timing, its programs, its faults.
//!
//! A run is a function of this and nothing else.

use crate::faults::Fault;
use crate::remote::Remote;
use crate::rng::Rng;
use crate::workload::Script;
use std::rc::Rc;
use wireup_wire::job::{Block, EarlyWireup, ExchangeScheme, Modex, PmiFence, PmiFlavour, PmiVersion, StdinTarget};
use wireup_wire::peer::AgentTransport;

/// Everything that a run depends on.
#[derive(Clone, Debug)]
pub struct WorldSpec {
    pub seed: u64,
    /// Nodes of the job.
    pub nodes: u32,
    /// Whether the root agent is a node of the job; otherwise it is above all nodes.
    pub root_is_node: bool,
    pub fanout: u32,
    pub blocks: Vec<Block>,
    /// Programs in rank order, with the number of ranks that run each.
    pub apps: Vec<(u32, Rc<Script>)>,
    pub stdin: StdinTarget,
    /// Bytes of the launcher's standard input, if it is relayed.
    pub stdin_bytes: u64,
    pub label: bool,
    pub line_buffered: bool,
    pub split_output: bool,
    pub profile: bool,
    pub stall_report_ns: u64,
    pub exchange: ExchangeScheme,
    pub early_wireup: EarlyWireup,
    pub transport: AgentTransport,
    pub exchange_compress: u32,
    pub pmi_fence: PmiFence,
    pub pmi_version: PmiVersion,
    pub pmi: PmiFlavour,
    pub modex: Modex,
    /// PMIx servers that do not answer about a rank that ended without a commit; PMIx servers that ignore the request to end.
    pub deaf_servers: bool,
    pub stubborn_servers: bool,
    pub timeout_ns: Option<u64>,
    pub kill_grace_ns: u64,
    pub start_timeout_ns: u64,
    /// A link that is silent for this long is lost.
    pub node_timeout_ns: u64,
    /// Agents are on separate hosts; otherwise all are processes of one machine.
    pub remote: Option<Remote>,
    pub timing: Timing,
    pub faults: Vec<Fault>,
    /// Record the inputs of this agent.
    pub record: Option<u32>,
    /// Print every event, input and output on standard error.
    pub trace: bool,
    /// A run of more events than this counts as a hang.
    pub event_max: u64,
}

/// A delay that is drawn anew each time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Delay {
    pub delay_ns_min: u64,
    pub delay_ns_max: u64,
}

impl Delay {
    pub const fn of(delay_ns_min: u64, delay_ns_max: u64) -> Self {
        Delay { delay_ns_min, delay_ns_max }
    }

    pub fn draw(self, rng: &mut Rng) -> u64 {
        rng.between(self.delay_ns_min, self.delay_ns_max)
    }
}

/// Durations, and the frequency of unusual behaviour.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Timing {
    /// One way between two agents.
    pub link: Delay,
    /// Bytes that a link transfers in a microsecond.
    pub link_bytes_per_us: u64,
    /// Frames of a thousand that arrive split at random places, or joined to the previous one.
    pub cut_permille: u32,
    /// Inputs of a thousand after which the driver collects more before it polls the agent.
    pub batch_permille: u32,
    /// From `StartAgent` to a running agent, and from there to an authenticated link.
    pub agent_start: Delay,
    pub handshake: Delay,
    /// From `Spawn` to a running rank.
    pub spawn: Delay,
    /// From an observation of a keeper or remote shell until the agent learns of it.
    pub report: Delay,
    /// One way between a rank and its agent.
    pub client: Delay,
    /// The time of a rank between two steps.
    pub think: Delay,
    /// From a write into a pipe to the agent's read.
    pub stdio: Delay,
    /// A write to the terminal.
    pub terminal: Delay,
}

impl Default for Timing {
    /// A rack: links of 5 to 50 µs and 10 GB/s, ranks that start within 2 ms.
    fn default() -> Self {
        Timing {
            link: Delay::of(5_000, 50_000),
            link_bytes_per_us: 10_000,
            cut_permille: 20,
            batch_permille: 200,
            agent_start: Delay::of(1_000_000, 5_000_000),
            handshake: Delay::of(100_000, 500_000),
            spawn: Delay::of(100_000, 2_000_000),
            report: Delay::of(1_000, 100_000),
            client: Delay::of(1_000, 20_000),
            think: Delay::of(1_000, 50_000),
            stdio: Delay::of(1_000, 50_000),
            terminal: Delay::of(1_000, 100_000),
        }
    }
}

impl WorldSpec {
    /// `nodes` nodes with `ppn` ranks each, all running `script`.
    pub fn even(seed: u64, nodes: u32, ppn: u32, script: Script) -> Self {
        WorldSpec {
            seed,
            nodes,
            root_is_node: true,
            fanout: 16,
            blocks: vec![Block { first_node: 0, nodes, ppn }],
            apps: vec![(nodes * ppn, Rc::new(script))],
            stdin: StdinTarget::None,
            stdin_bytes: 0,
            label: false,
            line_buffered: true,
            split_output: false,
            profile: false,
            stall_report_ns: 0,
            exchange: ExchangeScheme::Auto,
            early_wireup: EarlyWireup::Auto,
            transport: AgentTransport::Auto,
            exchange_compress: 0,
            pmi_fence: PmiFence::Strict,
            pmi_version: PmiVersion::Asked,
            pmi: PmiFlavour::Simple,
            modex: Modex::Auto,
            deaf_servers: false,
            stubborn_servers: false,
            timeout_ns: None,
            kill_grace_ns: 500_000_000,
            start_timeout_ns: 10_000_000_000,
            node_timeout_ns: 2_000_000_000,
            remote: None,
            timing: Timing::default(),
            faults: Vec::new(),
            record: None,
            trace: false,
            event_max: 20_000_000,
        }
    }

    pub fn job_size(&self) -> u32 {
        self.apps.iter().map(|(ranks, _)| ranks).sum()
    }

    /// The number of agents of the session: one per node, and the root if it is not a node.
    pub fn agent_count(&self) -> u32 {
        self.nodes + u32::from(!self.root_is_node)
    }

    /// The agent of a node.
    pub fn agent_of(&self, node: u32) -> u32 {
        node + u32::from(!self.root_is_node)
    }

    /// The node of every rank, by the rule of `JobSpec::blocks`: blocks in order, repeated until all ranks are placed.
    pub fn placement(&self) -> Vec<u32> {
        let size = self.job_size() as usize;
        let round = self.blocks.iter().flat_map(|block| {
            (block.first_node..block.first_node + block.nodes).flat_map(|node| (0..block.ppn).map(move |_| node))
        });
        let mut nodes: Vec<u32> = round.take(size).collect();
        assert!(!nodes.is_empty() || size == 0, "blocks place at least one rank");
        let round_size = nodes.len();
        for rank in round_size..size {
            nodes.push(nodes[rank - round_size]);
        }
        nodes
    }

    /// The program of a rank.
    pub fn script_of(&self, rank: u32) -> &Rc<Script> {
        let mut first = 0;
        for (ranks, script) in &self.apps {
            first += ranks;
            if rank < first {
                return script;
            }
        }
        panic!("the job has no rank {rank}")
    }
}
