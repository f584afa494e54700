//! Accepts incoming connections of any transport, which are guests until their handshake is done.

use super::{LinkKind, LinkSet, ListenError};
use crate::agent::token::Token;
use crate::agent::transports::Which;
use crate::agent::turn::Turn;
use crate::transport::carrier::Carrier;
use crate::transport::handshake::{Handshake, HandshakeError, Terms};
use crate::transport::link::{Link, LinkError};
use wireup_os::reactor::{Event, Interest, Reactor};
use wireup_proto::io::LinkId;
use wireup_wire::limits::{HANDSHAKE_NS_MAX, UNAUTHENTICATED_LINKS_MAX};

impl LinkSet {
    /// Addresses where others can dial in, best first. The first call starts to listen.
    pub fn listen(&mut self, reactor: &Reactor) -> Result<Vec<String>, ListenError> {
        self.transports.listen(reactor)
    }

    /// A transport has incoming connections, or events for its links.
    pub fn on_transport(&mut self, which: Which, turn: &mut Turn<'_>) {
        let Some(transport) = self.transports.get(which) else { return };
        for carrier in transport.take_in(turn.now_ns, turn.reactor) {
            self.take_in(carrier, turn);
        }
        let ready = self.transports.get(which).map(|transport| transport.ready()).unwrap_or_default();
        for token in ready {
            if let Some(Token::Link(id)) = Token::unpack(token) {
                self.on_event(id, Event { token, readable: true, writable: true, hangup: false }, turn);
            }
        }
    }

    /// Prepares transports whose links have no descriptors for a wait. `false`: some had something to take in first.
    pub(super) fn arm(&mut self, turn: &mut Turn<'_>) -> bool {
        let mut has_armed = true;
        for which in Which::ALL {
            if self.transports.get(*which).is_some_and(|transport| !transport.arm()) {
                self.on_transport(*which, turn);
                has_armed = false;
            }
        }
        has_armed
    }

    fn take_in(&mut self, carrier: Box<dyn Carrier>, turn: &mut Turn<'_>) {
        let Ok(secret) = self.secret() else { return };
        self.make_room(turn.reactor);
        let terms = Terms { encrypt: self.config.encrypt, listener: self.me, binding: carrier.binding() };
        let handshake = Handshake::listen(&secret, terms);
        let link = Link::begun(carrier, handshake, Vec::new(), self.config.encrypt);
        let kind = LinkKind::Guest { until_ns: turn.now_ns + HANDSHAKE_NS_MAX };
        // A guest that cannot be watched is dropped, which closes it.
        if let Ok(id) = self.insert(link, kind, Interest::READABLE, turn.reactor) {
            self.guests.insert(id);
        }
    }

    /// Checks that a hello is new. A guest that repeats the hello of another connection has recorded it, and does not
    /// know the secret.
    pub(super) fn check_hello(&mut self, id: LinkId) -> Result<(), LinkError> {
        let heard = self.links.get(&id).filter(|_| self.guests.contains(&id)).and_then(|entry| entry.link.heard());
        let first = heard.map(|seal| *self.hellos.entry(*seal).or_insert(id));
        if first.is_none_or(|first| first == id) { Ok(()) } else { Err(HandshakeError::Secret.into()) }
    }

    fn make_room(&mut self, reactor: &Reactor) {
        while self.guests.len() >= UNAUTHENTICATED_LINKS_MAX {
            let silent = |id: &&LinkId| self.links.get(id).is_none_or(|entry| entry.link.heard().is_none());
            let Some(&id) = self.guests.iter().find(silent).or(self.guests.first()) else {
                break;
            };
            self.forget(id, reactor);
        }
    }
}
