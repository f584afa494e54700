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

pub struct Profile(TracePart);

impl Profile {
    /// The profile of a job for which the user has requested one; otherwise `None`.
    pub fn new(facts: &Facts, born: Born, now: Instant) -> Option<Box<Profile>> {
        facts.spec.options.profile.then(|| {
            Box::new(Profile(TracePart {
                agent: facts.me,
                node: facts.own_node(),
                host: facts.host(),
                process_ns: born.process_ns,
                bootstrap_ns: born.bootstrap_ns,
                job_ns: now.0,
                ..TracePart::default()
            }))
        })
    }

    /// Records the time at which the link to the parent is up.
    pub fn on_linked(&mut self, now: Instant) {
        self.0.linked_ns = now.0;
    }

    /// Records the time at which all ranks of the subtree are running.
    pub fn on_all_started(&mut self, now: Instant) {
        self.0.children_ns = now.0;
    }

    pub fn on_collective(&mut self, trace: FenceTrace) {
        self.0.fences.push(trace);
    }

    /// Ends the profile when the job has ended on this agent; returns the frame for the root.
    pub fn finish(
        mut self,
        facts: &Facts,
        clock: &ClockOffset,
        traffic: impl Iterator<Item = ExchangeTraffic>,
        ranks: &[Process],
    ) -> Frame {
        let part = &mut self.0;
        if !facts.root {
            (part.clock_of, part.clock_offset_ns, part.clock_error_ns) = clock.estimate();
        }
        part.traffic = traffic.fold(ExchangeTraffic::default(), both);
        part.ranks = ranks.iter().map(|process| process.trace.clone()).collect();
        frame(facts, peer::encode(&self.0).into())
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
