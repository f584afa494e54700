//! Those who dial the doctor: each may show half a token, and is answered with the other half if that is one of ours.
//!
//! A guest is worth 16 bytes, a descriptor and 5 s to us, whoever it is.

use super::report::{HALF, Token};
use crate::transport::listener::{Accepted, Listener};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use wireup_os::reactor::{Event, Interest, Reactor};
use wireup_os::socket;

/// Guests at once; the oldest makes room. Chosen: more than hosts are called at once.
const GUESTS_MAX: usize = 256;
/// How long one may take to show its token.
const PATIENCE_NS: u64 = 5_000_000_000;

pub const LISTENER: u64 = 0;

pub struct Guests {
    listener: Listener,
    tokens: Vec<Token>,
    next: u64,
    guests: BTreeMap<u64, Guest>,
}

struct Guest {
    socket: OwnedFd,
    shown: Vec<u8>,
    until_ns: u64,
}

impl Guests {
    /// Its events carry [`LISTENER`] and tokens below `calls::TOKENS`.
    pub fn new(listener: Listener, tokens: Vec<Token>, reactor: &Reactor) -> io::Result<Guests> {
        reactor.add(listener.fd(), LISTENER, Interest::READABLE)?;
        Ok(Guests { listener, tokens, next: LISTENER + 1, guests: BTreeMap::new() })
    }

    pub fn on_event(&mut self, now_ns: u64, event: Event, reactor: &Reactor) {
        if event.token == LISTENER {
            // Without descriptors nobody is let in; the node says that it got no answer.
            while let Ok(accepted @ (Accepted::Guest(_) | Accepted::TurnedAway)) = self.listener.accept_socket() {
                if let Accepted::Guest(socket) = accepted {
                    self.welcome(now_ns, socket, reactor);
                }
            }
        } else if self.guests.get_mut(&event.token).is_some_and(|guest| guest.go_on(&self.tokens)) {
            self.dismiss(event.token, reactor);
        }
    }

    /// Dismisses those who take too long.
    pub fn expire(&mut self, now_ns: u64, reactor: &Reactor) {
        while let Some((&number, _)) = self.guests.first_key_value().filter(|(_, guest)| guest.until_ns <= now_ns) {
            self.dismiss(number, reactor);
        }
    }

    pub fn deadline_ns(&self) -> Option<u64> {
        self.guests.values().next().map(|oldest| oldest.until_ns)
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
    /// True if there is nothing left to do with it.
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
                    // So few bytes fit into any new connection's buffer.
                    let _ = socket::send(&self.socket, &token.doctor, &[]);
                }
                true
            }
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => false,
            Ok(0) | Err(_) => true,
        }
    }
}
