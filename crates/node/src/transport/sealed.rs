//! Encrypts and decrypts the bytes of a link: Noise transport messages, with a separate counter for each direction.
//!
//! A message is a 2-byte little-endian length followed by that many bytes: up to [`PLAIN_LEN_MAX`] bytes of frames,
//! encrypted, and a tag of 16 bytes. Messages need not begin or end where frames do. Each direction numbers its
//! messages, which makes the nonces unique: from 0 (from 1 if the handshake's confirmation used 0), at most 2^64 - 1
//! messages. The key of a direction is replaced (Noise: rekey) after every [`MESSAGES_PER_KEY`] messages. A message
//! that was omitted, repeated, changed or reordered fails to decrypt, which ends the link.

use bytes::{Bytes, BytesMut};
use snow::TransportState;
use std::collections::VecDeque;
use thiserror::Error;

/// Size of the length field before each message (bytes).
const LENGTH_LEN: usize = 2;
/// Size of the tag that ends each message (bytes).
const TAG_LEN: usize = 16;
/// Longest message: Noise's own bound.
const MESSAGE_LEN_MAX: usize = 65_535;
/// Most bytes of frames in one message.
pub const PLAIN_LEN_MAX: usize = MESSAGE_LEN_MAX - TAG_LEN;

/// Number of messages with one key. Chosen: at most 64 GiB of frames, a hundredth of what the known bounds for AES-GCM
/// allow (RFC 8446, 5.5).
#[cfg(not(any(test, fuzzing)))]
const MESSAGES_PER_KEY: u32 = 1 << 20;
#[cfg(any(test, fuzzing))]
const MESSAGES_PER_KEY: u32 = 3;

#[derive(Error, Clone, Copy, PartialEq, Eq, Debug)]
pub enum SealError {
    #[error("an encrypted message is damaged or was modified")]
    Changed,
    #[error("the link was cut within an encrypted message")]
    Cut,
    #[error("an encrypted link has reached its limit of messages")]
    Exhausted,
}

/// The encryption state of both directions of one link.
pub struct Sealed {
    noise: Keys,
    pieces: VecDeque<Bytes>,
    /// The bytes received so far of an incomplete message.
    partial: BytesMut,
    /// A buffer for joining small pieces before they are encrypted.
    joined: Vec<u8>,
}

impl Sealed {
    pub fn new(noise: Box<TransportState>) -> Self {
        let noise = Keys { noise, sealed: 0, opened: 0 };
        Sealed { noise, pieces: VecDeque::new(), partial: BytesMut::new(), joined: Vec::new() }
    }

    /// Pieces of frames that have begun and are not encrypted yet.
    pub fn pieces(&mut self) -> &mut VecDeque<Bytes> {
        &mut self.pieces
    }

    /// Whether `seal` has something to do.
    pub fn has_pieces(&self) -> bool {
        !self.pieces.is_empty()
    }

    /// Encrypts pieces in order, into as few messages as possible, until the messages have `limit` bytes or more.
    ///
    /// A piece that fills a message by itself is encrypted without a copy; only smaller pieces and remainders are
    /// joined first.
    ///
    /// # Errors
    /// The counter is exhausted: close the link.
    pub fn seal(&mut self, limit: usize) -> Result<Bytes, SealError> {
        let mut sealed = Vec::new();
        self.joined.clear();
        while let Some(mut piece) = self.pieces.pop_front() {
            if self.joined.is_empty() && piece.len() >= PLAIN_LEN_MAX {
                seal_one(&mut self.noise, &piece.split_to(PLAIN_LEN_MAX), &mut sealed)?;
            } else {
                let length = piece.len().min(PLAIN_LEN_MAX - self.joined.len());
                self.joined.extend_from_slice(&piece.split_to(length));
            }
            if !piece.is_empty() {
                self.pieces.push_front(piece);
            }
            if self.joined.len() == PLAIN_LEN_MAX {
                seal_one(&mut self.noise, &self.joined, &mut sealed)?;
                self.joined.clear();
            }
            if sealed.len() + self.joined.len() >= limit {
                break;
            }
        }
        if !self.joined.is_empty() {
            seal_one(&mut self.noise, &self.joined, &mut sealed)?;
        }
        Ok(sealed.into())
    }

    /// Decrypts bytes received from the link, split anywhere; returns the frames' bytes in the messages that are now
    /// complete.
    ///
    /// # Errors
    /// A message cannot be decrypted: close the link.
    pub fn open(&mut self, mut bytes: &[u8]) -> Result<Bytes, SealError> {
        let mut plain = Vec::with_capacity(bytes.len());
        while !bytes.is_empty() {
            if self.partial.is_empty()
                && let Some(length) = whole(bytes)
            {
                open_one(&mut self.noise, &bytes[LENGTH_LEN..length], &mut plain)?;
                bytes = &bytes[length..];
                continue;
            }
            let wanted = match self.partial.first_chunk() {
                Some(length) => LENGTH_LEN + usize::from(u16::from_le_bytes(*length)),
                None => LENGTH_LEN,
            };
            let length = bytes.len().min(wanted - self.partial.len());
            self.partial.extend_from_slice(&bytes[..length]);
            bytes = &bytes[length..];
            if whole(&self.partial).is_some() {
                open_one(&mut self.noise, &self.partial[LENGTH_LEN..], &mut plain)?;
                self.partial.clear();
            }
        }
        Ok(plain.into())
    }

    /// Checks that the peer may close the link now: a peer may not close the link within a message.
    ///
    /// # Errors
    /// The link ends within a message.
    pub fn end(&self) -> Result<(), SealError> {
        if self.partial.is_empty() { Ok(()) } else { Err(SealError::Cut) }
    }
}

/// The keys of both directions, and the number of messages for which each key has been used.
struct Keys {
    noise: Box<TransportState>,
    sealed: u32,
    opened: u32,
}

/// The length of the message at the beginning of these bytes, if it is complete.
fn whole(bytes: &[u8]) -> Option<usize> {
    let length = LENGTH_LEN + usize::from(u16::from_le_bytes(*bytes.first_chunk()?));
    (bytes.len() >= length).then_some(length)
}

fn seal_one(keys: &mut Keys, plain: &[u8], sealed: &mut Vec<u8>) -> Result<(), SealError> {
    let begin = sealed.len();
    let length = plain.len() + TAG_LEN;
    sealed.extend_from_slice(&(length as u16).to_le_bytes());
    sealed.resize(begin + LENGTH_LEN + length, 0);
    let written =
        keys.noise.write_message(plain, &mut sealed[begin + LENGTH_LEN..]).map_err(|_| SealError::Exhausted)?;
    assert_eq!(written, length, "a tag is 16 bytes long");
    keys.sealed += 1;
    if keys.sealed == MESSAGES_PER_KEY {
        keys.noise.rekey_outgoing();
        keys.sealed = 0;
    }
    Ok(())
}

fn open_one(keys: &mut Keys, message: &[u8], plain: &mut Vec<u8>) -> Result<(), SealError> {
    let begin = plain.len();
    plain.resize(begin + message.len().checked_sub(TAG_LEN).ok_or(SealError::Changed)?, 0);
    keys.noise.read_message(message, &mut plain[begin..]).map_err(|_| SealError::Changed)?;
    keys.opened += 1;
    if keys.opened == MESSAGES_PER_KEY {
        keys.noise.rekey_incoming();
        keys.opened = 0;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ends() -> (Sealed, Sealed) {
        let builder = || snow::Builder::new("Noise_NN_25519_ChaChaPoly_BLAKE2s".parse().unwrap());
        let (mut dials, mut listens) = (builder().build_initiator().unwrap(), builder().build_responder().unwrap());
        let (mut message, mut payload) = ([0; 200], [0; 200]);
        let length = dials.write_message(&[], &mut message).unwrap();
        listens.read_message(&message[..length], &mut payload).unwrap();
        let length = listens.write_message(&[], &mut message).unwrap();
        dials.read_message(&message[..length], &mut payload).unwrap();
        let end = |noise: snow::HandshakeState| Sealed::new(Box::new(noise.into_transport_mode().unwrap()));
        (end(dials), end(listens))
    }

    fn sealed(end: &mut Sealed, pieces: impl IntoIterator<Item = Bytes>) -> Bytes {
        end.pieces().extend(pieces);
        end.seal(usize::MAX).unwrap()
    }

    fn opened(end: &mut Sealed, wire: &[u8], step: usize) -> Result<Vec<u8>, SealError> {
        let mut plain = Vec::new();
        for piece in wire.chunks(step) {
            plain.extend_from_slice(&end.open(piece)?);
        }
        Ok(plain)
    }

    #[test]
    fn pieces_are_sealed_in_the_fewest_messages() {
        let (mut here, _) = ends();
        for (pieces, messages) in [
            (vec![0], 0),
            (vec![1, 1, 1], 1),
            (vec![PLAIN_LEN_MAX], 1),
            (vec![16, PLAIN_LEN_MAX], 2),
            (vec![3 * PLAIN_LEN_MAX], 3),
            (vec![16, 2 * PLAIN_LEN_MAX, 16], 3),
        ] {
            let total: usize = pieces.iter().sum();
            let sealed = sealed(&mut here, pieces.iter().map(|&length| Bytes::from(vec![7; length])));
            assert_eq!(sealed.len(), total + messages * (LENGTH_LEN + TAG_LEN), "{pieces:?}");
        }
    }

    #[test]
    fn a_long_frame_is_sealed_in_bounded_portions() {
        let (mut here, mut there) = ends();
        let frame: Bytes = (0..400_000u32).map(|byte| (byte % 251) as u8).collect();
        here.pieces().extend([Bytes::from_static(&[9; 16]), frame.clone()]);
        let (mut plain, mut rounds) = (Vec::new(), 0);
        while !here.pieces().is_empty() {
            let some = here.seal(100_000).unwrap();
            assert!(some.len() < 100_000 + 2 * MESSAGE_LEN_MAX, "{}", some.len());
            plain.extend_from_slice(&there.open(&some).unwrap());
            rounds += 1;
        }
        assert_eq!(rounds, 4);
        assert_eq!(plain, [&[9; 16][..], &frame].concat());
    }

    #[test]
    fn sealed_messages_open_in_both_directions_and_only_once() {
        let (mut here, mut there) = ends();
        let one = sealed(&mut here, [Bytes::from_static(b"one")]);
        let two = sealed(&mut there, [Bytes::from_static(b"two")]);
        assert_eq!(there.open(&one).unwrap(), "one");
        assert_eq!(here.open(&two).unwrap(), "two");
        assert_eq!(there.open(&one), Err(SealError::Changed), "sent again");
        assert_eq!(here.open(&one), Err(SealError::Changed), "sent back");
    }

    #[test]
    fn too_short_messages_and_ends_within_a_message_are_refused() {
        for length in 0..TAG_LEN as u8 {
            let (_, mut there) = ends();
            let mut wire = vec![length, 0];
            wire.resize(LENGTH_LEN + usize::from(length), 0);
            assert_eq!(there.open(&wire), Err(SealError::Changed), "{length}");
        }
        let (mut here, mut there) = ends();
        let wire = sealed(&mut here, [Bytes::from_static(b"hello")]);
        for at in 1..wire.len() {
            let (_, mut there) = ends();
            assert_eq!(there.open(&wire[..at]).unwrap(), "");
            assert_eq!(there.end(), Err(SealError::Cut), "{at}");
        }
        there.open(&wire).unwrap();
        assert_eq!(there.end(), Ok(()));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn any_split_opens_to_the_same_bytes(
            lengths in prop::collection::vec(prop_oneof![4 => 0usize..40, 1 => 65_000usize..140_000], 1..12),
            step in prop_oneof![1usize..20, 1_000usize..70_000],
            turns in 1usize..4,
        ) {
            let (mut here, mut there) = ends();
            for turn in 0..turns {
                let pieces: Vec<Bytes> = lengths
                    .iter()
                    .enumerate()
                    .map(|(n, &length)| (0..length).map(|byte| (byte * 31 + n + turn) as u8).collect())
                    .collect();
                let wire = sealed(&mut here, pieces.iter().cloned());
                prop_assert_eq!(opened(&mut there, &wire, step).unwrap(), pieces.concat());
                prop_assert_eq!(there.end(), Ok(()));
            }
        }

        #[test]
        fn a_flipped_bit_ends_the_link(
            first in prop::collection::vec(any::<u8>(), 1..100),
            second in prop::collection::vec(any::<u8>(), 1..100),
            at in any::<prop::sample::Index>(),
            bit in 0u8..8,
            step in 1usize..50,
        ) {
            let (mut here, mut there) = ends();
            let mut wire = sealed(&mut here, [Bytes::from(first.clone())]).to_vec();
            wire.extend_from_slice(&sealed(&mut here, [Bytes::from(second)]));
            let at = at.index(wire.len());
            wire[at] ^= 1 << bit;
            // If the length grew, `open` may wait for more bytes: no wrong bytes are returned, and the end is within a
            // message.
            let mut plain = Vec::new();
            let mut error = None;
            for piece in wire.chunks(step) {
                match there.open(piece) {
                    Ok(bytes) => plain.extend_from_slice(&bytes),
                    Err(refused) => { error = Some(refused); break; }
                }
            }
            let error = error.or(there.end().err());
            prop_assert!(matches!(error, Some(SealError::Changed | SealError::Cut)), "{:?}", error);
            prop_assert!(plain.is_empty() || plain == first);
        }
    }
}
