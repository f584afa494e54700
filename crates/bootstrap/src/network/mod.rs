//! The connections between ranks: carries the messages of groups over TCP, dialled when first needed.
//!
//! ```text
//!   groups ── for rank 7 ──► connections: open? ──► link: sealed, written
//!                                └─ no: dialled; messages wait ──► proof ──► stream
//!   groups ◄── message ────────────────────────────── stream ◄── read
//! ```
//!
//! A connection that closes without a goodbye means that its other end is gone: the kernel closes the connections of a process that ended.

mod address;
mod link;
pub mod proof;
mod stream;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::ffi::c_int;
use link::{Arrived, Link};
use proof::Secret;
use wireup_capi::net::{self, Epoll, Errno, Event, Owned};
use wireup_group::connections::{Connections, Number, Route, Verdict};
use wireup_group::{Done, Failure, Groups, Output, Peer, Request};

/// Connections whose dialler has not proved itself. Chosen: twice as many as links of a graph of a billion ranks; the oldest is closed.
const UNPROVED_MAX: usize = 128;
/// How long a connection may take until it is proved (ms). Long, because the other end may compute meanwhile.
const PROOF_MS_MAX: u64 = 300_000;
/// How often a rank is dialled that refuses, and the pause before the next time (ms): its own dial is about to arrive.
const DIALS_MAX: u32 = 8;
const PAUSE_MS: u64 = 50;

/// Tokens of the epoll instance below this are not links.
const LISTENING: u64 = 0;
pub const SERVER: u64 = 1;
const FIRST_LINK: u64 = 2;

pub struct Network {
    pub groups: Groups,
    me: u32,
    host: u64,
    secret: Secret,
    listening: Owned,
    epoll: Epoll,
    connections: Connections,
    links: BTreeMap<Number, Link>,
    last: Number,
    /// By rank: where it listens.
    addresses: BTreeMap<u32, Vec<u8>>,
    /// Messages until there is a connection.
    waiting: BTreeMap<u32, Vec<Vec<u8>>>,
    /// Ranks that have refused: how often so far, and when to dial next, unless they are being dialled.
    again: BTreeMap<u32, (u32, Option<u64>)>,
    done: BTreeMap<Request, Result<Done, Failure>>,
    forgotten: BTreeSet<Request>,
    events: Vec<Event>,
}

impl Network {
    /// Listens; nothing is dialled yet.
    ///
    /// # Errors
    /// There is no port, or no descriptor.
    pub fn new(me: u32, secret: Secret) -> Result<Network, Errno> {
        let (listening, port) = net::listen()?;
        let epoll = Epoll::new()?;
        epoll.watch(listening.fd(), LISTENING, false, true)?;
        let host = net::host_number();
        let own = Peer { rank: me, address: address::encode(host, port, &net::addresses()) };
        Ok(Network {
            groups: Groups::new(own),
            me,
            host,
            secret,
            listening,
            epoll,
            connections: Connections::default(),
            links: BTreeMap::new(),
            last: FIRST_LINK,
            addresses: BTreeMap::new(),
            waiting: BTreeMap::new(),
            again: BTreeMap::new(),
            done: BTreeMap::new(),
            forgotten: BTreeSet::new(),
            events: Vec::new(),
        })
    }

    /// This rank's address, for others.
    pub fn own_address(&self) -> &[u8] {
        &self.groups.own().address
    }

    /// The descriptor that is readable when something is to be done.
    pub fn fd(&self) -> c_int {
        self.epoll.fd()
    }

    /// Also wakes up when this descriptor is readable.
    ///
    /// # Errors
    /// The kernel has no memory for that.
    pub fn watch_server(&self, fd: c_int) -> Result<(), Errno> {
        self.epoll.watch(fd, SERVER, false, true)
    }

    /// The server is gone: its descriptor stays readable.
    pub fn forget_server(&self, fd: c_int) {
        self.epoll.forget(fd);
    }

    /// How many connections are open.
    pub fn connections(&self) -> usize {
        self.connections.open()
    }

    /// The result of a request that is over. It is returned once.
    pub fn take_done(&mut self, request: Request) -> Option<Result<Done, Failure>> {
        self.done.remove(&request)
    }

    /// The result of a request is not wanted.
    pub fn forget(&mut self, request: Request) {
        if self.done.remove(&request).is_none() {
            self.forgotten.insert(request);
        }
    }

    pub fn is_done(&self, request: Request) -> bool {
        self.done.contains_key(&request)
    }

    /// Sends and receives what is possible; waits for at most `ms` milliseconds (negative: without limit) if nothing is. Returns whether the
    /// server's descriptor is readable.
    pub fn progress(&mut self, ms: c_int) -> bool {
        let mut is_served = false;
        self.pump();
        let mut events = core::mem::take(&mut self.events);
        self.epoll.wait(self.limit(ms), &mut events);
        for event in &events {
            match event.token {
                LISTENING => self.accept(),
                SERVER => is_served = true,
                number => self.on_event(number, *event),
            }
        }
        self.events = events;
        self.dial_again();
        self.pump();
        is_served
    }

    /// Carries out what the groups want.
    pub fn pump(&mut self) {
        while let Some(output) = self.groups.poll() {
            match output {
                Output::Learnt(Peer { rank, address }) => {
                    self.addresses.insert(rank, address);
                }
                Output::Send { to, message } => self.send(to, message),
                Output::Done { request, result } => {
                    if !self.forgotten.remove(&request) {
                        self.done.insert(request, result);
                    }
                }
            }
        }
    }

    /// Tells all others that this rank leaves in order, and waits until that is sent, for at most `ms` milliseconds.
    pub fn leave(&mut self, ms: u64) {
        self.pump();
        self.links.values_mut().for_each(Link::say_goodbye);
        let until = net::now_ms() + ms;
        while self.links.values().any(Link::has_unsent) && net::now_ms() < until {
            let numbers: Vec<Number> = self.links.keys().copied().collect();
            numbers.into_iter().for_each(|number| self.flush(number));
            self.progress(10);
        }
    }

    /// A rank is gone, as the job's server says.
    pub fn on_lost(&mut self, rank: u32) {
        self.waiting.remove(&rank);
        self.again.remove(&rank);
        self.groups.on_lost(rank);
    }

    /// Not longer than until the next dial.
    fn limit(&self, ms: c_int) -> c_int {
        let Some(due) = self.again.values().filter_map(|(_, at)| *at).min() else { return ms };
        let left = c_int::try_from(due.saturating_sub(net::now_ms())).unwrap_or(c_int::MAX);
        if ms < 0 { left } else { ms.min(left) }
    }

    fn send(&mut self, to: u32, message: Vec<u8>) {
        match self.connections.route(to) {
            Route::Open(number) => {
                let sent = self.links.get_mut(&number).is_some_and(|link| link.send(&message));
                if sent { self.flush(number) } else { self.close(number, true) }
            }
            route => {
                self.waiting.entry(to).or_default().push(message);
                if route == Route::Dial && !self.again.contains_key(&to) {
                    self.dial(to);
                }
            }
        }
    }

    fn dial(&mut self, to: u32) {
        let mut candidates =
            self.addresses.get(&to).map(|bytes| address::candidates(bytes, self.host)).unwrap_or_default();
        candidates.reverse();
        let link = Link::dial(candidates, to);
        self.last += 1;
        self.connections.on_dial(to, self.last);
        self.links.insert(self.last, link);
        self.try_next(self.last);
    }

    /// Tries the next address of a rank that is being dialled.
    fn try_next(&mut self, number: Number) {
        let Some(link) = self.links.get_mut(&number) else { return };
        while let Some(socket) = link.next_attempt() {
            if self.epoll.watch(socket, number, true, true).is_ok() {
                return;
            }
        }
        self.close(number, true);
    }

    fn dial_again(&mut self) {
        let now = net::now_ms();
        let due: Vec<u32> =
            self.again.iter().filter(|(_, (_, at))| at.is_some_and(|at| at <= now)).map(|(to, _)| *to).collect();
        for to in due {
            let Some((count, at)) = self.again.get_mut(&to) else { continue };
            *at = None;
            let is_enough = *count > DIALS_MAX;
            if self.connections.route(to) != Route::Dial {
                self.again.remove(&to);
            } else if is_enough {
                self.on_lost(to);
            } else {
                self.dial(to);
            }
        }
    }

    fn accept(&mut self) {
        while let Ok(Some(socket)) = net::accept(&self.listening) {
            let unproved = self.links.iter().filter(|(_, link)| link.is_stranger());
            let (oldest, count) =
                unproved.fold((None, 0), |(oldest, count), (number, _)| (oldest.or(Some(*number)), count + 1));
            if let Some(oldest) = oldest.filter(|_| count >= UNPROVED_MAX) {
                self.links.remove(&oldest);
            }
            self.last += 1;
            let fd = socket.fd();
            if let Ok(link) = Link::accepted(socket, &self.secret, self.me)
                && self.epoll.watch(fd, self.last, false, true).is_ok()
            {
                self.links.insert(self.last, link);
            }
        }
        let now = net::now_ms();
        self.links.retain(|_, link| !link.is_stranger() || now < link.since_ms() + PROOF_MS_MAX);
    }

    fn on_event(&mut self, number: Number, event: Event) {
        let Some(link) = self.links.get_mut(&number) else { return };
        if link.is_connecting() {
            if event.is_writable {
                match link.on_connected(&self.secret, self.me) {
                    Ok(()) => self.flush(number),
                    Err(_) => self.try_next(number),
                }
            }
            return;
        }
        if event.is_writable {
            self.flush(number);
        }
        if event.is_readable {
            self.read(number);
        }
    }

    fn read(&mut self, number: Number) {
        loop {
            let Some(link) = self.links.get_mut(&number) else { return };
            match link.read() {
                Ok(None) => return,
                Err(_) => return self.close(number, false),
                Ok(Some(all)) => {
                    for arrived in all {
                        if !self.on_arrived(number, arrived) {
                            return;
                        }
                    }
                    self.flush(number);
                }
            }
        }
    }

    /// `false`: the connection is closed.
    fn on_arrived(&mut self, number: Number, arrived: Arrived) -> bool {
        match arrived {
            Arrived::Proved { peer, was_dialled: true } => {
                self.connections.on_dialled(peer, number);
                self.on_open(peer);
            }
            Arrived::Proved { peer, was_dialled: false } => match self.connections.on_hello(self.me, peer, number) {
                Verdict::Keep => self.on_open(peer),
                Verdict::KeepInsteadOf(other) => {
                    self.links.remove(&other);
                    self.on_open(peer);
                }
                Verdict::Refuse => {
                    self.links.remove(&number);
                    return false;
                }
            },
            Arrived::Message { from, bytes } => {
                if self.groups.on_message(from, &bytes).is_err() {
                    self.close(number, false);
                    return false;
                }
            }
            Arrived::Goodbye { from } => {
                self.connections.on_closed(from, number);
                self.links.remove(&number);
                return false;
            }
        }
        true
    }

    /// There is a connection now.
    fn on_open(&mut self, peer: u32) {
        self.again.remove(&peer);
        for message in self.waiting.remove(&peer).unwrap_or_default() {
            self.send(peer, message);
        }
    }

    /// Writes what fits.
    fn flush(&mut self, number: Number) {
        let Some(link) = self.links.get_mut(&number) else { return };
        match link.flush() {
            Ok(changed) => {
                if let Some((fd, writes)) = changed
                    && self.epoll.watch(fd, number, writes, false).is_err()
                {
                    self.close(number, false);
                }
            }
            Err(_) => self.close(number, false),
        }
    }

    /// A connection has ended or must end. `unreachable`: no address of the rank could be connected.
    fn close(&mut self, number: Number, unreachable: bool) {
        let Some(link) = self.links.remove(&number) else { return };
        let Some(peer) = link.peer() else { return };
        if !self.connections.on_closed(peer, number) {
            return;
        }
        if link.was_open() || unreachable {
            return self.on_lost(peer);
        }
        // Refused: the other end dials this one. It is given time for that.
        let (count, at) = self.again.entry(peer).or_default();
        (*count, *at) = (*count + 1, Some(net::now_ms() + PAUSE_MS));
    }
}

#[cfg(test)]
mod tests;
