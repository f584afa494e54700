//! When to dial which of several addresses: happy eyeballs (RFC 8305, 5).
//!
//! The first address is dialled at once; the next one when the one before has failed or is 250 ms old. All attempts stay
//! under way; whoever owns them takes the first that succeeds and closes the others. Holds no socket and no clock.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::net::SocketAddr;

/// How long an attempt is alone: RFC 8305's "Connection Attempt Delay".
const STAGGER_NS: u64 = 250_000_000;

#[derive(Default)]
pub struct Attempts {
    waiting: VecDeque<SocketAddr>,
    /// When the next address is due, whatever becomes of those before it.
    next_ns: u64,
    under_way: usize,
    failures: Vec<(SocketAddr, String)>,
}

impl Attempts {
    pub fn new(addresses: Vec<SocketAddr>) -> Self {
        Attempts { waiting: addresses.into(), ..Attempts::default() }
    }

    /// The next address if it is due. It is under way from then on, until `on_failure`.
    pub fn next(&mut self, now_ns: u64) -> Option<SocketAddr> {
        if self.under_way > 0 && now_ns < self.next_ns {
            return None;
        }
        let address = self.waiting.pop_front()?;
        self.under_way += 1;
        self.next_ns = now_ns + STAGGER_NS;
        Some(address)
    }

    /// An attempt is over; the next one is due.
    pub fn on_failure(&mut self, address: SocketAddr, problem: String) {
        self.under_way = self.under_way.saturating_sub(1);
        self.next_ns = 0;
        self.failures.push((address, problem));
    }

    /// When `next` has an address, if nothing fails before.
    pub fn deadline_ns(&self) -> Option<u64> {
        (!self.waiting.is_empty()).then_some(self.next_ns)
    }

    /// Once nothing is left to hope for: every address tried, with its problem.
    pub fn over(&self) -> Option<String> {
        if self.under_way > 0 || !self.waiting.is_empty() {
            return None;
        }
        let mut text = String::new();
        for (address, problem) in &self.failures {
            let semicolon = if text.is_empty() { "" } else { "; " };
            // Writing to a string cannot fail.
            let _ = write!(text, "{semicolon}{address}: {problem}");
        }
        Some(if text.is_empty() { "it offers no address to dial".into() } else { text })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses() -> Vec<SocketAddr> {
        ["10.0.0.1:7", "[fd00::1]:7", "10.0.0.2:7"].map(|text| text.parse().unwrap()).to_vec()
    }

    #[test]
    fn the_next_waits_for_its_time_or_a_failure() {
        let [a, b, c] = addresses()[..] else { panic!("three") };
        let mut attempts = Attempts::new(addresses());
        assert_eq!(attempts.next(1_000), Some(a));
        assert_eq!(attempts.next(1_001), None);
        assert_eq!(attempts.deadline_ns(), Some(1_000 + STAGGER_NS));
        assert_eq!(attempts.next(1_000 + STAGGER_NS), Some(b));
        assert_eq!(attempts.next(1_001 + STAGGER_NS), None);
        attempts.on_failure(b, "refused".into());
        assert_eq!(attempts.next(1_001 + STAGGER_NS), Some(c));
        assert_eq!(attempts.deadline_ns(), None);
        attempts.on_failure(a, "no answer".into());
        assert_eq!(attempts.over(), None, "the last is under way");
        attempts.on_failure(c, "no route".into());
        let over = "[fd00::1]:7: refused; 10.0.0.1:7: no answer; 10.0.0.2:7: no route";
        assert_eq!(attempts.over().as_deref(), Some(over));
    }

    #[test]
    fn without_addresses_it_is_over_at_once() {
        let mut attempts = Attempts::new(Vec::new());
        assert_eq!(attempts.next(0), None);
        assert_eq!(attempts.over().as_deref(), Some("it offers no address to dial"));
    }
}
