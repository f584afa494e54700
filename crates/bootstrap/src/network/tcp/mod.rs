//! Connections over TCP, one socket each.
//!
//! A connection that closes without a goodbye means that the process at the other end has exited: the kernel closes the
//! connections of such a process.

pub mod link;

use super::SERVER;
use super::carrier::{Carrier, ConnectionEvent, Happened, Key, Number, Unsent};
use super::proof::{Purpose, Secret};
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::ffi::c_int;
use core::net::SocketAddr;
use link::{Arrived, Link, Target};
use wireup_capi::net::{self, Descriptor, Epoll, Errno, Event};
use wireup_wire::rank_address;

/// Maximum number of accepted connections whose dialler has not proved its rank; beyond it the oldest one is closed.
/// Chosen: twice as many as the links of a graph of a billion ranks.
pub const UNPROVED_MAX: usize = 128;
/// Time limit for the handshake of a connection (ms). It is long, because the other end may compute meanwhile.
const PROOF_MS_MAX: u64 = 300_000;

/// How often the kernel retransmits a SYN where the agents may relay the connection instead: it gives up after 3 to 7
/// s.
const REPETITIONS: c_int = 2;

const READ_LEN: usize = 64 << 10;

/// The token of the listening socket. The token of a link is its number, which is higher than [`SERVER`].
const LISTENING: u64 = 0;

pub struct Tcp {
    me: u32,
    host: u64,
    secret: Secret,
    listening: Descriptor,
    epoll: Epoll,
    links: BTreeMap<Number, Link>,
    last: Number,
    /// Links with bytes to write, which wait for [`Carrier::flush`], because the network may still close the link.
    unwritten: BTreeSet<Number>,
    buffer: Vec<u8>,
    happened: VecDeque<Happened>,
    plain: VecDeque<(Key, Option<Descriptor>)>,
    has_relays: bool,
    /// Whether this rank has said goodbye to all its peers.
    is_leaving: bool,
    /// Hosts whose ranks can be reached only through the agents.
    beyond: BTreeSet<u64>,
}

impl Tcp {
    /// `listening`: a listening socket on this host.
    ///
    /// # Errors
    /// There is no free descriptor.
    pub fn new(listening: Descriptor, me: u32, host: u64, secret: Secret) -> Result<Tcp, Errno> {
        let epoll = Epoll::new()?;
        epoll.watch(listening.fd(), LISTENING, false, true)?;
        Ok(Tcp {
            me,
            host,
            secret,
            listening,
            epoll,
            links: BTreeMap::new(),
            last: SERVER,
            unwritten: BTreeSet::new(),
            buffer: vec![0; READ_LEN],
            happened: VecDeque::new(),
            plain: VecDeque::new(),
            has_relays: false,
            is_leaving: false,
            beyond: BTreeSet::new(),
        })
    }

    /// Tries the next address of a rank that is being dialled; after the last one, asks for a relay or gives up.
    fn try_next(&mut self, number: Number) {
        let Some(link) = self.links.get_mut(&number) else { return };
        if link.next_attempt(&self.epoll, number) {
            return;
        }
        match link.peer.filter(|_| self.has_relays && link.relayed_to.is_none()) {
            Some(peer) => self.happened.push_back(Happened { number, peer, event: ConnectionEvent::Unanswered }),
            None => self.end(number, true),
        }
    }

    fn accept(&mut self) {
        while let Ok(Some(socket)) = net::accept(&self.listening) {
            let unproved = self.links.iter().filter(|(_, link)| link.is_stranger());
            let unproved: Vec<Number> = unproved.map(|(number, _)| *number).collect();
            if unproved.len() >= UNPROVED_MAX {
                self.links.remove(&unproved[0]);
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
        self.links.retain(|_, link| !link.is_stranger() || now < link.since_ms + PROOF_MS_MAX);
    }

    fn read(&mut self, number: Number) {
        loop {
            let Some(link) = self.links.get_mut(&number).filter(|link| !link.is_paused()) else { return };
            match link.read(&mut self.buffer) {
                Err(_) => return self.end(number, false),
                Ok((all, is_more)) => {
                    self.beyond.extend(link.relayed_to);
                    for arrived in all {
                        match arrived {
                            Arrived::Event(event) => {
                                self.happened.extend(link.peer.map(|peer| Happened { number, peer, event }));
                            }
                            Arrived::Plain(key) => return self.hand_over(number, key),
                        }
                    }
                    self.unwritten.insert(number);
                    if !is_more {
                        return;
                    }
                }
            }
        }
    }

    fn hand_over(&mut self, number: Number, key: Key) {
        let socket = self.links.remove(&number).and_then(|link| link.into_socket(&self.epoll, number));
        self.plain.extend(socket.map(|socket| (key, Some(socket))));
    }

    /// The number of a new connection.
    pub fn next_number(&mut self) -> Number {
        self.last += 1;
        self.last
    }

    /// The addresses at which to dial a rank, the best one first; none if only the agents reach its host.
    pub fn candidates(&self, address: &[u8]) -> Vec<SocketAddr> {
        let host = rank_address::host(address).unwrap_or_default();
        if self.beyond.contains(&host) { Vec::new() } else { rank_address::candidates(address, self.host) }
    }

    /// Whether this rank has dialled another one that has not proved itself yet.
    pub fn is_connecting(&self, peer: u32) -> bool {
        self.links.values().any(|link| link.is_connecting_to(peer))
    }

    /// Starts to make the connection `number`. `first`: the address to try first, if it is one of the rank's.
    pub fn connect(&mut self, number: Number, to: u32, address: &[u8], purpose: Purpose, first: Option<SocketAddr>) {
        let mut left = self.candidates(address);
        left.sort_by_key(|one| Some(*one) != first);
        left.reverse();
        let host = rank_address::host(address).unwrap_or_default();
        let target = Target { host, left, repetitions: self.has_relays.then_some(REPETITIONS) };
        self.links.insert(number, Link::dial(target, to, purpose));
        self.try_next(number);
    }

    fn write(&mut self, number: Number) {
        let Some(link) = self.links.get_mut(&number) else { return };
        if link.flush(&self.epoll, number).is_err() {
            self.end(number, false);
        }
    }

    /// Removes a connection that has ended or must end. `unreachable`: the rank could be connected at no address.
    fn end(&mut self, number: Number, unreachable: bool) {
        let Some(link) = self.links.remove(&number) else { return };
        if let Some((peer, nth)) = link.peer.zip(link.plain) {
            self.plain.push_back(((peer, nth), None));
        } else if let Some(peer) = link.peer {
            let event = match link.is_finishing() {
                true => ConnectionEvent::Finished,
                false => ConnectionEvent::Over { is_lost: link.was_heard || unreachable },
            };
            self.happened.push_back(Happened { number, peer, event });
        }
    }
}

impl Carrier for Tcp {
    fn epoll(&self) -> &Epoll {
        &self.epoll
    }

    fn dial(&mut self, to: u32, address: &[u8], closed: u32) -> Number {
        let number = self.next_number();
        self.connect(number, to, address, Purpose::Messages { closed }, None);
        number
    }

    fn has_relays(&mut self) {
        self.has_relays = true;
    }

    fn go_on(&mut self, number: Number, relay: Option<Descriptor>) {
        let Some(link) = self.links.get_mut(&number) else { return };
        if relay.is_none_or(|socket| link.use_relay(&self.epoll, number, socket).is_err()) {
            self.end(number, true);
        }
    }

    fn is_begun(&self, number: Number) -> bool {
        self.links.get(&number).is_some_and(|link| !link.is_connecting())
    }

    fn send(&mut self, number: Number, message: &[u8]) {
        let Some(link) = self.links.get_mut(&number) else { return };
        if link.send(message) {
            self.unwritten.insert(number);
        } else {
            self.end(number, true);
        }
    }

    fn set_paused(&mut self, number: Number, is_paused: bool) {
        let Some(link) = self.links.get_mut(&number) else { return };
        if is_paused {
            link.pause(&self.epoll, number);
        } else if link.resume(&self.epoll, number).is_err() {
            self.end(number, false);
        }
    }

    fn can_finish(&self) -> bool {
        true
    }

    fn finish(&mut self, number: Number) {
        if let Some(link) = self.links.get_mut(&number) {
            link.finish();
            self.unwritten.insert(number);
        }
    }

    fn close(&mut self, number: Number) {
        self.links.remove(&number);
        self.happened.retain(|happened| happened.number != number);
    }

    fn on_event(&mut self, event: Event) {
        let number = event.token;
        if number == LISTENING {
            return self.accept();
        }
        let Some(link) = self.links.get_mut(&number) else { return };
        if link.is_connecting() {
            match link.on_ready(&self.secret, self.me, event.is_writable) {
                Ok(true) => self.write(number),
                Ok(false) => {}
                Err(_) => self.try_next(number),
            }
            return;
        }
        link.on_event(&self.epoll, event.is_readable);
        if event.is_writable {
            self.write(number);
        }
        if event.is_readable {
            self.read(number);
        }
    }

    fn poll(&mut self) -> Option<Happened> {
        self.happened.pop_front()
    }

    fn flush(&mut self) {
        while let Some(number) = self.unwritten.pop_first() {
            self.write(number);
        }
    }

    fn say_goodbye(&mut self) {
        self.is_leaving = true;
        self.links.values_mut().for_each(Link::say_goodbye);
        self.unwritten.extend(self.links.keys());
    }

    fn dial_plain(&mut self, to: u32, address: &[u8], number: u32) {
        let connection = self.next_number();
        self.connect(connection, to, address, Purpose::Plain { number }, None);
    }

    fn poll_plain(&mut self) -> Option<(Key, Option<Descriptor>)> {
        self.plain.pop_front()
    }

    /// The kernel sends what is written, but not always after the process has exited: when it closes a socket on which
    /// something arrives that nobody reads, it drops what the other end has not acknowledged. So while a rank leaves,
    /// its bytes count as unsent until the kernel has transmitted all of them, up to the goodbye. Until they are
    /// acknowledged, a transmitted segment may be lost: they count as [`Unsent::Goodbyes`].
    fn unsent(&self) -> Unsent {
        self.links.values().map(|link| link.unsent(self.is_leaving)).max().unwrap_or(Unsent::Nothing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::Ipv4Addr;

    #[test]
    fn few_strangers_are_kept() {
        let (listening, port) = net::listen().unwrap();
        let mut tcp = Tcp::new(listening, 0, net::host_number(), [9; 32]).unwrap();
        let address = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port);
        let (mut strangers, mut events) = (vec![], vec![]);
        for at in 0..2 * UNPROVED_MAX {
            let stranger = net::connect(&address, None).unwrap();
            let _ = net::write(&stranger, if at % 2 == 0 { &[4, 0, 1, 2, 3, 4] } else { &[1, 0, 0] });
            strangers.push(stranger);
            tcp.epoll().wait(1_000, &mut events);
            for event in &events {
                tcp.on_event(*event);
            }
        }
        assert!((1..=UNPROVED_MAX).contains(&tcp.links.len()), "{}", tcp.links.len());
        assert_eq!(tcp.poll(), None);
    }
}
