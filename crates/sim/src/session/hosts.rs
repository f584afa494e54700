//! The drivers of agents: processes that start, take turns, and die.
//!
//! A host may have several copies of its agent: an older one continues beside the one that was started again, until the protocol makes it
//! exit.

use super::processes::HostJob;
use super::spec::SessionSpec;
use super::words::in_words;
use super::world::{Plan, World};
use crate::clock::Event;
use crate::net::End;
use std::collections::{BTreeMap, VecDeque};
use wireup_proto::io::{ExitStatus, Input, LinkId, Output, ShellId};
use wireup_proto::{Agent, AgentConfig, Born, Instant};
use wireup_wire::ids::{AgentId, JobId};
use wireup_wire::peer::{self, AgentSpec, Bootstrap, RemoteShell};
use wireup_wire::session::Standing;

/// The exit status of `ssh` when `ssh` itself fails.
const SSH_FAILED: ExitStatus = ExitStatus::Exited(255);

#[derive(Default)]
pub struct Host {
    /// How many agents were started here.
    pub lives: u32,
    /// It has no power until then.
    pub off_until: Instant,
}

/// One process of an agent. A world numbers them; they keep their number after they have ended.
pub struct AgentCopy {
    pub host: u32,
    /// Its number among the copies started on this host, from 1.
    pub copy_number: u32,
    /// According to its bootstrap message.
    pub incarnation: u32,
    pub living: Option<Living>,
    /// Its links, by its own numbers for them.
    pub links: Vec<u32>,
}

pub struct Living {
    pub machine: Agent,
    pub jobs: BTreeMap<JobId, HostJob>,
    /// The link to its parent.
    pub up: Option<u32>,
    /// The copy that started it, and the remote shell.
    shell: Option<(u32, ShellId)>,
    turn_is_due: bool,
    tick_at: Option<Instant>,
    /// `Some` while it is stopped: the inputs since then.
    unheard: Option<VecDeque<Input>>,
}

impl Living {
    /// Whether it has handled all of its inputs and all of its outputs were carried out.
    pub fn is_settled(&self) -> bool {
        !self.turn_is_due && self.unheard.is_none()
    }

    pub fn is_stopped(&self) -> bool {
        self.unheard.is_some()
    }
}

pub fn root_config(spec: &SessionSpec, now: Instant) -> AgentConfig {
    let session = peer::SessionSpec {
        name: "sim".into(),
        fanout: spec.fanout,
        agents: (0..spec.agents).map(|agent| AgentSpec { host: format!("node{agent}") }).collect(),
        shells_max: 64,
        program: "wireup".into(),
        remote_shell: if spec.remote { RemoteShell::Ssh(vec!["ssh".into()]) } else { RemoteShell::default() },
        node_timeout_ns: spec.node_timeout_ns,
        start_timeout_ns: 20_000_000_000,
        transport: spec.transport,
        standing: Some(Standing::default()),
        ..peer::SessionSpec::default()
    };
    AgentConfig::new(AgentId(0), session, Born { process_ns: now.0, bootstrap_ns: now.0 })
}

impl World {
    pub(super) fn come_alive(&mut self, config: AgentConfig, shell: Option<(u32, ShellId)>) -> u32 {
        let (copy, host) = (self.copies.len() as u32, config.agent.0);
        let at = &mut self.hosts[host as usize];
        at.lives += 1;
        let copy_number = at.lives;
        let incarnation = config.snapshot.place(config.agent).map_or(0, |place| place.incarnation);
        let mut machine = Agent::new(config);
        machine.begin(self.clock.now());
        let (jobs, up) = (BTreeMap::new(), None);
        let living = Living { machine, jobs, up, shell, turn_is_due: false, tick_at: None, unheard: None };
        self.copies.push(AgentCopy { host, copy_number, incarnation, living: Some(living), links: Vec::new() });
        self.checks.on_copies(self.living_at(host).len());
        if self.spec.remote {
            // Before its first remote shell can end.
            let input = Input::Listening { addresses: vec![self.address(copy)] };
            self.plan(0, Plan::Hears { copy, input });
        }
        self.turn_soon(copy);
        copy
    }

    /// The running copies on a host, the oldest first.
    pub(super) fn living_at(&self, host: u32) -> Vec<u32> {
        let is_here = |copy: &AgentCopy| copy.host == host && copy.living.is_some();
        (0..self.copies.len() as u32).filter(|copy| is_here(&self.copies[*copy as usize])).collect()
    }

    pub(super) fn newest_at(&self, host: u32) -> Option<u32> {
        self.living_at(host).last().copied()
    }

    pub(super) fn living(&self, copy: u32) -> Option<&Living> {
        self.copies[copy as usize].living.as_ref()
    }

    pub(super) fn living_mut(&mut self, copy: u32) -> Option<&mut Living> {
        self.copies[copy as usize].living.as_mut()
    }

    pub(super) fn host_of(&self, copy: u32) -> u32 {
        self.copies[copy as usize].host
    }

    pub(super) fn name(&self, copy: u32) -> String {
        let AgentCopy { host, copy_number, .. } = self.copies[copy as usize];
        if copy_number == 1 { format!("agent {host}") } else { format!("agent {host} life {copy_number}") }
    }

    pub(super) fn is_off(&self, host: u32) -> bool {
        self.hosts[host as usize].off_until > self.clock.now()
    }

    pub(super) fn on_born(&mut self, starter: u32, shell: ShellId, mut bootstrap: Bootstrap) {
        let at = bootstrap.agent.0;
        if self.living(starter).is_none() || !self.is_startable(starter, shell, at) {
            return;
        }
        if bootstrap.parent.is_empty() {
            bootstrap.parent = vec![self.address(starter)];
        }
        let parent = bootstrap.parent.first().cloned().unwrap_or_default();
        let now = self.clock.now();
        let Bootstrap { agent, session, parent: addresses, snapshot, .. } = bootstrap;
        let born = Born { process_ns: now.0, bootstrap_ns: now.0 };
        let config = AgentConfig { parent: addresses, snapshot, ..AgentConfig::new(agent, session, born) };
        let shell = self.shell_of(at, starter, shell);
        let copy = self.come_alive(config.clone(), shell);
        self.trace(|| format!("{} is born of {} with {:?}", self.name(copy), self.name(starter), config.snapshot));
        let delay_ns = self.spec.timing.handshake.draw(&mut self.rng);
        self.plan(delay_ns, Plan::Dials { copy, parent });
    }

    /// Whether a remote shell reaches a host; if not, the shell reports that after a delay.
    fn is_startable(&mut self, starter: u32, shell: ShellId, at: u32) -> bool {
        let refuses = self.spec.no_start.iter_mut().find(|(agent, times)| *agent == at && *times > 0);
        let (delay_ns, status, words) = if let Some((_, times)) = refuses {
            *times -= 1;
            (1000, if self.spec.remote { SSH_FAILED } else { ExitStatus::Exited(1) }, "No route to host")
        } else if self.is_off(at) {
            (self.spec.node_timeout_ns, SSH_FAILED, "Connection timed out")
        } else {
            return true;
        };
        self.checks.strike(at, self.clock.now());
        self.trace(|| format!("no shell of {} leads to host {at}: {words}", self.name(starter)));
        self.shell_ends(delay_ns, starter, shell, status, words);
        false
    }

    /// A remote shell that only probes whether a host answers.
    fn on_probes(&mut self, copy: u32, shell: ShellId, at: u32) {
        let (delay_ns, status, words) = match self.is_off(at) {
            true => (self.spec.node_timeout_ns, SSH_FAILED, "Connection timed out"),
            false => (1_000_000, ExitStatus::Exited(0), ""),
        };
        self.shell_ends(delay_ns, copy, shell, status, words);
    }

    /// The shell that starts an agent. If it breaks at that moment, it reports that, and the agent continues without it.
    fn shell_of(&mut self, at: u32, starter: u32, shell: ShellId) -> Option<(u32, ShellId)> {
        let breaks = self.spec.broken_shells.iter_mut().find(|(agent, times)| *agent == at && *times > 0);
        let Some((_, times)) = breaks else { return Some((starter, shell)) };
        *times -= 1;
        self.checks.strike(at, self.clock.now());
        self.shell_ends(1000, starter, shell, SSH_FAILED, "Broken pipe");
        None
    }

    fn shell_ends(&mut self, delay_ns: u64, starter: u32, shell: ShellId, status: ExitStatus, words: &str) {
        let input = Input::ShellExited { shell, status, stderr: words.to_owned() };
        self.plan(delay_ns, Plan::Hears { copy: starter, input });
    }

    pub(super) fn tell(&mut self, copy: u32, input: Input) {
        let AgentCopy { host, living, .. } = &mut self.copies[copy as usize];
        let Some(living) = living else { return };
        if let Some(unheard) = &mut living.unheard {
            return unheard.push_back(input);
        }
        self.digest.number(u64::from(*host));
        self.digest.input(&input);
        living.machine.handle(self.clock.now(), input);
        self.turn_soon(copy);
    }

    fn turn_soon(&mut self, copy: u32) {
        let Some(living) = self.living_mut(copy) else { return };
        if !std::mem::replace(&mut living.turn_is_due, true) {
            self.clock.after(0, Event::AgentTurn(copy));
        }
    }

    pub(super) fn on_turn(&mut self, copy: u32) {
        let Some(living) = self.living_mut(copy) else { return };
        living.turn_is_due = false;
        if living.is_stopped() {
            return;
        }
        while let Some(output) = self.living_mut(copy).and_then(|living| living.machine.poll()) {
            self.carry_out(copy, output);
        }
        let Some(living) = &mut self.copies[copy as usize].living else { return };
        let due = living.machine.deadline();
        if let Some(due) = due.filter(|due| living.tick_at.is_none_or(|at| *due < at)) {
            living.tick_at = Some(due);
            self.clock.at(due, Event::AgentTick(copy));
        }
    }

    pub(super) fn on_tick(&mut self, copy: u32) {
        let now = self.clock.now();
        let Some(living) = self.living_mut(copy) else { return };
        if living.tick_at.take_if(|due| *due <= now).is_none() {
            return;
        }
        if !living.is_stopped() && living.machine.deadline().is_some_and(|due| due <= now) {
            self.tell(copy, Input::Tick);
        }
        self.turn_soon(copy);
    }

    /// It handles nothing; its inputs wait.
    pub(super) fn stop(&mut self, copy: u32) {
        let Some(living) = self.living_mut(copy) else { return };
        living.unheard.get_or_insert_default();
    }

    pub(super) fn on_continues(&mut self, copy: u32) {
        let unheard = self.living_mut(copy).and_then(|living| living.unheard.take());
        unheard.into_iter().flatten().for_each(|input| self.tell(copy, input));
        self.turn_soon(copy);
    }

    fn carry_out(&mut self, copy: u32, output: Output) {
        match output {
            Output::StartAgent { shell, agent, bootstrap: None, .. } => self.on_probes(copy, shell, agent.0),
            Output::StartAgent { shell, bootstrap: Some(bootstrap), .. } => {
                self.on_calls(copy, &bootstrap);
                let delay_ns = self.spec.timing.agent_start.draw(&mut self.rng);
                self.plan(delay_ns, Plan::Born { starter: copy, shell, bootstrap });
            }
            Output::StopShell { shell } => {
                let is_it = |plan: &Option<Plan>| matches!(plan, Some(Plan::Born { starter, shell: of, .. }) if *starter == copy && *of == shell);
                if let Some(plan) = self.plans.iter_mut().find(|plan| is_it(plan)) {
                    *plan = None;
                }
            }
            Output::Listen => {
                let delay_ns = self.spec.timing.report.draw(&mut self.rng);
                let input = Input::Listening { addresses: vec![self.address(copy)] };
                self.plan(delay_ns, Plan::Hears { copy, input });
            }
            Output::Dial { agent, addresses, .. } => {
                let delay_ns = self.spec.timing.handshake.draw(&mut self.rng);
                self.plan(delay_ns, Plan::DialsDirect { copy, agent, addresses });
            }
            Output::Rejoin { root, rejoin } => {
                self.on_seeks(copy);
                let delay_ns = self.spec.timing.handshake.draw(&mut self.rng);
                self.plan(delay_ns, Plan::Rejoins { copy, root, rejoin });
            }
            Output::OpenTransport => self.tell(copy, Input::TransportOpened { result: Err("there is none".into()) }),
            Output::Send { link, frame } => {
                let link = self.link_of(copy, link);
                let from = self.end_of(link, copy);
                self.trace(|| {
                    let to = self.end_in_words(self.net.ends(link)[1 - from]);
                    format!("{} sends to {to}: {}", self.name(copy), in_words(&frame))
                });
                self.on_sends(copy, link, &frame);
                self.net.send(&mut self.clock, link, from, frame);
            }
            Output::CloseLink { link } => {
                let link = self.link_of(copy, link);
                self.on_closes(copy, link);
                let from = self.end_of(link, copy);
                self.net.close(&mut self.clock, link, from);
            }
            Output::Spawn(plan) => self.spawn(copy, &plan),
            Output::Signal { job, target, signal } => self.signal(copy, job, target, signal),
            Output::Sweep { job } => self.sweep(copy, job),
            Output::Reply { job, local, bytes, .. } => self.reply(copy, job, local, &bytes),
            Output::CloseClient { job, local } => self.close_client(copy, job, local),
            Output::ReadStdio { job, on, .. } => self.read_stdio(copy, job, on),
            Output::Write { .. } | Output::Resize { .. } => {}
            Output::StartPmix(_) | Output::PmixSend { .. } | Output::StopPmix { .. } => {}
            Output::Share { .. } | Output::WriteSlot { .. } | Output::Unshare { .. } => {
                panic!("the ranks of simulated sessions use text PMI and no shared memory")
            }
            Output::StartStep { .. } => panic!("the agents of simulated sessions are started one by one"),
            Output::JobGone { job } => self.job_gone(copy, job),
            Output::Exit => self.agent_leaves(copy),
        }
    }

    fn link_of(&self, copy: u32, link: LinkId) -> u32 {
        self.copies[copy as usize].links[link.0 as usize]
    }

    pub(super) fn end_of(&self, link: u32, copy: u32) -> usize {
        usize::from(matches!(self.net.ends(link)[1], End::Agent(at, _) if at == copy))
    }

    fn end_in_words(&self, end: End) -> String {
        match end {
            End::Agent(copy, _) => self.name(copy),
            End::Launcher(LinkId(number)) => format!("launcher {number}"),
        }
    }

    /// It closes its links and exits; its ranks end with it.
    fn agent_leaves(&mut self, copy: u32) {
        self.trace(|| format!("{} leaves", self.name(copy)));
        self.check_leaves(copy);
        for link in self.copies[copy as usize].links.clone() {
            let from = self.end_of(link, copy);
            self.net.close(&mut self.clock, link, from);
        }
        let delay_ns = self.spec.timing.report.draw(&mut self.rng);
        self.gone(copy, delay_ns, ExitStatus::Exited(0), "");
    }

    pub(super) fn agent_dies(&mut self, copy: u32) {
        self.trace(|| format!("{} dies", self.name(copy)));
        for link in self.copies[copy as usize].links.clone() {
            let from = self.end_of(link, copy);
            self.net.kill_end(&mut self.clock, link, from);
        }
        let delay_ns = self.spec.timing.report.draw(&mut self.rng);
        self.gone(copy, delay_ns, ExitStatus::Signalled { signal: 9, core_dumped: false }, "");
    }

    /// Its host has lost power: nothing more is received from it.
    pub(super) fn vanish(&mut self, copy: u32) {
        self.trace(|| format!("{} vanishes", self.name(copy)));
        for link in self.copies[copy as usize].links.clone() {
            self.silence(link);
        }
        self.gone(copy, self.spec.node_timeout_ns, SSH_FAILED, "Timeout, server not responding");
    }

    fn gone(&mut self, copy: u32, delay_ns: u64, status: ExitStatus, words: &str) {
        self.rules.on_gone(copy);
        let Some(Living { shell, .. }) = self.copies[copy as usize].living.take() else { return };
        if let Some((starter, shell)) = shell {
            self.shell_ends(delay_ns, starter, shell, status, words);
        }
    }
}
