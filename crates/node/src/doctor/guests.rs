//! Connections from nodes to the doctor: each sends half a token and, if it is one of ours, gets the other half and
//! reports.
//!
//! A stranger's connection costs at most 16 bytes, a descriptor and 5 s.

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

/// How long the reports of a node are awaited after its remote shell has ended: longer than a packet takes that was
/// sent before.
const LINGER_NS: u64 = 1_000_000_000;
/// Longest unfinished line of a report.
const LINE_BYTES_MAX: usize = 256 << 10;

/// Most guests accepted per turn. Chosen: during a flood a guest is kept for four turns at least.
const ACCEPTS_A_TURN_MAX: usize = GUESTS_MAX / 4;

pub const LISTENER: u64 = 0;

pub struct Guests {
    listener: Listener,
    /// `None`: the remote shell of this node has ended.
    tokens: Vec<Option<Token>>,
    next: u64,
    guests: BTreeMap<u64, Guest>,
    pause: Pause,
}

struct Guest {
    socket: OwnedFd,
    /// The beginning of its token, or of an unfinished line.
    shown: Vec<u8>,
    /// The node that has shown its token.
    host: Option<usize>,
    until_ns: u64,
}

impl Guests {
    /// The events use [`LISTENER`] and tokens below `calls::TOKENS`.
    pub fn new(listener: Listener, tokens: Vec<Token>, reactor: &Reactor) -> io::Result<Guests> {
        reactor.add(listener.fd(), LISTENER, Interest::READABLE)?;
        let tokens = tokens.into_iter().map(Some).collect();
        Ok(Guests { listener, tokens, next: LISTENER + 1, guests: BTreeMap::new(), pause: Pause::default() })
    }

    /// Returns lines of a node's report, with its index.
    pub fn on_event(&mut self, now_ns: u64, event: Event, reactor: &Reactor) -> Vec<(usize, Vec<u8>)> {
        let mut lines = Vec::new();
        if event.token == LISTENER {
            self.on_listener(now_ns, reactor);
        } else if self.guests.get_mut(&event.token).is_some_and(|guest| guest.go_on(&self.tokens, &mut lines)) {
            self.dismiss(event.token, reactor);
        }
        lines
    }

    /// The remote shell of a node has ended: no more of its reports are on their way for long.
    pub fn on_end(&mut self, now_ns: u64, host: usize) {
        self.tokens[host] = None;
        for guest in self.guests.values_mut().filter(|guest| guest.host == Some(host)) {
            guest.until_ns = now_ns + LINGER_NS;
        }
    }

    /// Whether a node still reports.
    pub fn is_heard(&self) -> bool {
        self.guests.values().any(|guest| guest.host.is_some())
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
        let late = |(_, guest): &(&u64, &Guest)| guest.until_ns <= now_ns;
        for number in self.guests.iter().filter(late).map(|(number, _)| *number).collect::<Vec<_>>() {
            self.dismiss(number, reactor);
        }
        self.pause.end_if_due(self.listener.fd(), LISTENER, now_ns, reactor);
    }

    pub fn deadline_ns(&self) -> Option<u64> {
        let first = self.guests.values().map(|guest| guest.until_ns).filter(|until_ns| *until_ns < u64::MAX).min();
        first.into_iter().chain(self.pause.deadline_ns()).min()
    }

    fn welcome(&mut self, now_ns: u64, socket: OwnedFd, reactor: &Reactor) {
        if self.guests.len() >= GUESTS_MAX
            && let Some((&oldest, _)) = self.guests.iter().find(|(_, guest)| guest.host.is_none())
        {
            self.dismiss(oldest, reactor);
        }
        if reactor.add(&socket, self.next, Interest::READABLE).is_ok() {
            let guest = Guest { socket, shown: Vec::new(), host: None, until_ns: now_ns + PATIENCE_NS };
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
    fn go_on(&mut self, tokens: &[Option<Token>], lines: &mut Vec<(usize, Vec<u8>)>) -> bool {
        let Some(host) = self.host else { return self.prove(tokens) };
        let mut buffer = [0; 4096];
        match rustix::io::read(&self.socket, &mut buffer) {
            Ok(length @ 1..) => {
                self.shown.extend_from_slice(&buffer[..length]);
                while let Some(end) = self.shown.iter().position(|byte| *byte == b'\n') {
                    lines.push((host, self.shown.drain(..=end).collect()));
                }
                self.shown.len() > LINE_BYTES_MAX
            }
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => false,
            Ok(0) | Err(_) => true,
        }
    }

    /// Reads a token. True if the guest can be closed.
    fn prove(&mut self, tokens: &[Option<Token>]) -> bool {
        let mut buffer = [0; HALF];
        match rustix::io::read(&self.socket, &mut buffer[self.shown.len()..]) {
            Ok(length @ 1..) => {
                let begin = self.shown.len();
                self.shown.extend_from_slice(&buffer[begin..begin + length]);
                if self.shown.len() < HALF {
                    return false;
                }
                let mut known = tokens.iter().enumerate().filter_map(|(host, token)| Some((host, token.as_ref()?)));
                let Some((host, token)) = known.find(|(_, token)| self.shown == token.node) else { return true };
                self.host = Some(host);
                self.shown.clear();
                self.until_ns = u64::MAX;
                // So few bytes always fit into a new connection's buffer.
                socket::send(&self.socket, &token.doctor, &[]).is_err()
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
