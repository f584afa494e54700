//! One world: all simulated parts, and the main loop.
//!
//! The parts hold state (`hosts`, `ranks`, `launch`, `net`). An effect of one part on another goes through the clock, so that no machine is
//! called from inside another.

use crate::batch::Batch;
use crate::birth;
use crate::calls::Calls;
use crate::checkers::Checks;
use crate::checkers::quiet::QUIET_NS;
use crate::clock::{Clock, Event};
use crate::digest::Digest;
use crate::faults::{Culprit, Fault, NoStart};
use crate::hosts::Host;
use crate::launch::LauncherHost;
use crate::net::{Arrival, End, Net, Sort};
use crate::ranks::Proc;
use crate::replay::Recording;
use crate::report::Report;
use crate::rng::Rng;
use crate::servers::NoServer;
use crate::spec::WorldSpec;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use wireup_coll::tree::Tree;
use wireup_proto::Instant;
use wireup_proto::io::{Input, LinkId, Peer};
use wireup_proto::launcher_io::LauncherInput;
use wireup_wire::ids::AgentId;

/// Virtual time that a run may take beyond its last fault and all of its own time limits.
const PATIENCE_NS: u64 = 120_000_000_000;

/// A world and everything in it.
pub struct World {
    pub(crate) spec: WorldSpec,
    pub(crate) clock: Clock,
    pub(crate) net: Net,
    pub(crate) hosts: Vec<Host>,
    pub(crate) calls: Calls,
    pub(crate) batch: Batch,
    pub(crate) launcher: LauncherHost,
    pub(crate) procs: Vec<Proc>,
    pub(crate) rng: Rng,
    pub(crate) checks: Checks,
    pub(crate) digest: Digest,
    pub(crate) recording: Option<Recording>,
    pub(crate) no_start: BTreeMap<u32, NoStart>,
    pub(crate) no_exec: BTreeMap<u32, i32>,
    pub(crate) no_server: BTreeMap<u32, NoServer>,
    /// The PMIx library versions of agents that differ from the others.
    pub(crate) versions: BTreeMap<u32, &'static str>,
    /// Agents that no other agent can dial for a direct link.
    pub(crate) no_dial: BTreeSet<u32>,
    born: Instant,
}

/// Runs a world to its end.
pub fn run(spec: WorldSpec) -> Report {
    let mut world = World::new(spec);
    world.begin();
    let patience = world.patience();
    loop {
        if world.clock.pause_ns() >= QUIET_NS {
            world.check_quiet();
        }
        let Some(event) = world.clock.next() else { break };
        if world.clock.now() > patience || world.clock.happened() > world.spec.event_max {
            let waits = world.who_waits();
            world.checks.problem(format!("no end after {} events: {waits}", world.clock.happened()));
            break;
        }
        if world.spec.trace {
            eprintln!("{} {event:?}", world.elapsed_ns());
        }
        world.on_event(event);
        if world.checks.is_broken() {
            break;
        }
    }
    world.into_report()
}

impl World {
    fn new(spec: WorldSpec) -> Self {
        let seed = spec.seed;
        let clock = Clock::new(seed);
        let now = clock.now();
        let placement = spec.placement();
        let tree = Tree::new(spec.agent_count(), spec.fanout);
        let ahead_ns = |agent: usize| spec.remote.as_ref().map_or(0, |remote| remote.hosts[agent].clock_ahead_ns);
        let host = |agent| Host::new(agent, tree.parent(agent), ahead_ns(agent.index()));
        let mut hosts: Vec<Host> = (0..spec.agent_count()).map(AgentId).map(host).collect();
        let mut procs = Vec::with_capacity(placement.len());
        for (rank, node) in placement.iter().enumerate() {
            let host = spec.agent_of(*node);
            let locals = &mut hosts[host as usize].ranks;
            procs.push(Proc::new(rank as u32, host, locals.len() as u16, spec.script_of(rank as u32).clone()));
            locals.push(rank as u32);
        }
        let mut no_start = BTreeMap::new();
        let mut no_exec = BTreeMap::new();
        let (mut no_server, mut versions) = (BTreeMap::new(), BTreeMap::new());
        let mut no_dial = BTreeSet::new();
        for fault in &spec.faults {
            match *fault {
                Fault::NoStart { agent, how } => drop(no_start.insert(agent, how)),
                Fault::NoServer { agent, how } => drop(no_server.insert(agent, how)),
                Fault::OtherLibrary { agent } => drop(versions.insert(agent, "5.0.1")),
                Fault::NoExec { rank, errno } => drop(no_exec.insert(rank, errno)),
                Fault::NoDial { agent } => drop(no_dial.insert(agent)),
                _ => {}
            }
        }
        World {
            net: Net::new(seed, spec.timing.clone()),
            calls: Calls::default(),
            batch: Batch::default(),
            launcher: LauncherHost::new(&spec, now),
            checks: Checks::new(&spec),
            rng: Rng::stream(seed, "world"),
            digest: Digest::default(),
            recording: None,
            born: now,
            clock,
            hosts,
            procs,
            no_start,
            no_exec,
            no_server,
            versions,
            no_dial,
            spec,
        }
    }

    fn begin(&mut self) {
        if self.spec.timeout_ns.is_some() {
            self.checks.blame(Culprit::Launcher, false);
        }
        self.blame_hosts();
        self.blame_servers();
        self.come_alive(0, birth::root(&self.spec, self.local_now(0)), Vec::new());
        let link = self.net.next_link();
        let ends = [End::Launcher(LinkId(0)), self.hosts[0].new_end(0, link)];
        self.launcher.link = link;
        self.net.connect(&mut self.clock, ends, Sort::InMemory);
        for (index, fault) in self.spec.faults.iter().enumerate() {
            if let Some(at_ns) = fault.at_ns() {
                self.clock.at(self.born + at_ns, Event::Fault(index as u32));
            }
        }
        self.clock.after(0, Event::AgentTurn(0));
        self.clock.after(0, Event::LauncherTurn);
    }

    /// From the start until the launcher left or died, or until now.
    pub(crate) fn elapsed_ns(&self) -> u64 {
        self.launcher.gone_at.unwrap_or(self.clock.now()) - self.born
    }

    fn patience(&self) -> Instant {
        let last_fault_ns = self.spec.faults.iter().filter_map(|fault| fault.at_ns()).max().unwrap_or(0);
        let limits_ns = self.spec.start_timeout_ns + self.spec.kill_grace_ns + self.spec.timeout_ns.unwrap_or(0);
        self.born + (last_fault_ns + limits_ns + PATIENCE_NS)
    }

    fn on_event(&mut self, event: Event) {
        match event {
            Event::Call(call) => self.on_call(call),
            Event::ShellGone(call) => self.on_shell_gone(call),
            Event::CallEnded(call) => self.on_call_ended(call),
            Event::Task(step, agent) => self.on_task(step, agent),
            Event::StepSays(step) => self.on_step_says(step),
            Event::TaskReads(host, at) => self.on_task_reads(host, at),
            Event::TaskWaited(host) => self.on_task_waited(host),
            Event::StepKilled(step) => self.on_step_killed(step),
            Event::AgentLink(host) => self.on_agent_link(host),
            Event::TransportOpened(host) => self.on_transport_opened(host),
            Event::AgentListens(host) => self.on_agent_listens(host),
            Event::DirectLink(host, target) => self.on_direct_link(host, target),
            Event::AgentTurn(host) => self.on_agent_turn(host),
            Event::AgentTick(host) => self.on_agent_tick(host),
            Event::KeeperReport(host) => self.on_keeper_report(host),
            Event::LinkFree(link, lane) => self.net.on_free(&mut self.clock, link, usize::from(lane)),
            Event::LinkArrive(link, lane) => self.on_link_arrive(link, usize::from(lane)),
            Event::LinkSilent(link, lane) => self.net.on_silent(&mut self.clock, link, usize::from(lane)),
            Event::LauncherTurn => self.on_launcher_turn(),
            Event::LauncherTick => self.on_launcher_tick(),
            Event::LauncherWritten => self.on_launcher_written(),
            Event::LauncherStdin => self.on_launcher_stdin(),
            Event::TerminalResumes => self.on_terminal_resumes(),
            Event::RankStep(rank) => self.on_rank_step(rank),
            Event::ClientArrive(rank) => self.on_client_arrive(rank),
            Event::ReplyArrive(rank) => self.on_reply_arrive(rank),
            Event::StdioRead(rank, stream) => self.on_stdio_read(rank, stream),
            Event::StdinMove(rank) => self.on_stdin_move(rank),
            Event::Signal(rank, signal) => self.on_signal(rank, i32::from(signal)),
            Event::ServerBegins(host) => self.on_server_begins(host),
            Event::ServerSpeaks(host) => self.on_server_speaks(host),
            Event::ServerHears(host) => self.on_server_hears(host),
            Event::Fault(index) => self.on_fault(self.spec.faults[index as usize]),
            Event::Planned(_) => self.checks.problem("a single run has no planned actions".into()),
        }
    }

    fn on_link_arrive(&mut self, at: u32, lane: usize) {
        let Some(arrival) = self.net.on_arrive(at, lane) else { return };
        let ends = self.net.ends(at);
        let (to, from) = (ends[1 - lane], ends[lane]);
        match to {
            End::Launcher(link) => self.launcher_hears(link, arrival),
            End::Agent(host, link) => {
                let peer = match from {
                    End::Launcher(_) => Peer::Launcher,
                    End::Agent(other, _) if self.net.is_direct(at) => Peer::Direct(AgentId(other)),
                    // End 0 is the one nearer to the root.
                    End::Agent(..) if lane == 0 => Peer::Parent,
                    End::Agent(child, _) => Peer::Child { agent: AgentId(child), incarnation: 0 },
                };
                self.agent_hears(host, link, peer, arrival);
            }
        }
    }

    fn agent_hears(&mut self, host: u32, link: LinkId, peer: Peer, arrival: Arrival) {
        match arrival {
            Arrival::Up => self.tell_agent(host, Input::LinkUp { link, peer, local: String::new() }),
            Arrival::Bytes(head, body) => {
                self.tell_agent(host, Input::LinkBytes { link, bytes: head });
                if !body.is_empty() {
                    self.tell_agent(host, Input::LinkBytes { link, bytes: body });
                }
            }
            Arrival::Down(problem) => {
                self.hosts[host as usize].is_cut_off |= matches!(peer, Peer::Parent | Peer::Launcher);
                self.tell_agent(host, Input::LinkDown { link, problem: problem.into() });
            }
        }
    }

    fn launcher_hears(&mut self, link: LinkId, arrival: Arrival) {
        match arrival {
            Arrival::Up => self.tell_launcher(LauncherInput::LinkUp { link }),
            Arrival::Bytes(head, body) => {
                for bytes in [head, body].into_iter().filter(|bytes: &Bytes| !bytes.is_empty()) {
                    self.tell_launcher(LauncherInput::LinkBytes { link, bytes });
                }
            }
            Arrival::Down(problem) => self.tell_launcher(LauncherInput::LinkDown { link, problem: problem.into() }),
        }
    }
}
