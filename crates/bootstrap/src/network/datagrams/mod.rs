//! Connections over datagrams: one socket or endpoint for all of them; this library retransmits and orders.
//!
//! ```text
//!   Datagrams ── bytes ──► Endpoint: connections by number ──► Open: Seals ──► sender, receiver (wireup-group)
//!       │                      └── hellos, welcomes ◄── handshake: codes, proof
//!       └── Wire: fabric
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

use super::carrier::{Carrier, Happened, Number, Unsent};
use super::proof::Secret;
use alloc::vec::Vec;
use core::ffi::c_int;
use endpoint::{Endpoint, WireAddress};
pub use fabric::Fabric;
use wireup_capi::net::{Epoll, Errno, Event, Timer, now_ms};

/// The epoll tokens of the wire's descriptor and of the timer.
const WIRE: u64 = 0;
const TIMER: u64 = 2;
/// Maximum number of datagrams read in one turn. Chosen: several windows; the bound keeps a flood of datagrams from
/// strangers from stopping a rank's work.
const RECEIVED_MAX: usize = 512;
/// When to send again after there was no room (ms): devices send a window of datagrams in less time.
const ROOM_MS: u64 = 1;

/// A network interface that sends and receives datagrams. It reports neither who has sent a datagram nor whether a
/// process receives it.
pub trait Wire {
    /// A descriptor that is readable when a datagram has arrived.
    fn fd(&self) -> c_int;

    /// The wire address to which ranks that this rank dials send their answers.
    fn own_place(&self) -> WireAddress;

    fn datagram_len(&self) -> usize;

    /// Whether a rank with this address has a wire of the same kind.
    fn understands(&self, address: &[u8]) -> bool;

    /// The wire address of a rank with this published address; `None`: its wire is of another kind.
    fn place(&self, address: &[u8]) -> Option<WireAddress>;

    /// Sends a datagram; `false`: there is no room, and the caller tries again after [`ROOM_MS`].
    fn send(&mut self, to: &[u8], bytes: &[u8]) -> bool;

    /// Receives the next datagram into `buffer`; returns its length, or `None` if there is none.
    fn receive(&mut self, buffer: &mut [u8]) -> Option<usize>;
}

pub struct Datagrams<W> {
    wire: W,
    endpoint: Endpoint,
    epoll: Epoll,
    timer: Timer,
    received: Vec<u8>,
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
            to: WireAddress::new(),
            sent: Vec::new(),
            waits_for_room: false,
        })
    }

    fn receive(&mut self) {
        let now = now_ms();
        for _ in 0..RECEIVED_MAX {
            let Some(len) = self.wire.receive(&mut self.received) else { return };
            self.endpoint.on_datagram(now, &self.received[..len]);
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
        let place = self.wire.place(address);
        self.endpoint.dial(now_ms(), to, closed, place)
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
        let again = self.transmit(now).then_some(now + ROOM_MS);
        self.timer.set(self.endpoint.deadline().into_iter().chain(again).min());
    }

    fn say_goodbye(&mut self) {
        self.endpoint.say_goodbye();
    }

    fn unsent(&self) -> Unsent {
        self.endpoint.unsent(now_ms())
    }
}
