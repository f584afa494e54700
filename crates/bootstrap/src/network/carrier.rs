//! The interface between the network of ranks and its transports: connections that are dialled, carry messages in
//! order, and end.
//!
//! A rank's address begins with a byte that tells the transport; the rest belongs to the carrier.

use alloc::vec::Vec;
use wireup_capi::net::{Descriptor, Epoll, Event};
pub use wireup_group::connections::{Number, Word};
use wireup_wire::rank_address;

/// How ranks exchange messages. All ranks of a job choose the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transport {
    /// One connection of the kernel's for each peer.
    Tcp,
    /// One UDP socket for all peers; this library retransmits and orders.
    Udp,
    /// One endpoint of libfabric (`FI_EP_DGRAM`) for all peers, with the same reliability.
    Fabric,
}

impl Transport {
    /// The first byte of an address.
    pub fn tag(self) -> u8 {
        match self {
            Transport::Tcp => rank_address::TCP,
            Transport::Udp => rank_address::UDP,
            Transport::Fabric => 3,
        }
    }

    /// An address of a carrier in its published form, which begins with the transport's byte.
    pub fn address(self, rest: &[u8]) -> Vec<u8> {
        let mut address = Vec::with_capacity(1 + rest.len());
        address.push(self.tag());
        address.extend_from_slice(rest);
        address
    }
}

/// A plain connection of the program's own: the rank at the other end, and which of the connections to it this is.
pub type Key = (u32, u32);

/// The token of the server's descriptor in a carrier's [`Epoll`]; all others are the carrier's.
pub const SERVER: u64 = 1;

/// What has happened to a connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Happened {
    /// The peer has proved which rank it is: messages can be sent.
    Proved {
        number: Number,
        peer: u32,
        was_dialled: bool,
        /// Number of connections between the two ranks that were closed before, as the dialler has said in its hello.
        closed: u32,
    },
    Message {
        number: Number,
        from: u32,
        bytes: Vec<u8>,
    },
    /// The peer has said a [`Word`] about the connection.
    Said {
        number: Number,
        from: u32,
        word: Word,
    },
    /// A dialled rank answers at none of its addresses: it may be reached through the agents ([`Carrier::go_on`]).
    Unanswered {
        number: Number,
        peer: u32,
    },
    /// A connection on which [`Carrier::finish`] was called has ended: all that was sent has arrived.
    Finished {
        number: Number,
        peer: u32,
    },
    /// The connection has ended, and not by agreement. `is_lost`: the rank is lost, too; if not, the rank has refused
    /// the connection or has given up its dial.
    Over {
        number: Number,
        peer: u32,
        is_lost: bool,
    },
}

impl Happened {
    pub fn number(&self) -> Number {
        match self {
            Happened::Proved { number, .. }
            | Happened::Message { number, .. }
            | Happened::Said { number, .. }
            | Happened::Unanswered { number, .. }
            | Happened::Finished { number, .. }
            | Happened::Over { number, .. } => *number,
        }
    }
}

/// What has not left this process or, over datagrams, is not known to have arrived.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Unsent {
    Nothing,
    /// Only goodbyes, or what is lost if this process ends now without harm to others.
    Goodbyes,
    Messages,
}

pub trait Carrier {
    /// The descriptors that are watched.
    fn epoll(&self) -> &Epoll;

    /// Whether a rank with this address, of the same transport, can be dialled.
    fn understands(&self, _address: &[u8]) -> bool {
        true
    }

    /// Begins a connection to a rank at this address; [`Carrier::poll`] reports a failure. `closed`: the count for the
    /// hello.
    fn dial(&mut self, to: u32, address: &[u8], closed: u32) -> Number;

    /// Connections can be relayed by the agents: from now on, a dialled rank that does not answer is reported
    /// ([`Happened::Unanswered`]).
    fn has_relays(&mut self) {}

    /// Continues a dial that is not answered, over this socket, which the agents relay; `None`: the agents cannot relay
    /// it.
    fn go_on(&mut self, _number: Number, _relay: Option<Descriptor>) {}

    /// Whether the other end may have heard of this dial.
    fn is_begun(&self, _number: Number) -> bool {
        true
    }

    /// Queues a message; if the connection has ended, [`Carrier::poll`] reports that.
    fn send(&mut self, number: Number, message: &[u8]);

    /// Stops reading messages from a connection until it is resumed, so that the other end's sends have to wait.
    fn pause(&mut self, number: Number);

    /// Resumes reading messages from a connection; does nothing if it no longer exists.
    fn resume(&mut self, number: Number);

    /// Whether its connections can be closed by agreement: where each costs a descriptor.
    fn can_finish(&self) -> bool {
        false
    }

    /// Nothing is sent any more on a connection, and nothing arrives. It ends when all that was sent has arrived.
    fn finish(&mut self, _number: Number) {}

    /// Drops a connection without notice to the other end; no more events of it are reported.
    fn close(&mut self, number: Number);

    /// One of the watched descriptors is ready.
    fn on_event(&mut self, event: Event);

    fn poll(&mut self) -> Option<Happened>;

    /// Sends what can be sent.
    fn flush(&mut self);

    /// Tells all other ends that this one leaves in order. Nothing is sent afterwards.
    fn say_goodbye(&mut self);

    fn unsent(&self) -> Unsent;

    /// Begins a connection of the program's own, with its number; `false`: this transport has none.
    fn dial_plain(&mut self, _to: u32, _address: &[u8], _number: u32) -> bool {
        false
    }

    /// A connection of the program's own, dialled by either end; `None` instead of a socket: the rank cannot be
    /// reached.
    fn poll_plain(&mut self) -> Option<(Key, Option<Descriptor>)> {
        None
    }
}
