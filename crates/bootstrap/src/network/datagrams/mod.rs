//! Connections over datagrams: one socket or endpoint for all of them; this library retransmits and orders.
//!
//! ```text
//!   Datagrams ── bytes ──► Endpoint: connections by number ──► Open: Seals ──► sender, receiver (wireup-group)
//!       │                      └── hellos, welcomes ◄── handshake: codes, proof
//!       └── Wire: udp, fabric
//! ```
//!
//! `endpoint`, `open` and `handshake` use no socket and no clock. [`Datagrams`] uses both: it reads datagrams
//! that have arrived, and sends those that are due. While this process computes, nothing is read and nothing is
//! repeated; a timer makes the descriptor of [`Carrier::epoll`] readable when something must be repeated.

pub mod endpoint;
mod fabric;
pub mod handshake;
#[cfg(test)]
mod lossy;
pub mod open;
#[cfg(test)]
mod tests;
mod udp;

use super::carrier::{Carrier, Happened, Number, Unsent};
use super::proof::Secret;
use alloc::vec::Vec;
use core::ffi::c_int;
use endpoint::{Endpoint, Refusal, WireAddress};
pub use fabric::Fabric;
pub use udp::Udp;
use wireup_capi::net::{Descriptor, Epoll, Errno, Event, Timer, now_ms};

/// The epoll tokens of the wire's descriptor and of the timer.
const WIRE: u64 = 0;
const TIMER: u64 = 2;
/// Maximum number of datagrams read in one turn. Chosen: several windows; the bound keeps a flood of datagrams from
/// strangers from stopping a rank's work.
const RECEIVED_MAX: usize = 512;

/// A network interface that sends and receives datagrams: UDP or libfabric.
pub trait Wire {
    /// A descriptor that is readable when a datagram has arrived.
    fn fd(&self) -> c_int;

    /// The wire address to which ranks that this rank dials send their answers; empty if every datagram shows its
    /// receiver the sender's address.
    fn own_place(&self) -> WireAddress;

    fn datagram_len(&self) -> usize;

    /// Whether a rank with this address has a wire of the same kind.
    fn understands(&self, _address: &[u8]) -> bool {
        true
    }

    /// The wire addresses at which a rank with this published address may be reached, the best one first.
    fn places(&self, address: &[u8]) -> Vec<WireAddress>;

    /// Sends a datagram; `false`: there is no room. The descriptor becomes writable when there is, or see
    /// [`Wire::room_ms`].
    fn send(&mut self, to: &[u8], bytes: &[u8]) -> bool;

    /// When to try again after there was no room (ms); `None`: when the descriptor becomes writable.
    fn room_ms(&self) -> Option<u64> {
        None
    }

    /// Receives the next datagram into `buffer`; returns its length, or `None` if there is none. `from` becomes the
    /// wire address of the sender, or empty if the wire does not report the sender.
    fn receive(&mut self, from: &mut WireAddress, buffer: &mut [u8]) -> Option<usize>;

    /// Adds a relay: a socket over which the agents carry datagrams to and from one rank. Returns the wire address that
    /// stands for the relay; `None`: this wire uses no relays.
    fn add_relay(&mut self, _socket: Descriptor) -> Option<WireAddress> {
        None
    }

    /// Removes and returns a report that no process receives at a wire address: a datagram has come back with an error,
    /// or a relay has ended because its rank has exited or the agents cannot reach it. `None`: there is no report.
    fn refused(&mut self) -> Option<(WireAddress, Refusal)>;
}

pub struct Datagrams<W> {
    wire: W,
    endpoint: Endpoint,
    epoll: Epoll,
    timer: Timer,
    received: Vec<u8>,
    from: WireAddress,
    /// `to`, `sent`: destination and bytes of the latest datagram; `waits_for_room`: it is still to be sent.
    to: WireAddress,
    sent: Vec<u8>,
    waits_for_room: bool,
}

impl<W: Wire> Datagrams<W> {
    /// # Errors
    /// The process or the system has no free descriptors.
    pub fn new(me: u32, secret: &Secret, wire: W) -> Result<Datagrams<W>, Errno> {
        let (epoll, timer) = (Epoll::new()?, Timer::new()?);
        epoll.watch(wire.fd(), WIRE, false, true)?;
        epoll.watch(timer.fd(), TIMER, false, true)?;
        // This cannot fail: the algorithms are compiled into this library.
        let endpoint = Endpoint::new(me, secret, wire.own_place(), wire.datagram_len()).map_err(|_| Errno(0))?;
        Ok(Datagrams {
            // One byte more than a datagram may have, so that a longer datagram is detected.
            received: vec![0; wire.datagram_len() + 1],
            wire,
            endpoint,
            epoll,
            timer,
            from: WireAddress::new(),
            to: WireAddress::new(),
            sent: Vec::new(),
            waits_for_room: false,
        })
    }

    fn receive(&mut self) {
        let now = now_ms();
        for _ in 0..RECEIVED_MAX {
            match self.wire.receive(&mut self.from, &mut self.received) {
                Some(len) => self.endpoint.on_datagram(now, &self.from, &self.received[..len]),
                // Errors are read last, so that a peer's goodbye is read before the report that the peer has exited.
                None => {
                    while let Some((place, refusal)) = self.wire.refused() {
                        self.endpoint.on_refused(now, &place, &refusal);
                    }
                    return;
                }
            }
        }
    }

    /// Sends datagrams until there is no more room or nothing to send. Returns whether there was no room.
    fn transmit(&mut self, now: u64) -> bool {
        loop {
            let is_left = core::mem::take(&mut self.waits_for_room);
            if !is_left && !self.endpoint.transmit(now, &mut self.to, &mut self.sent) {
                return false;
            }
            if !self.wire.send(&self.to, &self.sent) {
                self.waits_for_room = true;
                return true;
            }
        }
    }
}

impl<W: Wire> Carrier for Datagrams<W> {
    fn epoll(&self) -> &Epoll {
        &self.epoll
    }

    fn understands(&self, address: &[u8]) -> bool {
        self.wire.understands(address)
    }

    fn dial(&mut self, to: u32, address: &[u8], closed: u32) -> Number {
        let places = self.wire.places(address);
        self.endpoint.dial(now_ms(), to, closed, places)
    }

    fn has_relays(&mut self) {
        self.endpoint.has_relays();
    }

    fn go_on(&mut self, number: Number, relay: Option<Descriptor>) {
        let Some(socket) = relay else { return };
        if self.epoll.watch(socket.fd(), WIRE, false, true).is_ok()
            && let Some(place) = self.wire.add_relay(socket)
        {
            self.endpoint.add_place(number, place);
        }
    }

    fn send(&mut self, number: Number, message: &[u8]) {
        self.endpoint.send(number, message);
    }

    fn set_paused(&mut self, number: Number, is_paused: bool) {
        self.endpoint.set_paused(number, is_paused);
    }

    fn close(&mut self, number: Number) {
        self.endpoint.close(number);
    }

    fn on_event(&mut self, event: Event) {
        match event.token {
            TIMER => self.timer.clear(),
            _ if event.is_readable => self.receive(),
            _ => {}
        }
    }

    fn poll(&mut self) -> Option<Happened> {
        self.endpoint.poll()
    }

    fn flush(&mut self) {
        let now = now_ms();
        self.endpoint.on_tick(now);
        let waited = self.waits_for_room;
        let waits = self.transmit(now);
        if waits != waited {
            // If the kernel has no memory for the change, the timer triggers the next attempt.
            let _ = self.epoll.watch(self.wire.fd(), WIRE, waits, false);
        }
        let again = self.wire.room_ms().filter(|_| waits).map(|pause| now + pause);
        self.timer.set(self.endpoint.deadline().into_iter().chain(again).min());
    }

    fn say_goodbye(&mut self) {
        self.endpoint.say_goodbye();
    }

    fn unsent(&self) -> Unsent {
        self.endpoint.unsent(now_ms())
    }
}
