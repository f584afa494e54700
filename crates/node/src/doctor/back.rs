//! Dials the doctor as a child dials its parent: the same addresses in the same order; the first answer wins.
//!
//! The node sends its half of the token, and the doctor answers with the other half. Otherwise any process listening on
//! the same port of an address that every machine has (`docker0`) would be mistaken for the doctor.

use super::report::{Ask, Back, HALF, Token};
use crate::transport::addresses::{SshConnection, dial_order, source_for};
use crate::transport::attempts::{self, Attempts};
use crate::transport::filter::Filter;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use wireup_os::interfaces::{self, InterfaceAddress};
use wireup_os::reactor::{Event, Interest, Reactor};
use wireup_os::socket;

/// A connection to the doctor.
pub struct Reached {
    pub back: Back,
    pub socket: OwnedFd,
}

pub struct Dialling {
    token: Token,
    own: Vec<InterfaceAddress>,
    filter: Option<Filter>,
    attempts: Attempts<SocketAddr>,
    begun_ns: u64,
    next: u64,
    under_way: BTreeMap<u64, Attempt>,
    failed: Vec<String>,
}

struct Attempt {
    number: attempts::Attempt,
    address: SocketAddr,
    socket: OwnedFd,
    shown: bool,
    answer: Vec<u8>,
}

impl Dialling {
    /// The events use tokens below `calls::TOKENS`, from 1 on.
    pub fn new(ask: &Ask, ssh: Option<SshConnection>, now_ns: u64) -> Dialling {
        let own = interfaces::addresses().unwrap_or_default();
        let filter = ask.interface.as_deref().and_then(|text| Filter::parse(text).ok());
        let offered: Vec<SocketAddr> = ask.addresses.iter().filter_map(|text| text.parse().ok()).collect();
        let client: Option<IpAddr> = ssh.map(|ssh| ssh.client);
        let believed = client.filter(|client| ask.by_ssh || offered.iter().any(|address| address.ip() == *client));
        let order = dial_order(&offered, &own, believed, filter.as_ref());
        Dialling {
            token: ask.token.clone(),
            own,
            filter,
            attempts: Attempts::new(order),
            begun_ns: now_ns,
            next: 1,
            under_way: BTreeMap::new(),
            failed: Vec::new(),
        }
    }

    /// Starts the dials that are due. An answer is the end of it.
    pub fn step(&mut self, now_ns: u64, reactor: &Reactor) -> Option<Result<Reached, String>> {
        while let Some((number, address)) = self.attempts.next(now_ns) {
            let source = source_for(address.ip(), &self.own, self.filter.as_ref());
            let dialled = socket::dial(address, source).and_then(|socket| {
                reactor.add(&socket, self.next, Interest::WRITABLE)?;
                Ok(socket)
            });
            match dialled {
                Ok(socket) => {
                    let attempt = Attempt { number, address, socket, shown: false, answer: Vec::new() };
                    self.under_way.insert(self.next, attempt);
                    self.next += 1;
                }
                Err(error) => self.fail(number, address, &error.to_string()),
            }
        }
        self.attempts.over().map(Err)
    }

    pub fn deadline_ns(&self) -> Option<u64> {
        self.attempts.deadline_ns()
    }

    /// The time is over.
    pub fn give_up(&mut self) -> String {
        let mut problems = std::mem::take(&mut self.failed);
        problems.extend(self.under_way.values().map(|attempt| format!("{}: no answer", attempt.address)));
        if problems.is_empty() { "it offers no address to connect to".into() } else { problems.join("; ") }
    }

    pub fn on_event(&mut self, now_ns: u64, event: Event, reactor: &Reactor) -> Option<Result<Reached, String>> {
        let attempt = self.under_way.get_mut(&event.token)?;
        let is_doctor = attempt.go_on(&self.token, event.token, reactor);
        if is_doctor == Ok(false) {
            return None;
        }
        let attempt = self.under_way.remove(&event.token)?;
        let _ = reactor.remove(&attempt.socket);
        if let Err(problem) = is_doctor {
            self.fail(attempt.number, attempt.address, &problem);
            return None;
        }
        let back = Back {
            address: attempt.address.ip(),
            took_ns: now_ns.saturating_sub(self.begun_ns),
            failed: std::mem::take(&mut self.failed),
        };
        Some(Ok(Reached { back, socket: attempt.socket }))
    }

    fn fail(&mut self, attempt: attempts::Attempt, address: SocketAddr, problem: &str) {
        self.failed.push(format!("{address}: {problem}"));
        self.attempts.on_failure(attempt, problem);
    }
}

impl Attempt {
    /// `Ok(true)`: the other end is the doctor.
    fn go_on(&mut self, token: &Token, number: u64, reactor: &Reactor) -> Result<bool, String> {
        if !self.shown {
            socket::dial_result(&self.socket).map_err(|error| error.to_string())?;
            // So few bytes always fit into a new connection's buffer.
            socket::send(&self.socket, &token.node, &[]).map_err(|error| error.to_string())?;
            self.shown = true;
            reactor.modify(&self.socket, number, Interest::READABLE).map_err(|error| error.to_string())?;
            return Ok(false);
        }
        let mut buffer = [0; HALF];
        let room = &mut buffer[self.answer.len()..];
        match rustix::io::read(&self.socket, room) {
            Ok(0) => Err("another program listens there".into()),
            Ok(length) => {
                self.answer.extend_from_slice(&buffer[self.answer.len()..][..length]);
                match self.answer.len() == HALF {
                    true if self.answer == token.doctor => Ok(true),
                    true => Err("another program listens there".into()),
                    false => Ok(false),
                }
            }
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(false),
            Err(error) => Err(error.to_string()),
        }
    }
}
