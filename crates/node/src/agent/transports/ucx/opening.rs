//! The first message of the dialling side over UCX: its address, and the handshake's hello.
//!
//! ```text
//! byte  0     8        10
//!       +-----+--------+---------+----------+
//!       | tag | length | address | hello    |
//!       | u64 | u16    | length  | the rest |
//!       +-----+--------+---------+----------+
//! ```
//!
//! Little-endian. Everything before the hello is bound to the handshake, together with the key of the dialled worker.

use crate::transport::handshake;
use bytes::Bytes;

const HEADER_LEN: usize = 10;
/// Longest address of a worker: it has some hundred bytes for each of its networks.
const ADDRESS_LEN_MAX: usize = 12 << 10;
/// Longest opening that is accepted.
pub const OPENING_LEN_MAX: usize = HEADER_LEN + ADDRESS_LEN_MAX + 2 + handshake::MESSAGE_LEN_MAX;

pub struct Opening<'a> {
    /// The tag of all later messages of the link, in both directions.
    pub tag: u64,
    /// The address of the sender's worker.
    pub address: &'a [u8],
    pub hello: Bytes,
    head: &'a [u8],
}

impl<'a> Opening<'a> {
    pub fn decode(bytes: &'a Bytes) -> Option<Opening<'a>> {
        let (tag, rest) = bytes.split_first_chunk::<8>()?;
        let (length, rest) = rest.split_first_chunk::<2>()?;
        let length = usize::from(u16::from_le_bytes(*length));
        let address = rest.get(..length).filter(|_| length <= ADDRESS_LEN_MAX)?;
        let (head, hello) = (&bytes[..HEADER_LEN + length], bytes.slice(HEADER_LEN + length..));
        Some(Opening { tag: u64::from_le_bytes(*tag), address, hello, head })
    }

    /// The bytes to which the handshake is bound. `key`: the key of the dialled worker.
    pub fn binding(&self, key: &[u8; 32]) -> Vec<u8> {
        binding(key, self.head)
    }
}

/// The bytes before the hello; `None`: the address is too long.
pub fn head(tag: u64, address: &[u8]) -> Option<Vec<u8>> {
    let length = u16::try_from(address.len()).ok().filter(|_| address.len() <= ADDRESS_LEN_MAX)?;
    Some([&tag.to_le_bytes()[..], &length.to_le_bytes(), address].concat())
}

pub fn binding(key: &[u8; 32], head: &[u8]) -> Vec<u8> {
    [key, head].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn openings_round_trip_and_both_sides_compute_the_same_binding() {
        let head = head(7, b"somewhere").unwrap();
        let bytes = Bytes::from([&head[..], b"hello"].concat());
        let opening = Opening::decode(&bytes).unwrap();
        assert_eq!((opening.tag, opening.address, &opening.hello[..]), (7, &b"somewhere"[..], &b"hello"[..]));
        assert_eq!(opening.binding(&[3; 32]), binding(&[3; 32], &head));
        assert_ne!(opening.binding(&[4; 32]), binding(&[3; 32], &head));
    }

    #[test]
    fn openings_that_are_too_short_or_state_a_false_length_are_refused() {
        let bytes = Bytes::from(head(7, &[1; 300]).unwrap());
        assert!(Opening::decode(&bytes).is_some_and(|opening| opening.hello.is_empty()));
        for len in 0..bytes.len() {
            assert!(Opening::decode(&bytes.slice(..len)).is_none(), "{len}");
        }
        assert!(head(7, &[0; ADDRESS_LEN_MAX]).is_some() && head(7, &[0; ADDRESS_LEN_MAX + 1]).is_none());
        let long = Bytes::from([&[0; 8][..], &[0xff; 2], &[0; 70_000]].concat());
        assert!(Opening::decode(&long).is_none());
    }
}
