//! One world: a session with its hosts, agents, launchers and jobs, and the main loop.
//!
//! A run of one job is a session that ends with this job; the job's launcher is in the root's process. A part of the
//! world owns its state. It affects other parts only through events on the clock, or through what a method returns to
//! the world.

use crate::batch::{Batch, on_task_reads};
use crate::calls::Calls;
use crate::checkers::ending::who_waits;
use crate::checkers::idle::{QUIET_NS, check_quiet};
use crate::checkers::idle::{check_idle, check_nodes};
use crate::checkers::missing::blamed_hosts;
use crate::clock::{Event, START};
use crate::configs;
use crate::cx::{Cx, Pending};
use crate::fault_injection::Culprit;
use crate::fault_injection::inject::inject_fault;
use crate::hosts::Agents;
use crate::jobs::{Jobs, Node};
use crate::launchers::{Launchers, Role};
use crate::membership::Membership;
use crate::net::{Arrival, End, Net};
use crate::phases::{Point, Progress};
use crate::rank_links::on_network;
use crate::report::RunReport;
use crate::spec::{JobPlan, WorldSpec};
use crate::store_clients::{on_store_arrive, on_store_reply};
use wireup_proto::io::{Input, JobEvent, LinkId, Peer};
use wireup_proto::launcher_io::LauncherInput;
use wireup_wire::ids::JobId;

/// A world and everything in it.
pub struct World {
    pub(crate) cx: Cx,
    pub(crate) net: Net,
    pub(crate) agents: Agents,
    pub(crate) membership: Membership,
    pub(crate) calls: Calls,
    pub(crate) batch: Batch,
    pub(crate) launchers: Launchers,
    pub(crate) jobs: Jobs,
}

/// Number of events between two calls of the watcher of a run.
const WATCH_EVENTS: u64 = 1 << 16;

/// Runs a world to its end. A session that outlives its jobs is ended when its clock has no further events.
pub fn run(spec: WorldSpec) -> RunReport {
    run_watched(spec, |_| true)
}

/// Like [`run`]; `watch` regularly receives the progress of the run, and ends the run by returning `false`.
pub fn run_watched(spec: WorldSpec, mut watch: impl FnMut(Progress) -> bool) -> RunReport {
    let mut world = World::new(spec);
    world.begin();
    world.go_on(&mut watch);
    if world.cx.spec.is_standing && !world.cx.checks.is_broken() && !world.cx.checks.is_stopped {
        let (problems, holds) = check_idle(&world);
        world.cx.checks.holds = holds;
        problems.into_iter().for_each(|problem| world.cx.problem(problem));
        world.membership.on_ending();
        world.attach(Role::EndSession);
        world.go_on(&mut watch);
    }
    RunReport::new(world)
}

impl World {
    fn new(spec: WorldSpec) -> Self {
        World {
            net: Net::new(spec.seed, spec.timing.clone()),
            agents: Agents::new(&spec),
            membership: Membership::default(),
            calls: Calls::default(),
            batch: Batch::default(),
            launchers: Launchers::default(),
            jobs: Jobs::new(spec.agents_max()),
            cx: Cx::new(spec),
        }
    }

    fn begin(&mut self) {
        self.start_agent(configs::root(&self.cx.spec, self.cx.local_now(0)), Vec::new());
        if self.cx.spec.is_standing {
            let jobs = (0..).zip(&self.cx.spec.jobs);
            for (plan, job) in jobs.filter(|(_, job)| job.staged_by.is_none()) {
                self.cx.clock.at(START + job.at_ns, Event::LauncherAttaches(plan));
            }
        } else {
            self.attach(Role::Job(0));
            self.launch(0, JobId(1), self.cx.spec.jobs[0].clone());
            for (agent, must) in blamed_hosts(&self.cx.spec, &self.jobs) {
                self.jobs.all[0].checks.blame(Culprit::Agent(agent), must);
            }
        }
        for (index, fault) in (0..).zip(&self.cx.spec.faults) {
            if let Some(at_ns) = fault.at_ns() {
                self.cx.clock.at(START + at_ns, Event::Fault(index));
            }
        }
        self.cx.clock.after(0, Event::AgentTurn(0));
        if !self.cx.spec.is_standing {
            self.cx.clock.after(0, Event::LauncherTurn(0));
        }
    }

    /// A launcher starts and connects to the root.
    pub(crate) fn attach(&mut self, role: Role) {
        self.launchers.attach(&mut self.cx, &mut self.net, &mut self.agents[0], role);
    }

    fn launch(&mut self, launcher: u32, id: JobId, plan: JobPlan) {
        if let Some(after_ns) = plan.launcher_dies_ns {
            self.cx.clock.after(after_ns, Event::LauncherDies(launcher));
        }
        let is_struck = plan.nodes.iter().any(|host| self.membership.is_struck(*host));
        let job = self.jobs.add(&self.cx, id, plan, launcher);
        if is_struck {
            self.jobs.all[job as usize].expect_losses(&mut self.cx);
        }
        self.launchers.begin_job(&self.cx, &self.jobs, launcher, job);
    }

    fn on_launches(&mut self, launcher: u32) {
        match self.launchers.on_launches(&self.cx, launcher) {
            Some((id, Some(plan))) => {
                self.launch(launcher, id, plan);
                let input = LauncherInput::LinkUp { link: LinkId(0) };
                self.launchers.tell(&mut self.cx, &mut self.net, &mut self.jobs, launcher, input);
            }
            Some((_, None)) => self.launchers.leave(&mut self.cx, &mut self.net, &mut self.jobs, launcher, 0),
            None => {}
        }
    }

    /// Carries out events until there are none left.
    fn go_on(&mut self, watch: &mut dyn FnMut(Progress) -> bool) {
        let patience = START + self.cx.spec.patience_ns();
        loop {
            if self.cx.clock.pause_ns() >= QUIET_NS {
                match check_quiet(self) {
                    Ok(is_quiet) => self.cx.checks.quiet += u32::from(is_quiet),
                    Err(problem) => self.cx.problem(problem),
                }
            }
            let Some(event) = self.cx.clock.next() else { break };
            if self.cx.clock.now() > patience || self.cx.clock.happened() > self.cx.spec.event_max {
                let waits = who_waits(self);
                self.cx.problem(format!("no end after {} events: {waits}", self.cx.clock.happened()));
                break;
            }
            if self.cx.clock.happened().is_multiple_of(WATCH_EVENTS) && !watch(self.cx.progress()) {
                self.cx.checks.is_stopped = true;
                break;
            }
            if self.cx.spec.trace {
                eprintln!("{} {event:?}", self.cx.clock.now() - START);
            }
            self.on_event(event);
            self.membership.check_links(&mut self.cx, &self.agents, &self.net);
            if self.cx.checks.is_broken() {
                break;
            }
        }
    }

    fn on_later(&mut self, index: u32) {
        let World { cx, net, agents, membership, .. } = self;
        let Some(pending) = cx.pending[index as usize].take() else { return };
        let agent = pending.agent();
        if !agents[agent].is_running() {
            return;
        }
        let input = match pending {
            Pending::Hears { input, .. } => Some(input),
            Pending::GivesUp { .. } => return self.kill_agent(agent),
            Pending::Dials { target, address, .. } => agents.on_dials(cx, net, agent, target, address),
            Pending::Rejoins { root, rejoin, .. } => agents.on_rejoins(cx, net, membership, agent, (root, rejoin)),
        };
        if let Some(input) = input {
            self.tell_agent(agent, input);
        }
    }

    fn on_event(&mut self, event: Event) {
        let World { cx, net, agents, calls, batch, launchers, jobs, .. } = self;
        match event {
            Event::Call(call) => {
                let outcome = calls.on_call(cx, agents, call);
                self.on_call_outcome(call, outcome);
            }
            Event::ShellGone(call) => {
                let outcome = calls.on_shell_gone(cx, agents, jobs, call);
                self.on_call_outcome(call, outcome);
            }
            Event::CallEnded(call) => {
                let outcome = calls.on_ended(call);
                self.on_call_outcome(call, outcome);
            }
            Event::Task(step, agent) => self.on_task(step, agent),
            Event::StepSays(step) => {
                if let Some(input) = batch.on_says(cx, agents, step) {
                    self.tell_agent(0, input);
                }
            }
            Event::TaskReads(agent, at) => on_task_reads(cx, agents, agent, at),
            Event::TaskWaited(agent) => {
                let dies = batch.on_task_waited(cx, agents, agent);
                self.kill_agents(dies.then_some(agent));
            }
            Event::StepKilled(step) => {
                let dying = batch.on_killed(cx, agents, step);
                self.kill_agents(dying);
            }
            Event::AgentLink(agent) => self.on_agent_link(agent),
            Event::TransportOpened(agent) => {
                let input = agents.on_transport_opened(cx, agent);
                self.tell_agent(agent, input);
            }
            Event::AgentListens(agent) => self.on_agent_listens(agent),
            Event::AgentReads(agent) => self.agents.on_reads(&mut self.cx, agent),
            Event::AgentTurn(agent) => self.on_agent_turn(agent),
            Event::AgentTick(agent) => self.on_agent_tick(agent),
            Event::AgentContinues(agent) => self.on_continues(agent),
            Event::Later(index) => self.on_later(index),
            Event::KeeperReport(node) => self.on_keeper_report(node),
            Event::LinkFree(link, lane) => net.on_free(&mut cx.clock, link, usize::from(lane)),
            Event::LinkArrive(link, lane) => self.on_link_arrive(link, usize::from(lane)),
            Event::LinkSilent(link, lane) => net.on_silent(&mut cx.clock, link, usize::from(lane)),
            Event::LauncherAttaches(plan) => self.attach(Role::Job(plan)),
            Event::LauncherLaunches(launcher) => self.on_launches(launcher),
            Event::LauncherDies(launcher) => launchers.on_dies(cx, net, jobs, launcher),
            Event::LauncherTurn(launcher) => launchers.on_turn(cx, net, jobs, launcher),
            Event::LauncherTick(launcher) => launchers.on_tick(cx, net, jobs, launcher),
            Event::LauncherWritten(launcher) => launchers.on_written(cx, net, jobs, launcher),
            Event::LauncherStdin(launcher) => launchers.on_stdin(cx, net, jobs, launcher),
            Event::TerminalResumes(launcher) => launchers.on_terminal_resumes(cx, launcher),
            Event::RankStep(id) => jobs.on_rank_step(cx, id),
            Event::ClientArrive(id) => self.on_client_arrive(id),
            Event::ReplyArrive(id) => jobs.on_reply_arrive(cx, id),
            Event::StoreArrive(id) => {
                let (proc, _, node) = self.jobs.rank_at(id);
                let (event, node) = (on_store_arrive(proc, node), node.index);
                self.tell_node(node, event);
            }
            Event::StoreReply(id) => on_store_reply(jobs, cx, id),
            Event::StdioRead(id, stream) => self.on_stdio_read(id, stream),
            Event::StdinMove(id) => {
                let (proc, _, node) = self.jobs.rank_at(id);
                let (event, node) = (proc.on_stdin_move(&mut self.cx, node), node.index);
                self.tell_node(node, event);
            }
            Event::Signal(id, signal) => jobs.on_signal(cx, id, i32::from(signal)),
            Event::ServerBegins(node) => jobs.nodes[node as usize].on_server_begins(cx),
            Event::ServerSpeaks(node) => self.on_server_speaks(node),
            Event::ServerHears(node) => jobs.on_server_hears(cx, node),
            Event::Network(job, event) => on_network(cx, jobs, job, event),
            Event::Fault(index) => inject_fault(self, self.cx.spec.faults[index as usize]),
        }
    }

    fn on_link_arrive(&mut self, at: u32, lane: usize) {
        let Some(arrival) = self.net.on_arrive(at, lane) else { return };
        match self.net.ends(at)[1 - lane] {
            End::Launcher(launcher) => {
                self.launchers.hear(&mut self.cx, &mut self.net, &mut self.jobs, launcher, arrival);
                if let Some(nodes) = self.launchers.nodes.take() {
                    let (problems, counts) = check_nodes(self, &nodes);
                    self.cx.checks.nodes = Some(counts);
                    problems.into_iter().for_each(|problem| self.cx.problem(problem));
                }
            }
            End::Agent(agent, link) => self.agent_hears(agent, (at, 1 - lane), link, arrival),
        }
    }

    fn agent_hears(&mut self, agent: u32, (at, end): (u32, usize), link: LinkId, arrival: Arrival) {
        let peer = self.net.peer(at, end);
        match arrival {
            Arrival::Up => {
                if matches!(peer, Peer::Child { .. }) {
                    self.membership.on_child_link(&self.net, at);
                    self.cx.reach(Point::Linked);
                }
                self.tell_agent(agent, Input::LinkUp { link, peer, local: String::new() });
            }
            Arrival::Bytes(head, body) => {
                self.tell_agent(agent, Input::LinkBytes { link, bytes: head });
                if !body.is_empty() {
                    self.tell_agent(agent, Input::LinkBytes { link, bytes: body });
                }
            }
            Arrival::Down(problem) => {
                if end == 0 {
                    self.membership.on_unlinked(at);
                }
                self.agents[agent].is_cut_off |= matches!(peer, Peer::Parent | Peer::Launcher);
                self.tell_agent(agent, Input::LinkDown { link, problem: problem.into() });
            }
        }
    }

    /// Passes an event of the job on a node to the agent of the node.
    fn tell_node(&mut self, node: u32, event: Option<JobEvent>) {
        let Node { agent, .. } = self.jobs.nodes[node as usize];
        if let (Some(agent), Some(event)) = (agent, event) {
            self.tell_agent(agent, Input::Job { job: self.jobs.job_at(node).id, event });
        }
    }

    fn on_client_arrive(&mut self, id: u32) {
        let (proc, _, node) = self.jobs.rank_at(id);
        let (event, node) = (proc.on_client_arrive(&mut self.cx, node), node.index);
        self.tell_node(node, event);
    }

    fn on_stdio_read(&mut self, id: u32, stream: u8) {
        let (proc, _, node) = self.jobs.rank_at(id);
        let (event, node) = (proc.on_stdio_read(&mut self.cx, node, stream), node.index);
        let is_read = event.is_some();
        self.tell_node(node, event);
        if is_read {
            let (proc, _, node) = self.jobs.rank_at(id);
            proc.schedule_read(&mut self.cx, node, stream);
        }
    }

    fn on_server_speaks(&mut self, node: u32) {
        let event = self.jobs.nodes[node as usize].on_server_speaks();
        self.tell_node(node, event);
    }

    fn on_keeper_report(&mut self, node: u32) {
        let Some((event, exited)) = self.jobs.take_keeper_report(&mut self.cx, node) else { return };
        if matches!(event, JobEvent::PmixGone { .. }) || exited.is_some() {
            // The server's messages are delivered before the end of the server, and before the end of a rank that they
            // may concern.
            while self.jobs.nodes[node as usize].has_server_bytes() {
                self.on_server_speaks(node);
            }
        }
        if let Some(id) = exited {
            // The driver reads what a dying rank has sent before it reports the rank's exit.
            while self.jobs.procs[id as usize].socket.has_bytes_for_agent() {
                self.on_client_arrive(id);
            }
        }
        if !self.jobs.nodes[node as usize].job_is_gone || matches!(event, JobEvent::KeeperLost { .. }) {
            self.tell_node(node, Some(event));
        }
    }
}
