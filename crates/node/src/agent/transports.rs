//! The transports of links between agents, behind one interface.
//!
//! A transport knows the ways to a peer, makes carriers of bytes by them, and takes in the carriers of those who dial. All else is the
//! same for each of them and lies elsewhere: when which way is tried, guests, frames (`links`), the handshake and sealing
//! (`crate::transport`).
//!
//! ```text
//!   Output::Dial ─► Offer ─► ways() ─► Way::open() ─► Carrier ─┐
//!                                                              ├─► Link: handshake, frames by class
//!   somebody dials ─────────► take_in() ────────────► Carrier ─┘
//!   bytes of a link: its own descriptor in the reactor, or take_in() and then ready()
//! ```
//!
//! A new transport is a file with its [`Transport`] and its [`Carrier`], and a line in the table below. The link to a launcher in this
//! process is none of them: it has frames, and no bytes to carry.

mod tcp;
mod ucx;

use crate::transport::carrier::Carrier;
use std::fmt;
use std::io;
pub use tcp::{ListenError, Tcp};
pub use ucx::Ucx;
use wireup_os::reactor::Reactor;
use wireup_wire::peer::AgentTransport;
use wireup_wire::route::Point;

macro_rules! table {
    ($($(#[$doc:meta])* $name:ident $slot:ident: $transport:ty,)*) => {
        /// The name of a transport.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(u8)]
        pub enum Which { $($(#[$doc])* $name,)* }

        impl Which {
            /// All, in the order in which they are tried.
            pub const ALL: &'static [Which] = &[$(Which::$name,)*];
        }

        /// An agent's end of each transport, once it is open.
        #[derive(Default)]
        pub struct Transports { $(pub $slot: Option<$transport>,)* }

        impl Transports {
            /// One of them, if it is open.
            pub fn get(&mut self, which: Which) -> Option<&mut dyn Transport> {
                match which {
                    $(Which::$name => self.$slot.as_mut().map(|transport| transport as &mut dyn Transport),)*
                }
            }

            /// All that are open.
            pub fn each(&self) -> impl Iterator<Item = &dyn Transport> {
                let all = [$(self.$slot.as_ref().map(|transport| transport as &dyn Transport),)*];
                all.into_iter().flatten()
            }
        }
    };
}

table! {
    /// Where all agents have its library.
    Ucx ucx: Ucx,
    /// Always there. Links of the tree are made by it too.
    Tcp tcp: Tcp,
}

impl Transports {
    /// Opens the transport that all agents are to have; where it is reached.
    ///
    /// # Errors
    /// Why it cannot be used, in words.
    pub fn open_agreed(&mut self, transport: AgentTransport, reactor: &Reactor) -> Result<Point, String> {
        match transport {
            AgentTransport::Ucx => {
                let ucx = Ucx::open(reactor).map_err(|problem| format!("cannot use UCX: {problem}"))?;
                Ok(self.ucx.insert(ucx).point())
            }
            AgentTransport::Auto | AgentTransport::Tree | AgentTransport::Tcp => {
                Err("no transport that all agents must have was asked for".into())
            }
        }
    }
}

/// What is known of an agent that is to be dialled.
#[derive(Clone, Default)]
pub struct Offer {
    /// `ip:port`, best first.
    pub addresses: Vec<String>,
    /// Where the transport is that all agents have agreed on.
    pub point: Option<Point>,
    /// It has called this agent's remote shell itself.
    pub called_us: bool,
}

/// Makes the carrier of a link.
type Open = Box<dyn FnOnce() -> io::Result<Box<dyn Carrier>>>;

/// One way to a peer.
pub struct Way {
    /// What a person is told of it: an address, most often.
    pub words: String,
    /// Time for a handshake (ns).
    pub limit_ns: u64,
    pub open: Open,
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words)
    }
}

pub trait Transport {
    /// The ways to a peer that offers this, best first. None: it cannot be reached by this transport.
    ///
    /// # Errors
    /// Something is wrong with what it offers, or on this side; in words for a person.
    fn ways(&mut self, offer: &Offer) -> Result<Vec<Way>, String>;

    /// Takes in who has dialled, and what has come for links without a descriptor of their own; a bounded share of it.
    fn take_in(&mut self, now_ns: u64, reactor: &Reactor) -> Vec<Box<dyn Carrier>>;

    /// The tokens of links that have got something, or room, since the last call.
    fn ready(&mut self) -> Vec<u64> {
        Vec::new()
    }

    /// Whether its links have no descriptors of their own: what comes is found by `take_in`, asked for or not.
    fn is_polled(&self) -> bool {
        false
    }

    /// Before a wait. `false`: there is something to take in.
    fn arm(&mut self) -> bool {
        true
    }

    /// When `on_tick` is due.
    fn deadline_ns(&self) -> Option<u64> {
        None
    }

    fn on_tick(&mut self, _now_ns: u64, _reactor: &Reactor) {}
}

impl Transports {
    /// With TCP, which is there from the beginning.
    pub fn new(tcp: Tcp) -> Transports {
        Transports { tcp: Some(tcp), ..Transports::default() }
    }

    pub fn tcp(&mut self) -> &mut Tcp {
        self.tcp.as_mut().expect("it is there from the beginning and is never taken away")
    }
}
