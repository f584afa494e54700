//! What every part of a world uses: its description, the clock, random numbers, and the results so far.

use crate::checkers::Checks;
use crate::clock::{Clock, Event};
use crate::digest::Digest;
use crate::rng::Rng;
use crate::spec::{Delay, WorldSpec};
use wireup_proto::Instant;

pub struct Cx {
    pub spec: WorldSpec,
    pub clock: Clock,
    pub rng: Rng,
    pub checks: Checks,
    pub digest: Digest,
}

impl Cx {
    pub fn new(spec: WorldSpec) -> Self {
        Cx {
            clock: Clock::new(spec.seed),
            rng: Rng::stream(spec.seed, "world"),
            checks: Checks::default(),
            digest: Digest::default(),
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

    pub fn problem(&mut self, problem: String) {
        self.checks.problem(problem);
    }

    /// The time on the clock of a host.
    pub fn local_now(&self, host: u32) -> Instant {
        self.clock.now() + self.clock_ahead_ns(host)
    }

    /// Time by which a host's clock is ahead of the world's (ns).
    pub fn clock_ahead_ns(&self, host: u32) -> u64 {
        self.spec.remote.as_ref().map_or(0, |remote| remote.hosts[host as usize].clock_ahead_ns)
    }
}
