//! The jobs of a world: the plan of each, its ranks, and its part on each node.

use crate::checkers::JobChecks;
use crate::checkers::modex::Call;
use crate::clock::Event;
use crate::clock::Fifo;
use crate::configs::node_name;
use crate::cx::Cx;
use crate::fault_injection::Culprit;
use crate::memory::{Contents, JobMemory};
use crate::rank_links::RankLinks;
use crate::ranks::{Phase, Proc};
use crate::rng::mix;
use crate::servers::Server;
use crate::spec::{ADDED, JobPlan};
use crate::staging::FileServer;
use crate::store_clients::on_store_act;
use crate::workload::{BarrierGroup, Who};
use wireup_proto::Instant;
use wireup_proto::io::{JobEvent, Output, SignalTarget};
use wireup_wire::ids::{AgentId, JobId, LocalRank};
use wireup_wire::job::{AppSpec, JobSpec, NodeSpec};

/// The jobs of a world, with the processes of their ranks.
pub struct Jobs {
    pub all: Vec<Job>,
    pub nodes: Vec<Node>,
    /// The ranks of all jobs, in the order of the jobs. The index of a rank in this list is called `id`.
    pub procs: Vec<Proc>,
    /// The parts of jobs on each host, as indexes into the list of `Node`, oldest first.
    by_host: Vec<Vec<u32>>,
    pub(crate) file_server: FileServer,
    /// The contents of the memory of all nodes.
    pub(crate) contents: Contents,
}

/// A job that was launched.
pub struct Job {
    pub id: JobId,
    /// The plan of the job as it was launched: without the nodes that were already lost at that time.
    pub plan: JobPlan,
    /// The node of each rank, as a position in `plan.nodes`.
    pub placement: Vec<u32>,
    /// Seed of the values that the job's ranks contribute.
    pub seed: u64,
    /// Number of the job's launcher in the world's list.
    pub launcher: u32,
    pub launched_at: Instant,
    /// Number of rank 0 among the ranks of all jobs.
    pub first_proc: u32,
    /// Index of the job's first `Node` in the list of the nodes of all jobs.
    pub first_node: u32,
    pub checks: JobChecks,
    /// The network that the ranks make among themselves; `None`: the ranks do not make a network.
    pub links: Option<Box<RankLinks>>,
}

/// The part of a job on one node.
#[derive(Default)]
pub struct Node {
    /// Index of this part in the world's list of parts.
    pub index: u32,
    /// Index of the job in the world's list.
    pub job: u32,
    pub host: u32,
    /// The agent process that runs this part of the job; `None`: no process does so yet.
    pub agent: Option<u32>,
    pub agent_has_ended: bool,
    /// Ranks of the part in the order of their local ranks, each as an index into `Jobs::procs`.
    pub ranks: Vec<u32>,
    pub keeper: Fifo<JobEvent>,
    pub keeper_is_running: bool,
    /// Time at which the keeper has finished forking the ranks that it was asked to start so far.
    pub forks_until: Instant,
    /// Time at which the node has the program; `None`: no rank has begun.
    pub loaded_at: Option<Instant>,
    /// The PMIx server of the ranks; `None`: there is none.
    pub server: Option<Server>,
    /// Whether the agent's driver reads standard output, and whether it reads standard error.
    pub reading: [bool; 2],
    pub job_is_gone: bool,
    /// The memory that the agent shares with its ranks.
    pub memory: JobMemory,
}

impl Node {
    fn new(index: u32, job: u32, host: u32) -> Self {
        Node { index, job, host, keeper_is_running: true, reading: [true; 2], ..Node::default() }
    }

    /// Whether the agent's driver currently reads this stream of the ranks (1 or 2).
    pub fn reads(&self, stream: u8) -> bool {
        self.reading[usize::from(stream) - 1] && self.agent.is_some() && !self.agent_has_ended
    }

    pub fn has_running_server(&self) -> bool {
        self.server.as_ref().is_some_and(|server| server.is_running)
    }

    pub fn keeper_says(&mut self, cx: &mut Cx, event: JobEvent) {
        let delay_ns = cx.draw(cx.spec.timing.report);
        if self.keeper_is_running {
            self.keeper.push(&mut cx.clock, delay_ns, event, Event::KeeperReport(self.index));
        }
    }

    /// The agent sends a signal to ranks, or to their server.
    pub fn signal(&mut self, cx: &mut Cx, target: SignalTarget, signal: i32) {
        let ranks = match target {
            SignalTarget::All => &self.ranks[..],
            SignalTarget::One(local) => self.ranks.get(local.index()..=local.index()).unwrap_or_default(),
            SignalTarget::Server => return self.stop_server(cx),
        };
        for id in ranks {
            cx.after(cx.spec.timing.report, Event::Signal(*id, signal as u8));
        }
    }
}

impl Job {
    pub fn size(&self) -> u32 {
        self.plan.size()
    }

    /// The agent of a node of the job; `node` is a position in `plan.nodes`.
    pub fn agent_of(&self, node: u32) -> u32 {
        self.plan.nodes[node as usize]
    }

    /// Allows output of the job to be lost from now on.
    pub fn expect_losses(&mut self, cx: &mut Cx) {
        self.checks.output.expect_losses();
        cx.checks.bounds.ignore(self.id);
    }

    /// The numbers of the job's ranks among the ranks of all jobs.
    pub fn procs(&self) -> std::ops::Range<u32> {
        self.first_proc..self.first_proc + self.size()
    }

    /// The indexes of the job's parts (`Node`) in the list of all jobs.
    pub fn nodes(&self) -> std::ops::Range<u32> {
        self.first_node..self.first_node + self.plan.nodes.len() as u32
    }
}

/// The description of a job that its launcher sends to the root.
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

impl Jobs {
    pub fn new(hosts: u32) -> Self {
        Jobs {
            all: Vec::new(),
            nodes: Vec::new(),
            procs: Vec::new(),
            by_host: vec![Vec::new(); hosts as usize],
            file_server: FileServer::default(),
            contents: Contents::default(),
        }
    }

    /// Adds a job with its ranks and nodes; returns its index.
    pub fn add(&mut self, cx: &Cx, id: JobId, plan: JobPlan, launcher: u32) -> u32 {
        let index = self.all.len() as u32;
        let (first_proc, first_node) = (self.procs.len() as u32, self.nodes.len() as u32);
        for (node, host) in (first_node..).zip(&plan.nodes) {
            self.nodes.push(Node::new(node, index, *host));
            if *host != ADDED {
                self.by_host[*host as usize].push(node);
            }
        }
        let placement = plan.placement();
        for (rank, node) in (0..).zip(&placement) {
            let node = &mut self.nodes[(first_node + node) as usize];
            let (local, script) = (LocalRank(node.ranks.len() as u16), plan.script_of(rank).clone());
            self.procs.push(Proc::new((first_proc + rank, rank), index, node, local, script));
            node.ranks.push(first_proc + rank);
        }
        // The first job's seed is the world's.
        let seed = if index == 0 { cx.spec.seed } else { mix(cx.spec.seed ^ u64::from(index) << 32) };
        let mut checks = JobChecks::new(&plan, first_proc);
        cx.spec.blamed_for_servers().into_iter().for_each(|host| checks.blame(Culprit::Agent(host), false));
        let launched_at = cx.clock.now();
        let links = None;
        self.all.push(Job { id, plan, placement, seed, launcher, launched_at, first_proc, first_node, checks, links });
        index
    }

    /// The root has assigned numbers to the agents of the hosts that a job adds.
    pub fn number_added(&mut self, job: u32, agents: &[AgentId]) {
        let job = &mut self.all[job as usize];
        let nodes = job.nodes();
        let added = nodes.zip(&mut job.plan.nodes).filter(|(_, agent)| **agent == ADDED);
        for ((node, at), AgentId(agent)) in added.zip(agents) {
            *at = *agent;
            self.nodes[node as usize].host = *agent;
            self.by_host[*agent as usize].push(node);
        }
    }

    /// The part of the job `id` on a host.
    pub fn node_at(&self, host: u32, id: JobId) -> Option<u32> {
        let is_its = |node: &&u32| self.job_at(**node).id == id;
        self.by_host[host as usize].iter().rev().find(is_its).copied()
    }

    /// The parts of jobs that an agent process on a host runs.
    pub fn nodes_of(&self, host: u32, agent: u32) -> Vec<u32> {
        let runs = |node: &u32| self.nodes[*node as usize].agent == Some(agent);
        self.by_host[host as usize].iter().copied().filter(runs).collect()
    }

    /// A rank, with its job and the part of the job on its node.
    pub fn rank_at(&mut self, id: u32) -> (&mut Proc, &mut Job, &mut Node) {
        let proc = &mut self.procs[id as usize];
        let (job, node) = (proc.job, proc.node);
        (proc, &mut self.all[job as usize], &mut self.nodes[node as usize])
    }

    /// The job of a node.
    pub fn job_at(&self, node: u32) -> &Job {
        &self.all[self.nodes[node as usize].job as usize]
    }

    pub fn checks_at(&mut self, node: u32) -> &mut JobChecks {
        &mut self.all[self.nodes[node as usize].job as usize].checks
    }

    /// The jobs that have not ended.
    pub fn active(&mut self) -> impl Iterator<Item = &mut Job> {
        self.all.iter_mut().filter(|job| !job.checks.has_ended)
    }

    pub fn running_rank(&self, node: u32) -> Option<u32> {
        let ranks = self.nodes[node as usize].ranks.iter().map(|id| &self.procs[*id as usize]);
        ranks.into_iter().find(|proc| proc.exists()).map(|proc| proc.rank)
    }

    /// Whether ranks of a job run on this host.
    pub fn runs_ranks(&self, job: &Job, host: u32) -> bool {
        let nodes = job.nodes().filter(|node| self.nodes[*node as usize].host == host);
        nodes
            .flat_map(|node| &self.nodes[node as usize].ranks)
            .any(|proc| self.procs[*proc as usize].phase == Phase::Running)
    }

    /// Whether ranks are placed on this host.
    pub fn has_ranks(&self, host: u32) -> bool {
        self.by_host[host as usize].iter().any(|node| !self.nodes[*node as usize].ranks.is_empty())
    }

    /// An agent process ends, and with it its ranks, their PMIx servers and their shared memory.
    pub fn agent_ends(&mut self, host: u32, agent: u32) {
        for node in self.nodes_of(host, agent) {
            let at = &mut self.nodes[node as usize];
            at.agent_has_ended = true;
            at.memory.clear();
            at.server = None;
            for proc in &at.ranks {
                self.procs[*proc as usize].vanish();
            }
        }
    }

    pub fn blame_rank(&mut self, id: u32, must: bool) {
        let (proc, job, _) = self.rank_at(id);
        proc.blame(job, must);
    }

    /// Allows failures to name any of these agents or their ranks. A job with ranks on their hosts can only fail now.
    pub fn blame_agents(&mut self, hosts: &[u32]) {
        for index in 0..self.all.len() {
            let job = &self.all[index];
            if !job.checks.has_ended {
                let must = hosts.iter().any(|host| self.runs_ranks(job, *host));
                let checks = &mut self.all[index].checks;
                hosts.iter().for_each(|host| checks.blame(Culprit::Agent(*host), must));
            }
        }
    }

    /// Allows output of all jobs to be lost from now on.
    pub fn expect_losses(&mut self, cx: &Cx) {
        if !cx.spec.is_standing {
            self.all.iter_mut().for_each(|job| job.checks.output.expect_losses());
        }
    }

    /// Carries out an agent's output for the part of a job on a node. `sent`: the time at which the agent has sent its
    /// answers. An error says what the agent did wrong.
    pub fn do_for_agent(&mut self, cx: &mut Cx, node: u32, sent: Instant, output: Output) -> Result<(), String> {
        let at = &mut self.nodes[node as usize];
        match output {
            Output::PmixSend { bytes, .. } => at.send_to_server(cx, bytes),
            Output::Signal { target, signal, .. } => at.signal(cx, target, signal),
            Output::Sweep { .. } => self.expect_end(node, "sweeps")?,
            Output::WriteSlot { share, slot, array, .. } => {
                at.memory.write(share, slot, self.contents.of_array(array))?;
            }
            Output::Unshare { share, .. } => at.memory.unshare(share)?,
            Output::Reply { client, bytes, shares, .. } => {
                let shares = at.memory.for_reply(&shares)?;
                self.reply(cx, (node, sent), client.local, bytes, shares);
            }
            Output::Store { client, act, .. } => on_store_act(self, cx, (node, sent), client, act)?,
            Output::CloseClient { client, .. } => {
                let id = at.ranks[client.local.index()];
                self.procs[id as usize].socket.close_agents_end(cx, id);
            }
            Output::Write { local, bytes, .. } => {
                let id = at.ranks[local.index()];
                self.procs[id as usize].stdin.write(cx, bytes);
            }
            Output::ReadStdio { stream, on, .. } => self.read_stdio(cx, node, stream, on),
            Output::JobGone { .. } => {
                at.memory.clear();
                if std::mem::replace(&mut at.job_is_gone, true) {
                    return Err("calls the job gone twice".into());
                }
                self.expect_end(node, "calls the job gone")?;
                self.nodes[node as usize].server = None;
            }
            _ => unreachable!("an output that does not concern a node of a job"),
        }
        Ok(())
    }

    /// Checks that neither ranks of the job nor their server run on a node whose agent performs an action named `does`.
    fn expect_end(&self, node: u32, does: &str) -> Result<(), String> {
        let at = &self.nodes[node as usize];
        if let Some(rank) = self.running_rank(node) {
            return Err(format!("{does} while rank {rank} runs"));
        }
        if at.has_running_server() && at.keeper_is_running {
            return Err(format!("{does} while its server runs"));
        }
        Ok(())
    }
}

/// A group as one of its members sees it.
pub struct Group {
    /// The members and the tag as text, in the order of this member's request.
    pub text: String,
    /// Name of the group, unique among all groups.
    pub name: String,
    pub members: Vec<u32>,
}

impl Job {
    /// The call of a rank for this group: a fence of PMIx clients, or a PMIx group if there is a `tag`.
    pub fn call(&self, rank: u32, who: Who, tag: Option<u8>, collect: bool) -> Call {
        let members = match who {
            Who::World => None,
            _ => Some(self.group(rank, BarrierGroup { who, tag: 0 }).members),
        };
        let members = members.filter(|members| members.len() < self.size() as usize);
        let group = tag.map(|tag| format!("group-{tag}"));
        let kind = group.as_deref().unwrap_or(if collect { "modex" } else { "fence" });
        let name = members.as_ref().map_or(kind.to_owned(), |members| format!("{kind} of {members:?}"));
        Call { name, members, collect, group }
    }

    pub fn group(&self, rank: u32, BarrierGroup { who, tag }: BarrierGroup) -> Group {
        let node = self.placement[rank as usize];
        let is_member = |other: &u32| match who {
            Who::World => true,
            Who::Node => self.placement[*other as usize] == node,
            Who::Alike(modulo) => other % u32::from(modulo) == rank % u32::from(modulo),
        };
        let members: Vec<u32> = (0..self.size()).filter(is_member).collect();
        let (text, place) = match who {
            Who::World => (format!("WORLD:{tag}"), String::new()),
            Who::Node => (format!("NODE:{tag}"), format!(" on {}", self.agent_of(node))),
            Who::Alike(_) => {
                // The order of the members in the text depends on the caller.
                let text = format!("{}:{tag}", rotated(&members, rank).join(","));
                return Group { text, name: format!("{members:?}:{tag}"), members };
            }
        };
        Group { name: format!("{text}{place}"), text, members }
    }
}

/// The members, beginning with the caller.
fn rotated(members: &[u32], caller: u32) -> Vec<String> {
    let place = members.iter().position(|member| *member == caller).unwrap_or(0);
    members[place..].iter().chain(&members[..place]).map(u32::to_string).collect()
}
