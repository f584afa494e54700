//! The sockets of one agent's links: dialling the parent, taking children in, moving frames.

use super::token::Token;
use super::turn::Turn;
use crate::transport::handshake::Handshake;
use crate::transport::link::{Link, LinkError, Received};
use crate::transport::listener::Listener;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use wireup_os::clock::monotonic_ns;
use wireup_os::reactor::{Event, Interest, Reactor};
use wireup_proto::io::{Input, LinkId, Peer};
use wireup_wire::frame::Frame;
use wireup_wire::ids::AgentId;
use wireup_wire::limits::{HANDSHAKE_NS_MAX, UNAUTHENTICATED_LINKS_MAX};
use wireup_wire::peer::{Hello, PROTOCOL_VERSION, Secret};

/// The launcher in this very process: a link without a socket.
pub const IN_MEMORY: LinkId = LinkId(0);

pub struct LinkSet {
    me: AgentId,
    secret: Option<Secret>,
    listener: Option<Listener>,
    listening: bool,
    links: BTreeMap<LinkId, Entry>,
    /// Addresses of the parent not tried yet.
    dial: VecDeque<String>,
    next: u32,
    /// Links with frames to flush.
    dirty: Vec<LinkId>,
    unreachable: Option<String>,
}

struct Entry {
    link: Link,
    kind: Kind,
    interest: Interest,
    closing: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Dialled; must have shown itself by then.
    Dialled {
        until_ns: u64,
    },
    Parent,
    /// Accepted; must have shown itself by then.
    Guest {
        until_ns: u64,
    },
    Child,
}

impl LinkSet {
    pub fn new(me: AgentId, secret: Option<Secret>) -> Self {
        LinkSet {
            me,
            secret,
            listener: None,
            listening: false,
            links: BTreeMap::new(),
            dial: VecDeque::new(),
            next: 1,
            dirty: Vec::new(),
            unreachable: None,
        }
    }

    /// The session's secret; the root makes it when it is first needed.
    pub fn secret(&mut self) -> io::Result<Secret> {
        if let Some(secret) = &self.secret {
            return Ok(secret.clone());
        }
        let mut bytes = [0; 32];
        let length = rustix::rand::getrandom(&mut bytes[..], rustix::rand::GetRandomFlags::empty())?;
        assert_eq!(length, bytes.len(), "the kernel gives up to 256 random bytes at once");
        Ok(self.secret.insert(Secret(bytes)).clone())
    }

    /// Addresses where children can dial in; listens from the first call on.
    pub fn listen(&mut self, reactor: &Reactor) -> io::Result<Vec<String>> {
        if let Some(listener) = &self.listener {
            return Ok(listener.addresses());
        }
        let listener = Listener::local()?;
        reactor.add(listener.fd(), Token::Listener.pack(), Interest::READABLE)?;
        self.listening = true;
        Ok(self.listener.insert(listener).addresses())
    }

    /// Dials the parent at the first of its addresses that answers.
    pub fn dial(&mut self, addresses: Vec<String>, reactor: &Reactor) -> Result<(), String> {
        self.dial = addresses.into();
        self.dial_next(reactor)
    }

    fn dial_next(&mut self, reactor: &Reactor) -> Result<(), String> {
        let mut problem = String::from("no address of the parent is left to try");
        while let Some(text) = self.dial.pop_front() {
            match self.try_dial(&text, reactor) {
                Ok(()) => return Ok(()),
                Err(error) => problem = format!("{text}: {error}"),
            }
        }
        Err(problem)
    }

    fn try_dial(&mut self, text: &str, reactor: &Reactor) -> Result<(), Box<dyn std::error::Error>> {
        let socket = wireup_os::socket::dial(text.parse()?)?;
        let secret = self.secret()?;
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let hello = Hello { version: PROTOCOL_VERSION, agent: self.me, host, pid: wireup_os::process::own_pid() };
        let mut first = Vec::new();
        let handshake = Handshake::dial(&secret, &hello, &mut first)?;
        let kind = Kind::Dialled { until_ns: monotonic_ns() + HANDSHAKE_NS_MAX };
        self.insert(Link::dialled(socket, handshake, first), kind, Interest::BOTH, reactor)?;
        Ok(())
    }

    fn insert(&mut self, link: Link, kind: Kind, interest: Interest, reactor: &Reactor) -> io::Result<()> {
        let id = LinkId(self.next);
        self.next += 1;
        reactor.add(link.fd(), Token::Link(id).pack(), interest)?;
        self.links.insert(id, Entry { link, kind, interest, closing: false });
        Ok(())
    }

    /// Takes waiting guests in, as many as may be unproved at once.
    pub fn on_listener(&mut self, turn: &mut Turn<'_>) {
        let (now_ns, reactor) = (turn.now_ns, turn.reactor);
        let Ok(secret) = self.secret() else {
            return;
        };
        while let Some(listener) = &self.listener {
            if self.guests() >= UNAUTHENTICATED_LINKS_MAX {
                // Until one of them has shown itself or was closed, others wait in the kernel.
                return self.stop_listening(reactor);
            }
            match listener.accept(&secret) {
                Ok(Some(link)) => {
                    let kind = Kind::Guest { until_ns: now_ns + HANDSHAKE_NS_MAX };
                    // A guest that cannot be watched is closed by being dropped.
                    let _ = self.insert(link, kind, Interest::READABLE, reactor);
                }
                Ok(None) => return,
                // Out of descriptors: the next event of any link, or the next tick, tries once more.
                Err(_) => return self.stop_listening(reactor),
            }
        }
    }

    fn guests(&self) -> usize {
        self.links.values().filter(|entry| matches!(entry.kind, Kind::Guest { .. })).count()
    }

    fn stop_listening(&mut self, reactor: &Reactor) {
        if let Some(listener) = &self.listener {
            self.listening = reactor.modify(listener.fd(), Token::Listener.pack(), Interest::NONE).is_err();
        }
    }

    pub fn on_event(&mut self, id: LinkId, event: Event, turn: &mut Turn<'_>) {
        let Some(entry) = self.links.get_mut(&id) else {
            return;
        };
        let mut result = if event.writable || event.hangup { entry.link.on_writable() } else { Ok(()) };
        if result.is_ok() && (event.readable || event.hangup) {
            result = receive(self.me, id, entry, turn);
        }
        match result {
            Ok(()) => self.dirty.push(id),
            Err(error) => self.fail(id, error, turn.reactor, turn.inputs),
        }
        self.listen_again(turn.reactor);
    }

    /// Queues a frame for a link; `flush` sends it.
    pub fn send(&mut self, id: LinkId, frame: Frame) {
        if let Some(entry) = self.links.get_mut(&id) {
            entry.link.send(frame);
            if self.dirty.last() != Some(&id) {
                self.dirty.push(id);
            }
        }
    }

    pub fn close(&mut self, id: LinkId) {
        if let Some(entry) = self.links.get_mut(&id) {
            entry.closing = true;
            self.dirty.push(id);
        }
    }

    /// Writes what waits, once a turn.
    pub fn flush(&mut self, reactor: &Reactor, inputs: &mut Vec<Input>) {
        for id in std::mem::take(&mut self.dirty) {
            let Some(entry) = self.links.get_mut(&id) else {
                continue;
            };
            let flushed = entry.link.flush();
            let interest = if entry.link.wants_to_write() { Interest::BOTH } else { Interest::READABLE };
            match flushed {
                Ok(true) if entry.closing => {
                    let _ = reactor.remove(entry.link.fd());
                    self.links.remove(&id);
                }
                Ok(_) => {
                    if std::mem::replace(&mut entry.interest, interest) != interest {
                        let _ = reactor.modify(entry.link.fd(), Token::Link(id).pack(), interest);
                    }
                }
                Err(error) => self.fail(id, error, reactor, inputs),
            }
        }
    }

    /// Closes links whose other end took too long to show itself.
    pub fn on_tick(&mut self, turn: &mut Turn<'_>) {
        let now_ns = turn.now_ns;
        let late = |entry: &Entry| entry.kind.until_ns().is_some_and(|until_ns| until_ns <= now_ns);
        let late: Vec<LinkId> = self.links.iter().filter(|(_, entry)| late(entry)).map(|(id, _)| *id).collect();
        for id in late {
            let error = io::Error::from(io::ErrorKind::TimedOut);
            self.fail(id, error.into(), turn.reactor, turn.inputs);
        }
        self.listen_again(turn.reactor);
    }

    pub fn deadline_ns(&self) -> Option<u64> {
        self.links.values().filter_map(|entry| entry.kind.until_ns()).min()
    }

    fn listen_again(&mut self, reactor: &Reactor) {
        if self.listening || self.guests() >= UNAUTHENTICATED_LINKS_MAX {
            return;
        }
        if let Some(listener) = &self.listener {
            self.listening = reactor.modify(listener.fd(), Token::Listener.pack(), Interest::READABLE).is_ok();
        }
    }

    fn fail(&mut self, id: LinkId, error: LinkError, reactor: &Reactor, inputs: &mut Vec<Input>) {
        let Some(entry) = self.links.remove(&id) else {
            return;
        };
        let _ = reactor.remove(entry.link.fd());
        match entry.kind {
            // Strangers are not worth a word: whoever can reach the port could fill the terminal.
            Kind::Guest { .. } => {}
            Kind::Dialled { .. } => {
                if let Err(last) = self.dial_next(reactor) {
                    self.unreachable = Some(format!("the parent agent: {error}; {last}"));
                }
            }
            Kind::Parent | Kind::Child => inputs.push(Input::LinkDown { link: id, problem: error.to_string() }),
        }
    }

    /// Why the parent cannot be reached at any of its addresses.
    pub fn unreachable(&self) -> Option<&str> {
        self.unreachable.as_deref()
    }
}

impl Kind {
    fn until_ns(self) -> Option<u64> {
        match self {
            Kind::Dialled { until_ns } | Kind::Guest { until_ns } => Some(until_ns),
            Kind::Parent | Kind::Child => None,
        }
    }
}

fn receive(me: AgentId, id: LinkId, entry: &mut Entry, turn: &mut Turn<'_>) -> Result<(), LinkError> {
    match entry.link.receive(turn.buffer)? {
        Received::Nothing => {}
        Received::Bytes(bytes) => turn.inputs.push(Input::LinkBytes { link: id, bytes }),
        Received::Up(hello) => {
            let peer = match hello {
                Some(hello) if hello.agent != me => Peer::Child(hello.agent),
                Some(_) => return Err(LinkError::Closed),
                None => Peer::Parent,
            };
            entry.kind = if peer == Peer::Parent { Kind::Parent } else { Kind::Child };
            turn.inputs.push(Input::LinkUp { link: id, peer, local: String::new() });
            if let Received::Bytes(bytes) = entry.link.receive_early() {
                turn.inputs.push(Input::LinkBytes { link: id, bytes });
            }
        }
    }
    Ok(())
}
