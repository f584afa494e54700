//! The jobs of a world: the plan of each, its ranks, and its part on each node.

use crate::checkers::JobChecks;
use crate::configs::node_name;
use crate::fifo::Fifo;
use crate::memory::JobMemory;
use crate::ranks::{Phase, Proc};
use crate::rng::mix;
use crate::servers::Server;
use crate::spec::{ADDED, JobPlan};
use crate::world::World;
use wireup_proto::Instant;
use wireup_proto::io::Input;
use wireup_wire::ids::{AgentId, JobId, LocalRank};
use wireup_wire::job::{AppSpec, JobSpec, NodeSpec};

/// A job that was launched.
pub struct Job {
    pub id: JobId,
    /// The plan of the job as it was launched: without the nodes that were lost by then.
    pub plan: JobPlan,
    /// Seed of the values that the job's ranks contribute.
    pub seed: u64,
    /// Number of the job's launcher.
    pub launcher: u32,
    pub launched_at: Instant,
    /// Number of rank 0 among the ranks of all jobs, which the world numbers in sequence.
    pub first_proc: u32,
    /// Index of the job's first node in the world's list.
    pub first_node: u32,
    pub checks: JobChecks,
}

/// The part of a job on one node.
pub struct Node {
    /// Index of the job.
    pub job: u32,
    pub host: u32,
    /// The agent's process that runs this part, once there is one.
    pub agent: Option<u32>,
    /// Ranks of the part, by local rank; numbers as in `Job::first_proc`.
    pub ranks: Vec<u32>,
    pub keeper: Fifo<Input>,
    pub keeper_is_running: bool,
    /// The PMIx server of the ranks.
    pub server: Option<Server>,
    /// Whether the driver reads standard output and error.
    pub reading: [bool; 2],
    pub job_is_gone: bool,
    /// The memory that the agent shares with its ranks.
    pub memory: JobMemory,
}

impl Node {
    fn new(job: u32, host: u32) -> Self {
        Node {
            job,
            host,
            agent: None,
            ranks: Vec::new(),
            keeper: Fifo::default(),
            keeper_is_running: true,
            server: None,
            reading: [true; 2],
            job_is_gone: false,
            memory: JobMemory::default(),
        }
    }
}

impl Job {
    pub fn size(&self) -> u32 {
        self.plan.size()
    }

    /// The agent of a node of the job.
    pub fn agent_of(&self, node: u32) -> u32 {
        self.plan.nodes[node as usize]
    }

    /// The numbers of the job's ranks.
    pub fn procs(&self) -> std::ops::Range<u32> {
        self.first_proc..self.first_proc + self.size()
    }

    /// The indexes of the job's nodes.
    pub fn nodes(&self) -> std::ops::Range<u32> {
        self.first_node..self.first_node + self.plan.nodes.len() as u32
    }
}

/// The message that launches a job.
pub fn job_spec(id: JobId, plan: &JobPlan) -> JobSpec {
    let name = |node, agent: u32| if agent == ADDED { format!("added{node}") } else { node_name(node) };
    let node = |(at, agent): (u32, &u32)| NodeSpec { agent: AgentId(*agent), name: name(at, *agent), shared: true };
    let app = |(index, (ranks, _)): (usize, &(u32, _))| AppSpec {
        ranks: *ranks,
        argv: vec![format!("./app{index}").into_bytes()],
        cwd: b"/".to_vec(),
        env: Vec::new(),
    };
    JobSpec {
        job: id,
        nspace: format!("sim-{id}"),
        nodes: (0..).zip(&plan.nodes).map(node).collect(),
        blocks: plan.blocks.clone(),
        apps: plan.apps.iter().enumerate().map(app).collect(),
        env: vec![b"LANG=C".to_vec()],
        endpoints: Vec::new(),
        spawned: None,
        options: plan.options.clone(),
    }
}

impl World {
    /// Adds a job with its ranks and nodes; returns its index.
    pub(crate) fn add_job(&mut self, id: JobId, plan: JobPlan, launcher: u32) -> u32 {
        let index = self.jobs.len() as u32;
        let (first_proc, first_node) = (self.procs.len() as u32, self.nodes.len() as u32);
        for (node, host) in (first_node..).zip(&plan.nodes) {
            self.nodes.push(Node::new(index, *host));
            if *host != ADDED {
                self.hosts[*host as usize].nodes.push(node);
            }
        }
        for (rank, node) in (0..).zip(plan.placement()) {
            let locals = &mut self.nodes[(first_node + node) as usize].ranks;
            let (local, script) = (LocalRank(locals.len() as u16), plan.script_of(rank).clone());
            self.procs.push(Proc::new(rank, index, first_node + node, local, script));
            locals.push(first_proc + rank);
        }
        // The first job's seed is the world's.
        let seed = if index == 0 { self.spec.seed } else { mix(self.spec.seed ^ u64::from(index) << 32) };
        let checks = JobChecks::new(&plan, first_proc);
        let is_struck = plan.nodes.iter().any(|host| self.membership.is_struck(*host));
        let launched_at = self.clock.now();
        self.jobs.push(Job { id, plan, seed, launcher, launched_at, first_proc, first_node, checks });
        self.blame_servers(index);
        if is_struck {
            self.expect_losses_of(index);
        }
        index
    }

    /// The root has numbered the agents of the hosts that a job adds.
    pub(crate) fn number_added(&mut self, id: JobId, agents: &[AgentId]) {
        let Some(index) = self.jobs.iter().rposition(|job| job.id == id) else { return };
        let job = &mut self.jobs[index];
        let nodes = job.nodes();
        let added = nodes.zip(&mut job.plan.nodes).filter(|(_, agent)| **agent == ADDED);
        for ((node, at), AgentId(agent)) in added.zip(agents) {
            *at = *agent;
            self.nodes[node as usize].host = *agent;
            self.hosts[*agent as usize].nodes.push(node);
        }
        if agents.iter().any(|agent| self.membership.is_struck(agent.0)) {
            self.expect_losses_of(index as u32);
        }
    }

    /// The part of a job on the host of this agent.
    pub(crate) fn node_of(&self, agent: u32, id: JobId) -> Option<u32> {
        let host = self.agents[agent as usize].host;
        let is_its = |node: &&u32| self.jobs[self.nodes[**node as usize].job as usize].id == id;
        self.hosts[host as usize].nodes.iter().rev().find(is_its).copied()
    }

    /// The part of a job on the host of an agent that runs this part from now on; only one process does so.
    pub(crate) fn run_node(&mut self, agent: u32, id: JobId) -> Option<u32> {
        let Some(node) = self.node_of(agent, id) else {
            self.checks.problem(format!("{} runs job {id}, which has no ranks there", self.name(agent)));
            return None;
        };
        let runner = *self.nodes[node as usize].agent.get_or_insert(agent);
        if runner != agent {
            self.checks.problem(format!("{} and {} both run job {id}", self.name(runner), self.name(agent)));
            return None;
        }
        Some(node)
    }

    /// The parts of jobs that a process runs.
    pub(crate) fn nodes_of(&self, agent: u32) -> Vec<u32> {
        let host = self.agents[agent as usize].host;
        let runs = |node: &u32| self.nodes[*node as usize].agent == Some(agent);
        self.hosts[host as usize].nodes.iter().copied().filter(runs).collect()
    }

    pub(crate) fn plan_of(&self, proc: u32) -> &JobPlan {
        &self.job(proc).plan
    }

    /// The job of a rank.
    pub(crate) fn job(&self, proc: u32) -> &Job {
        &self.jobs[self.procs[proc as usize].job as usize]
    }

    pub(crate) fn checks_of(&mut self, proc: u32) -> &mut JobChecks {
        &mut self.jobs[self.procs[proc as usize].job as usize].checks
    }

    /// The host of a rank.
    pub(crate) fn host_of(&self, proc: u32) -> u32 {
        self.nodes[self.procs[proc as usize].node as usize].host
    }

    /// Tells the agent of a node something about the job there.
    pub(crate) fn tell_node(&mut self, node: u32, input: impl FnOnce(JobId) -> Input) {
        let Node { job, agent, .. } = self.nodes[node as usize];
        let id = self.jobs[job as usize].id;
        if let Some(agent) = agent {
            self.tell_agent(agent, input(id));
        }
    }

    pub(crate) fn running_rank(&self, node: u32) -> Option<u32> {
        let ranks = self.nodes[node as usize].ranks.iter().copied();
        ranks.into_iter().find(|proc| self.procs[*proc as usize].exists())
    }

    /// Whether ranks of a job run on this host.
    pub(crate) fn runs_ranks(&self, job: &Job, host: u32) -> bool {
        let nodes = job.nodes().filter(|node| self.nodes[*node as usize].host == host);
        nodes
            .flat_map(|node| &self.nodes[node as usize].ranks)
            .any(|proc| self.procs[*proc as usize].phase == Phase::Running)
    }

    /// The agent's processes and everything that it keeps for jobs end with it.
    pub(crate) fn nodes_end(&mut self, agent: u32) {
        for node in self.nodes_of(agent) {
            let at = &mut self.nodes[node as usize];
            at.memory.clear();
            at.server = None;
            for proc in at.ranks.clone() {
                self.procs[proc as usize].vanish();
            }
        }
    }
}
