//! Notices a PMIx server process that has stopped answering: a client may hold up the library's only thread, the
//! library may wait for itself, or somebody may have stopped the process. Its ranks would wait in their next fence
//! forever.
//!
//! ```text
//!   serves ── a question every PMIX_PULSE_NS ──► the process passes it to the library's thread, which answers
//!   no answer for PMIX_SILENT_NS_MAX: the job ends, and the node is named
//! ```
//!
//! Cost: two short messages within the node, four times a minute.

use crate::time::Instant;
use wireup_wire::limits::{PMIX_PULSE_NS, PMIX_SILENT_NS_MAX};

/// What the caller must do now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Beat {
    Nothing,
    Ask,
    /// The process has been silent for too long.
    Dead,
}

#[derive(Default)]
pub struct Pulse {
    /// When the next question is due; `None`: the process does not serve.
    next_at: Option<Instant>,
    /// When the oldest unanswered question was sent.
    asked_at: Option<Instant>,
}

impl Pulse {
    /// The process serves from now on.
    pub fn begin(&mut self, now: Instant) {
        (self.next_at, self.asked_at) = (Some(now + PMIX_PULSE_NS), None);
    }

    /// The process is no longer questioned.
    pub fn end(&mut self) {
        *self = Pulse::default();
    }

    pub fn on_answer(&mut self) {
        self.asked_at = None;
    }

    pub fn deadline(&self) -> Option<Instant> {
        self.next_at
    }

    pub fn on_tick(&mut self, now: Instant) -> Beat {
        let Some(at) = self.next_at.filter(|at| *at <= now) else { return Beat::Nothing };
        if now - at >= PMIX_PULSE_NS {
            // This agent was stopped itself, and perhaps the process with it: an answer may be unread.
            self.asked_at = None;
        }
        self.next_at = Some(now + PMIX_PULSE_NS);
        let since = *self.asked_at.get_or_insert(now);
        if now - since >= PMIX_SILENT_NS_MAX { Beat::Dead } else { Beat::Ask }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The beats of so many questions, each at its time.
    fn beats(pulse: &mut Pulse, count: usize) -> Vec<Beat> {
        (0..count).map(|_| pulse.on_tick(pulse.deadline().expect("it serves"))).collect()
    }

    #[test]
    fn a_silent_process_is_dead_after_the_limit_and_an_answer_begins_anew() {
        let mut pulse = Pulse::default();
        assert_eq!((pulse.deadline(), pulse.on_tick(Instant(1))), (None, Beat::Nothing));
        pulse.begin(Instant(1));
        assert_eq!(pulse.on_tick(Instant(2)), Beat::Nothing);
        let questions = (PMIX_SILENT_NS_MAX / PMIX_PULSE_NS) as usize;
        assert_eq!(beats(&mut pulse, questions), vec![Beat::Ask; questions]);
        pulse.on_answer();
        assert_eq!(beats(&mut pulse, questions), vec![Beat::Ask; questions]);
        assert_eq!(beats(&mut pulse, 1), [Beat::Dead]);
        pulse.end();
        assert_eq!(pulse.deadline(), None);
    }

    #[test]
    fn an_agent_that_was_stopped_itself_blames_nobody() {
        let mut pulse = Pulse::default();
        pulse.begin(Instant(1));
        assert_eq!(beats(&mut pulse, 1), [Beat::Ask]);
        let late = pulse.deadline().expect("it serves") + 2 * PMIX_SILENT_NS_MAX;
        assert_eq!(pulse.on_tick(late), Beat::Ask);
    }
}
