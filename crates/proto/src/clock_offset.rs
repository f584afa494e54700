//! Estimates the offset between an agent's clock and its parent's; converts the traces of all agents to the root's
//! clock.
//!
//! The child asks its parent for the time several times and uses the answer with the shortest round trip. With a round
//! trip of `r` the parent read its clock at some time between question and answer, so the error of the estimate is at
//! most half the round trip:
//!
//! ```text
//!   child   asked ─────────────── now       offset = (asked + now) / 2 − told
//!   parent           told                   error  = (now − asked) / 2
//! ```

use crate::time::Instant;
use std::collections::BTreeMap;
use wireup_wire::ids::AgentId;
use wireup_wire::peer::{FenceTrace, RemoteShell, TracePart};
use wireup_wire::talk::{Control, SessionUp};

/// Number of questions to the parent. Chosen: the fastest of eight answers is mostly free of scheduling delays.
const ROUNDS: u32 = 8;

#[derive(Default)]
pub struct ClockOffset {
    rounds: u32,
    /// Offset and round trip (ns) of the fastest answer.
    best: Option<(i64, u64)>,
    /// The parent to which the questions are sent.
    of: AgentId,
}

impl ClockOffset {
    /// The initial offset of an agent that this remote shell starts: exactly zero on its parent's machine, unknown
    /// elsewhere.
    pub fn of(shell: &RemoteShell) -> Self {
        let best = shell.start_method().same_machine.then_some((0, 0));
        ClockOffset { best, ..ClockOffset::default() }
    }

    /// Forgets what the previous parent has answered, because the agent has another one. On one machine all agents have
    /// the same clock, so there is nothing to forget.
    pub fn start_over(&mut self) {
        if self.rounds > 0 {
            *self = ClockOffset::default();
        }
    }

    /// Whether the offset is unknown and the parent was not asked for its time yet.
    pub fn is_new(&self) -> bool {
        self.rounds == 0 && self.best.is_none()
    }

    /// Returns the first question for this parent, and records that it is sent.
    pub fn ask(&mut self, parent: AgentId, now: Instant) -> Control {
        (self.rounds, self.of) = (1, parent);
        Control::SessionUp(SessionUp::ClockAsk { asked_ns: now.0 })
    }

    /// Handles an answer; returns the next question, if there is one.
    pub fn on_told(&mut self, now: Instant, asked_ns: u64, told_ns: u64) -> Option<Control> {
        let round_trip = now.0.checked_sub(asked_ns)?;
        let middle = asked_ns + round_trip / 2;
        if self.best.is_none_or(|(_, best)| round_trip < best) {
            self.best = Some((middle.wrapping_sub(told_ns) as i64, round_trip));
        }
        self.rounds += 1;
        (self.rounds <= ROUNDS).then_some(Control::SessionUp(SessionUp::ClockAsk { asked_ns: now.0 }))
    }

    pub fn is_known(&self) -> bool {
        self.best.is_some()
    }

    /// The parent, the offset to the parent's clock and the maximum error of the offset (ns); without an answer the
    /// error is unbounded.
    pub fn estimate(&self) -> (AgentId, i64, u64) {
        let (offset, error) = self.best.map_or((0, u64::MAX), |(offset, round_trip)| (offset, round_trip.div_ceil(2)));
        (self.of, offset, error)
    }
}

/// Converts all time stamps to the root's clock: `clock_offset_ns` and `clock_error_ns` become relative to the root.
pub fn align(parts: &mut [TracePart]) {
    let clock = |part: &TracePart| (part.clock_offset_ns, part.clock_error_ns, part.clock_of);
    let own: BTreeMap<AgentId, (i64, u64, AgentId)> = parts.iter().map(|part| (part.agent, clock(part))).collect();
    for part in parts {
        let (mut offset, mut error, mut at) = (0i64, 0u64, part.agent);
        // Parents lead to the root, except in malformed traces: so the number of steps is limited.
        for _ in 0..=own.len() {
            // The clock of an agent without a trace is unknown.
            let unknown = if at == AgentId(0) { 0 } else { u64::MAX };
            let (more, doubt, of) = own.get(&at).copied().unwrap_or((0, unknown, AgentId(0)));
            (offset, error) = (offset.wrapping_add(more), error.saturating_add(doubt));
            if at == AgentId(0) {
                break;
            }
            at = of;
        }
        (part.clock_offset_ns, part.clock_error_ns) = (offset, error);
        shift(part, offset);
    }
}

fn shift(part: &mut TracePart, offset: i64) {
    let own =
        [&mut part.process_ns, &mut part.bootstrap_ns, &mut part.linked_ns, &mut part.job_ns, &mut part.children_ns];
    let ranks = part.ranks.iter_mut().flat_map(|rank| {
        [&mut rank.spawn_ns, &mut rank.exec_ns, &mut rank.init_ns, &mut rank.finalize_ns, &mut rank.exit_ns]
    });
    let fences = part.fences.iter_mut().flat_map(|fence| {
        let FenceTrace { first_in_ns, last_in_ns, gathered_ns, received_ns, out_ns, .. } = fence;
        [first_in_ns, last_in_ns, gathered_ns, received_ns, out_ns]
    });
    // A time stamp of 0 means that the event did not happen.
    for stamp in own.into_iter().chain(ranks).chain(fences).filter(|stamp| **stamp != 0) {
        *stamp = stamp.saturating_add_signed(offset.saturating_neg()).max(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Whatever the delays, the true offset lies within the stated error.
        #[test]
        fn the_error_of_an_offset_is_within_its_bound(
            offset in -1_000_000_000i64..1_000_000_000,
            delays in prop::collection::vec((0u64..1_000_000, 0u64..1_000_000), 8),
        ) {
            let mut estimate = ClockOffset::default();
            let mut now = 10_000_000_000u64;
            let mut question = Some(estimate.ask(AgentId(0), Instant(now)));
            for (there, back) in delays {
                let Some(Control::SessionUp(SessionUp::ClockAsk { asked_ns })) = question else { break };
                let told_ns = (now + there).saturating_add_signed(-offset);
                now += there + back;
                question = estimate.on_told(Instant(now), asked_ns, told_ns);
            }
            prop_assert!(question.is_none());
            let (_, found, error) = estimate.estimate();
            prop_assert!(found.abs_diff(offset) <= error + 1, "{found} for {offset}, error {error}");
        }
    }

    #[test]
    fn an_offset_without_a_measurement_is_unknown() {
        assert_eq!(ClockOffset::default().estimate(), (AgentId(0), 0, u64::MAX));
        let mut parts =
            [TracePart { agent: AgentId(2), clock_error_ns: 10, clock_of: AgentId(1), ..TracePart::default() }];
        align(&mut parts);
        assert_eq!(parts[0].clock_error_ns, u64::MAX);
    }

    #[test]
    fn offsets_add_up_along_the_tree() {
        let part = |agent, clock_offset_ns, process_ns| TracePart {
            agent: AgentId(agent),
            clock_offset_ns,
            clock_error_ns: 10,
            clock_of: AgentId(agent.max(1) - 1),
            process_ns,
            ..TracePart::default()
        };
        // A chain 0 - 1 - 2; the time stamps of the three agents denote the same moment.
        let mut parts = [part(0, 0, 1_000), part(1, 500, 1_500), part(2, -700, 800)];
        parts[0].clock_error_ns = 0;
        align(&mut parts);
        assert!(parts.iter().all(|part| part.process_ns == 1_000 && part.linked_ns == 0));
        assert_eq!(parts[2].clock_offset_ns, -200);
        assert_eq!(parts[2].clock_error_ns, 20);
        // Agent 2 has lost its parent, and the root is its new parent.
        let mut parts = [part(0, 0, 1_000), part(1, 500, 1_500), part(2, -200, 800)];
        parts[2].clock_of = AgentId(0);
        align(&mut parts);
        assert_eq!((parts[2].process_ns, parts[2].clock_error_ns), (1_000, 20), "of 0 and 2");
    }

    #[test]
    fn parts_that_name_each_other_have_an_end() {
        let part = |agent, of| TracePart { agent: AgentId(agent), clock_of: AgentId(of), ..TracePart::default() };
        align(&mut [part(1, 2), part(2, 1), part(3, 3)]);
    }
}
