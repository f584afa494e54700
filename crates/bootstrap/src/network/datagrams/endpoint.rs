//! All connections of a rank over datagrams, without a socket or a clock.
//!
//! ```text
//!   dialling ── hello, ever more rarely ──► welcome ──► open
//!   none ── a hello with a code that is right, and a number that is new ──► open
//!                                             (its welcome is repeated until the dialler is heard)
//! ```
//!
//! A rank that computes does not answer a hello: the hello is repeated until the rank does. Datagrams carry the
//! receiver's number of the connection. Memory is used for connections, and for two numbers per rank that has ever
//! dialled this one; none for strangers.

use super::handshake::{HELLO, Hello, WELCOME, Welcome};
use super::open::{DATA, Open, Seals, header};
use crate::network::carrier::{ConnectionEvent, Happened, Number, Unsent, Word};
use crate::network::codes::Codes;
use crate::network::proof::{Broken, Proof, Purpose, Secret};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

/// The pause after the first hello, and the maximum up to which it doubles (ms). Chosen: several round trips of a slow
/// network; and how long a rank may wait for the next hello if its socket was full while it computed.
const HELLO_MS_MIN: u64 = 50;
const HELLO_MS_MAX: u64 = 1_000;
/// Length of a framed goodbye in the stream, in bytes.
const GOODBYE_LEN: usize = 4;

/// A network address at which a rank may be reached (called its place): only the [`Wire`](super::Wire) interprets the
/// bytes.
pub type WireAddress = Vec<u8>;

pub struct Endpoint {
    me: u32,
    secret: Secret,
    codes: Codes,
    /// The place to which other ranks send answers to this rank's hellos.
    own_place: WireAddress,
    datagram_len: usize,
    connections: BTreeMap<Number, Connection>,
    last: Number,
    /// For each rank that has dialled this one: its number in the latest hello, and this rank's number for the
    /// connection made from that hello.
    heard: BTreeMap<u32, (Number, Number)>,
    /// Connections that may have something to send.
    ready: BTreeSet<Number>,
    /// When the connections' timers are due (ms), with the connection; the earliest is first.
    timers: BTreeSet<(u64, Number)>,
    /// Hellos and welcomes, which are sent before all other datagrams: connection, destination, bytes.
    outbox: VecDeque<(Number, WireAddress, Vec<u8>)>,
    happened: VecDeque<Happened>,
    plain: Vec<u8>,
}

struct Connection {
    stage: Stage,
    timer: Option<u64>,
}

enum Stage {
    Dialling(Box<Dialling>),
    Open {
        open: Box<Open>,
        /// The welcome that was sent, until a datagram of the dialler shows that it has arrived.
        welcome: Option<Vec<u8>>,
    },
}

struct Dialling {
    to: u32,
    place: WireAddress,
    hello: Vec<u8>,
    proof: Proof,
    pause: u64,
    due: u64,
}

impl Endpoint {
    /// `datagram_len`: maximum length of a datagram, in bytes.
    pub fn new(me: u32, secret: &Secret, own_place: WireAddress, datagram_len: usize) -> Result<Endpoint, Broken> {
        Ok(Endpoint {
            me,
            secret: *secret,
            codes: Codes::new(secret)?,
            own_place,
            datagram_len,
            connections: BTreeMap::new(),
            last: 0,
            heard: BTreeMap::new(),
            ready: BTreeSet::new(),
            timers: BTreeSet::new(),
            outbox: VecDeque::new(),
            happened: VecDeque::new(),
            plain: vec![0; datagram_len],
        })
    }

    pub fn poll(&mut self) -> Option<Happened> {
        self.happened.pop_front()
    }

    /// Dials a rank at this place; `None`: it has none that this rank reaches.
    pub fn dial(&mut self, now: u64, to: u32, closed: u32, place: Option<WireAddress>) -> Number {
        self.last += 1;
        let number = self.last;
        let dialled = Proof::dial(&self.secret, self.me, to, Purpose::Messages { closed });
        let (Ok((proof, first)), Some(place)) = (dialled, place) else {
            self.report(number, to, ConnectionEvent::Over { is_lost: true });
            return number;
        };
        let hello = Hello { from: self.me, to, number, place: &self.own_place, proof: &first };
        let hello = hello.encode(&mut self.codes);
        let dialling = Dialling { to, place, hello, proof, pause: 0, due: now };
        self.connections.insert(number, Connection { stage: Stage::Dialling(Box::new(dialling)), timer: None });
        self.settle(number);
        number
    }

    pub fn send(&mut self, number: Number, message: &[u8]) {
        if let Some(open) = self.open(number) {
            open.send(message);
            self.settle(number);
        }
    }

    /// Pauses or resumes a connection. While it is paused, arriving segments are dropped, so that the peer sends them
    /// again.
    pub fn set_paused(&mut self, number: Number, is_paused: bool) {
        if let Some(open) = self.open(number) {
            open.is_paused = is_paused;
        }
    }

    /// Drops a connection without notice to the other end; if the peer has said goodbye, its datagrams are still
    /// answered.
    pub fn close(&mut self, number: Number) {
        if !self.open(number).is_some_and(|open| open.has_left()) {
            self.forget(number);
        }
        self.happened.retain(|happened| happened.number != number);
    }

    /// Says goodbye on all connections: this rank leaves in an orderly way.
    pub fn say_goodbye(&mut self) {
        let says = |connection: &Connection| matches!(&connection.stage, Stage::Open { open, .. } if !open.has_left());
        let open = self.connections.iter().filter(|(_, connection)| says(connection));
        let numbers: Vec<Number> = open.map(|(number, _)| *number).collect();
        for number in numbers {
            if let Some(open) = self.open(number) {
                open.say_goodbye();
                self.settle(number);
            }
        }
    }

    pub fn unsent(&self, now: u64) -> Unsent {
        let most = self.connections.values().map(|connection| match &connection.stage {
            Stage::Open { open, .. } if open.parting.may_want_answer(now) => GOODBYE_LEN,
            Stage::Open { open, .. } => open.unacknowledged(),
            Stage::Dialling(_) => 0,
        });
        match most.max().unwrap_or(0) {
            0 => Unsent::Nothing,
            1..=GOODBYE_LEN => Unsent::Goodbyes,
            _ => Unsent::Messages,
        }
    }

    pub fn on_datagram(&mut self, now: u64, bytes: &[u8]) {
        match bytes.first() {
            Some(&HELLO) => self.on_hello(bytes),
            Some(&WELCOME) => self.on_welcome(bytes),
            Some(&DATA) => self.on_data(now, bytes),
            _ => {}
        }
    }

    pub fn deadline(&self) -> Option<u64> {
        self.timers.first().map(|(at, _)| *at)
    }

    pub fn on_tick(&mut self, now: u64) {
        while let Some((_, number)) = self.timers.first().copied().filter(|(at, _)| *at <= now) {
            match self.connections.get_mut(&number).map(|connection| &mut connection.stage) {
                Some(Stage::Open { open, .. }) => open.on_tick(now),
                Some(Stage::Dialling(dialling)) => {
                    dialling.pause = (dialling.pause * 2).clamp(HELLO_MS_MIN, HELLO_MS_MAX);
                    dialling.due = now + dialling.pause;
                    self.outbox.push_back((number, dialling.place.clone(), dialling.hello.clone()));
                }
                None => {}
            }
            self.settle(number);
        }
    }

    /// Writes the next datagram and its destination; `false`: there is nothing to send.
    pub fn transmit(&mut self, now: u64, to: &mut Vec<u8>, bytes: &mut Vec<u8>) -> bool {
        if let Some((_, place, datagram)) = self.outbox.pop_front() {
            (*to, *bytes) = (place, datagram);
            return true;
        }
        while let Some(number) = self.ready.first().copied() {
            let stage = self.connections.get_mut(&number).map(|connection| &mut connection.stage);
            if let Some(Stage::Open { open, .. }) = stage {
                bytes.clear();
                if open.transmit(now, &mut self.plain, bytes) {
                    to.clear();
                    to.extend_from_slice(&open.place);
                    return true;
                }
            }
            self.ready.remove(&number);
            self.set_timer(number);
        }
        false
    }

    #[cfg(test)]
    pub fn connections(&self) -> usize {
        let left = |connection: &&Connection| matches!(&connection.stage, Stage::Open { open, .. } if open.has_left());
        self.connections.len() - self.connections.values().filter(left).count()
    }

    fn open(&mut self, number: Number) -> Option<&mut Open> {
        match &mut self.connections.get_mut(&number)?.stage {
            Stage::Open { open, .. } => Some(open),
            Stage::Dialling(_) => None,
        }
    }

    fn on_hello(&mut self, bytes: &[u8]) {
        let Some(hello) = Hello::decode(bytes, &mut self.codes) else { return };
        if hello.to != self.me || hello.from == self.me {
            return;
        }
        match self.heard.get(&hello.from) {
            Some((latest, number)) if *latest == hello.number => {
                let number = *number;
                if let Some(Connection { stage: Stage::Open { welcome: Some(welcome), .. }, .. }) =
                    self.connections.get(&number)
                {
                    self.outbox.push_back((number, hello.place.to_vec(), welcome.clone()));
                }
            }
            Some((latest, _)) if *latest > hello.number => {}
            _ => self.accept(&hello),
        }
    }

    fn accept(&mut self, hello: &Hello<'_>) {
        let accepted = Proof::accept(&self.secret, self.me).and_then(|proof| proof.on_message(hello.proof));
        let Ok(accepted) = accepted else { return };
        let (peer, reply) = (accepted.peer, accepted.reply.unwrap_or_default());
        let Purpose::Messages { closed } = accepted.purpose else { return };
        let state = accepted.state.into_stateless_transport_mode();
        let Some(state) = state.ok().filter(|_| peer == hello.from) else { return };
        self.last += 1;
        let number = self.last;
        self.heard.insert(peer, (hello.number, number));
        let welcome = Welcome { to: hello.number, number, proof: &reply }.encode(&mut self.codes);
        self.outbox.push_back((number, hello.place.to_vec(), welcome.clone()));
        let open = Open::new(peer, hello.place.to_vec(), Seals::new(hello.number, state), self.datagram_len);
        let stage = Stage::Open { open: Box::new(open), welcome: Some(welcome) };
        self.connections.insert(number, Connection { stage, timer: None });
        self.report(number, peer, ConnectionEvent::Proved { was_dialled: false, closed });
        self.settle(number);
    }

    fn on_welcome(&mut self, bytes: &[u8]) {
        let Some(welcome) = Welcome::decode(bytes, &mut self.codes) else { return };
        let number = welcome.to;
        let Some(Connection { stage: Stage::Dialling(_), .. }) = self.connections.get(&number) else { return };
        let Some(Stage::Dialling(dialling)) = self.forget(number) else { return };
        let Dialling { to: peer, place, proof, .. } = *dialling;
        let proved = proof.on_message(welcome.proof);
        let Ok(state) = proved.and_then(|proved| Ok(proved.state.into_stateless_transport_mode()?)) else {
            return self.report(number, peer, ConnectionEvent::Over { is_lost: false });
        };
        let open = Open::new(peer, place, Seals::new(welcome.number, state), self.datagram_len);
        let stage = Stage::Open { open: Box::new(open), welcome: None };
        self.connections.insert(number, Connection { stage, timer: None });
        self.report(number, peer, ConnectionEvent::Proved { was_dialled: true, closed: 0 });
        self.settle(number);
    }

    fn on_data(&mut self, now: u64, bytes: &[u8]) {
        let Some((number, counter, sealed)) = header(bytes) else { return };
        let Some(Connection { stage: Stage::Open { open, welcome, .. }, .. }) = self.connections.get_mut(&number)
        else {
            return;
        };
        self.plain.resize(self.datagram_len, 0);
        let Some(arrived) = open.on_datagram(now, (counter, sealed), &mut self.plain) else { return };
        *welcome = None;
        let peer = open.peer;
        let Ok(messages) = arrived else { return self.end(number, peer) };
        for bytes in messages {
            let event = ConnectionEvent::arrived(bytes);
            if event == ConnectionEvent::Said(Word::Goodbye) {
                open.parting.left = Some(now);
            }
            self.happened.push_back(Happened { number, peer, event });
        }
        self.settle(number);
    }

    /// Ends a connection whose peer has violated the protocol, and reports the peer as lost, unless it has said
    /// goodbye.
    fn end(&mut self, number: Number, peer: u32) {
        let has_left = self.open(number).is_some_and(|open| open.has_left());
        self.forget(number);
        if !has_left {
            self.report(number, peer, ConnectionEvent::Over { is_lost: true });
        }
    }

    fn report(&mut self, number: Number, peer: u32, event: ConnectionEvent) {
        self.happened.push_back(Happened { number, peer, event });
    }

    fn forget(&mut self, number: Number) -> Option<Stage> {
        let connection = self.connections.remove(&number)?;
        self.ready.remove(&number);
        if let Some(at) = connection.timer {
            self.timers.remove(&(at, number));
        }
        self.outbox.retain(|(of, _, _)| *of != number);
        Some(connection.stage)
    }

    /// Must be called after every change of a connection, which may have something to send or a new timer now.
    fn settle(&mut self, number: Number) {
        self.ready.insert(number);
        self.set_timer(number);
    }

    fn set_timer(&mut self, number: Number) {
        let Some(connection) = self.connections.get_mut(&number) else {
            self.ready.remove(&number);
            return;
        };
        let at = match &connection.stage {
            Stage::Dialling(dialling) => Some(dialling.due),
            Stage::Open { open, .. } => open.deadline(),
        };
        if let Some(before) = core::mem::replace(&mut connection.timer, at) {
            self.timers.remove(&(before, number));
        }
        self.timers.extend(at.map(|at| (at, number)));
    }
}
