//! The connections between ranks: carries the messages of groups, over connections that are dialled when first needed.
//!
//! ```text
//!   groups ── for rank 7 ──► connections: open? ──► carrier ──► sealed, sent
//!                                └─ no: address known? dialled; messages wait ──► proof
//!                                            └─ no: wanted; the owner of the network asks for it
//!   groups ◄── message ────────────────────────────── carrier ◄── received
//! ```
//!
//! A carrier is a transport to other ranks: `tcp`, `manager` (TCP after a request by datagrams) or `fabric`
//! (libfabric). This module knows of it only the events on its connections.

mod book;
pub mod carrier;
pub mod codes;
pub mod fabric;
pub mod manager;
pub mod messages;
mod plain;
pub mod proof;
pub mod tcp;
mod upkeep;
mod waits;

use crate::answers::Answers;
use crate::error::Error;
use crate::runs::{Run, place_of, rank_at, size};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use book::AddressBook;
use carrier::{Carrier, ConnectionEvent, Happened, Unsent, Word};
pub use carrier::{Key, SERVER, Transport};
use core::ffi::c_int;
use fabric::Fabric;
use manager::Manager;
use messages::said;
use plain::Plain;
use proof::Secret;
use tcp::Tcp;
use upkeep::{Redials, Upkeep};
use waits::Waits;
use wireup_capi::job::Endpoints;
use wireup_capi::net::{self, Descriptor, Epoll, Errno, Event};
use wireup_fabric::Endpoint;
use wireup_group::connections::{Connections, Number, Route, Verdict};
use wireup_group::{Context, Done, Failure, Groups, Output, Peer, Request};
use wireup_wire::rank_address;

pub struct Network {
    pub groups: Groups,
    me: u32,
    carrier: Box<dyn Carrier>,
    connections: Connections,
    pub book: AddressBook,
    /// Dials that were answered at no address, with the ranks that were dialled.
    unanswered: Vec<(Number, u32)>,
    /// Messages that wait for a connection, by rank.
    waiting: BTreeMap<u32, Waiting>,
    /// Ranks from which no messages are read, because too many of their messages wait here; with each rank's
    /// connection.
    paused: BTreeMap<u32, Number>,
    redials: Redials,
    pub results: Answers<Request, Result<Done, Failure>>,
    pub plain: Plain,
    /// Number of group messages sent on connections, and their size before encryption, in bytes.
    sent: (u64, u64),
    events: Vec<Event>,
    waits: Waits,
    upkeep: Upkeep,
}

/// Messages for a rank to which no connection is open.
#[derive(Default)]
struct Waiting {
    messages: Vec<Vec<u8>>,
    /// Whether any of them is needed: then the rank counts as lost if it cannot be reached, see [`Output::Send`].
    are_needed: bool,
}

/// Counters of what this process has done in the network of ranks, and what it holds. Only messages of groups count;
/// messages that make and prove connections do not.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counts {
    pub messages: u64,
    /// Size of the messages before encryption, in bytes.
    pub bytes: u64,
    pub groups: wireup_group::Counts,
    pub connections: usize,
    /// `closing`: connections that wait for the other end's consent to be closed; `closed`: those that were closed
    /// because there were too many.
    pub closing: usize,
    pub closed: u64,
    pub addresses: usize,
    /// Length of this process's own address, in bytes.
    pub address_len: usize,
}

/// A socket at which other ranks reach this one. It is not read before the job's secret is known.
pub struct Listener {
    transport: Transport,
    /// The address by which other ranks dial this one.
    pub address: Vec<u8>,
    socket: ListenerSocket,
}

enum ListenerSocket {
    Tcp(Descriptor),
    Both(Descriptor, net::Datagrams),
    Fabric(Box<Endpoint>),
}

impl Listener {
    /// # Errors
    /// There is no free port, no free descriptor, or no libfabric.
    pub fn new(transport: Transport) -> Result<Listener, Error> {
        let system = |Errno(number)| Error::System(number);
        let in_networks = |port| rank_address::encode(net::host_number(), port, &net::addresses());
        let (address, socket) = match transport {
            Transport::Tcp => {
                let (listening, port) = net::listen().map_err(system)?;
                (in_networks(port), ListenerSocket::Tcp(listening))
            }
            Transport::Udp => {
                let (listening, datagrams, port) = manager::listen_both().map_err(system)?;
                (in_networks(port), ListenerSocket::Both(listening, datagrams))
            }
            Transport::Fabric => {
                let endpoint = Endpoint::open().map_err(Error::Fabric)?;
                (endpoint.address().to_vec(), ListenerSocket::Fabric(Box::new(endpoint)))
            }
        };
        Ok(Listener { transport, address: transport.address(&address), socket })
    }

    /// A listener of a TCP socket that listens already, at this address.
    pub fn bound(listening: Descriptor, address: &[u8]) -> Listener {
        let transport = Transport::Tcp;
        Listener { transport, address: transport.address(address), socket: ListenerSocket::Tcp(listening) }
    }
}

impl Network {
    /// Makes a network in which this rank can be reached; nothing is dialled yet.
    ///
    /// # Errors
    /// There is no free descriptor.
    pub fn new(me: u32, secret: Secret, listener: Listener) -> Result<Network, Errno> {
        let Listener { transport, address, socket } = listener;
        let host = rank_address::host(&address[1..]).unwrap_or_default();
        let carrier: Box<dyn Carrier> = match socket {
            ListenerSocket::Tcp(listening) => Box::new(Tcp::new(listening, me, host, secret)?),
            ListenerSocket::Both(listening, datagrams) => {
                Box::new(Manager::new(me, &secret, Tcp::new(listening, me, host, secret)?, datagrams)?)
            }
            ListenerSocket::Fabric(endpoint) => Box::new(Fabric::new(me, &secret, *endpoint)?),
        };
        Ok(Network {
            groups: Groups::new(Peer { rank: me, address }),
            me,
            carrier,
            connections: Connections::default(),
            book: AddressBook::new(transport),
            unanswered: Vec::new(),
            waiting: BTreeMap::new(),
            paused: BTreeMap::new(),
            redials: Redials::default(),
            results: Answers::default(),
            plain: Plain::default(),
            sent: (0, 0),
            events: Vec::new(),
            waits: Waits::default(),
            upkeep: Upkeep::new(),
        })
    }

    /// From now on every rank's address is known or can be requested from the server, and its agents relay connections.
    pub fn use_endpoints(&mut self, endpoints: Arc<Endpoints>) {
        self.carrier.has_relays();
        self.book.endpoints = Some(endpoints);
    }

    /// Forms a group of these runs of ranks of the whole job, in this order; this rank must be in one of them. Needs
    /// the server's addresses ([`Network::use_endpoints`]). No message is sent.
    pub fn form_group(&mut self, context: Context, members: &[Run]) {
        let Network { groups, book, me, .. } = self;
        let Some(own) = place_of(members, *me).filter(|_| book.has_all()) else { return };
        let find = |place: u32| {
            let rank = rank_at(members, place).unwrap_or_default();
            Peer { rank, address: book.told(rank) }
        };
        groups.form_whole(context, (own, size(members)), false, &find);
    }

    pub fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether data that was sent is still in this process or, over libfabric, was not acknowledged.
    pub fn has_unsent(&self) -> bool {
        self.has_waiting() || self.carrier.unsent() != Unsent::Nothing
    }

    /// Whether a rank with this address uses the same transport.
    pub fn can_reach(&self, address: &[u8]) -> bool {
        let of_carrier = address.strip_prefix(&[self.book.transport.tag()]);
        of_carrier.is_some_and(|address| self.carrier.understands(address))
    }

    /// The epoll set whose descriptor is readable when there is something to do. The server's descriptor, with the
    /// token [`SERVER`], ends a wait in [`Network::progress`]; the caller removes it when the server's connection has
    /// ended, because it would stay readable.
    pub fn epoll(&self) -> &Epoll {
        self.carrier.epoll()
    }

    pub fn counts(&self) -> Counts {
        let (Network { groups, connections, .. }, (messages, bytes)) = (self, self.sent);
        Counts {
            messages,
            bytes,
            groups: groups.counts,
            connections: connections.open(),
            closing: connections.closing(),
            closed: connections.closed_by_agreement(),
            addresses: self.book.learnt.len(),
            address_len: groups.own().address.len(),
        }
    }

    /// Drops the result of a request, now or when it arrives.
    pub fn forget(&mut self, request: Request) {
        if !self.groups.cancel_receive(request) {
            self.results.forget(request);
        }
    }

    /// Sends and receives what is possible without waiting; if nothing is, waits for at most `ms` milliseconds
    /// (negative: without limit). Returns whether the server's descriptor is readable.
    pub fn progress(&mut self, ms: c_int) -> bool {
        self.pump();
        let is_served = self.receive(ms);
        self.pump();
        is_served
    }

    /// Receives what has arrived; if nothing has, waits for at most `ms` milliseconds (negative: without limit). The
    /// caller must call [`Network::pump`] before and after. Returns whether the server's descriptor is readable.
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

    /// Carries out what the groups request, and passes them what has arrived.
    pub fn pump(&mut self) {
        loop {
            self.pump_groups();
            let Network { groups, carrier, book, paused, plain, .. } = self;
            // Resumes reading from a rank if fewer of its messages wait now, or if this process waits for one of them.
            paused.retain(|rank, number| {
                let stays = groups.is_behind(*rank);
                if !stays {
                    carrier.set_paused(*number, false);
                }
                stays
            });
            plain.dial(book, &mut **carrier);
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

    fn pump_groups(&mut self) {
        while let Some(output) = self.groups.poll() {
            match output {
                // An empty address means that the address book already has it.
                Output::Learnt(Peer { address, .. }) if address.is_empty() => {}
                Output::Learnt(Peer { rank, address }) => drop(self.book.learnt.insert(rank, address)),
                // After its goodbye a rank sends nothing.
                Output::Send { .. } if self.connections.is_leaving => {}
                Output::Send { to, message, is_needed } => {
                    self.sent = (self.sent.0 + 1, self.sent.1 + message.len() as u64);
                    self.send(to, message, is_needed);
                }
                Output::Done { request, result } => self.results.on_answer(request, result),
            }
        }
    }

    /// Says goodbye to all connected ranks. Waits until this rank's messages have been transmitted, which over
    /// libfabric means acknowledged, or their receivers have ended. The wait has no limit, because a receiver that
    /// computes reads nothing until it calls the library again. If a receiver's host is gone, the kernel ends a TCP
    /// connection after its last retransmission (`tcp_retries2`), by default after a quarter of an hour. Meanwhile this
    /// rank reads all that others send: of two ranks that leave, each may wait for the other one. Then waits for
    /// acknowledgements for at most `ms` milliseconds.
    ///
    /// No message may wait for a connection ([`Network::has_waiting`]): its receiver would find that this rank does not
    /// answer, and treat it as lost.
    pub fn leave(&mut self, ms: u64) {
        self.groups.is_leaving = true;
        self.pump();
        self.say_goodbye(ms, Unsent::Goodbyes);
    }

    /// Ends the connections of a rank that gives up. Other ranks may learn the reason only from this one, so it sends
    /// waiting messages for at most `ms` milliseconds.
    pub fn abandon(&mut self, ms: u64) {
        let until = net::now_ms() + ms;
        self.pump();
        while !self.waiting.is_empty() && net::now_ms() < until {
            self.progress(10);
        }
        self.say_goodbye(until.saturating_sub(net::now_ms()), Unsent::Messages);
    }

    /// Says goodbye, and waits, for at most `ms` milliseconds from when no more than `most` is unsent. Says goodbye on
    /// new connections too: a rank that asks something now gets no answer, and must not wait for one. Looks every
    /// 10 ms, because no event reports what the kernel has transmitted.
    fn say_goodbye(&mut self, ms: u64, most: Unsent) {
        self.connections.is_leaving = true;
        let mut until = net::now_ms() + ms;
        loop {
            self.carrier.say_goodbye();
            self.pump();
            let (unsent, now) = (self.carrier.unsent(), net::now_ms());
            if unsent > most {
                until = now + ms;
            }
            if unsent == Unsent::Nothing || now >= until && unsent <= most {
                return;
            }
            self.progress(10);
        }
    }

    pub fn on_lost(&mut self, rank: u32) {
        self.waiting.remove(&rank);
        self.redials.remove(rank);
        self.plain.on_lost(rank);
        self.groups.on_lost(rank);
    }

    /// Handles the fact that no connection can be made to a rank: it is lost, unless only inquiries wait for it.
    fn on_unreachable(&mut self, rank: u32) {
        let is_needed = self.waiting.get(&rank).is_none_or(|waiting| waiting.are_needed);
        if is_needed || self.plain.is_undialled(rank) {
            return self.on_lost(rank);
        }
        self.waiting.remove(&rank);
        self.redials.remove(rank);
        self.groups.on_left(rank);
    }

    fn send(&mut self, to: u32, message: Vec<u8>, is_needed: bool) {
        match self.connections.route(to) {
            Route::Open(number) => {
                self.connections.on_used(to);
                self.carrier.send(number, &message);
            }
            Route::Nowhere if is_needed => self.on_lost(to),
            Route::Nowhere => {}
            route => {
                let waiting = self.waiting.entry(to).or_default();
                waiting.messages.push(message);
                waiting.are_needed |= is_needed;
                if route == Route::Dial && !self.redials.has(to) {
                    self.dial(to);
                }
            }
        }
    }

    fn on_happened(&mut self, Happened { number, peer, event }: Happened) {
        match event {
            ConnectionEvent::Proved { was_dialled: true, .. } => {
                self.connections.on_dialled(peer, number);
                self.send_waiting(peer);
            }
            ConnectionEvent::Proved { was_dialled: false, closed } => {
                let Network { connections, carrier, .. } = self;
                match connections.on_hello(self.me, (peer, closed), number, |dialled| carrier.is_begun(dialled)) {
                    Verdict::Keep => {}
                    Verdict::KeepInsteadOf(other) => self.carrier.close(other),
                    Verdict::Refuse => return self.carrier.close(number),
                }
                self.send_waiting(peer);
            }
            ConnectionEvent::Message(bytes) => {
                self.connections.on_used(peer);
                if self.groups.on_message(peer, &bytes).is_err() {
                    self.carrier.close(number);
                    self.on_over(number, peer, true);
                } else if self.groups.is_behind(peer) {
                    self.carrier.set_paused(number, true);
                    self.paused.insert(peer, number);
                }
            }
            ConnectionEvent::Said(word) => self.on_word(number, peer, word),
            ConnectionEvent::Unanswered => self.unanswered.push((number, peer)),
            ConnectionEvent::Finished => self.on_finished(number, peer),
            ConnectionEvent::Over { is_lost } => self.on_over(number, peer, is_lost),
        }
    }

    /// Sends the messages that wait for a connection to the peer, or dials it again: a connection was made, or the last
    /// one has just ended.
    fn send_waiting(&mut self, peer: u32) {
        self.redials.remove(peer);
        let Waiting { messages, are_needed } = self.waiting.remove(&peer).unwrap_or_default();
        messages.into_iter().for_each(|message| self.send(peer, message, are_needed));
    }

    fn on_word(&mut self, number: Number, from: u32, word: Word) {
        match word {
            Word::Goodbye => {
                self.connections.on_left(from);
                self.groups.on_left(from);
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

    /// Handles the end of a connection that was closed by agreement.
    fn on_finished(&mut self, number: Number, peer: u32) {
        if self.connections.on_finished(peer, number) {
            self.send_waiting(peer);
        }
    }

    /// Handles the end of a connection that was not closed by agreement.
    fn on_over(&mut self, number: Number, peer: u32, is_lost: bool) {
        let was_dialling = self.connections.is_dialling(peer);
        if !self.connections.on_closed(peer, number) {
            return;
        }
        if is_lost && !was_dialling {
            self.on_lost(peer);
        } else if is_lost || self.waiting.contains_key(&peer) {
            self.redials.on_refused(net::now_ms(), peer);
        }
    }

    /// Lets the agents relay to ranks that answer at no address. `ask` takes a rank, and returns the socket that the
    /// agents relay to that rank; `None`: they cannot.
    pub fn relay(&mut self, ask: &mut dyn FnMut(u32) -> Option<Descriptor>) {
        for (number, rank) in core::mem::take(&mut self.unanswered) {
            self.carrier.go_on(number, ask(rank));
            self.pump();
        }
    }

    /// Handles the server's answer with a rank's address; `None`: the rank has exited without publishing an address.
    pub fn on_address(&mut self, rank: u32, address: Option<Vec<u8>>) {
        self.book.on_answer(rank);
        let is_needed = self.waiting.contains_key(&rank) && self.connections.route(rank) == Route::Dial;
        let is_wanted = is_needed || self.plain.is_undialled(rank);
        match address {
            Some(address) if self.can_reach(&address) => {
                self.book.learnt.insert(rank, address);
                if is_needed {
                    self.dial(rank);
                }
            }
            Some(_) => {
                self.book.misfits.insert(rank);
                self.on_lost(rank);
            }
            None if is_wanted => self.on_unreachable(rank),
            None => {}
        }
    }

    /// Handles the loss of the server: pending requests for ranks' addresses will not be answered.
    pub fn on_unanswered(&mut self) {
        core::mem::take(&mut self.book.sought).into_iter().for_each(|rank| self.on_address(rank, None));
    }

    /// Starts to make a plain connection to a rank, which must do the same; `None`: the transport has none. `world`:
    /// the group of all ranks.
    pub fn connect(&mut self, world: Context, peer: u32) -> Option<Key> {
        if self.book.transport == Transport::Fabric {
            return None;
        }
        let key = self.plain.ask(self.me, peer);
        if !self.book.has_all() {
            let located = self.groups.locate(world, peer);
            self.results.forget(located);
        }
        Some(key)
    }

    /// Limits a wait of `ms` milliseconds to the time until the next redial or check of the connections.
    pub fn limit(&self, ms: c_int) -> c_int {
        let due = self.redials.deadline().map_or(self.upkeep.due, |at| at.min(self.upkeep.due));
        let left = c_int::try_from(due.saturating_sub(net::now_ms())).unwrap_or(c_int::MAX);
        if ms < 0 { left } else { ms.min(left) }
    }

    fn dial(&mut self, to: u32) {
        let address = self.book.address(to);
        if address.is_empty() && self.book.has_all() {
            return self.book.want(to);
        }
        let address = if self.can_reach(&address) { address.get(1..).unwrap_or_default() } else { &[] };
        let number = self.carrier.dial(to, address, self.connections.closed(to));
        self.connections.on_dial(to, number);
    }

    fn dial_again(&mut self, now: u64) {
        if self.redials.deadline().is_none_or(|at| at > now) {
            return;
        }
        // A rank that has connected meanwhile need not be dialled: handle its connection first.
        self.pump();
        for (to, is_enough) in self.redials.take_due(now) {
            if self.connections.route(to) != Route::Dial {
                self.redials.remove(to);
            } else if is_enough {
                self.on_unreachable(to);
            } else {
                self.dial(to);
            }
        }
    }

    /// From now on at most `open_max` connections are kept open, except those over which an end waits for a message.
    /// Has no effect where a connection costs no descriptor.
    pub fn bound_connections(&mut self, open_max: usize) {
        if self.carrier.can_finish() {
            self.upkeep.open_max = Some(open_max);
            self.pump();
        }
    }

    /// Starts to close connections in excess of the bound. Returns whether there is something to send now.
    fn close_surplus(&mut self) -> bool {
        let Some(open_max) = self.upkeep.open_max.filter(|open_max| self.connections.open() > *open_max) else {
            return false;
        };
        let awaited = self.groups.awaited();
        let mut has_asked = false;
        while let Some(number) = self.connections.close_one(open_max, |peer| awaited.has(peer)) {
            self.carrier.send(number, said(Word::Close));
            has_asked = true;
        }
        has_asked
    }

    /// Connects to ranks that this process has waited for since the last check, so that it notices when they end.
    ///
    /// A rank whose part in a collective is missing cannot have left the job in an orderly way, but a sender that a
    /// receive waits for can have left; its goodbye reaches this process only over a connection. A bound on connections
    /// may have closed that connection, and the sender's exit would go unnoticed: so with a bound, senders are
    /// connected to as well.
    fn watch(&mut self, now: u64) {
        if now < self.upkeep.due {
            return;
        }
        // Handle what has arrived first: this process may then no longer wait for its senders.
        self.pump();
        self.groups.ask_again();
        let awaited = self.groups.awaited();
        let mut ranks = awaited.parts;
        if self.upkeep.open_max.is_some() {
            ranks.extend(awaited.senders);
            for (context, member) in awaited.unknown {
                let request = self.groups.locate(context, member);
                self.results.forget(request);
            }
        }
        for rank in self.upkeep.still_awaited(now, ranks) {
            let is_dialled = self.connections.route(rank) != Route::Dial || self.redials.has(rank);
            if !is_dialled && self.can_reach(&self.book.address(rank)) {
                self.dial(rank);
            }
        }
    }
}

#[cfg(test)]
mod tests;
