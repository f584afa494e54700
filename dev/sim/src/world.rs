//! One world: a session with its hosts, agents, launchers and jobs, and the main loop.
//!
//! A run of one job is a session that ends with it, whose launcher is in the root's process. The parts of a world hold
//! state (`hosts`, `agents`, `jobs`, `ranks`, `launchers`, `net`). An effect of one part on another goes through the
//! clock, so that no machine is called from inside another.

use crate::agents::AgentProcess;
use crate::batch::Batch;
use crate::calls::Calls;
use crate::checkers::Checks;
use crate::checkers::quiet::QUIET_NS;
use crate::clock::{Clock, Event};
use crate::configs;
use crate::digest::Digest;
use crate::fault_injection::Fault;
use crate::file_server::FileServer;
use crate::hosts::{Host, Wall};
use crate::jobs::{Job, Node};
use crate::launchers::{LauncherHost, Role};
use crate::membership::Membership;
use crate::net::{Arrival, End, Net};
use crate::ranks::Proc;
use crate::report::RunReport;
use crate::rng::Rng;
use crate::servers::NoServer;
use crate::spec::WorldSpec;
use std::collections::{BTreeMap, BTreeSet};
use wireup_coll::tree::Tree;
use wireup_proto::Instant;
use wireup_proto::io::{Input, LinkId, Peer};
use wireup_proto::replay::Recording;
use wireup_wire::ids::{AgentId, JobId};
use wireup_wire::peer::Rejoin;

/// Virtual time that a run may take beyond its last fault and all of its own time limits (ns).
const PATIENCE_NS: u64 = 120_000_000_000;

/// A world and everything in it.
pub struct World {
    pub(crate) spec: WorldSpec,
    pub(crate) clock: Clock,
    pub(crate) net: Net,
    pub(crate) hosts: Vec<Host>,
    pub(crate) walls: Vec<Wall>,
    pub(crate) agents: Vec<AgentProcess>,
    pub(crate) membership: Membership,
    pub(crate) calls: Calls,
    pub(crate) batch: Batch,
    pub(crate) launchers: Vec<LauncherHost>,
    pub(crate) jobs: Vec<Job>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) procs: Vec<Proc>,
    pub(crate) file_server: FileServer,
    pending: Vec<Option<Pending>>,
    pub(crate) rng: Rng,
    pub(crate) checks: Checks,
    pub(crate) digest: Digest,
    pub(crate) recording: Option<Recording>,
    pub(crate) no_exec: BTreeMap<u32, i32>,
    pub(crate) no_server: BTreeMap<u32, NoServer>,
    /// The PMIx library versions of agents that differ from the others.
    pub(crate) versions: BTreeMap<u32, &'static str>,
    /// Agents that no other agent can dial for a direct link.
    pub(crate) no_dial: BTreeSet<u32>,
    start: Instant,
}

/// Something that happens later to a process, if it still runs then.
pub enum Pending {
    Hears {
        agent: u32,
        input: Input,
    },
    /// The process gives up, if it has not reached its parent.
    GivesUp {
        agent: u32,
    },
    /// The process dials for a direct link.
    Dials {
        agent: u32,
        target: AgentId,
        address: Option<String>,
    },
    /// The process dials the root.
    Rejoins {
        agent: u32,
        root: Option<String>,
        rejoin: Rejoin,
    },
}

/// Runs a world to its end. A session that outlives its jobs is ended when nothing more happens in it.
pub fn run(spec: WorldSpec) -> RunReport {
    let mut world = World::new(spec);
    world.begin();
    world.go_on();
    if world.spec.is_standing && !world.checks.is_broken() {
        world.check_idle();
        world.membership.on_ending();
        world.attach(Role::EndSession);
        world.go_on();
    }
    world.into_report()
}

impl World {
    fn new(spec: WorldSpec) -> Self {
        let seed = spec.seed;
        let clock = Clock::new(seed);
        let tree = Tree::new(spec.agents, spec.fanout);
        let ahead_ns =
            |agent: u32| spec.remote.as_ref().map_or(0, |remote| remote.hosts[agent as usize].clock_ahead_ns);
        let parent = |agent: u32| tree.parent(AgentId(agent)).map(|parent| parent.0);
        let host = |agent| Host { parent: parent(agent), clock_ahead_ns: ahead_ns(agent), ..Host::default() };
        World {
            hosts: (0..spec.agents_max()).map(host).collect(),
            net: Net::new(seed, spec.timing.clone()),
            walls: Vec::new(),
            agents: Vec::new(),
            membership: Membership::default(),
            calls: Calls::default(),
            batch: Batch::default(),
            launchers: Vec::new(),
            jobs: Vec::new(),
            nodes: Vec::new(),
            procs: Vec::new(),
            file_server: FileServer::default(),
            pending: Vec::new(),
            rng: Rng::stream(seed, "world"),
            checks: Checks::default(),
            digest: Digest::default(),
            recording: None,
            no_exec: BTreeMap::new(),
            no_server: BTreeMap::new(),
            versions: BTreeMap::new(),
            no_dial: BTreeSet::new(),
            start: clock.now(),
            clock,
            spec,
        }
    }

    fn begin(&mut self) {
        for fault in self.spec.faults.clone() {
            match fault {
                Fault::NoStart { agent, how } => self.hosts[agent as usize].no_start = Some(how),
                Fault::BreakShells { agent, times } => self.hosts[agent as usize].broken_shells += times,
                Fault::NoServer { agent, how } => drop(self.no_server.insert(agent, how)),
                Fault::OtherLibrary { agent } => drop(self.versions.insert(agent, "5.0.1")),
                Fault::NoExec { rank, errno } => drop(self.no_exec.insert(rank, errno)),
                Fault::NoDial { agent } => drop(self.no_dial.insert(agent)),
                _ => {}
            }
        }
        self.start_agent(configs::root(&self.spec, self.local_now(0)), Vec::new());
        if self.spec.is_standing {
            for (plan, job) in (0..).zip(&self.spec.jobs) {
                self.clock.at(self.start + job.at_ns, Event::LauncherAttaches(plan));
            }
        } else {
            self.attach(Role::Job(0));
            self.launch(0, JobId(1), self.spec.jobs[0].clone());
            self.blame_hosts();
        }
        for (index, fault) in (0..).zip(&self.spec.faults) {
            if let Some(at_ns) = fault.at_ns() {
                self.clock.at(self.start + at_ns, Event::Fault(index));
            }
        }
        self.clock.after(0, Event::AgentTurn(0));
        if !self.spec.is_standing {
            self.clock.after(0, Event::LauncherTurn(0));
        }
    }

    /// Carries out events until there are none.
    fn go_on(&mut self) {
        let patience = self.patience();
        loop {
            if self.clock.pause_ns() >= QUIET_NS {
                self.check_quiet();
            }
            let Some(event) = self.clock.next() else { break };
            if self.clock.now() > patience || self.clock.happened() > self.spec.event_max {
                let waits = self.who_waits();
                self.checks.problem(format!("no end after {} events: {waits}", self.clock.happened()));
                break;
            }
            if self.spec.trace {
                eprintln!("{} {event:?}", self.clock.now() - self.start);
            }
            self.on_event(event);
            self.check_membership();
            if self.checks.is_broken() {
                break;
            }
        }
    }

    /// From the start until the launcher of a single run left or died, or until now.
    pub(crate) fn elapsed_ns(&self) -> u64 {
        let launcher = self.launchers.first().filter(|_| !self.spec.is_standing);
        launcher.and_then(|launcher| launcher.gone_at).unwrap_or(self.clock.now()) - self.start
    }

    fn patience(&self) -> Instant {
        if self.spec.is_standing {
            // Leases and repeated attempts may take any time. The number of events is limited.
            return Instant(u64::MAX);
        }
        let last_fault_ns = self.spec.faults.iter().filter_map(|fault| fault.at_ns()).max().unwrap_or(0);
        let job = &self.spec.jobs[0];
        let limits_ns = self.spec.start_timeout_ns + job.options.kill_grace_ns + job.timeout_ns.unwrap_or(0);
        self.start + (last_fault_ns + limits_ns + PATIENCE_NS)
    }

    pub(crate) fn later(&mut self, delay_ns: u64, pending: Pending) {
        self.clock.after(delay_ns, Event::Later(self.pending.len() as u32));
        self.pending.push(Some(pending));
    }

    fn on_later(&mut self, index: u32) {
        let Some(pending) = self.pending[index as usize].take() else { return };
        let (Pending::Hears { agent, .. }
        | Pending::GivesUp { agent }
        | Pending::Dials { agent, .. }
        | Pending::Rejoins { agent, .. }) = pending;
        if !self.agents[agent as usize].is_running() {
            return;
        }
        match pending {
            Pending::Hears { input, .. } => self.tell_agent(agent, input),
            Pending::GivesUp { .. } => self.kill_agent(agent),
            Pending::Dials { target, address, .. } => self.on_dials(agent, target, address),
            Pending::Rejoins { root, rejoin, .. } => self.on_rejoins(agent, root, rejoin),
        }
    }

    fn on_event(&mut self, event: Event) {
        match event {
            Event::Call(call) => self.on_call(call),
            Event::ShellGone(call) => self.on_shell_gone(call),
            Event::CallEnded(call) => self.on_call_ended(call),
            Event::Task(step, agent) => self.on_task(step, agent),
            Event::StepSays(step) => self.on_step_says(step),
            Event::TaskReads(agent, at) => self.on_task_reads(agent, at),
            Event::TaskWaited(agent) => self.on_task_waited(agent),
            Event::StepKilled(step) => self.on_step_killed(step),
            Event::AgentLink(agent) => self.on_agent_link(agent),
            Event::TransportOpened(agent) => self.on_transport_opened(agent),
            Event::AgentListens(agent) => self.on_agent_listens(agent),
            Event::AgentTurn(agent) => self.on_agent_turn(agent),
            Event::AgentTick(agent) => self.on_agent_tick(agent),
            Event::AgentContinues(agent) => self.on_continues(agent),
            Event::Later(index) => self.on_later(index),
            Event::KeeperReport(node) => self.on_keeper_report(node),
            Event::LinkFree(link, lane) => self.net.on_free(&mut self.clock, link, usize::from(lane)),
            Event::LinkArrive(link, lane) => self.on_link_arrive(link, usize::from(lane)),
            Event::LinkSilent(link, lane) => self.net.on_silent(&mut self.clock, link, usize::from(lane)),
            Event::LauncherAttaches(plan) => self.attach(Role::Job(plan)),
            Event::LauncherLaunches(launcher) => self.on_launches(launcher),
            Event::LauncherDies(launcher) => self.on_launcher_dies(launcher),
            Event::LauncherTurn(launcher) => self.on_launcher_turn(launcher),
            Event::LauncherTick(launcher) => self.on_launcher_tick(launcher),
            Event::LauncherWritten(launcher) => self.on_launcher_written(launcher),
            Event::LauncherStdin(launcher) => self.on_launcher_stdin(launcher),
            Event::TerminalResumes(launcher) => self.on_terminal_resumes(launcher),
            Event::RankStep(id) => self.on_rank_step(id),
            Event::ClientArrive(id) => self.on_client_arrive(id),
            Event::ReplyArrive(id) => self.on_reply_arrive(id),
            Event::StdioRead(id, stream) => self.on_stdio_read(id, stream),
            Event::StdinMove(id) => self.on_stdin_move(id),
            Event::Signal(id, signal) => self.on_signal(id, i32::from(signal)),
            Event::ServerBegins(node) => self.on_server_begins(node),
            Event::ServerSpeaks(node) => self.on_server_speaks(node),
            Event::ServerHears(node) => self.on_server_hears(node),
            Event::Fault(index) => self.on_fault(self.spec.faults[index as usize]),
        }
    }

    fn on_link_arrive(&mut self, at: u32, lane: usize) {
        let Some(arrival) = self.net.on_arrive(at, lane) else { return };
        match self.net.ends(at)[1 - lane] {
            End::Launcher(launcher) => self.launcher_hears(launcher, arrival),
            End::Agent(agent, link) => self.agent_hears(agent, (at, 1 - lane), link, arrival),
        }
    }

    fn agent_hears(&mut self, agent: u32, (at, end): (u32, usize), link: LinkId, arrival: Arrival) {
        let peer = self.net.peer(at, end);
        match arrival {
            Arrival::Up => {
                if matches!(peer, Peer::Child { .. }) {
                    self.on_child_link(at);
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
                self.agents[agent as usize].is_cut_off |= matches!(peer, Peer::Parent | Peer::Launcher);
                self.tell_agent(agent, Input::LinkDown { link, problem: problem.into() });
            }
        }
    }
}
