//! The way to the parent: attempts at its addresses until there is a link.

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
use wireup_proto::io::LinkId;
use wireup_wire::limits::HANDSHAKE_NS_MAX;
use wireup_wire::peer::{Hello, PROTOCOL_VERSION};

impl LinkSet {
    /// Dials the parent at its addresses until one of them answers. `by_parent`: the parent itself called this agent's
    /// remote shell.
    ///
    /// # Errors
    /// None of them can be dialled, in words.
    pub fn dial(&mut self, parent: &[String], by_parent: bool, reactor: &Reactor) -> Result<(), String> {
        let mut offered: Vec<SocketAddr> = Vec::new();
        for text in parent {
            offered.push(text.parse().map_err(|_| format!("{text}: not an address"))?);
        }
        if !self.config.local {
            let filter = self.filter().map_err(|error| error.to_string())?;
            // Without them the parent's own order is as good as any.
            self.own = interfaces::addresses().unwrap_or_default();
            // Whoever restricts the links means both of their ends.
            addresses::offered(&self.own, filter.as_ref(), None, false).map_err(|error| error.to_string())?;
            let caller = self.config.called_from(&offered).filter(|_| by_parent);
            offered = addresses::dial_order(&offered, &self.own, caller, filter.as_ref());
        }
        self.attempts = Some(Attempts::new(offered));
        let now_ns = monotonic_ns();
        self.dial_until_ns = now_ns.saturating_add(self.config.start_timeout_ns);
        self.dial_due(now_ns, reactor);
        self.unreachable.clone().map_or(Ok(()), Err)
    }

    /// Begins the attempts that are due.
    pub(super) fn dial_due(&mut self, now_ns: u64, reactor: &Reactor) {
        let Some(mut attempts) = self.attempts.take() else {
            return;
        };
        while let Some(address) = attempts.next(now_ns) {
            if let Err(error) = self.try_dial(address, now_ns, reactor) {
                attempts.on_failure(address, error.to_string());
            }
        }
        self.unreachable = attempts.over();
        self.attempts = Some(attempts);
    }

    fn try_dial(&mut self, address: SocketAddr, now_ns: u64, reactor: &Reactor) -> Result<(), LinkError> {
        let until_ns = self.dial_until_ns.min(now_ns + HANDSHAKE_NS_MAX);
        if until_ns <= now_ns {
            return Err(LinkError::Late(Duration::from_nanos(self.config.start_timeout_ns)));
        }
        let filter = self.filter().ok().flatten();
        let source = addresses::source_for(address.ip(), &self.own, filter.as_ref());
        let socket = wireup_os::socket::dial(address, source)?;
        let secret = self.secret()?;
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let hello = Hello { version: PROTOCOL_VERSION, agent: self.me, host, pid: wireup_os::process::own_pid() };
        let terms = Terms { encrypt: self.config.encrypt, listener: self.config.parent };
        let mut first = Vec::new();
        let handshake = Handshake::dial(&secret, terms, &hello, &mut first)?;
        let kind = Kind::Dialled { until_ns, address };
        self.insert(Link::dialled(socket, handshake, first, terms.encrypt), kind, Interest::BOTH, reactor)?;
        Ok(())
    }

    /// There is a link to the parent: attempts at its other addresses come too late.
    pub(super) fn end_attempts(&mut self, reactor: &Reactor) {
        self.attempts = None;
        let is_late = |entry: &Entry| matches!(entry.kind, Kind::Dialled { .. });
        let late: Vec<LinkId> = self.links.iter().filter(|(_, entry)| is_late(entry)).map(|(id, _)| *id).collect();
        for id in late {
            self.forget(id, reactor);
        }
    }

    pub(super) fn filter(&self) -> Result<Option<Filter>, FilterError> {
        self.config.interface.as_deref().map(Filter::parse).transpose()
    }
}
