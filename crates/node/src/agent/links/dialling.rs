//! The ways to the parent and to agents beside the tree: attempts at the addresses of each until there is a link.

use super::{Entry, Kind, LinkSet};
use crate::transport::addresses;
use crate::transport::attempts::Attempts;
use crate::transport::filter::{Filter, FilterError};
use crate::transport::handshake::{Handshake, Terms};
use crate::transport::link::{Link, LinkError};
use std::net::SocketAddr;
use std::time::Duration;
use wireup_os::clock::monotonic_ns;
use wireup_os::interfaces;
use wireup_os::reactor::{Interest, Reactor};
use wireup_proto::io::{Input, LinkId};
use wireup_wire::ids::AgentId;
use wireup_wire::limits::HANDSHAKE_NS_MAX;
use wireup_wire::peer::{Hello, PROTOCOL_VERSION, Role};
use wireup_wire::route::UcxPoint;

/// One agent that is being dialled.
pub(super) struct Dial {
    pub attempts: Attempts,
    /// Nobody waits for this agent after that.
    pub until_ns: u64,
}

impl Dial {
    pub(super) fn deadline_ns(&self) -> Option<u64> {
        self.attempts.deadline_ns()
    }

    pub(super) fn on_failure(&mut self, address: SocketAddr, problem: String) {
        self.attempts.on_failure(address, problem);
    }
}

impl LinkSet {
    /// Dials the parent at its addresses until one of them answers. `by_parent`: the parent itself called this agent's
    /// remote shell.
    ///
    /// # Errors
    /// None of them can be dialled, in words.
    pub fn dial(&mut self, parent: &[String], by_parent: bool, reactor: &Reactor) -> Result<(), String> {
        let order = self.dial_order(parent, by_parent)?;
        let now_ns = monotonic_ns();
        let until_ns = now_ns.saturating_add(self.config.start_timeout_ns);
        self.dials.insert(self.config.parent, Dial { attempts: Attempts::new(order), until_ns });
        // Of the parent the machine hears by `unreachable`.
        self.dial_due(now_ns, reactor, &mut Vec::new());
        self.unreachable.clone().map_or(Ok(()), Err)
    }

    /// Dials an agent beside the tree. Its attempts end by themselves: each takes as long as a handshake may.
    ///
    /// By UCX first, where the agent can be reached so.
    pub fn dial_direct(
        &mut self,
        agent: AgentId,
        at: &[String],
        point: Option<&UcxPoint>,
        reactor: &Reactor,
        inputs: &mut Vec<Input>,
    ) {
        if let (Some(ucx), Some(point)) = (&mut self.ucx, point) {
            let id = LinkId(self.next);
            self.next += 1;
            if ucx.dial(id, agent, point, at, monotonic_ns()).is_ok() {
                return;
            }
        }
        match self.dial_order(at, false) {
            Ok(order) => {
                self.dials.insert(agent, Dial { attempts: Attempts::new(order), until_ns: u64::MAX });
                self.dial_due(monotonic_ns(), reactor, inputs);
            }
            Err(problem) => inputs.push(Input::DialFailed { agent, problem }),
        }
    }

    pub(super) fn dial_order(&mut self, texts: &[String], by_parent: bool) -> Result<Vec<SocketAddr>, String> {
        let mut offered: Vec<SocketAddr> = Vec::new();
        for text in texts {
            offered.push(text.parse().map_err(|_| format!("{text}: not an address"))?);
        }
        if self.config.local {
            return Ok(offered);
        }
        let filter = self.filter().map_err(|error| error.to_string())?;
        // Without them the order that was offered is as good as any.
        self.own = interfaces::addresses().unwrap_or_default();
        // Whoever restricts the links means both of their ends.
        addresses::offered(&self.own, filter.as_ref(), None, false).map_err(|error| error.to_string())?;
        let caller = self.config.called_from(&offered).filter(|_| by_parent);
        Ok(addresses::dial_order(&offered, &self.own, caller, filter.as_ref()))
    }

    /// Begins the attempts that are due.
    pub(super) fn dial_due(&mut self, now_ns: u64, reactor: &Reactor, inputs: &mut Vec<Input>) {
        let mut dials = std::mem::take(&mut self.dials);
        dials.retain(|&target, dial| {
            while let Some(address) = dial.attempts.next(now_ns) {
                if let Err(error) = self.try_dial(target, address, dial.until_ns, now_ns, reactor) {
                    dial.attempts.on_failure(address, error.to_string());
                }
            }
            let Some(problem) = dial.attempts.over() else { return true };
            if target == self.config.parent {
                match &mut self.rejoin {
                    Some(rejoin) => rejoin.on_failure(problem),
                    None => self.unreachable = Some(problem),
                }
            } else {
                inputs.push(Input::DialFailed { agent: target, problem });
            }
            false
        });
        self.dials = dials;
        self.dial_next_ancestor(reactor, inputs);
    }

    fn try_dial(
        &mut self,
        target: AgentId,
        address: SocketAddr,
        until_ns: u64,
        now_ns: u64,
        reactor: &Reactor,
    ) -> Result<(), LinkError> {
        let until_ns = until_ns.min(now_ns + HANDSHAKE_NS_MAX);
        if until_ns <= now_ns {
            return Err(LinkError::Late(Duration::from_nanos(self.config.start_timeout_ns)));
        }
        let filter = self.filter().ok().flatten();
        let source = addresses::source_for(address.ip(), &self.own, filter.as_ref());
        let socket = wireup_os::socket::dial(address, source)?;
        let secret = self.secret()?;
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let role = match &self.rejoin {
            _ if target != self.config.parent => Role::Direct,
            Some(rejoin) => Role::Orphan { life: rejoin.life() },
            None => Role::Child,
        };
        let hello = Hello { version: PROTOCOL_VERSION, agent: self.me, host, pid: wireup_os::process::own_pid(), role };
        let terms = Terms { encrypt: self.config.encrypt, listener: target };
        let mut first = Vec::new();
        let handshake = Handshake::dial(&secret, terms, &hello, &mut first)?;
        let kind = Kind::Dialled { target, until_ns, address };
        self.insert(Link::dialled(socket, handshake, first, terms.encrypt), kind, Interest::BOTH, reactor)?;
        Ok(())
    }

    /// There is a link with this agent: attempts at its other addresses come too late.
    pub(super) fn end_dial(&mut self, target: AgentId, reactor: &Reactor) {
        self.dials.remove(&target);
        let is_late = |entry: &Entry| matches!(entry.kind, Kind::Dialled { target: other, .. } if other == target);
        let late: Vec<LinkId> = self.links.iter().filter(|(_, entry)| is_late(entry)).map(|(id, _)| *id).collect();
        for id in late {
            self.forget(id, reactor);
        }
    }

    pub(super) fn filter(&self) -> Result<Option<Filter>, FilterError> {
        self.config.interface.as_deref().map(Filter::parse).transpose()
    }
}
