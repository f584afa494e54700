//! The description of one world: its agents, its jobs, its timing, its faults.
//!
//! A run depends on this description and on nothing else.

use crate::clock::START;
use crate::costs::Costs;
use crate::fault_injection::{Fault, NoServer};
use crate::remote::Remote;
use crate::rng::Rng;
use crate::workload::{Script, Step};
use std::ops::Range;
use std::rc::Rc;
use wireup_wire::ids::AgentId;
use wireup_wire::job::{Block, JobOptions, StdinTarget, StdioOptions};
use wireup_wire::peer::AgentTransport;

/// Virtual time that a run may take beyond its last fault and all of its own time limits (ns).
const PATIENCE_NS: u64 = 120_000_000_000;

/// Everything that a run depends on.
#[derive(Clone, Debug)]
pub struct WorldSpec {
    pub seed: u64,
    /// Whether the session outlives its jobs. Otherwise the session ends with its only job, whose launcher is in the
    /// root's process.
    pub is_standing: bool,
    /// The agents of the session; agent 0 is the root.
    pub agents: u32,
    pub fanout: u32,
    pub transport: AgentTransport,
    /// The plans of the jobs; each job has its own launcher.
    pub jobs: Vec<JobPlan>,
    pub servers: ServerManners,
    pub start_timeout_ns: u64,
    /// Time without any bytes received after which a link is lost (ns).
    pub node_timeout_ns: u64,
    /// The hosts of the agents; `None`: all agents are processes of one machine.
    pub remote: Option<Remote>,
    pub timing: Timing,
    pub faults: Vec<Fault>,
    /// The agents whose inputs are recorded.
    pub record: Range<u32>,
    /// Whether every event, input and output is printed on standard error.
    pub trace: bool,
    /// Maximum number of events; a run with more events counts as a hang.
    pub event_max: u64,
}

/// Messages to which the simulated PMIx servers do not react.
#[derive(Clone, Copy, Default, Debug)]
pub struct ServerManners {
    /// Whether servers give no answer about a rank that ended without a commit.
    pub are_deaf: bool,
    /// Whether servers ignore the request to end.
    pub are_stubborn: bool,
}

/// Number that stands for the agent of a host that a job adds, until the root has numbered that agent.
pub const ADDED: u32 = AgentId::ADDED.0;

/// A job and its launcher.
#[derive(Clone, Debug)]
pub struct JobPlan {
    /// The agents of the job's nodes, in the order of the nodes; `ADDED`: the agent of a host that is added for the
    /// job.
    pub nodes: Vec<u32>,
    pub blocks: Vec<Block>,
    /// Programs in rank order, with the number of ranks that run each.
    pub apps: Vec<(u32, Rc<Script>)>,
    pub options: JobOptions,
    /// Bytes of the launcher's standard input, if it is relayed to ranks.
    pub stdin_bytes: u64,
    /// Ends of the parts of a staging job's standard input (bytes from its begin): each rank answers each part with a
    /// line, and the launcher sends the next part when all ranks have answered. Empty for other jobs.
    pub stage_parts: Vec<u64>,
    /// Index of the plan of the staging job that copies this job's program to the nodes.
    pub staged_by: Option<u32>,
    pub timeout_ns: Option<u64>,
    /// Time at which the job's launcher attaches to the session, counted from the start of the world or from the end of
    /// the staging job (ns); `wait_ns`: time from the root's welcome to the launch.
    pub at_ns: u64,
    pub wait_ns: u64,
    /// Time from the launch of the job until its launcher is killed (ns); `None`: the launcher is not killed.
    pub launcher_dies_ns: Option<u64>,
    /// Whether the launcher's terminal accepts any output.
    pub reads: bool,
}

/// A random delay, which is drawn anew each time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Delay {
    pub delay_ns_min: u64,
    pub delay_ns_max: u64,
}

impl Delay {
    pub const fn between(delay_ns_min: u64, delay_ns_max: u64) -> Self {
        Delay { delay_ns_min, delay_ns_max }
    }

    pub fn draw(self, rng: &mut Rng) -> u64 {
        rng.between(self.delay_ns_min, self.delay_ns_max)
    }
}

/// Durations, and the frequency of unusual behaviour.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Timing {
    /// One-way delay between two agents, or between ranks on two hosts.
    pub link: Delay,
    /// Number of bytes that a link transfers per microsecond.
    pub link_bytes_per_us: u64,
    /// How many frames of a thousand arrive split at random places, or joined to the previous frame.
    pub cut_permille: u32,
    /// After how many inputs of a thousand the driver collects more inputs before it polls the agent.
    pub batch_permille: u32,
    /// Time from `StartAgent` to a running agent. `handshake`: time from a running agent to an authenticated link, and
    /// from the dial of a rank to its connection with a rank on another host.
    pub agent_start: Delay,
    pub handshake: Delay,
    /// Time from the output `Spawn` to a running rank.
    pub spawn: Delay,
    /// Time from an event that a keeper or remote shell observes until the agent learns of the event.
    pub report: Delay,
    /// One-way delay between a rank and its agent, or between two ranks on one host.
    pub client: Delay,
    /// Time that a rank spends between two steps of its script.
    pub think: Delay,
    /// Time from a write into a pipe to the agent's read.
    pub stdio: Delay,
    /// Duration of a write to the terminal.
    pub terminal: Delay,
    /// The cost of each kind of work; `None`: work costs nothing.
    pub costs: Option<Costs>,
}

impl Default for Timing {
    /// The timing of a rack: links with a delay of 5 to 50 µs and 10 GB/s, ranks that start within 2 ms.
    fn default() -> Self {
        Timing {
            link: Delay::between(5_000, 50_000),
            link_bytes_per_us: 10_000,
            cut_permille: 20,
            batch_permille: 200,
            agent_start: Delay::between(1_000_000, 5_000_000),
            handshake: Delay::between(100_000, 500_000),
            spawn: Delay::between(100_000, 2_000_000),
            report: Delay::between(1_000, 100_000),
            client: Delay::between(1_000, 20_000),
            think: Delay::between(1_000, 50_000),
            stdio: Delay::between(1_000, 50_000),
            terminal: Delay::between(1_000, 100_000),
            costs: None,
        }
    }
}

impl WorldSpec {
    /// A single run of one job on `nodes` nodes with `ppn` ranks each, all running `script`.
    pub fn even(seed: u64, nodes: u32, ppn: u32, script: Script) -> Self {
        WorldSpec {
            seed,
            is_standing: false,
            agents: nodes,
            fanout: 16,
            transport: AgentTransport::Auto,
            jobs: vec![JobPlan::even(0..nodes, ppn, script)],
            servers: ServerManners::default(),
            start_timeout_ns: 10_000_000_000,
            node_timeout_ns: 2_000_000_000,
            remote: None,
            timing: Timing::default(),
            faults: Vec::new(),
            record: 0..0,
            trace: false,
            event_max: 20_000_000,
        }
    }

    /// Virtual time after which a single run counts as a hang (ns). In a session, leases and repeated attempts may take
    /// any amount of time: there, only the number of events is limited.
    pub fn patience_ns(&self) -> u64 {
        if self.is_standing {
            return u64::MAX - START.0;
        }
        let last_fault_ns = self.faults.iter().filter_map(|fault| fault.at_ns()).max().unwrap_or(0);
        let job = &self.jobs[0];
        let limits_ns = self.start_timeout_ns + job.options.kill_grace_ns + job.timeout_ns.unwrap_or(0);
        last_fault_ns + limits_ns + PATIENCE_NS
    }

    /// Number of the session's agents and of the hosts that jobs add.
    pub fn agents_max(&self) -> u32 {
        let added = self.jobs.iter().flat_map(|job| &job.nodes).filter(|agent| **agent == ADDED);
        self.agents + added.count() as u32
    }

    /// The error with which the program of a rank fails to start; `None`: the program starts.
    pub fn no_exec(&self, id: u32) -> Option<i32> {
        self.faults.iter().rev().find_map(|fault| match fault {
            Fault::NoExec { rank, errno } if *rank == id => Some(*errno),
            _ => None,
        })
    }

    /// How the PMIx servers of an agent fail; `None`: the servers do not fail.
    pub fn no_server(&self, host: u32) -> Option<NoServer> {
        self.faults.iter().rev().find_map(|fault| match fault {
            Fault::NoServer { agent, how } if *agent == host => Some(*how),
            _ => None,
        })
    }

    /// Whether the PMIx servers of an agent open another version of the library than the others.
    pub fn has_other_library(&self, agent: u32) -> bool {
        self.faults.contains(&Fault::OtherLibrary { agent })
    }

    /// Agents that may report that a PMIx server does not start or that the libraries of servers differ.
    pub fn blamed_for_servers(&self) -> Vec<u32> {
        let blamed = |fault: &Fault| match fault {
            Fault::NoServer { agent, .. } => *agent..agent + 1,
            Fault::OtherLibrary { .. } => 0..self.agents,
            _ => 0..0,
        };
        self.faults.iter().flat_map(blamed).collect()
    }

    /// Changes the first job of the world.
    pub fn job(mut self, change: impl FnOnce(&mut JobPlan)) -> Self {
        change(&mut self.jobs[0]);
        self
    }

    /// Changes the options of the first job of the world.
    pub fn options(self, change: impl FnOnce(&mut JobOptions)) -> Self {
        self.job(|job| change(&mut job.options))
    }
}

impl JobPlan {
    /// A job with `ppn` ranks on each of these nodes, all running `script`.
    pub fn even(nodes: impl IntoIterator<Item = u32>, ppn: u32, script: Script) -> Self {
        let nodes: Vec<u32> = nodes.into_iter().collect();
        let count = nodes.len() as u32;
        JobPlan {
            nodes,
            blocks: vec![Block { first_node: 0, nodes: count, ppn }],
            apps: vec![(count * ppn, Rc::new(script))],
            options: JobOptions {
                stdio: StdioOptions { line_buffered: true, ..StdioOptions::default() },
                kill_grace_ns: 500_000_000,
                ..JobOptions::default()
            },
            stdin_bytes: 0,
            stage_parts: Vec::new(),
            staged_by: None,
            timeout_ns: None,
            at_ns: 0,
            wait_ns: 0,
            launcher_dies_ns: None,
            reads: true,
        }
    }

    /// The job on its nodes that are not lost; `None` if all of its nodes are lost.
    pub fn without(&self, is_lost: impl Fn(u32) -> bool) -> Option<JobPlan> {
        let mut plan = self.clone();
        plan.nodes.retain(|agent| !is_lost(*agent));
        let count = plan.nodes.len() as u32;
        if count == self.nodes.len() as u32 {
            return Some(plan);
        }
        for block in &mut plan.blocks {
            block.nodes = block.nodes.min(count.saturating_sub(block.first_node));
        }
        plan.blocks.retain(|block| block.nodes > 0);
        let slots: u32 = plan.blocks.iter().map(|block| block.nodes * block.ppn).sum();
        let mut left = slots;
        for (ranks, _) in &mut plan.apps {
            *ranks = left.min(*ranks);
            left -= *ranks;
        }
        plan.apps.retain(|(ranks, _)| *ranks > 0);
        let size = plan.size();
        if let StdinTarget::One(rank) = &mut plan.options.stdio.stdin {
            rank.0 %= size.max(1);
        }
        (size > 0).then_some(plan)
    }

    /// Whether the job may run forever unless it is ended from outside.
    pub fn is_endless(&self) -> bool {
        !self.reads || self.apps.iter().any(|(_, script)| script.steps.contains(&Step::Hang))
    }

    pub fn size(&self) -> u32 {
        self.apps.iter().map(|(ranks, _)| ranks).sum()
    }

    /// The node of every rank, by the rule of `JobSpec::blocks`: blocks in order, repeated until all ranks are placed.
    pub fn placement(&self) -> Vec<u32> {
        let size = self.size() as usize;
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

    /// The script of a rank.
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

    /// Inserts steps before step `at` of the script of `rank`.
    pub fn insert(&mut self, rank: u32, at: usize, inserted: &[Step]) {
        let script = self.script_of(rank).clone();
        let mut steps = script.steps.to_vec();
        steps.splice(at..at, inserted.iter().copied());
        let changed = Rc::new(Script { steps: steps.into(), ..(*script).clone() });
        for (_, app) in &mut self.apps {
            if Rc::ptr_eq(app, &script) {
                *app = changed.clone();
            }
        }
    }
}
