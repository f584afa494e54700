//! Requests for connections and their acceptance by datagrams, without a socket or a clock.
//!
//! ```text
//! request | 4 | from u32 | to u32 | number u64 | code 16 |    from, to: ranks; number: the dialler's, used once
//! accept  | 5 | from u32 | to u32 | number u64 | code 16 |    number: that of the request
//! ```
//!
//! Numbers are little-endian; the code covers all bytes before it. A rank that accepts keeps nothing: it answers a
//! repeated request again, and what a stranger repeats changes nothing. An accept settles only the request with its
//! number, between its two ranks.
//!
//! Two requests that cross settle to one: a rank does not accept the request of a higher rank from which it awaits an
//! accept, and no request of a rank to which it is connecting.

use crate::network::carrier::Number;
use crate::network::codes::Codes;
use crate::network::proof::{Broken, Secret};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::net::SocketAddr;

const REQUEST: u8 = 4;
const ACCEPT: u8 = 5;
/// Length of both datagrams, in bytes.
pub const LEN: usize = 1 + 4 + 4 + 8 + 16;

/// How often a request is sent, and the pause after the first time, which doubles (ms). Chosen: several round trips of
/// a slow network; all together 1.6 s.
const SENT_MAX: u32 = 5;
const PAUSE_MS: u64 = 50;

/// What to dial once a request is settled.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Dial {
    pub to: u32,
    /// The published address of the rank.
    pub address: Vec<u8>,
    /// Number of connections to the rank that were closed by agreement.
    pub closed: u32,
}

/// A request that is over: the connection is to be made now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settled {
    pub number: Number,
    pub dial: Dial,
    /// The address from which the accept has come. `None`: no accept has come, because the rank computes, its process
    /// has exited, or its host is not reached by datagrams.
    pub accepted_at: Option<SocketAddr>,
}

pub struct Requests {
    me: u32,
    codes: Codes,
    pending: BTreeMap<Number, Pending>,
    outbox: VecDeque<(SocketAddr, Vec<u8>)>,
    settled: VecDeque<Settled>,
}

/// A request that no accept has answered.
struct Pending {
    dial: Dial,
    /// Addresses that have not refused the request, the best one first.
    places: Vec<SocketAddr>,
    sent: u32,
    due: u64,
}

impl Requests {
    /// # Errors
    /// None: the algorithm is part of this library.
    pub fn new(me: u32, secret: &Secret) -> Result<Requests, Broken> {
        let codes = Codes::new(secret)?;
        Ok(Requests { me, codes, pending: BTreeMap::new(), outbox: VecDeque::new(), settled: VecDeque::new() })
    }

    /// Requests a connection to a rank at these addresses, the best one first.
    pub fn ask(&mut self, now: u64, number: Number, dial: Dial, places: Vec<SocketAddr>) {
        let is_hopeless = places.is_empty();
        self.pending.insert(number, Pending { dial, places, sent: 0, due: now });
        if is_hopeless {
            self.settle(number, None);
        }
    }

    /// Drops a request: the other rank has connected, or the connection is not wanted any more.
    pub fn forget(&mut self, number: Number) {
        self.pending.remove(&number);
        self.settled.retain(|settled| settled.number != number);
    }

    /// Handles a datagram. `is_connecting`: whether this rank is connecting to a rank.
    pub fn on_datagram(&mut self, from: SocketAddr, bytes: &[u8], is_connecting: impl Fn(u32) -> bool) {
        let Some((kind, peer, number)) = self.decode(bytes) else { return };
        let is_asked = |pending: &Pending| pending.dial.to == peer;
        match kind {
            ACCEPT if self.pending.get(&number).is_some_and(is_asked) => self.settle(number, Some(from)),
            REQUEST => {
                let has_priority = self.me < peer && self.pending.values().any(is_asked);
                let is_settled = self.settled.iter().any(|settled| settled.dial.to == peer);
                if !has_priority && !is_settled && !is_connecting(peer) {
                    let accept = self.encode(ACCEPT, peer, number);
                    self.outbox.push_back((from, accept));
                }
            }
            _ => {}
        }
    }

    /// Handles a report that no process receives at this address. Anyone can send it, so it only ends the wait for an
    /// accept: the connection shows whether the rank exists.
    pub fn on_refused(&mut self, place: SocketAddr) {
        self.pending.values_mut().for_each(|pending| pending.places.retain(|one| *one != place));
        let refused: Vec<Number> =
            self.pending.iter().filter(|(_, pending)| pending.places.is_empty()).map(|(number, _)| *number).collect();
        refused.into_iter().for_each(|number| self.settle(number, None));
    }

    pub fn deadline(&self) -> Option<u64> {
        self.pending.values().map(|pending| pending.due).min()
    }

    /// Sends the requests that are due, the first time to the best address only; gives up those that were sent often
    /// enough.
    pub fn on_tick(&mut self, now: u64) {
        let due: Vec<Number> =
            self.pending.iter().filter(|(_, pending)| pending.due <= now).map(|(number, _)| *number).collect();
        for number in due {
            let Some(pending) = self.pending.get_mut(&number) else { continue };
            if pending.sent == SENT_MAX {
                self.settle(number, None);
                continue;
            }
            pending.due = now + (PAUSE_MS << pending.sent);
            let count = if pending.sent == 0 { 1 } else { pending.places.len() };
            let (to, places) = (pending.dial.to, pending.places[..count].to_vec());
            pending.sent += 1;
            let request = self.encode(REQUEST, to, number);
            self.outbox.extend(places.into_iter().map(|place| (place, request.clone())));
        }
    }

    /// The next datagram to send, and its destination.
    pub fn transmit(&mut self) -> Option<(SocketAddr, Vec<u8>)> {
        self.outbox.pop_front()
    }

    pub fn poll(&mut self) -> Option<Settled> {
        self.settled.pop_front()
    }

    fn settle(&mut self, number: Number, accepted_at: Option<SocketAddr>) {
        let Some(Pending { dial, .. }) = self.pending.remove(&number) else { return };
        self.settled.push_back(Settled { number, dial, accepted_at });
    }

    fn encode(&mut self, kind: u8, to: u32, number: Number) -> Vec<u8> {
        self.codes.with_code(&[&[kind], &self.me.to_le_bytes(), &to.to_le_bytes(), &number.to_le_bytes()])
    }

    /// Checks and decodes a datagram: its kind, sender and number. `None`: it is not from another rank of this job, or
    /// not for this rank.
    fn decode(&mut self, bytes: &[u8]) -> Option<(u8, u32, Number)> {
        let (kind, rest) = self.codes.checked(bytes)?.split_first()?;
        let (from, rest) = rest.split_first_chunk()?;
        let (to, number) = rest.split_first_chunk()?;
        let (from, number) = (u32::from_le_bytes(*from), u64::from_le_bytes(number.try_into().ok()?));
        (u32::from_le_bytes(*to) == self.me && from != self.me).then_some((*kind, from, number))
    }
}
