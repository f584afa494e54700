//! Schedules attempts at several candidates for reaching a peer: happy eyeballs (RFC 8305, 5).
//!
//! The first candidate, usually an address, is tried at once; each further candidate when the previous candidate has
//! failed or has been tried for 250 ms. All attempts continue; the caller uses the first connection that succeeds and
//! closes the other connections. `Attempts` contains no socket and no clock.

use std::collections::VecDeque;
use std::fmt::Display;

/// Time after the start of an attempt until the next attempt starts, unless the first attempt fails earlier (ns): RFC
/// 8305, section 5.
const STAGGER_NS: u64 = 250_000_000;

pub struct Attempts<W> {
    waiting: VecDeque<W>,
    /// Time at which the next candidate is tried even if no attempt has failed (ns).
    next_ns: u64,
    under_way: usize,
    /// Description of each candidate that has been tried.
    tried: Vec<String>,
    /// Problem of each attempt that has failed, in the order of the failures.
    failures: Vec<String>,
}

/// The number of an attempt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Attempt(usize);

impl<W: Display> Attempts<W> {
    pub fn new(candidates: Vec<W>) -> Self {
        Attempts { waiting: candidates.into(), next_ns: 0, under_way: 0, tried: Vec::new(), failures: Vec::new() }
    }

    /// Adds candidates, which are tried after all previous candidates.
    pub fn extend(&mut self, candidates: Vec<W>) {
        self.waiting.extend(candidates);
    }

    /// The next candidate if a candidate is due. The attempt counts as in progress until `on_failure`.
    pub fn next(&mut self, now_ns: u64) -> Option<(Attempt, W)> {
        if self.under_way > 0 && now_ns < self.next_ns {
            return None;
        }
        let candidate = self.waiting.pop_front()?;
        self.under_way += 1;
        self.next_ns = now_ns + STAGGER_NS;
        self.tried.push(candidate.to_string());
        Some((Attempt(self.tried.len() - 1), candidate))
    }

    /// Notes that an attempt has failed, so that the next candidate is due.
    pub fn on_failure(&mut self, attempt: Attempt, problem: &str) {
        self.under_way = self.under_way.saturating_sub(1);
        self.next_ns = 0;
        self.failures.push(format!("{}: {problem}", self.tried[attempt.0]));
    }

    /// Notes that a transport has no candidates. `problem`: the reason why there are none.
    pub fn on_no_way(&mut self, problem: String) {
        self.failures.push(problem);
    }

    /// Time at which the next candidate is due if no attempt fails earlier (ns).
    pub fn deadline_ns(&self) -> Option<u64> {
        (!self.waiting.is_empty()).then_some(self.next_ns)
    }

    /// Whether any candidate was tried.
    pub fn has_tried(&self) -> bool {
        !self.tried.is_empty()
    }

    /// Whether all candidates have failed.
    pub fn is_over(&self) -> bool {
        self.under_way == 0 && self.waiting.is_empty()
    }

    /// The description of the candidate of an attempt.
    pub fn tried(&self, attempt: Attempt) -> &str {
        &self.tried[attempt.0]
    }

    /// Every candidate that has failed so far, with its problem.
    pub fn failed(&self) -> String {
        self.failures.join("; ")
    }

    /// If all candidates have failed, a text with each candidate and its problem.
    pub fn over(&self) -> Option<String> {
        let text = self.is_over().then(|| self.failed())?;
        Some(if text.is_empty() { "it offers no address to connect to".into() } else { text })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::SocketAddr;

    fn addresses() -> Vec<SocketAddr> {
        ["10.0.0.1:7", "[fd00::1]:7", "10.0.0.2:7"].map(|text| text.parse().unwrap()).to_vec()
    }

    #[test]
    fn the_next_attempt_waits_for_its_time_or_a_failure() {
        let [a, b, c] = addresses()[..] else { panic!("three") };
        let mut attempts = Attempts::new(addresses());
        assert_eq!(attempts.next(1_000), Some((Attempt(0), a)));
        assert_eq!(attempts.next(1_001), None);
        assert_eq!(attempts.deadline_ns(), Some(1_000 + STAGGER_NS));
        assert_eq!(attempts.next(1_000 + STAGGER_NS), Some((Attempt(1), b)));
        assert_eq!(attempts.next(1_001 + STAGGER_NS), None);
        attempts.on_failure(Attempt(1), "refused");
        assert_eq!(attempts.next(1_001 + STAGGER_NS), Some((Attempt(2), c)));
        assert_eq!(attempts.deadline_ns(), None);
        attempts.on_failure(Attempt(0), "no answer");
        assert_eq!(attempts.over(), None, "the last attempt is in progress");
        attempts.on_failure(Attempt(2), "no route");
        let over = "[fd00::1]:7: refused; 10.0.0.1:7: no answer; 10.0.0.2:7: no route";
        assert_eq!(attempts.over().as_deref(), Some(over));
    }

    #[test]
    fn without_addresses_the_attempts_are_over_at_once() {
        let mut attempts = Attempts::<SocketAddr>::new(Vec::new());
        assert_eq!(attempts.next(0), None);
        assert_eq!(attempts.over().as_deref(), Some("it offers no address to connect to"));
    }

    #[test]
    fn added_addresses_are_tried_after_all_others_failed() {
        let mut attempts = Attempts::new(vec!["by pigeon"]);
        attempts.next(5);
        attempts.on_failure(Attempt(0), "it rains");
        assert!(attempts.is_over());
        attempts.on_no_way("there is no road".into());
        attempts.extend(vec!["by boat"]);
        assert_eq!((attempts.over(), attempts.next(6)), (None, Some((Attempt(1), "by boat"))));
        attempts.on_failure(Attempt(1), "it leaks");
        assert_eq!(attempts.over().as_deref(), Some("by pigeon: it rains; there is no road; by boat: it leaks"));
    }
}
