//! All connections of a rank over libfabric, without the library or a clock.
//!
//! ```text
//!   dialling ── hello ──► (the peer answers when it reads) ── welcome ──► open
//!   none ── a hello with a code that is right, and a number that is new: a welcome ──► open
//! ```
//!
//! The provider is expected to deliver everything, in order, or to report a failure. Messages carry the receiver's
//! number of the connection. Memory is used for connections, and for a number per rank that has ever dialled this one;
//! none for strangers, who can send to the endpoint whatever they want.

use super::handshake::{HELLO, Hello, WELCOME, Welcome};
use super::open::{DATA, Open, header};
use crate::network::carrier::{ConnectionEvent, Happened, Number, Unsent};
use crate::network::codes::Codes;
use crate::network::proof::{Broken, Proof, Purpose, Secret};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use wireup_fabric::Posted;

/// The pause before a message for which the provider had no room is tried again, and the maximum up to which it
/// doubles (ms). Each attempt to reach a rank that has exited may cost the provider a socket.
const PAUSE_MS_MIN: u64 = 1;
const PAUSE_MS_MAX: u64 = 64;

/// An address of an endpoint, which only `wireup-fabric` interprets.
pub type WireAddress = Vec<u8>;

pub struct Links {
    me: u32,
    secret: Secret,
    codes: Codes,
    /// The address to which other ranks send answers to this rank's hellos.
    own_place: WireAddress,
    message_len: usize,
    links: BTreeMap<Number, Link>,
    last: Number,
    /// For each rank that has dialled this one, its number in the latest hello.
    heard: BTreeMap<u32, Number>,
    /// Connections that may have something to send.
    ready: BTreeSet<Number>,
    happened: VecDeque<Happened>,
    plain: Vec<u8>,
}

struct Link {
    peer: u32,
    place: WireAddress,
    /// The next message for the provider; empty: it is still to be made.
    outgoing: Vec<u8>,
    /// The last pause (ms; 0: the provider has taken the last message), and its end.
    pause: u64,
    retry_at: u64,
    stage: Stage,
}

impl Link {
    fn new(peer: u32, place: WireAddress, outgoing: Vec<u8>, stage: Stage) -> Link {
        Link { peer, place, outgoing, pause: 0, retry_at: 0, stage }
    }
}

enum Stage {
    Dialling(Box<Proof>),
    Open(Box<Open>),
}

impl Links {
    /// `message_len`: maximum length of a message of the provider, in bytes.
    pub fn new(me: u32, secret: &Secret, own_place: &[u8], message_len: usize) -> Result<Links, Broken> {
        Ok(Links {
            me,
            secret: *secret,
            codes: Codes::new(secret)?,
            own_place: own_place.to_vec(),
            message_len,
            links: BTreeMap::new(),
            last: 0,
            heard: BTreeMap::new(),
            ready: BTreeSet::new(),
            happened: VecDeque::new(),
            plain: vec![0; message_len],
        })
    }

    pub fn poll(&mut self) -> Option<Happened> {
        self.happened.pop_front()
    }

    pub fn has_happened(&self) -> bool {
        !self.happened.is_empty()
    }

    /// Dials a rank at this place; `None`: it has none that this rank reaches.
    pub fn dial(&mut self, to: u32, closed: u32, place: Option<&[u8]>) -> Number {
        let number = self.last + 1;
        let dialled = Proof::dial(&self.secret, self.me, to, Purpose::Messages { closed });
        if let (Ok((proof, first)), Some(place)) = (dialled, place) {
            let hello = Hello { from: self.me, to, number, place: &self.own_place, proof: &first };
            let outgoing = hello.encode(&mut self.codes);
            self.insert(Link::new(to, place.to_vec(), outgoing, Stage::Dialling(Box::new(proof))));
        } else {
            self.last = number;
            self.report(number, to, ConnectionEvent::Over { is_lost: true });
        }
        number
    }

    pub fn send(&mut self, number: Number, message: &[u8]) {
        self.with_open(number, |open| open.send(message));
    }

    /// Pauses or resumes a connection. While it is paused, its messages are not acknowledged, so that the peer's credit
    /// ends.
    pub fn set_paused(&mut self, number: Number, is_paused: bool) {
        self.with_open(number, |open| open.is_paused = is_paused);
    }

    /// Drops a connection without notice to the other end. If the peer has said goodbye, its messages are still
    /// answered.
    pub fn close(&mut self, number: Number) {
        let is_needed = |link: &Link| matches!(&link.stage, Stage::Open(open) if open.has_left());
        if !self.links.get(&number).is_some_and(is_needed) {
            self.forget(number);
        }
        self.happened.retain(|happened| happened.number != number);
    }

    /// Says goodbye on all connections: this rank leaves in an orderly way.
    pub fn say_goodbye(&mut self) {
        for (number, link) in &mut self.links {
            if let Stage::Open(open) = &mut link.stage
                && open.say_goodbye()
            {
                self.ready.insert(*number);
            }
        }
    }

    pub fn unsent(&self, now: u64) -> Unsent {
        let each = self.links.values().map(|link| match &link.stage {
            Stage::Open(open) => open.unsent(now),
            Stage::Dialling(_) => Unsent::Nothing,
        });
        each.max().unwrap_or(Unsent::Nothing)
    }

    /// Handles a message that has arrived, from a rank or from a stranger.
    pub fn on_message(&mut self, now: u64, bytes: &[u8]) {
        match bytes.first() {
            Some(&HELLO) => self.on_hello(bytes),
            Some(&WELCOME) => self.on_welcome(bytes),
            Some(&DATA) => self.on_data(now, bytes),
            _ => {}
        }
    }

    /// Ends a connection, and reports its peer as lost unless it has said goodbye: the provider could not send a
    /// message, because the peer has exited or cannot be reached, or the peer has violated the protocol.
    pub fn on_failed(&mut self, number: Number) {
        let Some(Link { peer, stage, .. }) = self.forget(number) else { return };
        if !matches!(&stage, Stage::Open(open) if open.has_left()) {
            self.report(number, peer, ConnectionEvent::Over { is_lost: true });
        }
    }

    /// Sends, by `send`, what all connections have to send: it takes the number of a connection, the place of its peer
    /// and a message. Adds the connections on which this fails to `failed`. Returns when to try again what must wait
    /// for room.
    pub fn transmit(
        &mut self,
        now: u64,
        failed: &mut Vec<Number>,
        mut send: impl FnMut(Number, &[u8], &[u8]) -> Posted,
    ) -> Option<u64> {
        for number in core::mem::take(&mut self.ready) {
            while let Some(Link { place, outgoing, pause, retry_at, stage, .. }) = self.links.get_mut(&number) {
                if matches!(stage, Stage::Open(open) if open.is_over(now)) {
                    self.links.remove(&number);
                    break;
                }
                if outgoing.is_empty() {
                    let Stage::Open(open) = stage else { break };
                    if !open.transmit(&mut self.plain, outgoing) {
                        break;
                    }
                }
                let posted = if *retry_at > now { Posted::Later } else { send(number, place, outgoing) };
                match posted {
                    Posted::Yes => {
                        outgoing.clear();
                        *pause = 0;
                    }
                    Posted::Later => {
                        if *retry_at <= now {
                            *pause = (*pause * 2).clamp(PAUSE_MS_MIN, PAUSE_MS_MAX);
                            *retry_at = now + *pause;
                        }
                        self.ready.insert(number);
                        break;
                    }
                    Posted::Never => {
                        failed.push(number);
                        break;
                    }
                }
            }
        }
        self.ready.iter().filter_map(|number| self.links.get(number)).map(|link| link.retry_at).min()
    }

    #[cfg(test)]
    pub fn connections(&self) -> usize {
        let is_used = |link: &&Link| !matches!(&link.stage, Stage::Open(open) if open.has_left());
        self.links.values().filter(is_used).count()
    }

    fn with_open(&mut self, number: Number, change: impl FnOnce(&mut Open)) {
        if let Some(Link { stage: Stage::Open(open), .. }) = self.links.get_mut(&number) {
            change(open);
            self.ready.insert(number);
        }
    }

    fn on_hello(&mut self, bytes: &[u8]) {
        let Some(hello) = Hello::decode(bytes, &mut self.codes) else { return };
        let is_new = self.heard.get(&hello.from).is_none_or(|latest| *latest < hello.number);
        if hello.to != self.me || hello.from == self.me || !is_new {
            return;
        }
        let accepted = Proof::accept(&self.secret, self.me).and_then(|proof| proof.on_message(hello.proof));
        let Ok(accepted) = accepted else { return };
        let (peer, reply) = (accepted.peer, accepted.reply.unwrap_or_default());
        let Purpose::Messages { closed } = accepted.purpose else { return };
        let Ok(keys) = accepted.state.into_transport_mode() else { return };
        if peer != hello.from {
            return;
        }
        self.heard.insert(peer, hello.number);
        let (number, answered) = (self.last + 1, hello.number);
        let welcome = Welcome { from: self.me, to: peer, number, answered, proof: &reply };
        let outgoing = welcome.encode(&mut self.codes);
        let stage = Stage::Open(Box::new(Open::new(hello.number, keys, self.message_len)));
        self.insert(Link::new(peer, hello.place.to_vec(), outgoing, stage));
        self.report(number, peer, ConnectionEvent::Proved { was_dialled: false, closed });
    }

    fn on_welcome(&mut self, bytes: &[u8]) {
        let Some(welcome) = Welcome::decode(bytes, &mut self.codes) else { return };
        let number = welcome.answered;
        let is_awaited = |link: &Link| matches!(link.stage, Stage::Dialling(_)) && link.peer == welcome.from;
        if welcome.to != self.me || !self.links.get(&number).is_some_and(is_awaited) {
            return;
        }
        let Some(Link { peer, place, outgoing, stage: Stage::Dialling(proof), .. }) = self.forget(number) else {
            return;
        };
        let proved = proof.on_message(welcome.proof);
        let Ok(keys) = proved.and_then(|proved| Ok(proved.state.into_transport_mode()?)) else {
            return self.report(number, peer, ConnectionEvent::Over { is_lost: false });
        };
        let stage = Stage::Open(Box::new(Open::new(welcome.number, keys, self.message_len)));
        self.links.insert(number, Link::new(peer, place, outgoing, stage));
        self.report(number, peer, ConnectionEvent::Proved { was_dialled: true, closed: 0 });
    }

    fn on_data(&mut self, now: u64, bytes: &[u8]) {
        let Some((number, sealed)) = header(bytes) else { return };
        let Some(Link { peer, stage: Stage::Open(open), .. }) = self.links.get_mut(&number) else { return };
        self.plain.resize(self.message_len, 0);
        let Some(arrived) = open.on_message(now, sealed, &mut self.plain) else { return };
        let peer = *peer;
        let Ok(messages) = arrived else { return self.on_failed(number) };
        self.ready.insert(number);
        for bytes in messages {
            self.report(number, peer, ConnectionEvent::arrived(bytes));
        }
    }

    fn report(&mut self, number: Number, peer: u32, event: ConnectionEvent) {
        self.happened.push_back(Happened { number, peer, event });
    }

    /// Adds a connection that has something to send.
    fn insert(&mut self, link: Link) {
        self.last += 1;
        self.links.insert(self.last, link);
        self.ready.insert(self.last);
    }

    fn forget(&mut self, number: Number) -> Option<Link> {
        self.ready.remove(&number);
        self.links.remove(&number)
    }
}
