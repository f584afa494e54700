//! Proves a connection: each end proves that it knows the job's secret, and says which rank it is (Noise `NNpsk0`).
//!
//! ```text
//!   dialler  ── e, psk: its rank, whom it wants, what for ──►  acceptor
//!            ◄── e, ee: its rank ──────────────────
//!            ── confirmation, under the new key ──►   only now the acceptor believes it
//!            ◄═══════ messages, encrypted ════════►
//! ```
//!
//! Anyone can record the first message and send it again, but gets no further than the answer: whoever sends a unit
//! under the new key must have made the first message. Over libfabric there is no confirmation; there, each number of a
//! hello is accepted once (`fabric/handshake.rs`).
//!
//! Each secondary library in a process has a secret of its own, derived from the job's secret and the library's name
//! ([`of_library`]), so a recording of one library is useless against another.
//!
//! A connection for the program's own use is not encrypted after the handshake ([`super::plain`]).
//!
//! A stranger's first bytes cost the acceptor one check of a MAC.

use alloc::vec::Vec;
use snow::params::HashChoice;
use snow::resolvers::{CryptoResolver, DefaultResolver};
use snow::{Builder, HandshakeState};
use wireup_capi::net::Errno;

const PATTERN: &str = "Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s";
/// What both ends must agree on besides the secret; it changes with the message format.
const PROLOGUE: &[u8] = b"wireup ranks 4";
/// Maximum length of an encrypted unit, and the number of bytes that encryption adds.
pub const SEALED_LEN_MAX: usize = 65_535;
pub const SEAL_LEN: usize = 16;

/// An error: a connection must be dropped, because the peer does not know the secret or has violated the protocol, or
/// because the socket has failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Broken;

impl From<snow::Error> for Broken {
    fn from(_: snow::Error) -> Broken {
        Broken
    }
}

impl From<Errno> for Broken {
    fn from(_: Errno) -> Broken {
        Broken
    }
}

pub type Secret = [u8; 32];

/// The secret of the library called `name`, which must be the same on all ranks. If `name` is empty: the job's secret.
///
/// # Errors
/// None: the algorithm is part of this library.
pub fn of_library(secret: &Secret, name: &[u8]) -> Result<Secret, Broken> {
    if name.is_empty() {
        return Ok(*secret);
    }
    let mut hash = DefaultResolver.resolve_hash(&HashChoice::Blake2s).ok_or(Broken)?;
    let mut own = Secret::default();
    hash.hmac(secret, &[b"wireup library ", name].concat(), &mut own);
    Ok(own)
}

pub struct Proof {
    me: u32,
    /// The rank that this end has dialled; `None`: this end is the acceptor.
    to: Option<u32>,
    /// What the connection is for. An acceptor learns it from the dialler's hello.
    purpose: Purpose,
    state: HandshakeState,
}

/// A connection whose other end has proved its rank.
pub struct Proved {
    pub peer: u32,
    pub purpose: Purpose,
    /// The message to send to the dialler; `None`: this end is the dialler.
    pub reply: Option<Vec<u8>>,
    /// The state of the complete handshake, which becomes the keys for messages.
    pub state: HandshakeState,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// Messages of groups. `closed`: number of connections between the two ranks that were closed by agreement, as far
    /// as the dialler knows.
    Messages { closed: u32 },
    /// A connection that is handed to the program. `number`: counts such connections between the two ranks.
    Plain { number: u32 },
}

impl Purpose {
    /// Encodes the purpose as two numbers for the hello.
    fn numbers(self) -> [u32; 2] {
        match self {
            Purpose::Messages { closed } => [0, closed],
            Purpose::Plain { number } => [1, number],
        }
    }

    fn from_numbers(numbers: [u32; 2]) -> Option<Purpose> {
        match numbers {
            [0, closed] => Some(Purpose::Messages { closed }),
            [1, number] => Some(Purpose::Plain { number }),
            _ => None,
        }
    }
}

/// A builder of the handshake's state, for the dialler or the acceptor.
pub fn builder(secret: &Secret) -> Result<Builder<'_>, Broken> {
    Ok(Builder::new(PATTERN.parse()?).prologue(PROLOGUE)?.psk(0, secret)?)
}

impl Proof {
    /// Starts the handshake of a dialler. Returns its state and its first message.
    pub fn dial(secret: &Secret, me: u32, to: u32, purpose: Purpose) -> Result<(Proof, Vec<u8>), Broken> {
        let mut state = builder(secret)?.build_initiator()?;
        let [what, number] = purpose.numbers();
        let first = message(&mut state, &[me, to, what, number].map(u32::to_le_bytes).concat())?;
        Ok((Proof { me, to: Some(to), purpose, state }, first))
    }

    pub fn accept(secret: &Secret, me: u32) -> Result<Proof, Broken> {
        let state = builder(secret)?.build_responder()?;
        Ok(Proof { me, to: None, purpose: Purpose::Messages { closed: 0 }, state })
    }

    pub fn dialled(&self) -> Option<u32> {
        self.to
    }

    /// Whether this end has dialled a connection for the program's own use.
    pub fn has_dialled_plain(&self) -> bool {
        self.to.is_some() && matches!(self.purpose, Purpose::Plain { .. })
    }

    /// Handles the peer's handshake message.
    ///
    /// # Errors
    /// The message is not from a rank of this job, or not for this rank.
    pub fn on_message(mut self, bytes: &[u8]) -> Result<Proved, Broken> {
        let mut room = [0; 128];
        let len = self.state.read_message(bytes, &mut room)?;
        let number =
            |at: usize| room[..len].get(at..at + 4).and_then(|four| four.try_into().ok()).map(u32::from_le_bytes);
        let peer = number(0).ok_or(Broken)?;
        let (is_right, reply) = match self.to {
            Some(to) => (peer == to && len == 4, None),
            None => {
                let told = number(8).zip(number(12)).and_then(|(what, number)| Purpose::from_numbers([what, number]));
                let is_right = number(4) == Some(self.me) && len == 16 && peer != self.me && told.is_some();
                self.purpose = told.unwrap_or(self.purpose);
                (is_right, Some(message(&mut self.state, &self.me.to_le_bytes())?))
            }
        };
        let proved = Proved { peer, purpose: self.purpose, reply, state: self.state };
        if is_right { Ok(proved) } else { Err(Broken) }
    }
}

/// Writes the next message of a handshake.
pub fn message(state: &mut HandshakeState, content: &[u8]) -> Result<Vec<u8>, Broken> {
    let mut room = vec![0; 128];
    let len = state.write_message(content, &mut room)?;
    room.truncate(len);
    Ok(room)
}

/// The proofs that rank 3, which dials, and rank 5 have of each other.
#[cfg(test)]
pub fn proved_pair(purpose: Purpose) -> [Proved; 2] {
    let (dialler, first) = Proof::dial(&[7; 32], 3, 5, purpose).unwrap();
    let accepted = Proof::accept(&[7; 32], 5).unwrap().on_message(&first).unwrap();
    [dialler.on_message(accepted.reply.as_ref().unwrap()).unwrap(), accepted]
}

#[cfg(test)]
mod tests {
    use super::*;

    const MESSAGES: Purpose = Purpose::Messages { closed: 9 };

    #[test]
    fn both_ends_learn_each_others_rank_and_what_the_connection_is_for() {
        for purpose in [MESSAGES, Purpose::Plain { number: 0 }, Purpose::Plain { number: 7 }] {
            let both = proved_pair(purpose);
            assert_eq!(both.each_ref().map(|proved| (proved.peer, proved.purpose)), [(5, purpose), (3, purpose)]);
            let [mut dialled, mut accepted] = both.map(|proved| proved.state.into_transport_mode().unwrap());
            let (mut sealed, mut plain) = ([0; 64], [0; 64]);
            let len = dialled.write_message(b"hello", &mut sealed).unwrap();
            let len = accepted.read_message(&sealed[..len], &mut plain).unwrap();
            assert_eq!(&plain[..len], b"hello");
        }
    }

    #[test]
    fn libraries_with_names_do_not_know_each_others_secrets() {
        let of = |name: &[u8]| of_library(&[7; 32], name).unwrap();
        assert_eq!(of(b""), [7; 32]);
        assert!(of(b"one") == of(b"one") && of(b"one") != of(b"other") && of(b"one") != of(b""));
    }

    #[test]
    fn strangers_and_wrong_ranks_are_refused() {
        let first = |secret, me, to| Proof::dial(&[secret; 32], me, to, MESSAGES).unwrap().1;
        let accept = |bytes: &[u8]| Proof::accept(&[7; 32], 5).unwrap().on_message(bytes).map(|proved| proved.peer);
        assert_eq!(accept(&first(7, 3, 5)), Ok(3));
        for wrong in [first(8, 3, 5), first(7, 3, 4), first(7, 5, 5), Vec::new(), vec![0; 56], vec![1; 600]] {
            assert_eq!(accept(&wrong), Err(Broken));
        }
        let (dialler, first) = Proof::dial(&[7; 32], 3, 5, MESSAGES).unwrap();
        let other = Proof { me: 6, ..Proof::accept(&[7; 32], 5).unwrap() };
        assert!(other.on_message(&first).is_err());
        assert!(dialler.on_message(&[0; 52]).is_err());
    }
}
