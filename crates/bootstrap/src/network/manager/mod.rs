//! Connection manager (S2): a connection is requested and accepted by datagrams, and made over TCP.
//!
//! ```text
//!   dialler ── request, to the best address first, then to all, five times in 1.6 s ──► acceptor
//!           ◄── accept ──
//!           ══ TCP, to the address that has answered; both ends prove themselves ═══════►
//! ```
//!
//! The dialler has no TCP socket before the accept, and of two requests that cross one becomes a connection. The TCP
//! socket listens on the port of the UDP socket: one published address serves for both. Request and accept decide
//! nothing about who may connect; the handshake on the connection does.
//!
//! If no accept comes, the dialler connects nevertheless: the rank may compute for long, datagrams may be blocked, or
//! the agents may have to relay the connection.

pub mod requests;
#[cfg(test)]
mod tests;

use super::carrier::{Carrier, Happened, Key, Number, Unsent};
use super::proof::{Purpose, Secret};
use super::tcp::Tcp;
use requests::{Dial, LEN, Requests, Settled};
use wireup_capi::net::{Datagrams, Descriptor, Epoll, Errno, Event, Timer, listen, now_ms};

/// The epoll tokens of the UDP socket and of the timer, which no connection has as its number.
const DATAGRAMS: u64 = u64::MAX;
const TIMER: u64 = u64::MAX - 1;
/// Maximum number of datagrams read in one turn. Chosen: more than the links of a graph of a billion ranks; the bound
/// keeps a flood of datagrams from strangers from stopping a rank's work.
const RECEIVED_MAX: usize = 512;
/// How many free ports of TCP are tried, until one is also free for UDP. Chosen: almost all are.
const PORTS_MAX: usize = 16;

/// A listening TCP socket and a UDP socket of one port, and the port.
///
/// # Errors
/// There is no free port or descriptor.
pub fn listen_both() -> Result<(Descriptor, Datagrams, u16), Errno> {
    let mut failed = Errno(0);
    for _ in 0..PORTS_MAX {
        let (listening, port) = listen()?;
        match Datagrams::open(port) {
            Ok((datagrams, _)) => return Ok((listening, datagrams, port)),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

pub struct Manager {
    tcp: Tcp,
    datagrams: Datagrams,
    timer: Timer,
    requests: Requests,
}

impl Manager {
    /// `tcp` listens on the port of `datagrams`.
    ///
    /// # Errors
    /// There is no free descriptor.
    pub fn new(me: u32, secret: &Secret, tcp: Tcp, datagrams: Datagrams) -> Result<Manager, Errno> {
        let timer = Timer::new()?;
        tcp.epoll().watch(datagrams.fd(), DATAGRAMS, false, true)?;
        tcp.epoll().watch(timer.fd(), TIMER, false, true)?;
        // This cannot fail: the algorithms are compiled into this library.
        let requests = Requests::new(me, secret).map_err(|_| Errno(0))?;
        Ok(Manager { tcp, datagrams, timer, requests })
    }

    fn receive(&mut self) {
        // One byte more than a datagram has, so that a longer datagram is detected.
        let mut buffer = [0; LEN + 1];
        for _ in 0..RECEIVED_MAX {
            let Some((len, from)) = self.datagrams.receive(&mut buffer) else {
                while let Some(place) = self.datagrams.refused() {
                    self.requests.on_refused(place);
                }
                return;
            };
            self.requests.on_datagram(from, &buffer[..len], |peer| self.tcp.is_connecting(peer));
        }
    }

    /// Sends the requests and accepts that are due, and connects to the ranks whose requests are settled.
    fn connect(&mut self) {
        self.requests.on_tick(now_ms());
        while let Some(Settled { number, dial: Dial { to, address, closed }, accepted_at }) = self.requests.poll() {
            self.tcp.connect(number, to, &address, Purpose::Messages { closed }, accepted_at);
        }
        while let Some((to, bytes)) = self.requests.transmit() {
            // A datagram for which there is no room is lost, and the request is repeated.
            self.datagrams.send(&to, &bytes);
        }
        self.timer.set(self.requests.deadline());
    }
}

impl Carrier for Manager {
    fn epoll(&self) -> &Epoll {
        self.tcp.epoll()
    }

    fn dial(&mut self, to: u32, address: &[u8], closed: u32) -> Number {
        let (number, places) = (self.tcp.next_number(), self.tcp.candidates(address));
        self.requests.ask(now_ms(), number, Dial { to, address: address.to_vec(), closed }, places);
        number
    }

    fn has_relays(&mut self) {
        self.tcp.has_relays();
    }

    fn go_on(&mut self, number: Number, relay: Option<Descriptor>) {
        self.tcp.go_on(number, relay);
    }

    fn is_begun(&self, number: Number) -> bool {
        self.tcp.is_begun(number)
    }

    fn send(&mut self, number: Number, message: &[u8]) {
        self.tcp.send(number, message);
    }

    fn set_paused(&mut self, number: Number, is_paused: bool) {
        self.tcp.set_paused(number, is_paused);
    }

    fn can_finish(&self) -> bool {
        self.tcp.can_finish()
    }

    fn finish(&mut self, number: Number) {
        self.tcp.finish(number);
    }

    fn close(&mut self, number: Number) {
        self.requests.forget(number);
        self.tcp.close(number);
    }

    fn on_event(&mut self, event: Event) {
        match event.token {
            DATAGRAMS => self.receive(),
            TIMER => self.timer.clear(),
            _ => self.tcp.on_event(event),
        }
    }

    fn poll(&mut self) -> Option<Happened> {
        self.tcp.poll()
    }

    fn flush(&mut self) {
        self.connect();
        self.tcp.flush();
    }

    fn say_goodbye(&mut self) {
        self.tcp.say_goodbye();
    }

    fn unsent(&self) -> Unsent {
        self.tcp.unsent()
    }

    fn dial_plain(&mut self, to: u32, address: &[u8], number: u32) {
        self.tcp.dial_plain(to, address, number);
    }

    fn poll_plain(&mut self) -> Option<(Key, Option<Descriptor>)> {
        self.tcp.poll_plain()
    }
}
