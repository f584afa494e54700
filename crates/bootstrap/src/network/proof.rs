//! Proves a connection: both ends know the job's secret, and say which rank they are (Noise `NNpsk0`).
//!
//! ```text
//!   dialler  ── e, psk: its rank, whom it wants, how many connections of the two were closed before ──►  acceptor
//!            ◄── e, ee: its rank ──────────────────
//!            ◄═══════ messages, encrypted ════════►
//! ```
//!
//! A stranger's first bytes cost the acceptor one check of a code.

use alloc::vec;
use alloc::vec::Vec;
use snow::{Builder, HandshakeState, StatelessTransportState, TransportState};

const PATTERN: &str = "Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s";
/// What both ends must agree on beside the secret: changes with the format.
const PROLOGUE: &[u8] = b"wireup ranks 2";
/// Longest encrypted unit, and how much longer it is than its content.
pub const SEALED_LEN_MAX: usize = 65_535;
pub const SEAL_LEN: usize = 16;

/// The other end does not know the secret, or broke the rules.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unproved;

pub type Secret = [u8; 32];

pub struct Proof {
    me: u32,
    /// The rank that was dialled.
    to: Option<u32>,
    state: HandshakeState,
}

/// A connection whose other end is known.
pub struct Proved {
    pub peer: u32,
    /// How many connections of the two the dialler has closed before; 0 at the dialling end.
    pub closed: u32,
    state: HandshakeState,
}

impl Proved {
    /// For messages that arrive in order, each once.
    pub fn in_order(self) -> Result<TransportState, Unproved> {
        self.state.into_transport_mode().map_err(|_| Unproved)
    }

    /// For messages that carry their numbers. A number is never used twice.
    pub fn in_any_order(self) -> Result<StatelessTransportState, Unproved> {
        self.state.into_stateless_transport_mode().map_err(|_| Unproved)
    }
}

/// What follows from a handshake's message.
pub struct Next {
    pub reply: Option<Vec<u8>>,
    pub proved: Proved,
}

fn builder(secret: &Secret) -> Result<Builder<'_>, Unproved> {
    let pattern = PATTERN.parse().map_err(|_| Unproved)?;
    Builder::new(pattern).prologue(PROLOGUE).and_then(|builder| builder.psk(0, secret)).map_err(|_| Unproved)
}

impl Proof {
    /// For the dialling end, with its first message.
    pub fn dial(secret: &Secret, me: u32, to: u32, closed: u32) -> Result<(Proof, Vec<u8>), Unproved> {
        let mut state = builder(secret)?.build_initiator().map_err(|_| Unproved)?;
        let first = message(&mut state, &[me, to, closed].map(u32::to_le_bytes).concat())?;
        Ok((Proof { me, to: Some(to), state }, first))
    }

    pub fn accept(secret: &Secret, me: u32) -> Result<Proof, Unproved> {
        let state = builder(secret)?.build_responder().map_err(|_| Unproved)?;
        Ok(Proof { me, to: None, state })
    }

    pub fn dialled(&self) -> Option<u32> {
        self.to
    }

    /// The other end's message.
    ///
    /// # Errors
    /// It is not from a rank of this job, or not for this rank.
    pub fn on_message(mut self, bytes: &[u8]) -> Result<Next, Unproved> {
        let mut room = [0; 128];
        let len = self.state.read_message(bytes, &mut room).map_err(|_| Unproved)?;
        let number =
            |at: usize| room[..len].get(at..at + 4).and_then(|four| four.try_into().ok()).map(u32::from_le_bytes);
        let peer = number(0).ok_or(Unproved)?;
        let (is_right, reply) = match self.to {
            Some(to) => (peer == to && len == 4, None),
            None => {
                let is_right = number(4) == Some(self.me) && len == 12 && peer != self.me;
                (is_right, Some(message(&mut self.state, &self.me.to_le_bytes())?))
            }
        };
        let proved = Proved { peer, closed: number(8).unwrap_or(0), state: self.state };
        if is_right { Ok(Next { reply, proved }) } else { Err(Unproved) }
    }
}

fn message(state: &mut HandshakeState, content: &[u8]) -> Result<Vec<u8>, Unproved> {
    let mut room = vec![0; 128];
    let len = state.write_message(content, &mut room).map_err(|_| Unproved)?;
    room.truncate(len);
    Ok(room)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_learn_each_others_rank() {
        let (dialler, first) = Proof::dial(&[7; 32], 3, 5, 9).unwrap();
        let Next { reply, proved: accepted } = Proof::accept(&[7; 32], 5).unwrap().on_message(&first).unwrap();
        let dialled = dialler.on_message(&reply.unwrap()).unwrap().proved;
        assert_eq!((dialled.peer, accepted.peer, accepted.closed), (5, 3, 9));
        let (mut sealed, mut plain) = ([0; 64], [0; 64]);
        let (mut dialled, mut accepted) = (dialled.in_order().unwrap(), accepted.in_order().unwrap());
        let len = dialled.write_message(b"hello", &mut sealed).unwrap();
        let len = accepted.read_message(&sealed[..len], &mut plain).unwrap();
        assert_eq!(&plain[..len], b"hello");
    }

    #[test]
    fn strangers_and_wrong_ranks_are_refused() {
        let first = |secret, me, to| Proof::dial(&[secret; 32], me, to, 0).unwrap().1;
        let accept = |bytes: &[u8]| Proof::accept(&[7; 32], 5).unwrap().on_message(bytes).map(|next| next.proved.peer);
        assert_eq!(accept(&first(7, 3, 5)), Ok(3));
        for wrong in [first(8, 3, 5), first(7, 3, 4), first(7, 5, 5), Vec::new(), vec![0; 56], vec![1; 600]] {
            assert_eq!(accept(&wrong), Err(Unproved));
        }
        let (dialler, first) = Proof::dial(&[7; 32], 3, 5, 0).unwrap();
        let other = Proof { me: 6, ..Proof::accept(&[7; 32], 5).unwrap() };
        assert!(other.on_message(&first).is_err());
        assert!(dialler.on_message(&[0; 52]).is_err());
    }
}
