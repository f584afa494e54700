//! The transport TCP: an ordered list of addresses to dial, and one listener for incoming connections.

use super::{Candidate, ListenError, Offer, Transport, Which};
use crate::agent::link_config::LinkConfig;
use crate::agent::token::Token;
use crate::transport::addresses::{self, Filter, FilterError};
use crate::transport::link::{Carrier, Socket};
use crate::transport::listener::{Accepted, Listener, Pause};
use std::io;
use std::net::{IpAddr, SocketAddr};
use wireup_os::interfaces::{self, InterfaceAddress};
use wireup_os::reactor::{Interest, Reactor};
use wireup_wire::limits::{HANDSHAKE_NS_MAX, UNAUTHENTICATED_LINKS_MAX};

/// Most guests accepted per turn. Chosen: during a flood a guest is kept for four turns at least, and it is
/// read in the first of them.
const ACCEPTS_A_TURN_MAX: usize = UNAUTHENTICATED_LINKS_MAX / 4;

pub struct Tcp {
    config: LinkConfig,
    listener: Option<Listener>,
    pause: Pause,
    /// Addresses of this machine; empty until they are needed.
    own: Vec<InterfaceAddress>,
}

impl Tcp {
    pub fn new(config: LinkConfig) -> Tcp {
        Tcp { config, listener: None, pause: Pause::default(), own: Vec::new() }
    }

    /// An address of this machine with the name of its interface: `10.0.0.1 (eth0)`.
    pub fn describe(&mut self, ip: IpAddr) -> String {
        if addresses::interface_of(ip, &self.own).is_none() {
            // The address may be new. Without the name of its interface the plain address is shown.
            self.own = interfaces::addresses().unwrap_or_default();
        }
        match addresses::interface_of(ip, &self.own) {
            Some(name) => format!("{ip} ({name})"),
            None => ip.to_string(),
        }
    }

    fn filter(&self) -> Result<Option<Filter>, FilterError> {
        self.config.interface.as_deref().map(Filter::parse).transpose()
    }

    /// The addresses to dial, best first.
    fn dial_order(&mut self, offer: &Offer, filter: Option<&Filter>) -> Result<Vec<SocketAddr>, String> {
        let mut offered: Vec<SocketAddr> = Vec::new();
        for text in offer.addresses.iter().filter(|text| !text.contains("://")) {
            offered.push(text.parse().map_err(|_| format!("{text}: not an address"))?);
        }
        if self.config.local {
            return Ok(offered);
        }
        // If this machine's addresses cannot be listed, the offered order is kept.
        self.own = interfaces::addresses().unwrap_or_default();
        // `--interface` restricts both ends of a link, so it must match an address of this machine too.
        addresses::offered(&self.own, filter, None, false)
            .map_err(|error| format!("{error}; name an interface that all hosts have, or their network"))?;
        let caller = self.config.called_from(&offered).filter(|_| offer.called_us);
        Ok(addresses::dial_order(&offered, &self.own, caller, filter))
    }
}

const TOKEN: Token = Token::Transport(Which::Tcp);

impl Transport for Tcp {
    fn listen(&mut self, reactor: &Reactor) -> Result<Vec<String>, ListenError> {
        if let Some(listener) = &self.listener {
            return Ok(listener.addresses());
        }
        let listener = if self.config.local {
            Listener::local()?
        } else {
            let filter = self.filter()?;
            self.own = interfaces::addresses().map_err(ListenError::Interfaces)?;
            let offered = addresses::offered(&self.own, filter.as_ref(), self.config.reached_at(), false)?;
            Listener::remote(&offered, filter.is_some())?
        };
        reactor.add(listener.fd(), TOKEN.pack(), Interest::READABLE)?;
        Ok(self.listener.insert(listener).addresses())
    }

    fn candidates(&mut self, offer: &Offer) -> Result<Vec<Candidate>, String> {
        let filter = self.filter().map_err(|error| error.to_string())?;
        let order = self.dial_order(offer, filter.as_ref())?;
        let candidate = |address: SocketAddr| {
            let source = addresses::source_for(address.ip(), &self.own, filter.as_ref());
            let open = move || -> io::Result<Box<dyn Carrier>> {
                Ok(Box::new(Socket::dialled(wireup_os::socket::dial(address, source)?)))
            };
            Candidate { words: address.to_string(), limit_ns: HANDSHAKE_NS_MAX, open: Box::new(open) }
        };
        Ok(order.into_iter().map(candidate).collect())
    }

    fn take_in(&mut self, now_ns: u64, reactor: &Reactor) -> Vec<Box<dyn Carrier>> {
        let mut guests: Vec<Box<dyn Carrier>> = Vec::new();
        let Some(listener) = &self.listener else { return guests };
        for _ in 0..ACCEPTS_A_TURN_MAX {
            match listener.accept() {
                Ok(Accepted::Guest(socket)) => guests.push(Box::new(Socket::accepted(socket))),
                Ok(Accepted::TurnedAway) => {}
                Ok(Accepted::NoneWaiting) => break,
                // The most likely error is that no descriptor is left, so accepting pauses for a while.
                Err(_) => {
                    self.pause.begin(listener.fd(), TOKEN.pack(), now_ns, reactor);
                    break;
                }
            }
        }
        guests
    }

    fn deadline_ns(&self) -> Option<u64> {
        self.pause.deadline_ns()
    }

    /// Watches the listener again when its pause is over.
    fn on_tick(&mut self, now_ns: u64, reactor: &Reactor) {
        if let Some(listener) = &self.listener {
            self.pause.end_if_due(listener.fd(), TOKEN.pack(), now_ns, reactor);
        }
    }
}
