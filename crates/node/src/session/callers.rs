//! Accepts connections to a standing session's socket, and keeps them until both ends know that they speak the same
//! version.
//!
//! Connections of other users are refused. A launcher sends its version header at once, usually before its connection
//! is accepted, and is then passed on with the bytes that followed the header. Connections without a complete header
//! wait here: a limited number of connections, for a limited time.

use crate::agent::token::Token;
use crate::transport::listener::Pause;
use bytes::Bytes;
use rustix::io::{Errno, retry_on_intr};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use wireup_os::local;
use wireup_os::reactor::{Interest, Reactor};
use wireup_wire::attach::{ATTACH_LEN, Spoken};

/// Most connections whose version header has not arrived.
const GUESTS_MAX: usize = 128;
/// Time limit for the version header (ns). A process of this machine sends it in one write.
const PATIENCE_NS: u64 = 10_000_000_000;
/// Most connections accepted per turn of the main loop.
const ACCEPTS_A_TURN_MAX: usize = 32;

pub struct Callers {
    listener: OwnedFd,
    token: Token,
    guests: BTreeMap<u32, Guest>,
    next: u32,
    pause: Pause,
}

/// A launcher with a compatible version.
pub struct Caller {
    pub socket: OwnedFd,
    /// The bytes that followed the version header.
    pub early: Bytes,
}

struct Guest {
    socket: OwnedFd,
    heard: Vec<u8>,
    until_ns: u64,
}

/// The state of a connection's version header.
enum Heard {
    All(Caller),
    Part(Guest),
    /// The caller has closed the connection, or has another version of wireup; this side has sent its version to the
    /// caller.
    Nothing,
}

impl Callers {
    pub fn new(listener: OwnedFd, token: Token, reactor: &Reactor) -> io::Result<Callers> {
        reactor.add(&listener, token.pack(), Interest::READABLE)?;
        Ok(Callers { listener, token, guests: BTreeMap::new(), next: 0, pause: Pause::default() })
    }

    /// Accepts waiting connections; returns those whose header is complete.
    pub fn on_listener(&mut self, now_ns: u64, reactor: &Reactor) -> Vec<Caller> {
        let mut ready = Vec::new();
        for _ in 0..ACCEPTS_A_TURN_MAX {
            match local::accept(&self.listener) {
                Ok(socket) => ready.extend(self.take_in(socket, now_ns, reactor)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // Any other error most likely means that no descriptor is left: accept again after a pause.
                Err(_) => {
                    self.pause.begin(&self.listener, self.token.pack(), now_ns, reactor);
                    break;
                }
            }
        }
        ready
    }

    fn take_in(&mut self, socket: OwnedFd, now_ns: u64, reactor: &Reactor) -> Option<Caller> {
        let user = rustix::process::geteuid().as_raw();
        if local::peer(&socket).ok()?.user != user {
            return None;
        }
        // A new socket has room for the eight bytes, so the write does not block.
        retry_on_intr(|| rustix::io::write(&socket, &Spoken::OURS.encode())).ok()?;
        let guest = match (Guest { socket, heard: Vec::new(), until_ns: now_ns + PATIENCE_NS }).listen() {
            Heard::All(caller) => return Some(caller),
            Heard::Part(guest) => guest,
            Heard::Nothing => return None,
        };
        while self.guests.len() >= GUESTS_MAX {
            self.guests.pop_first();
        }
        let number = self.next;
        self.next = self.next.wrapping_add(1);
        reactor.add(&guest.socket, Token::Caller(number).pack(), Interest::READABLE).ok()?;
        self.guests.insert(number, guest);
        None
    }

    /// Reads from a connection without a complete header; returns the connection when the header is complete.
    pub fn on_guest(&mut self, number: u32, reactor: &Reactor) -> Option<Caller> {
        let guest = self.guests.remove(&number)?;
        match guest.listen() {
            Heard::All(caller) => {
                let _ = reactor.remove(&caller.socket);
                Some(caller)
            }
            Heard::Part(guest) => {
                self.guests.insert(number, guest);
                None
            }
            Heard::Nothing => None,
        }
    }

    pub fn deadline_ns(&self) -> Option<u64> {
        // All connections get the same time limit, so the time limit of the oldest connection expires first.
        let oldest = self.guests.values().map(|guest| guest.until_ns).next();
        oldest.into_iter().chain(self.pause.deadline_ns()).min()
    }

    pub fn on_tick(&mut self, now_ns: u64, reactor: &Reactor) {
        self.guests.retain(|_, guest| guest.until_ns > now_ns);
        self.pause.end_if_due(&self.listener, self.token.pack(), now_ns, reactor);
    }
}

impl Guest {
    fn listen(mut self) -> Heard {
        let mut buffer = [0; 16 << 10];
        loop {
            match rustix::io::read(&self.socket, &mut buffer) {
                Ok(0) => return Heard::Nothing,
                Ok(length) => self.heard.extend_from_slice(&buffer[..length]),
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => return Heard::Part(self),
                Err(_) => return Heard::Nothing,
            }
            match Spoken::decode(&self.heard) {
                Ok(None) => {}
                Ok(Some(theirs)) if Spoken::OURS.agree(theirs).is_ok() => {
                    let early = Bytes::from(self.heard).slice(ATTACH_LEN..);
                    return Heard::All(Caller { socket: self.socket, early });
                }
                Ok(Some(_)) | Err(_) => return Heard::Nothing,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wireup_os::socket;

    struct Bench {
        folder: tempfile::TempDir,
        reactor: Reactor,
        callers: Callers,
    }

    impl Bench {
        fn new() -> Bench {
            let folder = tempfile::tempdir().unwrap();
            let reactor = Reactor::new().unwrap();
            let listener = local::listen(&folder.path().join("socket"), 8).unwrap();
            let callers = Callers::new(listener, Token::Launcher(1), &reactor).unwrap();
            Bench { folder, reactor, callers }
        }

        fn call(&self) -> OwnedFd {
            local::connect(&self.folder.path().join("socket")).unwrap()
        }

        fn taken(&mut self) -> Vec<Caller> {
            self.callers.on_listener(1, &self.reactor)
        }
    }

    fn read(socket: &OwnedFd) -> Vec<u8> {
        let mut buffer = [0; 64];
        assert!(socket::wait(socket, true, false, None).unwrap());
        let length = rustix::io::read(socket, &mut buffer).unwrap();
        buffer[..length].to_vec()
    }

    #[test]
    fn a_prompt_caller_is_passed_on_with_its_first_bytes() {
        let mut bench = Bench::new();
        let near = bench.call();
        rustix::io::write(&near, &[&Spoken::OURS.encode()[..], b"more"].concat()).unwrap();
        let taken = bench.taken();
        assert_eq!((taken.len(), &taken[0].early[..]), (1, &b"more"[..]));
        assert_eq!(read(&near), Spoken::OURS.encode());
        assert_eq!(bench.callers.deadline_ns(), None);
    }

    #[test]
    fn a_slow_greeting_is_accepted_and_a_silent_caller_times_out() {
        let mut bench = Bench::new();
        let (near, silent) = (bench.call(), bench.call());
        assert!(bench.taken().is_empty());
        assert_eq!(bench.callers.deadline_ns(), Some(1 + PATIENCE_NS));
        rustix::io::write(&near, &Spoken::OURS.encode()[..3]).unwrap();
        assert!(bench.callers.on_guest(0, &bench.reactor).is_none());
        rustix::io::write(&near, &Spoken::OURS.encode()[3..]).unwrap();
        assert!(bench.callers.on_guest(0, &bench.reactor).is_some());
        bench.callers.on_tick(1 + PATIENCE_NS, &bench.reactor);
        assert_eq!(bench.callers.deadline_ns(), None);
        assert_eq!(read(&silent), Spoken::OURS.encode());
        assert_eq!(read(&silent), b"");
    }

    #[test]
    fn a_caller_of_another_version_gets_ours_and_is_disconnected() {
        let mut bench = Bench::new();
        let old = Spoken { lowest: 1, highest: 2 }.encode();
        for said in [&old[..], b"GET / HTTP/1.1\r\n"] {
            let near = bench.call();
            rustix::io::write(&near, said).unwrap();
            assert!(bench.taken().is_empty());
            assert_eq!(read(&near), Spoken::OURS.encode());
            assert_eq!(read(&near), b"");
        }
    }

    #[test]
    fn waiting_callers_are_limited_and_a_new_caller_is_still_served() {
        let mut bench = Bench::new();
        let mut calls = Vec::new();
        for _ in 0..GUESTS_MAX + 20 {
            calls.push(bench.call());
            assert!(bench.taken().is_empty());
        }
        assert_eq!(bench.callers.guests.len(), GUESTS_MAX);
        rustix::io::write(calls.last().unwrap(), &Spoken::OURS.encode()).unwrap();
        let last = *bench.callers.guests.last_key_value().unwrap().0;
        assert!(bench.callers.on_guest(last, &bench.reactor).is_some());
    }
}
