//! The simulated drivers of the agents' state machines: a driver passes inputs, polls, and carries out outputs. The
//! module `lifecycle` starts and ends agents.

use crate::batch;
use crate::calls;
use crate::clock::Event;
use crate::costs::Costs;
use crate::cx::Cx;
use crate::hosts::Agents;
use crate::jobs::Jobs;
use crate::net::End;
use crate::report::short;
use crate::store_clients::PORT;
use crate::traffic::Recording;
use crate::world::World;
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use wireup_proto::PairMemory;
use wireup_proto::io::{Input, JobEvent, LinkId, Output};
use wireup_proto::memory::Content;
use wireup_proto::replay::Recorded;
use wireup_proto::{Agent, AgentConfig, Instant};
use wireup_wire::frame::{Class, Frame};
use wireup_wire::ids::JobId;
use wireup_wire::job::{JobSpec, PortRange};
use wireup_wire::peer::{Secret, Stack};
use wireup_wire::rank_address;
use wireup_wire::session::PortsPerNode;

/// Longest time during which a driver collects inputs before it polls the agent (ns).
const BATCH_NS_MAX: u64 = 30_000;

/// Largest value of `Ticks::restless`. A higher value means that the agent's state machine makes no progress.
const RESTLESS_MAX: u32 = 100;

/// One process of an agent. A world numbers them in the order in which they start; process 0 is the root.
pub struct AgentProcess {
    /// Number of the agent, which is also the number of its host.
    pub host: u32,
    /// Number of the process among those started on this host, from 1.
    pub start: u32,
    /// Incarnation of the agent, according to its bootstrap message.
    pub incarnation: u32,
    pub state: ProcessState,
    /// The shell call or step that started the process; `None`: the user has started it.
    pub starter: Option<Starter>,
    /// The address that the process dials to reach its parent.
    pub dials: Option<String>,
    /// Whether the link towards the root is lost: in a single run this agent exits, and its keeper ends the ranks here.
    pub is_cut_off: bool,
    /// Links of the process, by its own numbers for them.
    pub links: Vec<u32>,
    /// The link to its parent.
    pub up: Option<u32>,
    /// Whether the process listens, so that other agents can dial it.
    pub listens: bool,
    /// Inputs that have arrived since the process was stopped; `None`: the process is not stopped.
    stopped: Option<VecDeque<Input>>,
    ticks: Ticks,
    work: Work,
    turn_is_due: bool,
    /// Reserved ports of the jobs on this host: the first port and the number of ports.
    rank_ports: BTreeMap<JobId, (u16, u32)>,
}

/// The timer that calls an agent's state machine at its deadline.
#[derive(Default)]
struct Ticks {
    at: Option<Instant>,
    /// Number of ticks right after which the agent's deadline had passed again; each input other than a tick halves it.
    restless: u32,
}

/// The work of an agent in a world where work takes processor time.
#[derive(Default)]
struct Work {
    /// Inputs that have arrived and that the agent has not read yet.
    arrived: VecDeque<Input>,
    /// Whether an `AgentReads` or `AgentTurn` event is due: the agent is about to read inputs, or is handling them.
    is_busy: bool,
    /// Time at which the agent has finished sending all that it has queued so far.
    sent_at: Instant,
    /// Time at which the agent has finished starting all remote shells that it was asked to start so far.
    called_at: Instant,
    /// Bytes of pairs that the agent has written so far, and the most bytes that they have occupied at once.
    written_bytes: u64,
    peak_bytes: u64,
}

/// Ports that each agent of a session reserves for ranks. Chosen: few enough that concurrent jobs use up all ports.
pub const RANK_PORTS: PortsPerNode = PortsPerNode { count: 4, range: PortRange { low: 10_000, high: 20_000 } };

/// The starter of a process: a remote shell or a step, as an index into the list of shell calls or of steps.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Starter {
    Call(u32),
    Step(u32),
}

/// The state of an agent's process.
pub enum ProcessState {
    Running(Box<Agent>),
    /// The process exited by itself, without being killed.
    Left,
    Killed,
}

impl AgentProcess {
    pub fn new(host: u32, start: u32, incarnation: u32, machine: Agent) -> Self {
        AgentProcess {
            host,
            start,
            incarnation,
            state: ProcessState::Running(Box::new(machine)),
            starter: None,
            dials: None,
            is_cut_off: false,
            links: Vec::new(),
            up: None,
            listens: false,
            stopped: None,
            ticks: Ticks::default(),
            work: Work::default(),
            turn_is_due: false,
            rank_ports: BTreeMap::new(),
        }
    }

    /// The step that started the process; `None` if no step did.
    pub fn step(&self) -> Option<u32> {
        if let Some(Starter::Step(step)) = self.starter { Some(step) } else { None }
    }

    pub fn is_running(&self) -> bool {
        matches!(self.state, ProcessState::Running(_))
    }

    pub fn is_stopped(&self) -> bool {
        self.stopped.is_some()
    }

    /// Whether the process has handled all of its inputs and the driver has carried out all of its outputs.
    pub fn is_settled(&self) -> bool {
        !self.turn_is_due && !self.is_stopped()
    }

    /// Adds a link to the list of this process, which is process number `agent`; returns the process's end of the link.
    pub fn new_end(&mut self, agent: u32, link: u32) -> End {
        self.links.push(link);
        End::Agent(agent, LinkId(self.links.len() as u32 - 1))
    }

    /// Gives reserved ports to a job. An error if the ports are not reserved or not free, or if the job has ports
    /// already.
    fn take_rank_ports(&mut self, job: JobId, base: u16, count: u32) -> Result<(), String> {
        let (first, end) = (u32::from(base), u32::from(base) + count);
        let reserved = u32::from(RANK_PORTS.range.low);
        let meets = |(other, count): &(u16, u32)| first < u32::from(*other) + count && u32::from(*other) < end;
        let is_taken = self.rank_ports.contains_key(&job) || self.rank_ports.values().any(meets);
        if is_taken || first < reserved || end > reserved + u32::from(RANK_PORTS.count) {
            return Err(format!("job {job} gets the ports {first} to {end}, which are not free"));
        }
        self.rank_ports.insert(job, (base, count));
        Ok(())
    }

    /// The bytes of pairs that the agent has written since the last call, and the bytes by which its memory for pairs
    /// has grown.
    fn grow(&mut self) -> [usize; 2] {
        let ProcessState::Running(machine) = &self.state else { return [0; 2] };
        let sum = |of: fn(PairMemory) -> u64| machine.pair_memory().map(of).sum::<u64>();
        let (written, peak) = (sum(|memory| memory.written_bytes), sum(|memory| memory.peak_bytes));
        // The numbers of a job that has ended are gone.
        let Work { written_bytes, peak_bytes, .. } = &mut self.work;
        let grown = [written.saturating_sub(*written_bytes), peak.saturating_sub(*peak_bytes)];
        (*written_bytes, *peak_bytes) = (written, peak.max(*peak_bytes));
        grown.map(|bytes| bytes as usize)
    }

    /// Stops the process: it handles no inputs; inputs are queued.
    pub fn stop(&mut self) {
        self.stopped.get_or_insert_default();
    }
}

/// A job description that equals `spec`: the description that another agent has, or else `spec` itself, so that all
/// agents share one copy.
fn shared(specs: &mut BTreeMap<JobId, Arc<JobSpec>>, spec: &Arc<JobSpec>) -> Arc<JobSpec> {
    let known = specs.entry(spec.job).or_insert_with(|| spec.clone());
    if !Arc::ptr_eq(known, spec) && known != spec {
        known.clone_from(spec);
    }
    known.clone()
}

impl Agents {
    /// Starts an agent's process, with the jobs of its bootstrap message; returns its number.
    pub fn start(&mut self, cx: &mut Cx, config: AgentConfig, jobs: Vec<Arc<JobSpec>>) -> u32 {
        let host = config.agent.0;
        let now = cx.local_now(host);
        let is_first = self.hosts[host as usize].processes.is_empty();
        let mut recording = (cx.spec.record.contains(&host) && is_first).then(|| Recording::new(config.clone()));
        let incarnation = config.snapshot.place(config.agent).map_or(0, |place| place.incarnation);
        let mut machine = Agent::new(config);
        if cx.spec.is_standing {
            if let Some(recording) = &mut recording {
                recording.push(Recorded::Begin(now));
            }
            machine.begin(now);
        }
        for job in jobs {
            if let Some(recording) = &mut recording {
                recording.push(Recorded::Launch(now, Box::new(JobSpec::clone(&job))));
            }
            machine.launch(now, job);
        }
        self.recordings.extend(recording.map(|recording| (host, recording)));
        let agent = self.all.len() as u32;
        self.hosts[host as usize].processes.push(agent);
        let start = self.hosts[host as usize].processes.len() as u32;
        self.all.push(AgentProcess::new(host, start, incarnation, machine));
        cx.checks.copies_most = cx.checks.copies_most.max(self.running_at(host).len());
        agent
    }

    /// Gives an input to an agent. Returns true if the agent is polled at once, false if more inputs are collected
    /// first.
    pub fn handle(&mut self, cx: &mut Cx, agent: u32, input: Input) -> bool {
        let process = &mut self.all[agent as usize];
        let ProcessState::Running(machine) = &mut process.state else { return false };
        if let Some(stopped) = &mut process.stopped {
            stopped.push_back(input);
            return false;
        }
        let host = process.host;
        let now = cx.local_now(host);
        if let Some(recording) = self.recordings.get_mut(&host) {
            recording.push(Recorded::Input(now, input.clone()));
        }
        cx.digest.number(u64::from(host) ^ now.0 << 16);
        cx.digest.input(&input);
        if cx.spec.trace {
            eprintln!("  agent {host} <- {}", short(&input));
        }
        let was_tick = input == Input::Tick;
        machine.handle(now, input);
        machine.share_specs(|spec| shared(&mut self.specs, spec));
        let is_restless = was_tick && machine.deadline().is_some_and(|deadline| deadline <= now);
        let restless = &mut process.ticks.restless;
        *restless = if is_restless { *restless + 1 } else { *restless / 2 };
        if *restless > RESTLESS_MAX {
            cx.problem(format!("agent {host} requests ticks without making progress"));
            return false;
        }
        if process.turn_is_due {
            return false;
        }
        process.turn_is_due = cx.rng.chance(cx.spec.timing.batch_permille);
        if process.turn_is_due {
            let pause_ns = cx.rng.below(BATCH_NS_MAX);
            cx.clock.after(pause_ns, Event::AgentTurn(agent));
        }
        !process.turn_is_due
    }

    /// The next output of an agent.
    pub fn poll(&mut self, cx: &Cx, agent: u32) -> Option<Output> {
        let AgentProcess { host, state: ProcessState::Running(machine), .. } = &mut self.all[agent as usize] else {
            return None;
        };
        let (host, output) = (*host, machine.poll()?);
        if cx.spec.trace {
            eprintln!("  {} -> {}", self.name(agent), short(&output));
        }
        if let Some(recording) = self.recordings.get_mut(&host) {
            recording.report.on_output(&output);
        }
        Some(output)
    }

    /// Called when all outputs of an agent have been carried out.
    pub fn end_turn(&mut self, cx: &mut Cx, jobs: &Jobs, agent: u32) {
        let AgentProcess { host, ref state, .. } = self[agent];
        if let ProcessState::Running(machine) = state {
            let held_bytes = machine.held_output_bytes();
            let nodes = jobs.nodes_of(host, agent);
            let ranks = nodes.into_iter().map(|node| jobs.nodes[node as usize].ranks.len()).sum();
            let active = jobs.all.iter().filter(|job| !job.checks.has_ended).count().max(1);
            if let Err(problem) = cx.checks.bounds.on_held(held_bytes, cx.spec.fanout, active, ranks) {
                cx.problem(format!("{} {problem}", self.name(agent)));
            }
        }
        self.schedule_tick(cx, agent);
    }

    pub fn schedule_tick(&mut self, cx: &mut Cx, agent: u32) {
        let AgentProcess { host, state: ProcessState::Running(machine), ticks, turn_is_due, work, .. } =
            &mut self[agent]
        else {
            return;
        };
        // The driver asks for the deadline only when it has no other work.
        let is_idle = !*turn_is_due && !work.is_busy;
        let Some(deadline) = machine.deadline().filter(|_| is_idle) else { return };
        let deadline = Instant(deadline.0.saturating_sub(cx.clock_ahead_ns(*host)));
        if ticks.at.is_none_or(|at| deadline < at) {
            ticks.at = Some(deadline);
            cx.clock.at(deadline, Event::AgentTick(agent));
        }
    }

    /// Called for a tick. Returns whether the agent's deadline has passed; `None` if the agent is stopped or has ended.
    pub fn on_tick(&mut self, cx: &Cx, agent: u32) -> Option<bool> {
        let process = &mut self[agent];
        let is_stopped = process.is_stopped();
        let AgentProcess { host, state: ProcessState::Running(machine), ticks, .. } = process else { return None };
        if ticks.at.is_some_and(|at| at <= cx.clock.now()) {
            ticks.at = None;
        }
        let local_now = cx.local_now(*host);
        (!is_stopped).then(|| machine.deadline().is_some_and(|deadline| deadline <= local_now))
    }

    /// Queues an input until the agent has finished its current work.
    fn arrive(&mut self, cx: &mut Cx, agent: u32, input: Input) {
        let work = &mut self[agent].work;
        work.arrived.push_back(input);
        if !std::mem::replace(&mut work.is_busy, true) {
            cx.clock.at(work.sent_at, Event::AgentReads(agent));
        }
    }

    /// An agent reads all queued inputs; its outputs are carried out once the processor time for these inputs has
    /// passed.
    pub fn on_reads(&mut self, cx: &mut Cx, agent: u32) {
        let host = self[agent].host;
        let inputs = std::mem::take(&mut self[agent].work.arrived);
        let cold_ns = cx.begins_turn(host);
        let inputs_ns = cx.spec.timing.costs.map_or(0, |costs| costs.of_inputs(&inputs));
        for input in inputs {
            self.handle(cx, agent, input);
        }
        let [written, touched] = self[agent].grow();
        let of_pairs = |costs: &Costs| costs.of_bytes(written) + costs.of_touch(touched);
        let handled = cx.work(host, cx.clock.now(), |costs| cold_ns + inputs_ns + of_pairs(costs));
        cx.clock.at(handled, Event::AgentTurn(agent));
    }

    /// The time at which an agent has sent one more item, after all earlier ones. `ns`: processor time to send the
    /// item.
    fn sends(&mut self, cx: &mut Cx, agent: u32, ns: impl FnOnce(&Costs) -> u64) -> Instant {
        let AgentProcess { host, work, .. } = &mut self[agent];
        work.sent_at = cx.work(*host, work.sent_at.max(cx.clock.now()), ns);
        work.sent_at
    }

    /// The time at which an agent has started one more remote shell, after all shells that it started before.
    pub fn calls_shell(&mut self, cx: &mut Cx, agent: u32) -> Instant {
        let AgentProcess { host, work, .. } = &mut self[agent];
        work.called_at = cx.work(*host, work.called_at.max(cx.clock.now()), |costs| costs.call_ns);
        work.called_at
    }

    /// Called when an agent has handled the inputs that it had read: the agent reads again if more inputs have arrived.
    fn read_on(&mut self, cx: &mut Cx, agent: u32) {
        let work = &mut self[agent].work;
        work.is_busy = !work.arrived.is_empty();
        if work.is_busy {
            cx.clock.at(work.sent_at, Event::AgentReads(agent));
        }
    }

    /// An agent is killed, or its host loses power.
    pub fn kill(&mut self, cx: &Cx, agent: u32) {
        // Outputs that were not carried out are also part of the recording.
        while self.poll(cx, agent).is_some() {}
        self[agent].state = ProcessState::Killed;
    }
}

impl World {
    /// Gives an input to an agent, then polls it at once or after further inputs.
    pub(crate) fn tell_agent(&mut self, agent: u32, input: Input) {
        if self.cx.spec.timing.costs.is_some() {
            self.agents.arrive(&mut self.cx, agent, input);
        } else if self.agents.handle(&mut self.cx, agent, input) {
            self.on_agent_turn(agent);
        }
    }

    pub(crate) fn on_agent_turn(&mut self, agent: u32) {
        self.agents[agent].turn_is_due = false;
        if self.agents[agent].is_stopped() {
            return;
        }
        while let Some(output) = self.agents.poll(&self.cx, agent) {
            self.do_for_agent(agent, output);
        }
        if self.cx.spec.timing.costs.is_some() {
            self.agents.read_on(&mut self.cx, agent);
        }
        self.agents.end_turn(&mut self.cx, &self.jobs, agent);
    }

    /// A stopped agent continues and handles the inputs that have arrived in the meantime.
    pub(crate) fn on_continues(&mut self, agent: u32) {
        let waiting = self.agents[agent].stopped.take();
        waiting.into_iter().flatten().for_each(|input| self.tell_agent(agent, input));
        self.on_agent_turn(agent);
    }

    pub(crate) fn on_agent_tick(&mut self, agent: u32) {
        let Some(is_wanted) = self.agents.on_tick(&self.cx, agent) else { return };
        if is_wanted {
            self.tell_agent(agent, Input::Tick);
        }
        self.agents.schedule_tick(&mut self.cx, agent);
    }

    fn do_for_agent(&mut self, agent: u32, output: Output) {
        match output {
            Output::StartAgent { shell, agent: child, how, bootstrap, .. } => {
                let World { cx, agents, membership, jobs, .. } = self;
                let request = calls::Request { caller: agent, shell, agent: child, how, bootstrap };
                self.calls.call(cx, agents, membership, jobs, request);
            }
            Output::StartStep { shell, agents, how, bootstrap } => {
                let request = batch::Request { caller: agent, shell, agents, how, bootstrap: *bootstrap };
                let World { cx, agents, membership, jobs, .. } = self;
                self.batch.call(cx, agents, membership, jobs, request);
            }
            Output::StopShell { shell } => self.stop_shell(agent, shell),
            Output::Listen => self.cx.after(self.cx.spec.timing.report, Event::AgentListens(agent)),
            Output::Dial { agent: target, addresses, point } => {
                self.agents.dial(&mut self.cx, agent, target, addresses, point);
            }
            Output::Rejoin { root, rejoin } => {
                self.agents.rejoin(&mut self.cx, &mut self.membership, agent, root, rejoin);
            }
            Output::OpenTransport => self.cx.after(self.cx.spec.timing.spawn, Event::TransportOpened(agent)),
            Output::Send { link, frame } => self.send_from_agent(agent, link, frame),
            Output::CloseLink { link } => self.close_link(agent, link),
            Output::Exit => self.agent_leaves(agent),
            Output::Resize { .. } | Output::OfFamily { .. } | Output::MeetsFamily { .. } => {}
            Output::TakeStacks { job, processes } => {
                let ranks = processes.iter().map(|(rank, _)| *rank).collect();
                let stacks = vec![Stack { ranks, calls: Ok(vec!["main".into()]) }];
                self.tell_agent(agent, Input::Job { job, event: JobEvent::Stacks { stacks } });
            }
            Output::Spawn(plan) => {
                if let Some(node) = self.run_node(agent, plan.job) {
                    self.jobs.spawn(&mut self.cx, node, &plan);
                }
            }
            Output::ReserveRankPorts { range, .. } => {
                let host = self.agents[agent].host;
                let address = rank_address::encode(u64::from(host), range.low, &[]).into();
                self.tell_agent(agent, Input::RankPortsReserved { result: Ok(address) });
            }
            Output::RenewRankPorts { job } => {
                // The ports are released even if the job could not begin on this host.
                self.agents[agent].rank_ports.remove(&job);
                self.tell_agent(agent, Input::RankPortsRenewed { job });
            }
            Output::ListenForRanks { job, count, ports, base, .. } => {
                if let Some(node) = self.run_node(agent, job) {
                    assert!(count > 0 && ports.range.low <= ports.range.high);
                    match base {
                        Some(base) => {
                            if let Err(problem) = self.agents[agent].take_rank_ports(job, base, count) {
                                self.cx.problem(format!("{}: {problem}", self.agents.name(agent)));
                            }
                        }
                        None => self.jobs.checks_at(node).tells_endpoints = true,
                    }
                    let address = rank_address::encode(u64::from(node), base.unwrap_or(ports.range.low), &[]).into();
                    self.tell_agent(agent, Input::Job { job, event: JobEvent::RanksListen { result: Ok(address) } });
                }
            }
            Output::ReserveRendezvous { job, range, .. } => {
                let result = Ok(SocketAddr::from(([127, 0, 0, 1], range.low)));
                self.tell_agent(agent, Input::Job { job, event: JobEvent::RendezvousReserved { result } });
            }
            Output::ListenForStore { job, .. } => {
                self.tell_agent(agent, Input::Job { job, event: JobEvent::StoreListens { result: Ok(PORT) } });
            }
            Output::Relay { .. } => self.cx.problem("a relay that no simulated rank has asked for".into()),
            Output::TellSecret { job } => {
                self.tell_agent(
                    agent,
                    Input::Job { job, event: JobEvent::SecretOfRanks { secret: Secret([job.0 as u8; 32]) } },
                );
            }
            Output::StartPmix(plan) => {
                if let Some(node) = self.run_node(agent, plan.job) {
                    let Jobs { all, nodes, procs, .. } = &mut self.jobs;
                    let node = &mut nodes[node as usize];
                    node.start_server(&mut self.cx, &all[node.job as usize], procs, &plan);
                }
            }
            Output::Share { job, share, content } => {
                let Some(node) = self.run_node(agent, job) else { return };
                if !matches!(content, Content::Slots { .. }) {
                    self.agents.sends(&mut self.cx, agent, |costs| costs.of_touch(content.byte_len()));
                }
                let Jobs { nodes, contents, .. } = &mut self.jobs;
                if nodes[node as usize].memory.share(share, content, contents) {
                    self.tell_agent(agent, Input::Job { job, event: JobEvent::Shared { share, result: Ok(()) } });
                }
            }
            Output::PmixSend { job, .. }
            | Output::Signal { job, .. }
            | Output::Sweep { job }
            | Output::WriteSlot { job, .. }
            | Output::Unshare { job, .. }
            | Output::Reply { job, .. }
            | Output::Store { job, .. }
            | Output::CloseClient { job, .. }
            | Output::Write { job, .. }
            | Output::ReadStdio { job, .. }
            | Output::JobGone { job } => {
                let host = self.agents[agent].host;
                let node = self.jobs.node_at(host, job);
                let sent = match &output {
                    Output::Reply { .. } | Output::Store { .. } => {
                        self.agents.sends(&mut self.cx, agent, |costs| costs.frame_ns)
                    }
                    Output::WriteSlot { share, slot, array, .. } => {
                        let longest =
                            node.map_or(0, |node| self.jobs.nodes[node as usize].memory.slot_len(*share, *slot));
                        let new = array.byte_len().saturating_sub(longest);
                        self.agents.sends(&mut self.cx, agent, |costs| costs.of_touch(new))
                    }
                    _ => self.cx.clock.now(),
                };
                if let Some(node) = node.filter(|node| self.jobs.nodes[*node as usize].agent == Some(agent))
                    && let Err(problem) = self.jobs.do_for_agent(&mut self.cx, node, sent, output)
                {
                    self.cx.problem(format!("{} {problem}", self.agents.name(agent)));
                }
            }
        }
    }

    /// The part of a job on this host, which this agent process runs from now on; no other process runs it.
    fn run_node(&mut self, agent: u32, id: JobId) -> Option<u32> {
        let Some(node) = self.jobs.node_at(self.agents[agent].host, id) else {
            self.cx.problem(format!("{} runs job {id}, which has no ranks there", self.agents.name(agent)));
            return None;
        };
        let runner = *self.jobs.nodes[node as usize].agent.get_or_insert(agent);
        if runner != agent {
            self.cx.problem(format!("{} and {} both run job {id}", self.agents.name(runner), self.agents.name(agent)));
            return None;
        }
        Some(node)
    }

    fn send_from_agent(&mut self, agent: u32, link: LinkId, frame: Frame) {
        let Some(link) = self.agents[agent].links.get(link.0 as usize).copied() else {
            return self.cx.problem(format!("{} sends on a link that it never had", self.agents.name(agent)));
        };
        let from = self.net.end_of(link, agent);
        if let Err(problem) = self.cx.checks.bounds.on_send(link, from, &frame) {
            return self.cx.problem(problem);
        }
        if frame.class == Class::Exchange {
            let at_ns = self.launchers.elapsed_ns(&self.cx);
            self.cx.checks.on_exchange_frame(at_ns);
        }
        self.membership.on_sends(&mut self.cx, &self.net, &mut self.jobs, (agent, link), &frame);
        let bytes = frame.wire_len();
        let sent = self.agents.sends(&mut self.cx, agent, |costs| costs.of_frame(bytes));
        let ready = self.cx.leaves_card(self.agents[agent].host, sent, bytes);
        self.net.send(&mut self.cx.clock, link, from, frame, ready);
    }

    fn close_link(&mut self, agent: u32, link: LinkId) {
        if let Some(link) = self.agents[agent].links.get(link.0 as usize).copied() {
            let from = self.net.end_of(link, agent);
            if from == 0 && self.cx.spec.remote.is_some() && !self.net.is_direct(link) {
                // The agent refuses a child, and the output of the child's ranks is lost.
                self.jobs.expect_losses(&self.cx);
            }
            self.membership.on_closes(&self.net, agent, link);
            self.net.close(&mut self.cx.clock, link, from);
        }
    }
}
