//! The interface between the network of ranks and its transports: connections that are dialled, carry messages in
//! order, and end.
//!
//! The first byte of a rank's address identifies the kind of carrier; only the carrier interprets the rest.

use super::messages::word;
use alloc::vec::Vec;
use wireup_capi::net::{Descriptor, Epoll, Event};
pub use wireup_group::connections::{Number, Word};
use wireup_wire::rank_address;

/// How ranks exchange messages. A rank that uses libfabric reaches only ranks that use it too.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Transport {
    /// One TCP connection for each peer.
    #[default]
    Tcp,
    /// One TCP connection for each peer, which is requested and accepted by datagrams (UDP).
    Udp,
    /// One endpoint of libfabric (`FI_EP_RDM`) for all peers; its provider retransmits and orders.
    Fabric,
}

impl Transport {
    /// The first byte of an address. Ranks that reach each other have the same: a rank that sends no requests by
    /// datagrams accepts connections all the same.
    pub fn tag(self) -> u8 {
        match self {
            Transport::Tcp | Transport::Udp => rank_address::TCP,
            Transport::Fabric => 3,
        }
    }

    /// The published form of a carrier's address `rest`: the transport's byte in front of it.
    pub fn address(self, rest: &[u8]) -> Vec<u8> {
        [&[self.tag()], rest].concat()
    }
}

/// Identifies a plain connection for the program's own use: the peer rank, and its number among the connections to that
/// rank.
pub type Key = (u32, u32);

/// The token of the server's descriptor in a carrier's [`Epoll`]; the carrier assigns all other tokens.
pub const SERVER: u64 = 1;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Happened {
    pub number: Number,
    pub peer: u32,
    pub event: ConnectionEvent,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ConnectionEvent {
    /// The peer has proved which rank it is: messages can be sent. `closed`: number of connections between the two
    /// ranks that were closed by agreement, from the dialler's hello.
    Proved { was_dialled: bool, closed: u32 },
    /// A message of a group.
    Message(Vec<u8>),
    /// The peer has said a [`Word`] about the connection.
    Said(Word),
    /// A dialled rank answers at none of its addresses: it may be reached through the agents ([`Carrier::go_on`]).
    Unanswered,
    /// A connection on which [`Carrier::finish`] was called has ended: all that was sent has arrived.
    Finished,
    /// The connection has ended, and not by agreement. `is_lost`: the peer rank is lost; otherwise the peer has refused
    /// the connection or has given up its dial.
    Over { is_lost: bool },
}

impl ConnectionEvent {
    /// The event of a message that has arrived, which may be about the connection itself.
    pub fn arrived(message: Vec<u8>) -> ConnectionEvent {
        word(&message).map_or_else(|| ConnectionEvent::Message(message), ConnectionEvent::Said)
    }
}

/// The kind of data that would be lost if this process exited now.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Unsent {
    Nothing,
    /// Goodbyes over libfabric that were not acknowledged; over TCP bytes that were transmitted and not acknowledged.
    Goodbyes,
    /// Messages that are still in this process or, over libfabric, were not acknowledged; over TCP also bytes that the
    /// kernel has not transmitted, the goodbye included.
    Messages,
}

pub trait Carrier {
    /// The epoll set with all descriptors of this carrier.
    fn epoll(&self) -> &Epoll;

    /// Whether this carrier can dial a rank with this address, which is of its transport.
    fn understands(&self, _address: &[u8]) -> bool {
        true
    }

    /// Starts to connect to a rank at this address; [`Carrier::poll`] reports a failure. `closed`: number of
    /// connections to the rank that were closed by agreement, for the hello.
    fn dial(&mut self, to: u32, address: &[u8], closed: u32) -> Number;

    /// Tells the carrier that the agents can relay connections: from now on, a dialled rank that answers at no address
    /// is reported ([`ConnectionEvent::Unanswered`]), if the carrier can use a relay.
    fn has_relays(&mut self) {}

    /// Continues a dial that was not answered, over `relay`, a socket that the agents relay to the rank; `None`: the
    /// agents cannot reach the rank either.
    fn go_on(&mut self, _number: Number, _relay: Option<Descriptor>) {}

    /// Whether the other end may have received something of this dial.
    fn is_begun(&self, _number: Number) -> bool {
        true
    }

    /// Queues a message; if the connection has ended, [`Carrier::poll`] reports the end.
    fn send(&mut self, number: Number, message: &[u8]);

    /// Pauses or resumes a connection, if it still exists. No messages are read from a paused one, so that the other
    /// end's sends have to wait.
    fn set_paused(&mut self, number: Number, is_paused: bool);

    /// Whether connections can be closed by agreement, which is useful only where each costs a descriptor.
    fn can_finish(&self) -> bool {
        false
    }

    /// Ends a connection on which nothing more is sent or expected. It is closed when all that was sent has arrived.
    fn finish(&mut self, _number: Number) {}

    /// Drops a connection without notice to the other end; no more events of it are reported.
    fn close(&mut self, number: Number);

    /// Handles an event on a descriptor of [`Carrier::epoll`].
    fn on_event(&mut self, event: Event);

    fn poll(&mut self) -> Option<Happened>;

    /// Sends queued data as far as possible without waiting.
    fn flush(&mut self);

    /// Says goodbye on all connections on which it was not said: this rank leaves in an orderly way. Nothing is sent
    /// afterwards.
    fn say_goodbye(&mut self);

    fn unsent(&self) -> Unsent;

    /// Starts to connect to a rank for the program's own use; `number`: see [`Key`].
    fn dial_plain(&mut self, _to: u32, _address: &[u8], _number: u32) {}

    /// The next plain connection for the program's own use that is established, whichever end has dialled it, or whose
    /// dial has failed (`None` instead of a socket: the rank cannot be reached).
    fn poll_plain(&mut self) -> Option<(Key, Option<Descriptor>)> {
        None
    }
}
