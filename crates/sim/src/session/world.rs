//! The loop of a session's world: what is planned happens, until nothing is.

use super::checks::{Checks, Report};
use super::hosts::{Host, Living};
use super::launchers::LauncherHost;
use super::processes::Doing;
use super::spec::{Fault, SessionSpec};
use crate::clock::{Clock, Event};
use crate::digest::Digest;
use crate::net::{Arrival, End, Net};
use crate::rng::Rng;
use wireup_proto::Instant;
use wireup_proto::io::{ExitStatus, Input, LinkId, Peer, ShellId};
use wireup_wire::ids::JobId;
use wireup_wire::peer::Bootstrap;
use wireup_wire::session::Ancestor;

/// More happens in no world.
const EVENTS_MAX: u64 = 2_000_000;

/// Something that will happen to somebody; `life` is the host's at the time: what was meant for an earlier one is void.
#[derive(Clone, Debug)]
pub enum Plan {
    Born { starter: (u32, u32), shell: ShellId, bootstrap: Box<Bootstrap> },
    Dials { host: u32, life: u32, parent: u32 },
    ShellEnds { host: u32, life: u32, shell: ShellId, status: ExitStatus, words: String },
    Listens { host: u32, life: u32 },
    DialsDirect { host: u32, life: u32, target: u32 },
    Rejoins { host: u32, life: u32, ancestors: Vec<Ancestor>, as_life: u32 },
    Rank { host: u32, life: u32, job: JobId, local: u16, doing: Doing },
    Reads { host: u32, life: u32, job: JobId, local: u16 },
    Launcher { job: usize },
    Launches { launcher: u32 },
    LauncherDies { launcher: u32 },
    LauncherWrites { launcher: u32 },
    Fault { index: usize },
}

pub struct World {
    pub(super) spec: SessionSpec,
    pub(super) clock: Clock,
    pub(super) net: Net,
    pub(super) rng: Rng,
    pub(super) hosts: Vec<Host>,
    pub(super) launchers: Vec<LauncherHost>,
    /// Who each end of each link takes the other for.
    pub(super) peers: Vec<[Peer; 2]>,
    pub(super) plans: Vec<Option<Plan>>,
    pub(super) checks: Checks,
    pub(super) digest: Digest,
    pub(super) born: Instant,
}

/// Runs a world until nothing is planned any more, looks at what is left, and ends it.
pub fn run(spec: SessionSpec) -> Report {
    let mut world = World::new(spec);
    world.begin();
    world.go_on();
    world.check_idle();
    world.attach_to_end();
    world.go_on();
    world.check_end();
    world.into_report()
}

impl World {
    fn new(spec: SessionSpec) -> Self {
        let clock = Clock::new(spec.seed);
        World {
            net: Net::new(spec.seed, spec.timing.clone()),
            rng: Rng::stream(spec.seed, "session"),
            hosts: (0..spec.agents).map(|_| Host::default()).collect(),
            launchers: Vec::new(),
            peers: Vec::new(),
            plans: Vec::new(),
            checks: Checks::new(&spec),
            digest: Digest::default(),
            born: clock.now(),
            clock,
            spec,
        }
    }

    fn begin(&mut self) {
        self.come_alive(0, super::hosts::root_config(&self.spec, self.clock.now()), None);
        for job in 0..self.spec.jobs.len() {
            self.plan_at(self.born + self.spec.jobs[job].at_ns, Plan::Launcher { job });
        }
        for index in 0..self.spec.faults.len() {
            self.plan_at(self.born + self.spec.faults[index].0, Plan::Fault { index });
        }
    }

    fn go_on(&mut self) {
        while let Some(event) = self.clock.next() {
            if self.checks.is_broken() {
                return;
            }
            if self.clock.happened() > EVENTS_MAX {
                return self.checks.problem("no end in sight".into());
            }
            self.on_event(event);
        }
    }

    pub(super) fn plan(&mut self, delay_ns: u64, plan: Plan) {
        self.plan_at(self.clock.now() + delay_ns, plan);
    }

    fn plan_at(&mut self, at: Instant, plan: Plan) {
        self.clock.at(at, Event::Planned(self.plans.len() as u32));
        self.plans.push(Some(plan));
    }

    pub(super) fn trace(&self, what: impl FnOnce() -> String) {
        if self.spec.trace {
            eprintln!("{:>12} {}", self.clock.now() - self.born, what());
        }
    }

    fn on_event(&mut self, event: Event) {
        match event {
            Event::Planned(index) => {
                if let Some(plan) = self.plans[index as usize].take() {
                    self.on_plan(plan);
                }
            }
            Event::AgentTurn(host) => self.on_turn(host),
            Event::AgentTick(host) => self.on_tick(host),
            Event::LinkFree(link, lane) => self.net.on_free(&mut self.clock, link, usize::from(lane)),
            Event::LinkArrive(link, lane) => self.on_arrive(link, usize::from(lane)),
            Event::LinkSilent(link, lane) => self.net.on_silent(&mut self.clock, link, usize::from(lane)),
            event => self.checks.problem(format!("{event:?} happens in single runs alone")),
        }
    }

    fn on_plan(&mut self, plan: Plan) {
        match plan {
            Plan::Born { starter, shell, bootstrap } => self.on_born(starter, shell, *bootstrap),
            Plan::Dials { host, life, parent } => {
                self.of_life(host, life).then(|| self.on_dials(host, parent));
            }
            Plan::ShellEnds { host, life, shell, status, words } => {
                if self.of_life(host, life) {
                    self.tell(host, Input::ShellExited { shell, status, stderr: words });
                }
            }
            Plan::Listens { host, life } => {
                if self.of_life(host, life) {
                    self.tell(host, Input::Listening { addresses: vec![super::hosts::address(host)] });
                }
            }
            Plan::DialsDirect { host, life, target } => {
                self.of_life(host, life).then(|| self.on_dials_direct(host, target));
            }
            Plan::Rejoins { host, life, ancestors, as_life } => {
                self.of_life(host, life).then(|| self.on_rejoins(host, &ancestors, as_life));
            }
            Plan::Rank { host, life, job, local, doing } => {
                self.of_life(host, life).then(|| self.on_rank(host, job, local, doing));
            }
            Plan::Reads { host, life, job, local } => {
                self.of_life(host, life).then(|| self.on_reads(host, job, local));
            }
            Plan::Launcher { job } => self.on_launcher(Some(job)),
            Plan::Launches { launcher } => self.on_launches(launcher),
            Plan::LauncherDies { launcher } => self.on_launcher_dies(launcher),
            Plan::LauncherWrites { launcher } => self.on_launcher_writes(launcher),
            Plan::Fault { index } => self.on_fault(self.spec.faults[index].1),
        }
    }

    /// Whether a host's agent is the one that something was planned for.
    pub(super) fn of_life(&self, host: u32, life: u32) -> bool {
        let host = &self.hosts[host as usize];
        host.life == life && host.living.is_some()
    }

    fn on_arrive(&mut self, link: u32, lane: usize) {
        let Some(arrival) = self.net.on_arrive(link, lane) else { return };
        match self.net.ends(link)[1 - lane] {
            End::Launcher(LinkId(launcher)) => self.launcher_hears(launcher, arrival),
            End::Agent(host, at) => {
                let peer = self.peers[link as usize][1 - lane];
                match arrival {
                    Arrival::Up => self.tell(host, Input::LinkUp { link: at, peer, local: String::new() }),
                    Arrival::Bytes(head, body) => {
                        self.tell(host, Input::LinkBytes { link: at, bytes: head });
                        if !body.is_empty() {
                            self.tell(host, Input::LinkBytes { link: at, bytes: body });
                        }
                    }
                    Arrival::Down(problem) => self.tell(host, Input::LinkDown { link: at, problem: problem.into() }),
                }
            }
        }
    }

    fn on_fault(&mut self, fault: Fault) {
        self.trace(|| format!("fault {fault:?}"));
        match fault {
            Fault::KillAgent { agent } => {
                if agent != 0 && self.hosts[agent as usize].living.is_some() {
                    self.checks.strike(agent);
                    self.agent_dies(agent);
                }
            }
            Fault::CutLink { agent } => {
                if let Some(link) = self.link_up_of(agent) {
                    self.checks.strike(agent);
                    self.net.cut(&mut self.clock, link);
                }
            }
            Fault::SilenceLink { agent } => {
                if let Some(link) = self.link_up_of(agent) {
                    self.checks.strike(agent);
                    self.net.silence(&mut self.clock, link, self.spec.node_timeout_ns);
                }
            }
            Fault::CutDirect => {
                let open = self.net.first_open_direct_link();
                open.into_iter().for_each(|link| self.net.cut(&mut self.clock, link));
            }
            Fault::Revive | Fault::EndJobs => self.on_helper(fault),
        }
    }

    /// The link of an agent towards the root, if it has one.
    fn link_up_of(&self, agent: u32) -> Option<u32> {
        let Living { up, .. } = self.hosts[agent as usize].living.as_ref()?;
        *up
    }
}
