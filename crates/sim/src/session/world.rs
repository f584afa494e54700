//! The main loop of a world of sessions: carries out planned actions until there are none.

use super::checks::{Checks, Report};
use super::dials::Wall;
use super::hosts::{AgentCopy, Host};
use super::launchers::LauncherHost;
use super::processes::Doing;
use super::rules::Rules;
use super::spec::SessionSpec;
use crate::clock::{Clock, Event};
use crate::digest::Digest;
use crate::net::{Arrival, End, Net};
use crate::rng::Rng;
use wireup_proto::Instant;
use wireup_proto::io::{Input, LinkId, Peer, ShellId};
use wireup_wire::ids::{AgentId, JobId};
use wireup_wire::peer::{Bootstrap, Rejoin};

/// Limit of events: no world needs more.
const EVENTS_MAX: u64 = 2_000_000;

/// A planned action. It has no effect if its copy has ended by then.
#[derive(Clone, Debug)]
pub enum Plan {
    Born { starter: u32, shell: ShellId, bootstrap: Box<Bootstrap> },
    Dials { copy: u32, parent: String },
    Dies { copy: u32 },
    Hears { copy: u32, input: Input },
    DialsDirect { copy: u32, agent: AgentId, addresses: Vec<String> },
    Rejoins { copy: u32, root: Vec<String>, rejoin: Rejoin },
    Continues { copy: u32 },
    Rank { copy: u32, job: JobId, local: u16, doing: Doing },
    Reads { copy: u32, job: JobId, local: u16 },
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
    pub(super) copies: Vec<AgentCopy>,
    pub(super) walls: Vec<Wall>,
    pub(super) rules: Rules,
    pub(super) launchers: Vec<LauncherHost>,
    /// The role of the peer, as seen from each end of each link.
    pub(super) peers: Vec<[Peer; 2]>,
    pub(super) plans: Vec<Option<Plan>>,
    pub(super) checks: Checks,
    pub(super) digest: Digest,
    pub(super) born: Instant,
}

/// Runs a world until nothing is planned any more, checks what is left, and ends it.
pub fn run(spec: SessionSpec) -> Report {
    let mut world = World::new(spec);
    world.begin();
    world.go_on();
    world.check_idle();
    world.rules.on_ending();
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
            copies: Vec::new(),
            walls: Vec::new(),
            rules: Rules::default(),
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
        self.come_alive(super::hosts::root_config(&self.spec, self.clock.now()), None);
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
                return self.checks.problem("too many events".into());
            }
            self.on_event(event);
            self.check_rules();
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
            Event::AgentTurn(copy) => self.on_turn(copy),
            Event::AgentTick(copy) => self.on_tick(copy),
            Event::LinkFree(link, lane) => self.net.on_free(&mut self.clock, link, usize::from(lane)),
            Event::LinkArrive(link, lane) => self.on_arrive(link, usize::from(lane)),
            Event::LinkSilent(link, lane) => self.net.on_silent(&mut self.clock, link, usize::from(lane)),
            event => self.checks.problem(format!("{event:?} belongs to single runs only")),
        }
    }

    fn on_plan(&mut self, plan: Plan) {
        match plan {
            Plan::Born { starter, shell, bootstrap } => self.on_born(starter, shell, *bootstrap),
            Plan::Launcher { job } => self.on_launcher(Some(job)),
            Plan::Launches { launcher } => self.on_launches(launcher),
            Plan::LauncherDies { launcher } => self.on_launcher_dies(launcher),
            Plan::LauncherWrites { launcher } => self.on_launcher_writes(launcher),
            Plan::Fault { index } => self.on_fault(self.spec.faults[index].1),
            Plan::Dials { copy, .. }
            | Plan::Dies { copy }
            | Plan::Hears { copy, .. }
            | Plan::DialsDirect { copy, .. }
            | Plan::Rejoins { copy, .. }
            | Plan::Continues { copy }
            | Plan::Rank { copy, .. }
            | Plan::Reads { copy, .. } => {
                self.living(copy).is_some().then(|| self.on_plan_of(plan));
            }
        }
    }

    /// Carries out an action of a running copy.
    fn on_plan_of(&mut self, plan: Plan) {
        match plan {
            Plan::Dials { copy, parent } => self.on_dials(copy, parent),
            Plan::Dies { copy } => self.agent_dies(copy),
            Plan::Hears { copy, input } => self.tell(copy, input),
            Plan::DialsDirect { copy, agent, addresses } => self.on_dials_direct(copy, agent, addresses),
            Plan::Rejoins { copy, root, rejoin } => self.on_rejoins(copy, &root, rejoin),
            Plan::Continues { copy } => self.on_continues(copy),
            Plan::Rank { copy, job, local, doing } => self.on_rank(copy, job, local, doing),
            Plan::Reads { copy, job, local } => self.on_reads(copy, job, local),
            plan => self.checks.problem(format!("{plan:?} does not belong to an agent")),
        }
    }

    fn on_arrive(&mut self, link: u32, lane: usize) {
        let Some(arrival) = self.net.on_arrive(link, lane) else { return };
        match self.net.ends(link)[1 - lane] {
            End::Launcher(LinkId(launcher)) => self.launcher_hears(launcher, arrival),
            End::Agent(copy, at) => {
                let peer = self.peers[link as usize][1 - lane];
                match arrival {
                    Arrival::Up => {
                        if matches!(peer, Peer::Child { .. }) {
                            self.on_child_link(link);
                        }
                        self.tell(copy, Input::LinkUp { link: at, peer, local: String::new() });
                    }
                    Arrival::Bytes(head, body) => {
                        self.tell(copy, Input::LinkBytes { link: at, bytes: head });
                        if !body.is_empty() {
                            self.tell(copy, Input::LinkBytes { link: at, bytes: body });
                        }
                    }
                    Arrival::Down(problem) => {
                        if lane == 1 {
                            self.rules.on_unlinked(link);
                        }
                        self.tell(copy, Input::LinkDown { link: at, problem: problem.into() });
                    }
                }
            }
        }
    }
}
