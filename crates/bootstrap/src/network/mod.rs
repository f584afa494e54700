//! The connections between ranks: carries the messages of groups, over connections that are dialled when first needed.
//!
//! ```text
//!   groups ── for rank 7 ──► connections: open? ──► carrier ──► sealed, sent
//!                                └─ no: address known? dialled; messages wait ──► proof
//!                                            └─ no: wanted; the owner of the network asks for it
//!   groups ◄── message ────────────────────────────── carrier ◄── received
//! ```
//!
//! A carrier is a way to other ranks: `tcp`, `datagrams`. It tells what happens to connections, and nothing else is
//! known of it here.

mod book;
pub mod carrier;
pub mod datagrams;
mod dialling;
pub mod messages;
mod plain;
pub mod proof;
mod surplus;
pub mod tcp;
mod upkeep;
mod waits;

use crate::error::Error;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;
pub use book::known;
pub use carrier::Transport;
use carrier::{Carrier, Happened, SERVER, Unsent, Word};
use core::ffi::c_int;
use datagrams::{Datagrams, Fabric, Udp, Wire};
use messages::said;
pub use plain::{Key, Plain};
use proof::Secret;
use tcp::Tcp;
use upkeep::Upkeep;
use waits::Waits;
use wireup_capi::job::Endpoints;
use wireup_capi::net::{self, Errno, Event, Owned};
use wireup_group::connections::{Connections, Number, Route, Verdict};
use wireup_group::{Context, Done, Failure, Groups, Output, Peer, Request};
use wireup_wire::rank_address;

pub struct Network {
    pub groups: Groups,
    me: u32,
    transport: Transport,
    carrier: Box<dyn Carrier>,
    connections: Connections,
    /// By rank: where it listens.
    addresses: BTreeMap<u32, Vec<u8>>,
    /// What the server knows of all ranks. Where they listen is in it, or asked of the server.
    book: Option<Arc<Endpoints>>,
    /// Ranks whose address is being asked for, and those of them for which that has yet to be done.
    sought: BTreeSet<u32>,
    wanted: Vec<u32>,
    /// Dials that are not answered, of these ranks.
    unanswered: Vec<(Number, u32)>,
    /// Ranks that use another transport.
    misfits: BTreeSet<u32>,
    /// Messages until there is a connection.
    waiting: BTreeMap<u32, Vec<Vec<u8>>>,
    /// Ranks from which no messages are read, because too many of theirs wait here; with the connection of each.
    paused: BTreeMap<u32, Number>,
    /// Ranks that have refused: how often so far, and when to dial next, unless they are being dialled.
    again: BTreeMap<u32, (u32, Option<u64>)>,
    done: BTreeMap<Request, Result<Done, Failure>>,
    forgotten: BTreeSet<Request>,
    plain: Plain,
    sent: Sent,
    events: Vec<Event>,
    waits: Waits,
    upkeep: Upkeep,
}

/// Messages of groups that were given to connections, and their bytes before encryption.
#[derive(Clone, Copy, Default)]
pub struct Sent {
    pub messages: u64,
    pub bytes: u64,
}

/// A socket at which others reach this rank. It is not used before the secret is known.
pub enum Listener {
    Tcp { listening: Owned, host: u64, address: Vec<u8> },
    Udp(Udp),
    Fabric(Box<Fabric>),
}

impl Listener {
    /// # Errors
    /// There is no port, no descriptor, or no libfabric.
    pub fn new(transport: Transport) -> Result<Listener, Error> {
        let system = |Errno(number)| Error::System(number);
        match transport {
            Transport::Tcp => {
                let (listening, port) = net::listen().map_err(system)?;
                let host = net::host_number();
                let address = rank_address::encode(host, port, &net::addresses());
                Ok(Listener::Tcp { listening, host, address })
            }
            Transport::Udp => Udp::open().map(Listener::Udp).map_err(system),
            Transport::Fabric => Fabric::open().map(|fabric| Listener::Fabric(Box::new(fabric))).map_err(Error::Fabric),
        }
    }

    /// One that listens already, at this address.
    pub fn bound(listening: Owned, address: Vec<u8>) -> Listener {
        Listener::Tcp { listening, host: rank_address::host(&address).unwrap_or_default(), address }
    }

    fn transport(&self) -> Transport {
        match self {
            Listener::Tcp { .. } => Transport::Tcp,
            Listener::Udp(_) => Transport::Udp,
            Listener::Fabric(_) => Transport::Fabric,
        }
    }

    /// For others.
    pub fn address(&self) -> Vec<u8> {
        match self {
            Listener::Tcp { address, .. } => Transport::Tcp.address(address),
            Listener::Udp(udp) => Transport::Udp.address(&udp.address()),
            Listener::Fabric(fabric) => Transport::Fabric.address(&fabric.address()),
        }
    }
}

impl Network {
    /// Can be reached; nothing is dialled yet.
    ///
    /// # Errors
    /// There is no descriptor.
    pub fn new(me: u32, secret: Secret, listener: Listener) -> Result<Network, Errno> {
        let (transport, address) = (listener.transport(), listener.address());
        let carrier: Box<dyn Carrier> = match listener {
            Listener::Tcp { listening, host, .. } => Box::new(Tcp::new(listening, me, host, secret)?),
            Listener::Udp(udp) => Box::new(Datagrams::new(me, &secret, udp)?),
            Listener::Fabric(fabric) => Box::new(Datagrams::new(me, &secret, *fabric)?),
        };
        Ok(Network {
            groups: Groups::new(Peer { rank: me, address }),
            me,
            transport,
            carrier,
            connections: Connections::default(),
            addresses: BTreeMap::new(),
            book: None,
            sought: BTreeSet::new(),
            wanted: Vec::new(),
            unanswered: Vec::new(),
            misfits: BTreeSet::new(),
            waiting: BTreeMap::new(),
            paused: BTreeMap::new(),
            again: BTreeMap::new(),
            done: BTreeMap::new(),
            forgotten: BTreeSet::new(),
            plain: Plain::default(),
            sent: Sent::default(),
            events: Vec::new(),
            waits: Waits::default(),
            upkeep: Upkeep::new(),
        })
    }

    /// From now on every rank's address is known, or can be asked for, and the server's agents carry connections.
    pub fn use_book(&mut self, book: Arc<Endpoints>) {
        if self.transport != Transport::Fabric {
            self.carrier.has_relays();
        }
        self.book = Some(book);
    }

    /// Whether every rank's address is known or can be asked for.
    pub fn has_book(&self) -> bool {
        self.book.is_some()
    }

    /// A group of these ranks of the whole job, in this order. Needs a book; this rank is among them. No message is
    /// sent.
    pub fn part(&mut self, context: Context, ranks: &[u32]) {
        let Network { groups, book, me, .. } = self;
        let (Some(book), Some(own)) = (book, ranks.iter().position(|rank| rank == me)) else { return };
        let find = |place: u32| {
            let rank = ranks.get(place as usize).copied().unwrap_or_default();
            known(book, rank)
        };
        groups.form_part(context, (own as u32, ranks.len() as u32), &find);
    }

    /// Whether this rank is known to use another transport.
    pub fn is_misfit(&self, rank: u32) -> bool {
        self.misfits.contains(&rank)
    }

    pub fn plain(&mut self) -> &mut Plain {
        &mut self.plain
    }

    /// Whether messages wait for connections.
    pub fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether something that was sent is still in this process, or over datagrams has not arrived.
    pub fn has_unsent(&self) -> bool {
        self.has_waiting() || self.carrier.unsent() != Unsent::Nothing
    }

    /// This rank's address, for others.
    pub fn own_address(&self) -> &[u8] {
        &self.groups.own().address
    }

    /// Whether a rank with this address uses the same transport.
    pub fn can_reach(&self, address: &[u8]) -> bool {
        let of_carrier = address.strip_prefix(&[self.transport.tag()]);
        of_carrier.is_some_and(|address| self.carrier.understands(address))
    }

    /// The descriptor that is readable when something is to be done.
    pub fn fd(&self) -> c_int {
        self.carrier.epoll().fd()
    }

    /// Adds the server's descriptor to those that end a wait in [`Network::progress`] when they are readable.
    ///
    /// # Errors
    /// The kernel has no memory for that.
    pub fn watch_server(&self, fd: c_int) -> Result<(), Errno> {
        self.carrier.epoll().watch(fd, SERVER, false, true)
    }

    /// The server is gone: its descriptor stays readable.
    pub fn forget_server(&self, fd: c_int) {
        self.carrier.epoll().forget(fd);
    }

    /// Number of open connections.
    pub fn connections(&self) -> usize {
        self.connections.open()
    }

    /// Number of connections that are being closed by agreement, and number of those that were closed so.
    pub fn closed(&self) -> (usize, u64) {
        (self.connections.closing(), self.connections.closed_by_agreement())
    }

    pub fn sent(&self) -> Sent {
        self.sent
    }

    /// Number of ranks whose address is known.
    pub fn addresses(&self) -> usize {
        self.addresses.len()
    }

    /// The result of a request that is over. It is returned once.
    pub fn take_done(&mut self, request: Request) -> Option<Result<Done, Failure>> {
        self.done.remove(&request)
    }

    /// The result of a request is not wanted.
    pub fn forget(&mut self, request: Request) {
        if self.groups.cancel_receive(request) {
            return;
        }
        if self.done.remove(&request).is_none() {
            self.forgotten.insert(request);
        }
    }

    pub fn is_done(&self, request: Request) -> bool {
        self.done.contains_key(&request)
    }

    /// Sends and receives what is possible; waits for at most `ms` milliseconds (negative: without limit) if nothing
    /// is. Returns whether the server's descriptor is readable.
    pub fn progress(&mut self, ms: c_int) -> bool {
        self.pump();
        let is_served = self.receive(ms);
        self.pump();
        is_served
    }

    /// Receives what has arrived; waits for at most `ms` milliseconds (negative: without limit) if nothing has. For a
    /// caller that calls [`Network::pump`] before and after. Returns whether the server's descriptor is readable.
    pub fn receive(&mut self, ms: c_int) -> bool {
        let mut is_served = false;
        let mut events = core::mem::take(&mut self.events);
        let limit = self.limit(ms);
        self.waits.wait(self.carrier.epoll(), limit, &mut events);
        for event in &events {
            match event.token {
                SERVER => is_served = true,
                _ => self.carrier.on_event(*event),
            }
        }
        self.events = events;
        let now = net::now_ms();
        self.dial_again(now);
        self.watch(now);
        is_served
    }

    /// Carries out what the groups want, and tells them what has happened.
    pub fn pump(&mut self) {
        loop {
            self.pump_groups();
            self.resume();
            self.dial_plain();
            let happened = self.carrier.poll().or_else(|| {
                self.carrier.flush();
                self.carrier.poll()
            });
            match happened {
                Some(happened) => self.on_happened(happened),
                None if self.close_surplus() => {}
                None => return,
            }
        }
    }

    /// Takes messages again of ranks of which fewer wait now, or one of which is waited for.
    fn resume(&mut self) {
        let Network { paused, groups, carrier, .. } = self;
        for (_, number) in paused.extract_if(.., |rank, _| !groups.is_behind(*rank)) {
            carrier.resume(number);
        }
    }

    fn pump_groups(&mut self) {
        while let Some(output) = self.groups.poll() {
            match output {
                // Without an address: one that is in the book.
                Output::Learnt(Peer { address, .. }) if address.is_empty() => {}
                Output::Learnt(Peer { rank, address }) => {
                    self.addresses.insert(rank, address);
                }
                Output::Send { to, message } => {
                    self.sent.messages += 1;
                    self.sent.bytes += message.len() as u64;
                    self.send(to, message);
                }
                Output::Done { request, result } => {
                    if !self.forgotten.remove(&request) {
                        self.done.insert(request, result);
                    }
                }
            }
        }
    }

    /// Tells all others that this rank leaves in order. Waits until its messages have gone, which over datagrams means
    /// that they have arrived, and for the goodbyes for at most `ms` milliseconds. No messages wait for connections
    /// ([`Network::has_waiting`]): their receivers would find a rank that does not answer, and take it for lost.
    pub fn leave(&mut self, ms: u64) {
        self.pump();
        self.say_goodbye(ms, Unsent::Goodbyes);
    }

    /// Ends the connections of a rank that gives up: others may learn the reason from this rank, which waits for at
    /// most `ms` milliseconds.
    pub fn abandon(&mut self, ms: u64) {
        let until = net::now_ms() + ms;
        self.pump();
        while !self.waiting.is_empty() && net::now_ms() < until {
            self.progress(10);
        }
        self.say_goodbye(until.saturating_sub(net::now_ms()), Unsent::Messages);
    }

    /// Waits for at most `ms` milliseconds if no more than `most` is left.
    fn say_goodbye(&mut self, ms: u64, most: Unsent) {
        self.carrier.say_goodbye();
        let until = net::now_ms() + ms;
        loop {
            self.pump();
            let unsent = self.carrier.unsent();
            if unsent == Unsent::Nothing || unsent <= most && net::now_ms() >= until {
                return;
            }
            self.progress(10);
        }
    }

    /// A rank is gone, as the job's server says.
    pub fn on_lost(&mut self, rank: u32) {
        self.waiting.remove(&rank);
        self.again.remove(&rank);
        self.plain.on_lost(rank);
        self.groups.on_lost(rank);
    }

    fn send(&mut self, to: u32, message: Vec<u8>) {
        match self.connections.route(to) {
            Route::Open(number) => {
                self.connections.on_used(to);
                self.carrier.send(number, &message);
            }
            Route::Nowhere => self.on_lost(to),
            route => {
                self.waiting.entry(to).or_default().push(message);
                if route == Route::Dial && !self.again.contains_key(&to) {
                    self.dial(to);
                }
            }
        }
    }

    fn on_happened(&mut self, happened: Happened) {
        match happened {
            Happened::Proved { number, peer, was_dialled: true, .. } => {
                self.connections.on_dialled(peer, number);
                self.on_open(peer);
            }
            Happened::Proved { number, peer, was_dialled: false, closed } => {
                let Network { connections, carrier, .. } = self;
                match connections.on_hello(self.me, (peer, closed), number, |dialled| carrier.is_begun(dialled)) {
                    Verdict::Keep => self.on_open(peer),
                    Verdict::KeepInsteadOf(other) => {
                        self.carrier.close(other);
                        self.on_open(peer);
                    }
                    Verdict::Refuse => self.carrier.close(number),
                }
            }
            Happened::Message { number, from, bytes } => {
                self.connections.on_used(from);
                if self.groups.on_message(from, &bytes).is_err() {
                    self.carrier.close(number);
                    self.on_over(number, from, true);
                } else if self.groups.is_behind(from) {
                    self.carrier.pause(number);
                    self.paused.insert(from, number);
                }
            }
            Happened::Said { number, from, word } => self.on_word(number, from, word),
            Happened::Unanswered { number, peer } => self.unanswered.push((number, peer)),
            Happened::Finished { number, peer } => self.on_finished(number, peer),
            Happened::Over { number, peer, is_lost } => self.on_over(number, peer, is_lost),
        }
    }

    /// There is a connection now.
    fn on_open(&mut self, peer: u32) {
        self.again.remove(&peer);
        self.send_waiting(peer);
    }

    fn send_waiting(&mut self, peer: u32) {
        for message in self.waiting.remove(&peer).unwrap_or_default() {
            self.send(peer, message);
        }
    }

    fn on_word(&mut self, number: Number, from: u32, word: Word) {
        match word {
            Word::Goodbye => {
                self.connections.on_left(from);
                self.carrier.close(number);
                self.send_waiting(from);
            }
            Word::Close => {
                let is_wanted = !self.carrier.can_finish() || self.groups.awaited().has(from);
                let Some(answer) = self.connections.on_close(from, number, is_wanted) else { return };
                self.carrier.send(number, said(answer));
                if answer == Word::Agree {
                    self.carrier.finish(number);
                }
            }
            Word::Agree => {
                self.carrier.finish(number);
                self.on_finished(number, from);
            }
            Word::Decline => {
                if self.connections.on_declined(from, number) {
                    self.send_waiting(from);
                }
            }
        }
    }

    /// A connection was closed by agreement.
    fn on_finished(&mut self, number: Number, peer: u32) {
        if self.connections.on_finished(peer, number) {
            self.send_waiting(peer);
        }
    }

    /// A connection has ended.
    fn on_over(&mut self, number: Number, peer: u32, is_lost: bool) {
        let was_dialling = self.connections.is_dialling(peer);
        if !self.connections.on_closed(peer, number) {
            return;
        }
        if is_lost && !was_dialling {
            self.on_lost(peer);
        } else if is_lost || self.waiting.contains_key(&peer) {
            self.on_refused(peer);
        }
    }
}

#[cfg(test)]
mod tests;
