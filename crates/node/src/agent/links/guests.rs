//! Where children, and agents beside the tree, dial in: the listener, and guests until their handshake is done.

use super::{Kind, LinkSet};
use crate::agent::token::Token;
use crate::agent::turn::Turn;
use crate::transport::addresses::{self, NothingMatches};
use crate::transport::filter::FilterError;
use crate::transport::handshake::Terms;
use crate::transport::link::Link;
use crate::transport::listener::{Accepted, Listener};
use std::io;
use wireup_os::interfaces;
use wireup_os::reactor::{Interest, Reactor};
use wireup_proto::io::LinkId;
use wireup_wire::limits::{HANDSHAKE_NS_MAX, UNAUTHENTICATED_LINKS_MAX};

/// Guests taken in before anything else has its turn. Chosen: a guest stays for four turns at least, whoever floods, and
/// is read in the first of them.
const ACCEPTS_A_TURN_MAX: usize = UNAUTHENTICATED_LINKS_MAX / 4;

/// Why an agent cannot be dialled.
#[derive(thiserror::Error, Debug)]
pub enum ListenError {
    #[error("listing this machine's addresses: {0}")]
    Interfaces(io::Error),
    #[error("a socket to listen on: {0}")]
    Socket(#[from] io::Error),
    #[error(transparent)]
    Filter(#[from] FilterError),
    #[error(transparent)]
    NothingMatches(#[from] NothingMatches),
}

impl ListenError {
    /// The kernel's number, if it was the kernel that refused.
    pub fn errno(&self) -> Option<i32> {
        match self {
            ListenError::Interfaces(error) | ListenError::Socket(error) => error.raw_os_error(),
            ListenError::Filter(_) | ListenError::NothingMatches(_) => None,
        }
    }
}

impl LinkSet {
    /// Addresses where others can dial in, best first; listens from the first call on.
    pub fn listen(&mut self, reactor: &Reactor) -> Result<Vec<String>, ListenError> {
        if let Some(listener) = &self.listener {
            return Ok(listener.addresses());
        }
        let listener = if self.config.local {
            Listener::local()?
        } else {
            let filter = self.filter()?;
            self.own = interfaces::addresses().map_err(ListenError::Interfaces)?;
            let offered = addresses::offered(&self.own, filter.as_ref(), self.config.reached_at(), false)?;
            Listener::remote(&offered, filter.is_some())?
        };
        reactor.add(listener.fd(), Token::Listener.pack(), Interest::READABLE)?;
        Ok(self.listener.insert(listener).addresses())
    }

    /// Takes waiting guests in.
    pub fn on_listener(&mut self, turn: &mut Turn<'_>) {
        let Ok(secret) = self.secret() else {
            return;
        };
        let terms = Terms { encrypt: self.config.encrypt, listener: self.me };
        for _ in 0..ACCEPTS_A_TURN_MAX {
            let Some(listener) = &self.listener else {
                return;
            };
            match listener.accept(&secret, terms) {
                Ok(Accepted::Guest(link)) => self.take_in(*link, turn.now_ns, turn.reactor),
                Ok(Accepted::TurnedAway) => {}
                Ok(Accepted::Nobody) => return,
                // Out of descriptors, most likely.
                Err(_) => {
                    return self.pause.begin(listener.fd(), Token::Listener.pack(), turn.now_ns, turn.reactor);
                }
            }
        }
    }

    fn take_in(&mut self, link: Link, now_ns: u64, reactor: &Reactor) {
        while self.guests.len() >= UNAUTHENTICATED_LINKS_MAX {
            let silent = |id: &&LinkId| self.links.get(id).is_none_or(|entry| !entry.link.has_heard());
            let Some(&id) = self.guests.iter().find(silent).or(self.guests.first()) else {
                break;
            };
            self.forget(id, reactor);
        }
        let kind = Kind::Guest { until_ns: now_ns + HANDSHAKE_NS_MAX };
        // A guest that cannot be watched is closed by being dropped.
        if let Ok(id) = self.insert(link, kind, Interest::READABLE, reactor) {
            self.guests.insert(id);
        }
    }

    /// Watches the listener again when it is time.
    pub(super) fn end_pause(&mut self, now_ns: u64, reactor: &Reactor) {
        if let Some(listener) = &self.listener {
            self.pause.end_if_due(listener.fd(), Token::Listener.pack(), now_ns, reactor);
        }
    }
}
