//! Dials the parent and other agents: opens a connection for each attempt that is due (`dials`).

use super::dials::Due;
use super::{Entry, LinkKind, LinkSet};
use crate::agent::transports::Offer;
use crate::transport::handshake::{Handshake, Terms};
use crate::transport::link::{Link, LinkError};
use std::time::Duration;
use wireup_os::clock::monotonic_ns;
use wireup_os::reactor::{Interest, Reactor};
use wireup_proto::io::{Input, LinkId};
use wireup_wire::ids::AgentId;
use wireup_wire::peer::{Hello, PROTOCOL_VERSION, Rejoin, Role};

/// Number of quarters of the start timeout for which an agent dials its parent. In the rest it reports which addresses
/// have not answered, before the parent gives up on it.
const DIALLING_QUARTERS: u64 = 3;

/// Time limit for reaching the root at one of its addresses, after the parent was lost (ns). Chosen, not measured: a
/// reachable machine answers sooner, and the dial is repeated if it fails.
const ROOT_NS_MAX: u64 = 5_000_000_000;

const ROOT: AgentId = AgentId(0);

impl LinkSet {
    /// Dials the parent at its addresses until one of them answers. `by_parent`: whether the parent itself started this
    /// agent through a remote shell.
    ///
    /// # Errors
    /// None of the addresses can be dialled.
    pub fn dial(&mut self, parent: &[String], by_parent: bool, reactor: &Reactor) -> Result<(), String> {
        let offer = Offer { addresses: parent.to_vec(), called_us: by_parent, ..Offer::default() };
        let role = Role::Child { incarnation: self.config.incarnation };
        // Failure to reach the parent is reported by `unreachable`, not as an input.
        self.begin_dial(self.config.parent, role, offer, self.dialling_ns(), reactor, &mut Vec::new());
        self.dials.unreachable().map_or(Ok(()), |problem| Err(problem.to_owned()))
    }

    /// Dials the root, which becomes the parent, for an agent of a standing session that has lost its parent.
    pub fn rejoin(&mut self, root: Vec<String>, rejoin: Rejoin, reactor: &Reactor, inputs: &mut Vec<Input>) {
        self.drop_attempts(ROOT, reactor);
        let offer = Offer { addresses: root, ..Offer::default() };
        self.begin_dial(ROOT, Role::Rejoin(rejoin), offer, ROOT_NS_MAX, reactor, inputs);
    }

    /// Dials an agent for a direct link. Each attempt ends by itself within the handshake's time limit.
    pub fn dial_direct(&mut self, agent: AgentId, offer: Offer, reactor: &Reactor, inputs: &mut Vec<Input>) {
        self.begin_dial(agent, Role::Direct, offer, u64::MAX, reactor, inputs);
    }

    fn begin_dial(
        &mut self,
        target: AgentId,
        role: Role,
        offer: Offer,
        limit_ns: u64,
        reactor: &Reactor,
        inputs: &mut Vec<Input>,
    ) {
        let now_ns = monotonic_ns();
        inputs.extend(self.dials.dial(target, role, offer, now_ns, now_ns.saturating_add(limit_ns)));
        self.dial_due(now_ns, reactor, inputs);
    }

    /// Longest time for which an agent dials its parent (ns).
    fn dialling_ns(&self) -> u64 {
        self.config.start_timeout_ns / 4 * DIALLING_QUARTERS
    }

    /// Starts the attempts to dial agents that are due, and reports the dials that have failed.
    pub(super) fn dial_due(&mut self, now_ns: u64, reactor: &Reactor, inputs: &mut Vec<Input>) {
        while let Some(due) = self.dials.next(now_ns, &mut self.transports) {
            let (target, attempt) = (due.target, due.attempt);
            if let Err(error) = self.try_dial(due, now_ns, reactor) {
                self.dials.on_failure(target, attempt, &error);
            }
        }
        inputs.extend(self.dials.give_up());
    }

    fn try_dial(&mut self, due: Due, now_ns: u64, reactor: &Reactor) -> Result<(), LinkError> {
        let Due { target, role, attempt, candidate, until_ns } = due;
        let limit_ns = candidate.limit_ns.min(until_ns.saturating_sub(now_ns));
        let until_ns = now_ns + limit_ns;
        if limit_ns == 0 {
            return Err(LinkError::Late(Duration::from_nanos(self.dialling_ns())));
        }
        let carrier = (candidate.open)()?;
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let hello = Hello { version: PROTOCOL_VERSION, agent: self.me, host, pid: wireup_os::process::own_pid(), role };
        let terms = Terms { encrypt: self.config.encrypt, listener: target, binding: carrier.binding() };
        let mut first = Vec::new();
        let handshake = Handshake::dial(&self.secret()?, terms, &hello, &mut first)?;
        let link = Link::begun(carrier, handshake, first, self.config.encrypt);
        self.insert(link, LinkKind::Dialled { target, role, attempt, limit_ns, until_ns }, Interest::BOTH, reactor)?;
        Ok(())
    }

    /// Closes the unfinished attempts to dial the agent `target`, because a link with it exists or a new dial begins.
    pub(super) fn drop_attempts(&mut self, target: AgentId, reactor: &Reactor) {
        let is_late = |entry: &Entry| matches!(entry.kind, LinkKind::Dialled { target: other, .. } if other == target);
        let late: Vec<LinkId> = self.links.iter().filter(|(_, entry)| is_late(entry)).map(|(id, _)| *id).collect();
        for id in late {
            self.forget(id, reactor);
        }
    }
}
