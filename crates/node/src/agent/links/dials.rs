//! The agents that are being dialled, each until there is a link: which address is tried next, and who has not
//! answered. No sockets and no clock: `links` opens the connections.
//!
//! Transports give candidates in the order of `Which::ALL`; the next transport is used when all candidates of the
//! previous one have failed.
//!
//! Happy eyeballs (RFC 8305, 5): the first candidate, usually an address, is tried at once; each further candidate when
//! the previous candidate has failed or has been tried for 250 ms. All attempts continue; the caller uses the first
//! connection that succeeds and closes the other connections.

use crate::agent::transports::{Candidate, Offer, Transports, Which};
use crate::transport::link::LinkError;
use std::collections::{BTreeMap, VecDeque};
use std::fmt::Display;
use wireup_proto::io::Input;
use wireup_wire::ids::AgentId;
use wireup_wire::peer::Role;

#[derive(Default)]
pub struct Dials {
    by_target: BTreeMap<AgentId, Dial>,
    unreachable: Option<String>,
    was_dialled_in_vain: bool,
}

struct Dial {
    role: Role,
    attempts: Attempts<Candidate>,
    offer: Offer,
    /// Transports that have not given candidates yet.
    left: &'static [Which],
    begun_ns: u64,
    until_ns: u64,
}

/// An attempt to dial an agent at one candidate, to be started now.
pub(super) struct Due {
    pub target: AgentId,
    /// The role that this agent announces to the agent that it dials.
    pub role: Role,
    pub attempt: Attempt,
    pub candidate: Candidate,
    /// Time at which all attempts to dial the target end (ns).
    pub until_ns: u64,
}

impl Dials {
    /// Begins to dial an agent, until `until_ns` at the latest. If the agent is dialled both for a direct link and as
    /// the parent, only the parent link is made; the returned input then reports that the direct link has failed.
    pub(super) fn dial(
        &mut self,
        target: AgentId,
        role: Role,
        offer: Offer,
        now_ns: u64,
        until_ns: u64,
    ) -> Option<Input> {
        let before = self.by_target.get(&target).map(|dial| dial.role);
        if role != Role::Direct || before.is_none_or(|before| before == Role::Direct) {
            let attempts = Attempts::new(Vec::new());
            let dial = Dial { role, attempts, offer, left: Which::ALL, begun_ns: now_ns, until_ns };
            self.by_target.insert(target, dial);
        }
        let gives_way = before.is_some_and(|before| (before == Role::Direct) != (role == Role::Direct));
        gives_way.then(|| Input::DialFailed { agent: Some(target), problem: "it is to be this agent's parent".into() })
    }

    /// The next attempt that is due.
    pub(super) fn next(&mut self, now_ns: u64, transports: &mut Transports) -> Option<Due> {
        self.by_target.iter_mut().find_map(|(&target, dial)| {
            let (attempt, candidate) = dial.next(now_ns, transports)?;
            Some(Due { target, role: dial.role, attempt, candidate, until_ns: dial.until_ns })
        })
    }

    pub(super) fn on_failure(&mut self, target: AgentId, attempt: Attempt, error: &LinkError) {
        if let Some(dial) = self.by_target.get_mut(&target) {
            dial.attempts.on_failure(attempt, &error.to_string());
        }
    }

    /// Ends the dials of which all attempts have failed. Returns inputs that report them; a parent that was dialled at
    /// the start is reported by `unreachable`.
    pub(super) fn give_up(&mut self) -> Vec<Input> {
        let mut failed = Vec::new();
        self.by_target.retain(|&agent, dial| {
            let Some(problem) = dial.attempts.over() else { return true };
            self.was_dialled_in_vain |= !dial.attempts.tried.is_empty();
            match dial.role {
                Role::Direct => failed.push(Input::DialFailed { agent: Some(agent), problem }),
                Role::Rejoin(_) => failed.push(Input::DialFailed { agent: None, problem }),
                Role::Child { .. } => self.unreachable = Some(problem),
            }
            false
        });
        failed
    }

    /// Ends the dial of an agent with which a link is up. Returns an input if that agent is the parent, dialled at the
    /// start.
    pub(super) fn on_up(&mut self, target: AgentId, attempt: Attempt, now_ns: u64) -> Option<Input> {
        let dial = self.by_target.remove(&target).filter(|dial| matches!(dial.role, Role::Child { .. }))?;
        Some(Input::ParentReached {
            address: dial.attempts.tried(attempt).to_owned(),
            took_ns: now_ns.saturating_sub(dial.begun_ns),
            failed: dial.attempts.failed(),
        })
    }

    pub fn is_empty(&self) -> bool {
        self.by_target.is_empty()
    }

    /// Time at which the next attempt is due (ns); it is due earlier if a previous one fails.
    pub fn deadline_ns(&self) -> Option<u64> {
        self.by_target.values().filter_map(|dial| dial.attempts.deadline_ns()).min()
    }

    /// Why the parent cannot be reached: every address tried, with its problem.
    pub fn unreachable(&self) -> Option<&str> {
        self.unreachable.as_deref()
    }

    /// Whether some address was dialled without success, which a firewall may have caused.
    pub fn was_dialled_in_vain(&self) -> bool {
        self.was_dialled_in_vain
    }
}

impl Dial {
    /// The next candidate, if one is due.
    fn next(&mut self, now_ns: u64, transports: &mut Transports) -> Option<(Attempt, Candidate)> {
        while self.attempts.is_over()
            && let Some((which, left)) = self.left.split_first()
        {
            self.left = left;
            match transports.get(*which).map(|transport| transport.candidates(&self.offer)) {
                Some(Ok(candidates)) => self.attempts.waiting.extend(candidates),
                Some(Err(problem)) => self.attempts.failures.push(problem),
                None => {}
            }
        }
        self.attempts.next(now_ns)
    }
}

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

    /// Time at which the next candidate is due if no attempt fails earlier (ns).
    pub fn deadline_ns(&self) -> Option<u64> {
        (!self.waiting.is_empty()).then_some(self.next_ns)
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
    use crate::agent::links::tests::config;
    use std::io;
    use std::net::SocketAddr;
    use wireup_wire::peer::Rejoin;

    const OTHER: AgentId = AgentId(3);
    const PARENT: Role = Role::Child { incarnation: 0 };

    fn offer(addresses: &[&str]) -> Offer {
        Offer { addresses: addresses.iter().map(|text| (*text).to_owned()).collect(), ..Offer::default() }
    }

    fn refused() -> LinkError {
        io::Error::from(io::ErrorKind::ConnectionRefused).into()
    }

    #[test]
    fn all_addresses_are_tried_and_what_follows_depends_on_the_role() {
        let mut transports = Transports::new(&config("127.0.0.1", false));
        for (role, reports) in
            [(Role::Direct, true), (Role::Rejoin(Rejoin { incarnation: 1, at: 0 }), true), (PARENT, false)]
        {
            let mut dials = Dials::default();
            assert!(dials.dial(OTHER, role, offer(&["127.0.0.1:1", "127.0.0.1:2"]), 0, 9).is_none());
            for address in ["127.0.0.1:1", "127.0.0.1:2"] {
                let due = dials.next(0, &mut transports).expect("an address is left");
                assert_eq!((due.target, due.role, due.until_ns), (OTHER, role, 9));
                assert_eq!(due.candidate.to_string(), address);
                assert!(dials.give_up().is_empty() && dials.next(0, &mut transports).is_none(), "one at a time");
                dials.on_failure(OTHER, due.attempt, &refused());
            }
            assert!(dials.next(0, &mut transports).is_none());
            assert_eq!((dials.give_up().len() == 1, dials.unreachable().is_some()), (reports, !reports));
            assert!(dials.is_empty() && dials.was_dialled_in_vain());
        }
    }

    #[test]
    fn a_direct_link_gives_way_to_one_with_the_parent() {
        let mut transports = Transports::new(&config("127.0.0.1", false));
        let rejoin = Role::Rejoin(Rejoin { incarnation: 1, at: 0 });
        for (before, then) in [(Role::Direct, rejoin), (rejoin, Role::Direct)] {
            let mut dials = Dials::default();
            assert!(dials.dial(OTHER, before, offer(&["127.0.0.1:1"]), 0, 9).is_none());
            let failed = dials.dial(OTHER, then, offer(&["127.0.0.1:1"]), 0, 9);
            assert!(matches!(failed, Some(Input::DialFailed { agent: Some(OTHER), .. })));
            assert_eq!(dials.next(0, &mut transports).expect("it is dialled").role, rejoin);
        }
    }

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
        attempts.failures.push("there is no road".into());
        attempts.waiting.extend(["by boat"]);
        assert_eq!((attempts.over(), attempts.next(6)), (None, Some((Attempt(1), "by boat"))));
        attempts.on_failure(Attempt(1), "it leaks");
        assert_eq!(attempts.over().as_deref(), Some("by pigeon: it rains; there is no road; by boat: it leaks"));
    }
}
