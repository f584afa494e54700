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
//! A new transport is a file with its [`Transport`] and its [`Carrier`], and a line in the table below. If people choose it, it has a
//! row in [`AgentTransport`] too. The link to a launcher in this process is none of them: it has frames, and no bytes to carry.

mod tcp;
mod ucx;

use super::link_config::LinkConfig;
use crate::transport::carrier::Carrier;
use std::fmt;
use std::io;
use std::net::IpAddr;
pub use tcp::ListenError;
use tcp::Tcp;
use ucx::Ucx;
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

        /// An agent's end of each transport that is open.
        pub struct Transports { $($slot: Option<$transport>,)* }

        impl Transports {
            /// Those that need nothing of other agents.
            pub fn new(config: &LinkConfig) -> Transports {
                Transports { $($slot: <$transport>::begin(config),)* }
            }

            /// Opens the transport that all agents are to have; where it is reached.
            ///
            /// # Errors
            /// Why it cannot be used, in words.
            pub fn open_agreed(&mut self, transport: AgentTransport, reactor: &Reactor) -> Result<Point, String> {
                $(if <$transport>::AGREED == Some(transport) {
                    let (opened, point) = <$transport>::open(reactor)?;
                    self.$slot = Some(opened);
                    return Ok(point);
                })*
                Err("no transport that all agents must have was asked for".into())
            }

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
    /// The addresses where others can dial in, best first; each transport that has some listens from the first call on.
    ///
    /// # Errors
    /// One of them cannot listen.
    pub fn listen(&mut self, reactor: &Reactor) -> Result<Vec<String>, ListenError> {
        let mut addresses = Vec::new();
        for which in Which::ALL {
            if let Some(transport) = self.get(*which) {
                addresses.extend(transport.listen(reactor)?);
            }
        }
        Ok(addresses)
    }

    /// An address of this machine with the name of its interface: `10.0.0.1 (eth0)`.
    pub fn describe(&mut self, ip: IpAddr) -> String {
        self.tcp.as_mut().map(|tcp| tcp.describe(ip)).unwrap_or_default()
    }
}

/// What is known of an agent that is to be dialled.
#[derive(Clone, Default)]
pub struct Offer {
    /// Best first. `ip:port`, or what another transport listens at, which begins with `NAME://`.
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

/// How an agent comes by its end of a transport: with its other links, or when all agents have agreed.
pub trait Begin: Transport + Sized {
    /// What people ask for when they mean it, if all agents must have it.
    const AGREED: Option<AgentTransport> = None;

    /// With the agent's other links, if it needs nothing else.
    fn begin(_config: &LinkConfig) -> Option<Self> {
        None
    }

    /// When all agents are to have it; where others reach this one.
    ///
    /// # Errors
    /// Why it cannot be used here, in words.
    fn open(_reactor: &Reactor) -> Result<(Self, Point), String> {
        Err("it needs no agreement".into())
    }
}

pub trait Transport {
    /// Where others can dial in, if it is reached at addresses; listens from the first call on.
    ///
    /// # Errors
    /// It cannot listen.
    fn listen(&mut self, _reactor: &Reactor) -> Result<Vec<String>, ListenError> {
        Ok(Vec::new())
    }

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
