//! The first two messages of a connection over libfabric: the handshake of `proof.rs`, each with a code (MAC) that is
//! cheap to check.
//!
//! ```text
//! hello   | 1 | from u32 | to u32 | number u64 | place: u8 and so many bytes | proof | code 16 |
//! welcome | 2 | from u32 | to u32 | number u64 | answered u64                | proof | code 16 |
//! ```
//!
//! `from` and `to` are ranks; `number` is the sender's number for the connection, and `answered` the number in the
//! hello. All numbers are little-endian. The code (`codes.rs`) covers all bytes before it. A hello that a stranger
//! repeats is recognised by its number, because each rank's numbers grow; a welcome that a stranger repeats, at
//! whatever rank, answers no hello that is still unanswered.

use crate::network::carrier::Number;
use crate::network::codes::Codes;
use alloc::vec::Vec;

pub const HELLO: u8 = 1;
pub const WELCOME: u8 = 2;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hello<'a> {
    pub from: u32,
    pub to: u32,
    pub number: Number,
    /// Address to send the answer to.
    pub place: &'a [u8],
    pub proof: &'a [u8],
}

impl<'a> Hello<'a> {
    pub fn encode(&self, codes: &mut Codes) -> Vec<u8> {
        let [from, to] = [self.from, self.to].map(u32::to_le_bytes);
        let place_len = [self.place.len() as u8];
        codes.with_code(&[&[HELLO], &from, &to, &self.number.to_le_bytes(), &place_len, self.place, self.proof])
    }

    /// Checks and decodes a hello; `None`: it is not from a rank of this job.
    pub fn decode(bytes: &'a [u8], codes: &mut Codes) -> Option<Hello<'a>> {
        let rest = codes.checked(bytes)?.strip_prefix(&[HELLO])?;
        let (from, rest) = rest.split_first_chunk()?;
        let (to, rest) = rest.split_first_chunk()?;
        let (number, rest) = rest.split_first_chunk()?;
        let (len, rest) = rest.split_first()?;
        let (place, proof) = rest.split_at_checked(usize::from(*len))?;
        let (from, to) = (u32::from_le_bytes(*from), u32::from_le_bytes(*to));
        Some(Hello { from, to, number: u64::from_le_bytes(*number), place, proof })
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Welcome<'a> {
    pub from: u32,
    pub to: u32,
    pub number: Number,
    pub answered: Number,
    pub proof: &'a [u8],
}

impl<'a> Welcome<'a> {
    pub fn encode(&self, codes: &mut Codes) -> Vec<u8> {
        let [from, to] = [self.from, self.to].map(u32::to_le_bytes);
        let [number, answered] = [self.number, self.answered].map(u64::to_le_bytes);
        codes.with_code(&[&[WELCOME], &from, &to, &number, &answered, self.proof])
    }

    /// Checks and decodes a welcome; `None`: it is not from a rank of this job.
    pub fn decode(bytes: &'a [u8], codes: &mut Codes) -> Option<Welcome<'a>> {
        let rest = codes.checked(bytes)?.strip_prefix(&[WELCOME])?;
        let (from, rest) = rest.split_first_chunk()?;
        let (to, rest) = rest.split_first_chunk()?;
        let (number, rest) = rest.split_first_chunk()?;
        let (answered, proof) = rest.split_first_chunk()?;
        let [from, to] = [*from, *to].map(u32::from_le_bytes);
        let [number, answered] = [*number, *answered].map(u64::from_le_bytes);
        Some(Welcome { from, to, number, answered, proof })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn both_messages_survive_and_no_change_does(
            (from, to, number) in any::<(u32, u32, u64)>(),
            place in proptest::collection::vec(any::<u8>(), 0..40),
            proof in proptest::collection::vec(any::<u8>(), 0..80),
            at: prop::sample::Index,
            bit in 0u8..8,
        ) {
            let mut codes = Codes::new(&[1; 32]).unwrap();
            let hello = Hello { from, to, number, place: &place, proof: &proof };
            let welcome = Welcome { from, to, number, answered: from.into(), proof: &proof };
            let (mut one, mut other) = (hello.encode(&mut codes), welcome.encode(&mut codes));
            prop_assert_eq!(Hello::decode(&one, &mut codes), Some(hello));
            prop_assert_eq!(Welcome::decode(&other, &mut codes), Some(welcome));
            prop_assert_eq!(Hello::decode(&one, &mut Codes::new(&[2; 32]).unwrap()), None);
            prop_assert!(Welcome::decode(&one, &mut codes).is_none() && Hello::decode(&other, &mut codes).is_none());
            let (short, len) = (at.index(one.len()), at.index(other.len()));
            prop_assert!(Hello::decode(&one[..short], &mut codes).is_none());
            prop_assert!(Welcome::decode(&other[..len], &mut codes).is_none());
            one[short] ^= 1 << bit;
            other[len] ^= 1 << bit;
            prop_assert!(Hello::decode(&one, &mut codes).is_none() && Welcome::decode(&other, &mut codes).is_none());
        }
    }
}
