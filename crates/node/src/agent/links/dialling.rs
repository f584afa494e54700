//! Dials the parent and other agents: tries each candidate address until there is a link.
//!
//! Transports are asked for candidates in the order of their table; the next one is asked when all candidates of the
//! previous one have failed.

use super::{Entry, Kind, LinkSet};
use crate::agent::transports::{Candidate, Offer, Transports, Which};
use crate::transport::attempts::{Attempt, Attempts};
use crate::transport::handshake::{Handshake, Terms};
use crate::transport::link::{Link, LinkError};
use std::time::Duration;
use wireup_os::clock::monotonic_ns;
use wireup_os::reactor::{Interest, Reactor};
use wireup_proto::io::{Input, LinkId};
use wireup_wire::ids::AgentId;
use wireup_wire::peer::{Hello, PROTOCOL_VERSION, Role};

/// The part of its start time, in quarters, in which an agent dials its parent. It then still has the time to say which
/// addresses have not answered, before the parent gives it up.
const DIALLING_QUARTERS: u64 = 3;

/// One agent that is being dialled.
pub(super) struct Dial {
    /// The role that this agent announces to the other one.
    pub role: Role,
    pub attempts: Attempts<Candidate>,
    offer: Offer,
    /// Transports that were not asked for candidates yet.
    left: &'static [Which],
    begun_ns: u64,
    /// Time after which no attempt goes on (ns).
    until_ns: u64,
}

impl Dial {
    pub(super) fn new(role: Role, offer: Offer, begun_ns: u64, until_ns: u64) -> Dial {
        Dial { role, attempts: Attempts::new(Vec::new()), offer, left: Which::ALL, begun_ns, until_ns }
    }

    /// The parent by which this agent was started has answered this attempt.
    pub(super) fn parent_reached(&self, now_ns: u64, attempt: Attempt) -> Input {
        Input::ParentReached {
            address: self.attempts.tried(attempt).to_owned(),
            took_ns: now_ns.saturating_sub(self.begun_ns),
            failed: self.attempts.failed(),
        }
    }

    pub(super) fn deadline_ns(&self) -> Option<u64> {
        self.attempts.deadline_ns()
    }

    /// The next candidate, if one is due.
    fn next(&mut self, now_ns: u64, transports: &mut Transports) -> Option<(Attempt, Candidate)> {
        while self.attempts.is_over()
            && let Some((which, left)) = self.left.split_first()
        {
            self.left = left;
            match transports.get(*which).map(|transport| transport.candidates(&self.offer)) {
                Some(Ok(candidates)) => self.attempts.extend(candidates),
                Some(Err(problem)) => self.attempts.on_no_way(problem),
                None => {}
            }
        }
        self.attempts.next(now_ns)
    }
}

impl LinkSet {
    /// Dials the parent at its addresses until one of them answers. `by_parent`: the parent itself called this agent's
    /// remote shell.
    ///
    /// # Errors
    /// None of the addresses can be dialled.
    pub fn dial(&mut self, parent: &[String], by_parent: bool, reactor: &Reactor) -> Result<(), String> {
        let now_ns = monotonic_ns();
        let offer = Offer { addresses: parent.to_vec(), called_us: by_parent, ..Offer::default() };
        let until_ns = now_ns.saturating_add(self.dialling_ns());
        let role = Role::Child { incarnation: self.config.incarnation };
        self.dials.insert(self.config.parent, Dial::new(role, offer, now_ns, until_ns));
        // Failure to reach the parent is reported by `unreachable`, not as an input.
        self.dial_due(now_ns, reactor, &mut Vec::new());
        self.unreachable.clone().map_or(Ok(()), Err)
    }

    /// For how long an agent dials its parent.
    fn dialling_ns(&self) -> u64 {
        self.config.start_timeout_ns / 4 * DIALLING_QUARTERS
    }

    /// Dials an agent for a direct link. Each attempt ends by itself within the handshake's time limit.
    pub fn dial_direct(&mut self, agent: AgentId, offer: Offer, reactor: &Reactor, inputs: &mut Vec<Input>) {
        if self.dials.get(&agent).is_some_and(|dial| dial.role != Role::Direct) {
            let problem = "it is to be this agent's parent".into();
            return inputs.push(Input::DialFailed { agent, problem });
        }
        let now_ns = monotonic_ns();
        self.dials.insert(agent, Dial::new(Role::Direct, offer, now_ns, u64::MAX));
        self.dial_due(now_ns, reactor, inputs);
    }

    /// Starts the attempts that are due.
    pub(super) fn dial_due(&mut self, now_ns: u64, reactor: &Reactor, inputs: &mut Vec<Input>) {
        let mut dials = std::mem::take(&mut self.dials);
        dials.retain(|&target, dial| {
            while let Some((attempt, candidate)) = dial.next(now_ns, &mut self.transports) {
                if let Err(error) =
                    self.try_dial((target, dial.role), attempt, candidate, dial.until_ns, now_ns, reactor)
                {
                    dial.attempts.on_failure(attempt, &error.to_string());
                }
            }
            let Some(problem) = dial.attempts.over() else { return true };
            self.was_dialled_in_vain |= dial.attempts.has_tried();
            self.on_dialled_in_vain(target, dial.role, problem, inputs);
            false
        });
        self.dials = dials;
    }

    /// All candidates for this agent have failed.
    fn on_dialled_in_vain(&mut self, target: AgentId, role: Role, problem: String, inputs: &mut Vec<Input>) {
        match role {
            Role::Direct => inputs.push(Input::DialFailed { agent: target, problem }),
            Role::Rejoin(_) => inputs.push(Input::RejoinFailed { problem }),
            Role::Child { .. } => self.unreachable = Some(problem),
        }
    }

    fn try_dial(
        &mut self,
        (target, role): (AgentId, Role),
        attempt: Attempt,
        candidate: Candidate,
        until_ns: u64,
        now_ns: u64,
        reactor: &Reactor,
    ) -> Result<(), LinkError> {
        let limit_ns = candidate.limit_ns.min(until_ns.saturating_sub(now_ns));
        let until_ns = now_ns + limit_ns;
        if limit_ns == 0 {
            return Err(LinkError::Late(Duration::from_nanos(self.dialling_ns())));
        }
        let carrier = (candidate.open)()?;
        let (secret, hello) = (self.secret()?, self.hello(role));
        let terms = Terms { encrypt: self.config.encrypt, listener: target, binding: carrier.binding() };
        let mut first = Vec::new();
        let handshake = Handshake::dial(&secret, terms, &hello, &mut first)?;
        let link = Link::begun(carrier, handshake, first, self.config.encrypt);
        self.insert(link, Kind::Dialled { target, role, attempt, limit_ns, until_ns }, Interest::BOTH, reactor)?;
        Ok(())
    }

    /// The hello that this agent sends to one that it dials.
    fn hello(&self, role: Role) -> Hello {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        Hello { version: PROTOCOL_VERSION, agent: self.me, host, pid: wireup_os::process::own_pid(), role }
    }

    /// There is a link with this agent, so attempts at its other addresses are dropped.
    pub(super) fn end_dial(&mut self, target: AgentId, reactor: &Reactor) {
        self.dials.remove(&target);
        let is_late = |entry: &Entry| matches!(entry.kind, Kind::Dialled { target: other, .. } if other == target);
        let late: Vec<LinkId> = self.links.iter().filter(|(_, entry)| is_late(entry)).map(|(id, _)| *id).collect();
        for id in late {
            self.forget(id, reactor);
        }
    }
}
