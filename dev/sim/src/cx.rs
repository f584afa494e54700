//! The context that all parts of a simulated world share: its spec, clock, random numbers, and results so far.

use crate::checkers::Checks;
use crate::clock::{Clock, Event, START};
use crate::costs::{Costs, Machines};
use crate::digest::Digest;
use crate::phases::{Point, Progress};
use crate::remote::HostSpec;
use crate::rng::Rng;
use crate::spec::{Delay, WorldSpec};
use wireup_proto::Instant;
use wireup_proto::io::Input;
use wireup_wire::ids::AgentId;
use wireup_wire::peer::Rejoin;

pub struct Cx {
    pub spec: WorldSpec,
    pub clock: Clock,
    pub rng: Rng,
    machines: Option<Machines>,
    pub checks: Checks,
    pub digest: Digest,
    pub pending: Vec<Option<Pending>>,
}

/// Something that happens to a process later, if the process still runs by then.
pub enum Pending {
    Hears {
        agent: u32,
        input: Input,
    },
    /// The process exits if it has not linked to its parent by then.
    GivesUp {
        agent: u32,
    },
    /// The process dials another agent to make a direct link.
    Dials {
        agent: u32,
        target: AgentId,
        address: Option<String>,
    },
    /// The process, which has lost its parent, dials the root.
    Rejoins {
        agent: u32,
        root: Option<String>,
        rejoin: Rejoin,
    },
}

impl Pending {
    pub fn agent(&self) -> u32 {
        let (Pending::Hears { agent, .. }
        | Pending::GivesUp { agent }
        | Pending::Dials { agent, .. }
        | Pending::Rejoins { agent, .. }) = self;
        *agent
    }
}

impl Cx {
    pub fn new(spec: WorldSpec) -> Self {
        Cx {
            clock: Clock::new(spec.seed),
            rng: Rng::stream(spec.seed, "world"),
            machines: Machines::new(&spec),
            checks: Checks::default(),
            digest: Digest::default(),
            pending: Vec::new(),
            spec,
        }
    }

    pub fn draw(&mut self, delay: Delay) -> u64 {
        delay.draw(&mut self.rng)
    }

    /// Schedules an event after a delay that is drawn.
    pub fn after(&mut self, delay: Delay, event: Event) {
        let delay_ns = self.draw(delay);
        self.clock.after(delay_ns, event);
    }

    /// Does work on a host, from `at` or later; returns when it is done. `ns`: function that gives the work's processor
    /// time.
    pub fn work(&mut self, host: u32, at: Instant, ns: impl FnOnce(&Costs) -> u64) -> Instant {
        match (&mut self.machines, &self.spec.timing.costs) {
            (Some(machines), Some(costs)) => machines.work(host, at, ns(costs)),
            _ => at,
        }
    }

    /// Begins a turn of a host's agent; returns its extra cost (ns) after turns of other agents on the machine.
    pub fn begins_turn(&mut self, host: u32) -> u64 {
        self.machines.as_mut().map_or(0, |machines| machines.begins_turn(host))
    }

    /// The progress of the run so far.
    pub fn progress(&self) -> Progress {
        let (events, elapsed_ns) = (self.clock.happened(), self.clock.now() - START);
        Progress { events, elapsed_ns, phases: self.checks.phases }
    }

    /// Records that one more process has reached a point of the run.
    pub fn reach(&mut self, point: Point) {
        self.checks.phases.reach(point, self.clock.now());
    }

    /// Returns the time at which a frame may enter a link, if its sender is ready at `at`. If the network card is
    /// slower than the link, the returned time is the time at which the card has sent the frame, minus the time that
    /// the link takes for the frame, so that the link does not finish before the card.
    pub fn leaves_card(&mut self, host: u32, at: Instant, bytes: usize) -> Instant {
        let Some(machines) = &mut self.machines else { return at };
        let link_ns = bytes as u64 * 1000 / self.spec.timing.link_bytes_per_us.max(1);
        let sent = machines.card_sends(host, at, bytes);
        at.max(Instant(sent.0.saturating_sub(link_ns)))
    }

    pub fn problem(&mut self, problem: String) {
        self.checks.problem(problem);
    }

    pub fn later(&mut self, delay_ns: u64, pending: Pending) {
        self.clock.after(delay_ns, Event::Later(self.pending.len() as u32));
        self.pending.push(Some(pending));
    }

    pub fn host_spec(&self, host: u32) -> Option<HostSpec> {
        self.spec.remote.as_ref().map(|remote| remote.hosts[host as usize])
    }

    /// The current time on the clock of a host.
    pub fn local_now(&self, host: u32) -> Instant {
        self.clock.now() + self.clock_ahead_ns(host)
    }

    /// Time by which a host's clock is ahead of the world's (ns).
    pub fn clock_ahead_ns(&self, host: u32) -> u64 {
        self.host_spec(host).map_or(0, |host| host.clock_ahead_ns)
    }
}
