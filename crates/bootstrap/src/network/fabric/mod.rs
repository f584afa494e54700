//! Connections over libfabric: one reliable endpoint for all of them (`FI_EP_RDM`).
//!
//! ```text
//!   Fabric ── messages ──► Links: connections by number ──► Open: keys, credit, goodbye
//!      │                      └── hellos, welcomes ◄── handshake: codes, proof
//!      └── Endpoint (wireup-fabric)
//! ```
//!
//! `links`, `open` and `handshake` use no library and no clock. [`Fabric`] uses both: it reads what has arrived and
//! gives the provider what is to be sent. The provider retransmits and orders, but it may do so only when [`Fabric`]
//! is called: while this process computes, nothing is received, and what was sent may remain here.

pub mod handshake;
pub mod links;
pub mod open;
#[cfg(test)]
mod tests;

use super::carrier::{Carrier, Happened, Number, Unsent};
use super::proof::Secret;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use links::{Links, WireAddress};
use wireup_capi::net::{Epoll, Errno, Event, Timer, now_ms};
use wireup_fabric::{ADDRESS_LEN_MAX, Endpoint, Event as Completed, Peer, Posted};
use wireup_wire::rank_address;

// The exchange of addresses has room for a libfabric address, and a hello stores the address's length in one byte.
const _: () = assert!(ADDRESS_LEN_MAX <= rank_address::LEN_MAX && ADDRESS_LEN_MAX <= u8::MAX as usize);

/// The epoll tokens of the endpoint's descriptor and of the timer.
const ENDPOINT: u64 = 0;
const TIMER: u64 = 2;
/// Maximum number of completions read in one turn. Chosen: more than all posted receives and sends; the bound keeps a
/// flood of messages from strangers from stopping a rank's work.
const COMPLETED_MAX: usize = 512;
pub struct Fabric {
    endpoint: Endpoint,
    links: Links,
    /// Peers by address. They are ranks only: the address in a hello is read after the hello's code was checked.
    peers: BTreeMap<WireAddress, Option<Peer>>,
    epoll: Epoll,
    timer: Timer,
    received: Vec<u8>,
    /// Number of completions that may still be read in this turn.
    budget: usize,
    /// When to try again to send what the provider has not taken (ms); `None`: it has taken everything.
    retry_at: Option<u64>,
    /// Connections on which a message could not be sent. They end when all that has arrived was read: it may contain
    /// the peer's goodbye.
    failed: Vec<Number>,
    is_leaving: bool,
}

impl Fabric {
    /// # Errors
    /// The process or the system has no free descriptors.
    pub fn new(me: u32, secret: &Secret, endpoint: Endpoint) -> Result<Fabric, Errno> {
        let (epoll, timer) = (Epoll::new()?, Timer::new()?);
        epoll.watch(endpoint.fd(), ENDPOINT, false, true)?;
        epoll.watch(timer.fd(), TIMER, false, true)?;
        // This cannot fail: the algorithms are compiled into this library.
        let links = Links::new(me, secret, endpoint.address(), endpoint.message_len()).map_err(|_| Errno(0))?;
        Ok(Fabric {
            received: vec![0; endpoint.message_len()],
            endpoint,
            links,
            peers: BTreeMap::new(),
            epoll,
            timer,
            budget: 0,
            retry_at: None,
            failed: Vec::new(),
            is_leaving: false,
        })
    }

    fn receive(&mut self) {
        let now = now_ms();
        while self.budget > 0 {
            let Some(completed) = self.endpoint.poll(&mut self.received) else {
                let Fabric { links, failed, .. } = self;
                return failed.drain(..).for_each(|number| links.on_failed(number));
            };
            self.budget -= 1;
            match completed {
                Completed::Received(len) => self.links.on_message(now, &self.received[..len]),
                Completed::NotSent(number) => self.failed.push(number),
                Completed::Other => {}
            }
        }
    }

    /// Gives the provider what is to be sent, as far as it has room.
    fn transmit(&mut self) {
        let Fabric { endpoint, links, peers, failed, .. } = self;
        self.retry_at = links.transmit(now_ms(), failed, |number, place, bytes| {
            let peer = match peers.get(place) {
                Some(peer) => *peer,
                None => *peers.entry(place.to_vec()).or_insert(endpoint.peer(place)),
            };
            peer.map_or(Posted::Never, |peer| endpoint.send(peer, bytes, number))
        });
    }
}

impl Carrier for Fabric {
    fn epoll(&self) -> &Epoll {
        &self.epoll
    }

    fn understands(&self, address: &[u8]) -> bool {
        self.endpoint.understands(address)
    }

    fn dial(&mut self, to: u32, address: &[u8], closed: u32) -> Number {
        self.links.dial(to, closed, self.understands(address).then_some(address))
    }

    fn send(&mut self, number: Number, message: &[u8]) {
        self.links.send(number, message);
    }

    fn set_paused(&mut self, number: Number, is_paused: bool) {
        self.links.set_paused(number, is_paused);
    }

    fn close(&mut self, number: Number) {
        self.links.close(number);
    }

    fn on_event(&mut self, event: Event) {
        if event.token == TIMER {
            self.timer.clear();
        }
        self.budget = COMPLETED_MAX;
        self.receive();
    }

    fn poll(&mut self) -> Option<Happened> {
        self.links.poll()
    }

    /// Sends until the provider has no more room, and reads what has completed meanwhile: otherwise the descriptor
    /// would not report the next completion.
    fn flush(&mut self) {
        while !self.links.has_happened() {
            self.transmit();
            if self.endpoint.may_wait() && self.failed.is_empty() {
                return self.timer.set(self.retry_at);
            }
            // The provider may need calls for a while although nothing completes.
            let Some(budget) = self.budget.checked_sub(1) else {
                // Ends the next wait at once.
                return self.timer.set(Some(now_ms()));
            };
            self.budget = budget;
            self.receive();
        }
    }

    fn say_goodbye(&mut self) {
        self.is_leaving = true;
        self.links.say_goodbye();
    }

    /// Messages and goodbyes are unsent until the peer has acknowledged them. Before this rank exits, the provider must
    /// also have sent the acknowledgements for others.
    fn unsent(&self) -> Unsent {
        let unsent = self.links.unsent(now_ms());
        let has_more = self.is_leaving && (self.retry_at.is_some() || self.endpoint.is_sending());
        if has_more { unsent.max(Unsent::Goodbyes) } else { unsent }
    }
}
