//! Records data for a job's profile on this node: time stamps, collectives, traffic.

use super::facts::Facts;
use super::ranks::Process;
use crate::clock_offset::ClockOffset;
use crate::time::Instant;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use wireup_wire::frame::{Frame, UpFrame};
use wireup_wire::peer::{self, ExchangeTraffic, FenceTrace, TracePart, Traffic};

/// Time stamps of the agent's own start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Born {
    pub process_ns: u64,
    pub bootstrap_ns: u64,
}

pub struct Profile {
    part: TracePart,
    /// Number of most recent collectives whose results the driver may not yet have stored and sent to the ranks: their
    /// `out_ns` is the time of the event that completed them.
    unanswered: usize,
}

impl Profile {
    /// The profile of a job for which the user has requested one; otherwise `None`.
    pub fn new(facts: &Facts, born: Born, now: Instant) -> Option<Box<Profile>> {
        facts.spec.options.profile.then(|| {
            let part = TracePart {
                agent: facts.me,
                node: facts.own_node(),
                host: facts.host(),
                process_ns: born.process_ns,
                bootstrap_ns: born.bootstrap_ns,
                job_ns: now.0,
                ..TracePart::default()
            };
            Box::new(Profile { part, unanswered: 0 })
        })
    }

    /// Records the time at which the link to the parent is up.
    pub fn on_linked(&mut self, now: Instant) {
        self.part.linked_ns = now.0;
    }

    /// Records the time at which all ranks of the subtree are running.
    pub fn on_all_started(&mut self, now: Instant) {
        self.part.children_ns = now.0;
    }

    pub fn on_collective(&mut self, trace: FenceTrace) {
        self.part.fences.push(trace);
        self.unanswered += 1;
    }

    /// When the agent must be called next: immediately, if a completed collective lacks its end time (`out_ns`).
    /// By that call the driver has stored the results and answered the ranks.
    pub fn deadline(&self) -> Option<Instant> {
        self.part.fences.last().filter(|_| self.unanswered > 0).map(|fence| Instant(fence.out_ns))
    }

    /// An event begins at `now`. The driver has carried out what earlier events asked for: it has stored the results
    /// of their collectives and answered the ranks.
    pub fn on_event(&mut self, now: Instant) {
        if self.deadline().is_some_and(|delivered| delivered < now) {
            self.on_answered(now);
        }
    }

    pub fn on_answered(&mut self, now: Instant) {
        let unanswered = self.part.fences.iter_mut().rev().take(std::mem::take(&mut self.unanswered));
        unanswered.for_each(|fence| fence.out_ns = now.0);
    }

    /// Ends the profile when the job has ended on this agent; returns the frame for the root.
    pub fn finish(
        mut self,
        facts: &Facts,
        clock: &ClockOffset,
        traffic: impl Iterator<Item = ExchangeTraffic>,
        ranks: &[Process],
    ) -> Frame {
        let part = &mut self.part;
        if !facts.root {
            (part.clock_of, part.clock_offset_ns, part.clock_error_ns) = clock.estimate();
        }
        part.traffic = traffic.fold(ExchangeTraffic::default(), both);
        part.ranks = ranks.iter().map(|process| process.trace.clone()).collect();
        frame(facts, peer::encode(&self.part).into())
    }
}

/// The frame in which a trace, a child's or this agent's own, travels to the root.
pub fn frame(facts: &Facts, payload: Bytes) -> Frame {
    facts.frame(UpFrame::Trace, 0, 0, payload)
}

fn both(one: ExchangeTraffic, other: ExchangeTraffic) -> ExchangeTraffic {
    let sum = |one: Traffic, other: Traffic| Traffic {
        frames_in: one.frames_in + other.frames_in,
        bytes_in: one.bytes_in + other.bytes_in,
        frames_out: one.frames_out + other.frames_out,
        bytes_out: one.bytes_out + other.bytes_out,
    };
    ExchangeTraffic {
        up: sum(one.up, other.up),
        down: sum(one.down, other.down),
        direct: sum(one.direct, other.direct),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_collective_lasts_until_the_event_after_its_answers() {
        let mut profile = Profile { part: TracePart::default(), unanswered: 0 };
        let delivered = |out_ns| FenceTrace { out_ns, ..FenceTrace::default() };
        profile.on_collective(delivered(5));
        assert_eq!(profile.deadline(), Some(Instant(5)));
        // The event that has completed the collective may concern several parts of the job.
        profile.on_event(Instant(5));
        profile.on_event(Instant(7));
        assert_eq!(profile.deadline(), None);
        profile.on_collective(delivered(8));
        profile.on_collective(delivered(8));
        profile.on_answered(Instant(9));
        profile.on_event(Instant(11));
        assert_eq!(profile.part.fences.iter().map(|fence| fence.out_ns).collect::<Vec<_>>(), [7, 9, 9]);
    }
}
