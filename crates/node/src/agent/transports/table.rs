//! The transports that an agent has open.

use super::tcp::Tcp;
use super::ucx::Ucx;
use super::{ListenError, Transport, Which};
use crate::agent::link_config::LinkConfig;
use std::net::IpAddr;
use wireup_os::reactor::Reactor;
use wireup_wire::peer::AgentTransport;
use wireup_wire::route::Point;

pub struct Transports {
    /// `None`: the agents of the session have not agreed on it.
    ucx: Option<Ucx>,
    tcp: Tcp,
}

impl Transports {
    /// Opens the transports that need no agreement with other agents.
    pub fn new(config: &LinkConfig) -> Transports {
        Transports { ucx: None, tcp: Tcp::new(config.clone()) }
    }

    /// Opens the transport that all agents must have; returns the `Point` at which other agents reach this one by it.
    ///
    /// # Errors
    /// The transport cannot be used; the text says why.
    pub fn open_agreed(&mut self, transport: AgentTransport, reactor: &Reactor) -> Result<Point, String> {
        match transport {
            AgentTransport::Ucx => {
                let (ucx, point) = Ucx::open(reactor)?;
                self.ucx = Some(ucx);
                Ok(point)
            }
            AgentTransport::Auto | AgentTransport::Tree | AgentTransport::Tcp => {
                Err("no transport that all agents must have was asked for".into())
            }
        }
    }

    /// An open transport; `None`: it is not open.
    pub fn get(&mut self, which: Which) -> Option<&mut dyn Transport> {
        match which {
            Which::Ucx => self.ucx.as_mut().map(|ucx| ucx as &mut dyn Transport),
            Which::Tcp => Some(&mut self.tcp),
        }
    }

    /// When `on_tick` of some transport is due.
    pub fn deadline_ns(&self) -> Option<u64> {
        self.ucx.as_ref().and_then(Transport::deadline_ns).into_iter().chain(self.tcp.deadline_ns()).min()
    }

    /// The addresses at which other agents can dial this one, best first. The first call makes each transport with
    /// addresses listen.
    pub fn listen(&mut self, reactor: &Reactor) -> Result<Vec<String>, ListenError> {
        let mut addresses = Vec::new();
        for which in Which::ALL {
            if let Some(transport) = self.get(*which) {
                addresses.extend(transport.listen(reactor)?);
            }
        }
        Ok(addresses)
    }

    /// An address of this machine with the name of its interface: `10.0.0.1 (eth0)`.
    pub fn describe(&mut self, ip: IpAddr) -> String {
        self.tcp.describe(ip)
    }
}
