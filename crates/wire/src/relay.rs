//! Messages between agents that carry the bytes of a connection between two ranks whose hosts cannot connect to each
//! other.
//!
//! ```text
//!   rank        its agent                    agent of the other rank     other rank
//!     ── relay ─► ── Open { rank, name } ──────► ── connects ─────────────► listens
//!     ◄═ socket ═►  ◄── Bytes, Taken, End ──►  ◄══════════ socket ════════►
//!     ◄─ CONNECTED   ◄── Connected ──────────
//!                   ◄── Close ──────────────►
//! ```
//!
//! In the header of a frame, `arg` is the number of the relay and `stream` the kind of the message; bit 3 of `stream`:
//! the sender has opened the relay, and its agent has given the number. Bytes are the payload as they are; other
//! payloads are encoded by `postcard`.

use crate::ids::Rank;
use crate::peer::{self, PeerError};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

const OPEN: u16 = 0;
const BYTES: u16 = 1;
const TAKEN: u16 = 2;
const END: u16 = 3;
const CLOSE: u16 = 4;
const CONNECTED: u16 = 5;
const BY_OPENER: u16 = 8;

/// The first byte that the rank reads: the other rank's host has accepted a connection. If the socket ends before it,
/// that rank cannot be reached.
pub const IS_CONNECTED: u8 = 1;

/// One message, in a frame of [`crate::frame::PeerFrame::Relay`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Between {
    pub number: u32,
    /// Whether the sender of the message is the agent that has opened the relay.
    pub by_opener: bool,
    pub what: What,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum What {
    Open(Target),
    /// The rank's host has accepted the connection.
    Connected,
    Bytes(Bytes),
    /// This many bytes have reached the rank: the receiver of the message may send as many more.
    Taken(u32),
    /// No more bytes follow.
    End,
    /// The relay ends at once: the rank cannot be connected, or its connection broke.
    Close,
}

/// The rank to connect to: one on the receiver's node, at the address that it has announced under this name.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Target {
    pub rank: Rank,
    pub name: Bytes,
}

impl Between {
    /// Encodes the message: `stream` and payload of its frame.
    pub fn encode(self) -> (u16, Bytes) {
        let (kind, payload) = match self.what {
            What::Open(target) => (OPEN, peer::encode(&target).into()),
            What::Bytes(bytes) => (BYTES, bytes),
            What::Taken(count) => (TAKEN, peer::encode(&count).into()),
            What::Connected => (CONNECTED, Bytes::new()),
            What::End => (END, Bytes::new()),
            What::Close => (CLOSE, Bytes::new()),
        };
        (kind | if self.by_opener { BY_OPENER } else { 0 }, payload)
    }

    /// # Errors
    /// No correct agent has written the message.
    pub fn decode(stream: u16, number: u32, payload: Bytes) -> Result<Between, PeerError> {
        let what = match stream & !BY_OPENER {
            OPEN => What::Open(peer::decode(&payload)?),
            BYTES => What::Bytes(payload),
            TAKEN => What::Taken(peer::decode(&payload)?),
            CONNECTED => What::Connected,
            END => What::End,
            CLOSE => What::Close,
            _ => return Err(PeerError::Malformed),
        };
        Ok(Between { number, by_opener: stream & BY_OPENER != 0, what })
    }

    /// The answer of an agent that no longer has the job, if one is needed.
    pub fn refused(&self) -> Option<Between> {
        let is_over = self.what == What::Close;
        (!is_over).then_some(Between { number: self.number, by_opener: !self.by_opener, what: What::Close })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn what() -> impl Strategy<Value = What> {
        prop_oneof![
            (any::<u32>(), proptest::collection::vec(any::<u8>(), 0..65))
                .prop_map(|(rank, name)| What::Open(Target { rank: Rank(rank), name: name.into() })),
            proptest::collection::vec(any::<u8>(), 0..200).prop_map(|bytes| What::Bytes(bytes.into())),
            any::<u32>().prop_map(What::Taken),
            Just(What::Connected),
            Just(What::End),
            Just(What::Close),
        ]
    }

    proptest! {
        #[test]
        fn messages_survive_a_round_trip(number: u32, by_opener: bool, what in what()) {
            let message = Between { number, by_opener, what };
            let (stream, payload) = message.clone().encode();
            prop_assert_eq!(Between::decode(stream, number, payload), Ok(message));
        }

        #[test]
        fn any_bytes_are_decoded_or_refused(stream: u16, payload in proptest::collection::vec(any::<u8>(), 0..100)) {
            let _ = Between::decode(stream, 1, payload.into());
        }
    }

    #[test]
    fn everything_but_the_end_is_refused_by_an_agent_without_the_job() {
        let message = |by_opener, what| Between { number: 4, by_opener, what };
        assert_eq!(message(true, What::End).refused(), Some(message(false, What::Close)));
        assert_eq!(message(true, What::Close).refused(), None);
    }
}
