//! Agents' drivers: processes that are born, dial, listen, and die.

use super::processes::HostJob;
use super::spec::SessionSpec;
use super::world::{Plan, World};
use crate::clock::Event;
use crate::net::{End, Sort};
use std::collections::BTreeMap;
use wireup_proto::io::{ExitStatus, Input, LinkId, Output, Peer, ShellId};
use wireup_proto::{Agent, AgentConfig, Born, Instant};
use wireup_wire::frame::{Frame, Kind};
use wireup_wire::ids::{AgentId, JobId};
use wireup_wire::peer::{self, AgentSpec, Bootstrap, Control};
use wireup_wire::route::Routed;
use wireup_wire::session::{Ancestor, Standing};

#[derive(Default)]
pub struct Host {
    /// How many agents were born here.
    pub life: u32,
    pub living: Option<Living>,
    /// Links by the numbers that agents here know them by, of all lives.
    pub links: Vec<u32>,
}

pub struct Living {
    pub machine: Agent,
    pub jobs: BTreeMap<JobId, HostJob>,
    /// The link towards the root.
    pub up: Option<u32>,
    /// Whose shell brought it.
    shell: Option<((u32, u32), ShellId)>,
    turn_is_due: bool,
    tick_at: Option<Instant>,
}

pub fn address(host: u32) -> String {
    format!("agent {host}")
}

/// A frame as a trace shows it.
fn in_words(frame: &Frame) -> String {
    let Frame { kind, stream, job, arg, payload, .. } = frame;
    match kind {
        Kind::Control => match peer::decode(payload) {
            Ok(Control::Start { newest, live, .. }) => format!("job {job} Start, newest {newest}, live {live:?}"),
            Ok(message) => format!("job {job} {message:?}"),
            Err(error) => format!("job {job} {error}"),
        },
        Kind::Routed => match Routed::unwrap(frame.clone()) {
            Ok(Routed { to, from, lives: _, endpoint, frame }) => {
                let offers = if endpoint.is_some() { ", an endpoint" } else { "" };
                let frame = frame.map(|(number, frame)| format!("number {number}: {}", in_words(&frame)));
                format!("job {job} Routed {from} -> {to}{offers} {}", frame.unwrap_or_default())
            }
            Err(error) => format!("job {job} {error}"),
        },
        kind => format!("job {job} {kind:?} {stream} {arg}"),
    }
}

fn host_of(address: &str) -> Option<u32> {
    address.strip_prefix("agent ")?.parse().ok()
}

pub fn root_config(spec: &SessionSpec, now: Instant) -> AgentConfig {
    let session = peer::SessionSpec {
        name: "sim".into(),
        fanout: spec.fanout,
        agents: (0..spec.agents).map(|agent| AgentSpec { host: format!("node{agent}") }).collect(),
        shells_max: 64,
        program: "wireup".into(),
        node_timeout_ns: spec.node_timeout_ns,
        start_timeout_ns: 20_000_000_000,
        transport: spec.transport,
        standing: Some(Standing::default()),
        ..peer::SessionSpec::default()
    };
    AgentConfig::new(AgentId(0), session, Born { process_ns: now.0, bootstrap_ns: now.0 })
}

impl World {
    pub(super) fn come_alive(&mut self, at: u32, config: AgentConfig, shell: Option<((u32, u32), ShellId)>) {
        let host = &mut self.hosts[at as usize];
        host.life += 1;
        let mut machine = Agent::new(config);
        machine.begin(self.clock.now());
        let (jobs, up) = (BTreeMap::new(), None);
        host.living = Some(Living { machine, jobs, up, shell, turn_is_due: false, tick_at: None });
        self.turn_soon(at);
    }

    pub(super) fn on_born(&mut self, starter: (u32, u32), shell: ShellId, mut bootstrap: Bootstrap) {
        let at = bootstrap.agent.0;
        if !self.of_life(starter.0, starter.1) {
            return;
        }
        let (life, host) = (starter.1, starter.0);
        if let Some((_, times)) = self.spec.no_start.iter_mut().find(|(agent, times)| *agent == at && *times > 0) {
            *times -= 1;
            self.checks.strike(at);
            let (status, words) = (ExitStatus::Exited(1), "No route to host".to_owned());
            return self.plan(1000, Plan::ShellEnds { host, life, shell, status, words });
        }
        if self.hosts[at as usize].living.is_some() {
            // An older one that nobody hears, on the same host: it keeps its own life.
            self.agent_dies(at);
        }
        if bootstrap.parent.is_empty() {
            bootstrap.parent = vec![address(starter.0)];
        }
        self.trace(|| format!("agent {at} is born of {} with {:?}", starter.0, bootstrap.kin));
        let parent = bootstrap.parent.first().and_then(|address| host_of(address)).unwrap_or(0);
        let now = self.clock.now();
        let Bootstrap { agent, session, parent: addresses, kin, .. } = bootstrap;
        let born = Born { process_ns: now.0, bootstrap_ns: now.0 };
        let config = AgentConfig { parent: addresses, kin, ..AgentConfig::new(agent, session, born) };
        self.come_alive(at, config, Some((starter, shell)));
        let life = self.hosts[at as usize].life;
        let delay_ns = self.spec.timing.handshake.draw(&mut self.rng);
        self.plan(delay_ns, Plan::Dials { host: at, life, parent });
    }

    pub(super) fn on_dials(&mut self, host: u32, parent: u32) {
        if self.hosts[parent as usize].living.is_none() {
            return self.agent_dies(host);
        }
        let peers = [Peer::Child(AgentId(host)), Peer::Parent];
        let link = self.connect(parent, host, peers, Sort::Tree);
        self.on_way_up(host, link);
    }

    fn on_way_up(&mut self, host: u32, link: u32) {
        if let Some(living) = &mut self.hosts[host as usize].living {
            living.up = Some(link);
        }
    }

    pub(super) fn on_dials_direct(&mut self, host: u32, target: u32) {
        if self.hosts[target as usize].living.is_none() {
            let problem = "Connection refused".into();
            return self.tell(host, Input::DialFailed { agent: AgentId(target), problem });
        }
        let peers = [Peer::Direct(AgentId(host)), Peer::Direct(AgentId(target))];
        self.connect(target, host, peers, Sort::Direct);
    }

    pub(super) fn on_rejoins(&mut self, host: u32, ancestors: &[Ancestor], life: u32) {
        let reached = ancestors.iter().filter_map(|ancestor| host_of(ancestor.addresses.first()?));
        let alive = reached.into_iter().find(|target| self.hosts[*target as usize].living.is_some());
        self.trace(|| format!("agent {host} rejoins at {alive:?}"));
        match alive {
            Some(target) => {
                let peers = [Peer::Orphan { agent: AgentId(host), life }, Peer::Parent];
                let link = self.connect(target, host, peers, Sort::Tree);
                self.on_way_up(host, link);
            }
            None => self.tell(host, Input::RejoinFailed { problem: "Connection refused".into() }),
        }
    }

    fn connect(&mut self, listener: u32, dialler: u32, peers: [Peer; 2], sort: Sort) -> u32 {
        let link = self.net.next_link();
        let ends = [self.new_end(listener, link), self.new_end(dialler, link)];
        self.peers.push(peers);
        self.net.connect(&mut self.clock, ends, sort);
        link
    }

    pub(super) fn new_end(&mut self, host: u32, link: u32) -> End {
        let links = &mut self.hosts[host as usize].links;
        links.push(link);
        End::Agent(host, LinkId(links.len() as u32 - 1))
    }

    pub(super) fn tell(&mut self, at: u32, input: Input) {
        let Some(living) = &mut self.hosts[at as usize].living else { return };
        self.digest.number(u64::from(at));
        self.digest.input(&input);
        living.machine.handle(self.clock.now(), input);
        self.turn_soon(at);
    }

    fn turn_soon(&mut self, at: u32) {
        let Some(living) = &mut self.hosts[at as usize].living else { return };
        if !std::mem::replace(&mut living.turn_is_due, true) {
            self.clock.after(0, Event::AgentTurn(at));
        }
    }

    pub(super) fn on_turn(&mut self, at: u32) {
        let life = self.hosts[at as usize].life;
        if let Some(living) = &mut self.hosts[at as usize].living {
            living.turn_is_due = false;
        }
        while self.of_life(at, life)
            && let Some(output) = self.hosts[at as usize].living.as_mut().and_then(|living| living.machine.poll())
        {
            self.carry_out(at, life, output);
        }
        let Some(living) = &mut self.hosts[at as usize].living else { return };
        let due = living.machine.deadline();
        if let Some(due) = due.filter(|due| living.tick_at.is_none_or(|at| *due < at)) {
            living.tick_at = Some(due);
            self.clock.at(due, Event::AgentTick(at));
        }
    }

    pub(super) fn on_tick(&mut self, at: u32) {
        let now = self.clock.now();
        let Some(living) = &mut self.hosts[at as usize].living else { return };
        if living.tick_at.take_if(|due| *due <= now).is_none() {
            return;
        }
        if living.machine.deadline().is_some_and(|due| due <= now) {
            self.tell(at, Input::Tick);
        }
        self.turn_soon(at);
    }

    fn carry_out(&mut self, at: u32, life: u32, output: Output) {
        match output {
            Output::StartAgent { shell, bootstrap, .. } => {
                let Some(bootstrap) = bootstrap else { return };
                self.trace(|| format!("agent {at} calls for agent {}", bootstrap.agent));
                let delay_ns = self.spec.timing.agent_start.draw(&mut self.rng);
                self.plan(delay_ns, Plan::Born { starter: (at, life), shell, bootstrap });
            }
            Output::StopShell { shell } => {
                let is_it = |plan: &Option<Plan>| matches!(plan, Some(Plan::Born { starter, shell: of, .. }) if *starter == (at, life) && *of == shell);
                if let Some(plan) = self.plans.iter_mut().find(|plan| is_it(plan)) {
                    *plan = None;
                }
            }
            Output::Listen => {
                let delay_ns = self.spec.timing.report.draw(&mut self.rng);
                self.plan(delay_ns, Plan::Listens { host: at, life });
            }
            Output::Dial { agent, addresses, .. } => {
                let target = addresses.first().and_then(|address| host_of(address)).unwrap_or(agent.0);
                let delay_ns = self.spec.timing.handshake.draw(&mut self.rng);
                self.plan(delay_ns, Plan::DialsDirect { host: at, life, target });
            }
            Output::Rejoin { ancestors, life: as_life } => {
                let delay_ns = self.spec.timing.handshake.draw(&mut self.rng);
                self.plan(delay_ns, Plan::Rejoins { host: at, life, ancestors, as_life });
            }
            Output::OpenTransport => self.tell(at, Input::TransportOpened { result: Err("there is none".into()) }),
            Output::Send { link, frame } => {
                let link = self.hosts[at as usize].links[link.0 as usize];
                let from = self.end_of(link, at);
                self.trace(|| {
                    let to = self.net.ends(link)[1 - from];
                    format!("agent {at} sends to {to:?}: {}", in_words(&frame))
                });
                self.net.send(&mut self.clock, link, from, frame);
            }
            Output::CloseLink { link } => {
                let link = self.hosts[at as usize].links[link.0 as usize];
                let from = self.end_of(link, at);
                self.net.close(&mut self.clock, link, from);
            }
            Output::Spawn(plan) => self.spawn(at, life, &plan),
            Output::Signal { job, target, signal } => self.signal(at, job, target, signal),
            Output::Sweep { job } => self.sweep(at, job),
            Output::Reply { job, local, bytes, .. } => self.reply(at, job, local, &bytes),
            Output::CloseClient { job, local } => self.close_client(at, job, local),
            Output::ReadStdio { job, on, .. } => self.read_stdio(at, job, on),
            Output::Write { .. } | Output::Resize { .. } => {}
            Output::StartPmix(_) | Output::PmixSend { .. } | Output::StopPmix { .. } => {}
            Output::Share { .. } | Output::WriteSlot { .. } | Output::Unshare { .. } => {
                panic!("ranks of standing sessions speak text here, and read no memory")
            }
            Output::StartStep { .. } => panic!("agents of standing sessions are called one by one"),
            Output::JobGone { job } => self.job_gone(at, job),
            Output::Exit => self.agent_leaves(at),
        }
    }

    fn end_of(&self, link: u32, host: u32) -> usize {
        usize::from(matches!(self.net.ends(link)[1], End::Agent(at, _) if at == host))
    }

    /// It closes what it has and goes; so do its ranks.
    fn agent_leaves(&mut self, at: u32) {
        self.trace(|| format!("agent {at} leaves"));
        for link in self.hosts[at as usize].links.clone() {
            let from = self.end_of(link, at);
            self.net.close(&mut self.clock, link, from);
        }
        self.gone(at, ExitStatus::Exited(0));
    }

    pub(super) fn agent_dies(&mut self, at: u32) {
        self.trace(|| format!("agent {at} dies"));
        for link in self.hosts[at as usize].links.clone() {
            let from = self.end_of(link, at);
            self.net.kill_end(&mut self.clock, link, from);
        }
        self.gone(at, ExitStatus::Signalled { signal: 9, core_dumped: false });
    }

    fn gone(&mut self, at: u32, status: ExitStatus) {
        let Some(Living { shell, .. }) = self.hosts[at as usize].living.take() else { return };
        if let Some(((host, life), shell)) = shell {
            let delay_ns = self.spec.timing.report.draw(&mut self.rng);
            self.plan(delay_ns, Plan::ShellEnds { host, life, shell, status, words: String::new() });
        }
    }
}
