//! The transports of links between agents, behind one interface.
//!
//! A transport lists the candidates for reaching a peer (usually addresses), makes carriers of bytes from them, and
//! accepts the carriers of incoming connections. Everything else is the same for all transports and is elsewhere: the
//! order in which candidates are tried, guests, frames (`links`), the handshake and encryption (`crate::transport`).
//!
//! ```text
//!   Output::Dial ─► Offer ─► candidates() ─► open() ─► Carrier ─┐
//!                                                               ├─► Link: handshake, frames by class
//!   incoming connection ────► take_in() ─────────────► Carrier ─┘
//!   bytes of a link: its own descriptor in the reactor, or take_in() and then ready()
//! ```
//!
//! A new transport is a file with its [`Transport`] and its [`Carrier`], a field of [`Transports`] and a variant of
//! [`Which`]. If users can choose it, it also has a row in [`wireup_wire::peer::AgentTransport`]. The link to a
//! launcher in this process is not a transport: it passes frames, not bytes.

mod table;
mod tcp;
pub(crate) mod ucx;

use crate::transport::addresses::{FilterError, NothingMatches};
use crate::transport::link::Carrier;
use std::fmt;
use std::io;
pub use table::Transports;
use wireup_os::reactor::Reactor;
use wireup_wire::peer::{SpawnError, SpawnStep};
use wireup_wire::route::Point;

/// The name of a transport.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Which {
    /// UCX, which is used if all agents have its library.
    Ucx,
    /// TCP, which is always available, and also carries the links of the tree.
    Tcp,
}

impl Which {
    /// All transports, in the order in which they are tried.
    pub const ALL: &'static [Which] = &[Which::Ucx, Which::Tcp];
}

/// Why other agents cannot dial this one.
#[derive(thiserror::Error, Debug)]
pub enum ListenError {
    #[error("cannot list this machine's addresses: {0}")]
    Interfaces(io::Error),
    #[error("cannot open a socket to listen on: {0}")]
    Socket(#[from] io::Error),
    #[error(transparent)]
    Filter(#[from] FilterError),
    #[error(transparent)]
    NothingMatches(#[from] NothingMatches),
}

impl From<ListenError> for SpawnError {
    fn from(error: ListenError) -> SpawnError {
        let errno = match &error {
            ListenError::Interfaces(error) | ListenError::Socket(error) => error.raw_os_error(),
            ListenError::Filter(_) | ListenError::NothingMatches(_) => None,
        };
        SpawnError { step: SpawnStep::Listen, what: error.to_string(), errno: errno.unwrap_or(0) }
    }
}

/// The ways in which an agent to be dialled can be reached.
#[derive(Clone, Default)]
pub struct Offer {
    /// Addresses, best first: `ip:port`, or the address of another transport, which begins with `NAME://`.
    pub addresses: Vec<String>,
    /// The peer's address in the transport that all agents have agreed on, with its key.
    pub point: Option<Point>,
    /// Whether the peer itself started this agent through a remote shell.
    pub called_us: bool,
}

/// Makes the carrier of a link.
type Open = Box<dyn FnOnce() -> io::Result<Box<dyn Carrier>>>;

/// One candidate for reaching a peer.
pub struct Candidate {
    /// Description of the candidate for error messages, usually an address.
    pub words: String,
    /// Time limit of the handshake (ns).
    pub limit_ns: u64,
    pub open: Open,
}

impl fmt::Display for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words)
    }
}

pub trait Transport {
    /// The addresses at which other agents can dial this one, if the transport uses addresses. The first call starts to
    /// listen.
    fn listen(&mut self, _reactor: &Reactor) -> Result<Vec<String>, ListenError> {
        Ok(Vec::new())
    }

    /// The candidates for a peer with this offer, best first. Empty: the peer cannot be reached by this transport.
    ///
    /// # Errors
    /// The offer is faulty, or something is wrong on this side; a message for the user.
    fn candidates(&mut self, offer: &Offer) -> Result<Vec<Candidate>, String>;

    /// Takes incoming connections, and data for links without a descriptor of their own; a bounded share per call.
    fn take_in(&mut self, now_ns: u64, reactor: &Reactor) -> Vec<Box<dyn Carrier>>;

    /// The tokens of links that have received data, or got room to send, since the last call.
    fn ready(&mut self) -> Vec<u64> {
        Vec::new()
    }

    /// Prepares for a wait on the reactor; must be called before each. `false`: data has arrived, so call `take_in`
    /// first.
    fn arm(&mut self) -> bool {
        true
    }

    /// When `on_tick` is due.
    fn deadline_ns(&self) -> Option<u64> {
        None
    }

    fn on_tick(&mut self, _now_ns: u64, _reactor: &Reactor) {}
}
