//! Connections from nodes to the doctor: each sends half a token and, if it is one of ours, gets the other half.
//!
//! A connection costs at most 16 bytes, a descriptor and 5 s, whoever made it.

use super::report::{HALF, Token};
use crate::transport::listener::{Accepted, Listener};
use crate::transport::pause::Pause;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use wireup_os::reactor::{Event, Interest, Reactor};
use wireup_os::socket;

/// Most guests at once; a new one replaces the oldest. Chosen: more than the number of hosts called at once.
const GUESTS_MAX: usize = 256;
/// How long a guest may take to send its token.
const PATIENCE_NS: u64 = 5_000_000_000;

/// Most guests accepted per turn. Chosen: during a flood a guest is kept for four turns at least.
const ACCEPTS_A_TURN_MAX: usize = GUESTS_MAX / 4;

pub const LISTENER: u64 = 0;

pub struct Guests {
    listener: Listener,
    tokens: Vec<Token>,
    next: u64,
    guests: BTreeMap<u64, Guest>,
    pause: Pause,
}

struct Guest {
    socket: OwnedFd,
    shown: Vec<u8>,
    until_ns: u64,
}

impl Guests {
    /// The events use [`LISTENER`] and tokens below `calls::TOKENS`.
    pub fn new(listener: Listener, tokens: Vec<Token>, reactor: &Reactor) -> io::Result<Guests> {
        reactor.add(listener.fd(), LISTENER, Interest::READABLE)?;
        Ok(Guests { listener, tokens, next: LISTENER + 1, guests: BTreeMap::new(), pause: Pause::default() })
    }

    pub fn on_event(&mut self, now_ns: u64, event: Event, reactor: &Reactor) {
        if event.token == LISTENER {
            self.on_listener(now_ns, reactor);
        } else if self.guests.get_mut(&event.token).is_some_and(|guest| guest.go_on(&self.tokens)) {
            self.dismiss(event.token, reactor);
        }
    }

    fn on_listener(&mut self, now_ns: u64, reactor: &Reactor) {
        for _ in 0..ACCEPTS_A_TURN_MAX {
            match self.listener.accept() {
                Ok(Accepted::Guest(socket)) => self.welcome(now_ns, socket, reactor),
                Ok(Accepted::TurnedAway) => {}
                Ok(Accepted::NoneWaiting) => return,
                // Most likely no descriptor is left.
                Err(_) => return self.pause.begin(self.listener.fd(), LISTENER, now_ns, reactor),
            }
        }
    }

    /// Closes guests that take too long; listens again after a pause.
    pub fn expire(&mut self, now_ns: u64, reactor: &Reactor) {
        while let Some((&number, _)) = self.guests.first_key_value().filter(|(_, guest)| guest.until_ns <= now_ns) {
            self.dismiss(number, reactor);
        }
        self.pause.end_if_due(self.listener.fd(), LISTENER, now_ns, reactor);
    }

    pub fn deadline_ns(&self) -> Option<u64> {
        let oldest = self.guests.values().next().map(|oldest| oldest.until_ns);
        oldest.into_iter().chain(self.pause.deadline_ns()).min()
    }

    fn welcome(&mut self, now_ns: u64, socket: OwnedFd, reactor: &Reactor) {
        if self.guests.len() >= GUESTS_MAX
            && let Some((&oldest, _)) = self.guests.first_key_value()
        {
            self.dismiss(oldest, reactor);
        }
        if reactor.add(&socket, self.next, Interest::READABLE).is_ok() {
            let guest = Guest { socket, shown: Vec::new(), until_ns: now_ns + PATIENCE_NS };
            self.guests.insert(self.next, guest);
            self.next += 1;
        }
    }

    fn dismiss(&mut self, number: u64, reactor: &Reactor) {
        if let Some(guest) = self.guests.remove(&number) {
            let _ = reactor.remove(&guest.socket);
        }
    }
}

impl Guest {
    /// True if the guest can be closed.
    fn go_on(&mut self, tokens: &[Token]) -> bool {
        let mut buffer = [0; HALF];
        match rustix::io::read(&self.socket, &mut buffer[self.shown.len()..]) {
            Ok(length @ 1..) => {
                let begin = self.shown.len();
                self.shown.extend_from_slice(&buffer[begin..begin + length]);
                if self.shown.len() < HALF {
                    return false;
                }
                if let Some(token) = tokens.iter().find(|token| self.shown == token.node) {
                    // So few bytes always fit into a new connection's buffer.
                    let _ = socket::send(&self.socket, &token.doctor, &[]);
                }
                true
            }
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => false,
            Ok(0) | Err(_) => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::pause::PAUSE_NS;
    use std::net::{IpAddr, Ipv4Addr, TcpStream};
    use std::time::Duration;

    #[test]
    fn a_flood_of_connections_is_accepted_over_several_turns() {
        let mut reactor = Reactor::new().unwrap();
        let listener = Listener::remote(&[IpAddr::V4(Ipv4Addr::LOCALHOST)], true).unwrap();
        let address = listener.addresses().remove(0);
        let mut guests = Guests::new(listener, Vec::new(), &reactor).unwrap();
        let _flood: Vec<TcpStream> = (0..=ACCEPTS_A_TURN_MAX).map(|_| TcpStream::connect(&address).unwrap()).collect();
        let event = reactor.wait(Some(Duration::from_secs(60))).unwrap()[0];
        guests.on_event(1, event, &reactor);
        assert_eq!(guests.guests.len(), ACCEPTS_A_TURN_MAX, "the last one waits for the next turn");
        let event = reactor.wait(Some(Duration::from_secs(60))).unwrap()[0];
        guests.on_event(1, event, &reactor);
        assert_eq!(guests.guests.len(), ACCEPTS_A_TURN_MAX + 1);
    }

    #[test]
    fn a_paused_listener_reports_nothing_until_its_deadline() {
        let mut reactor = Reactor::new().unwrap();
        let listener = Listener::remote(&[IpAddr::V4(Ipv4Addr::LOCALHOST)], true).unwrap();
        let address = listener.addresses().remove(0);
        let mut guests = Guests::new(listener, Vec::new(), &reactor).unwrap();
        let _guest = TcpStream::connect(&address).unwrap();
        assert_eq!(reactor.wait(Some(Duration::from_secs(60))).unwrap().len(), 1);
        guests.pause.begin(guests.listener.fd(), LISTENER, 1, &reactor);
        assert_eq!(guests.deadline_ns(), Some(1 + PAUSE_NS));
        guests.expire(PAUSE_NS, &reactor);
        assert!(reactor.wait(Some(Duration::ZERO)).unwrap().is_empty());
        guests.expire(1 + PAUSE_NS, &reactor);
        assert_eq!(guests.deadline_ns(), None);
        assert_eq!(reactor.wait(Some(Duration::from_secs(60))).unwrap().len(), 1);
    }
}
