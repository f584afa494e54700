//! The values of an allgather, concatenated: no keys, only lengths.
//!
//! ```text
//! +-----+-------+          +------+-----------+-------+
//! | len | value |    or    | 0xff | len - 255 | value |    len below 255: the short form; 255 to 65,790: the
//! | u8  |       |          | u8   | u16 LE    |       |    long one. Each length has exactly one form.
//! +-----+-------+          +------+-----------+-------+
//! ```
//!
//! The position of a value identifies its rank: local-rank order in a node's block, rank order in a job's array.
//!
//! Cost: 1 byte per value below 255 bytes, 3 bytes otherwise.

use alloc::vec::Vec;
use thiserror::Error;

/// First byte of the long form.
const LONG: u8 = u8::MAX;
/// Longest value that the format can represent (bytes).
pub const LEN_MAX: usize = LONG as usize + u16::MAX as usize;

/// The bytes end inside a value.
#[derive(Error, Clone, Copy, PartialEq, Eq, Debug)]
#[error("a node's values are cut short")]
pub struct Truncated;

/// Encoded length of a value of `len` bytes.
pub const fn encoded_len(len: usize) -> usize {
    if len < LONG as usize { 1 + len } else { 3 + len }
}

/// The length prefix of a value of `len` bytes, and how many of the bytes are used.
///
/// # Panics
/// If the value is longer than [`LEN_MAX`]; clients are limited to less.
pub fn prefix(len: usize) -> ([u8; 3], usize) {
    assert!(len <= LEN_MAX, "an allgather's values are at most {LEN_MAX} bytes");
    match len.checked_sub(LONG as usize) {
        None => ([len as u8, 0, 0], 1),
        Some(beyond) => {
            let [lo, hi] = (beyond as u16).to_le_bytes();
            ([LONG, lo, hi], 3)
        }
    }
}

/// Appends one value.
///
/// # Panics
/// As [`prefix`].
pub fn push(out: &mut Vec<u8>, value: &[u8]) {
    let (prefix, prefix_len) = prefix(value.len());
    out.reserve(prefix_len + value.len());
    out.extend_from_slice(&prefix[..prefix_len]);
    out.extend_from_slice(value);
}

/// The first value of `bytes`, and the rest.
pub fn split_first(bytes: &[u8]) -> Result<(&[u8], &[u8]), Truncated> {
    let (len, body) = match bytes {
        [LONG, lo, hi, body @ ..] => (LONG as usize + u16::from_le_bytes([*lo, *hi]) as usize, body),
        [LONG, ..] | [] => return Err(Truncated),
        [len, body @ ..] => (*len as usize, body),
    };
    body.split_at_checked(len).ok_or(Truncated)
}

/// The values in `bytes`, in order; stops after an error.
pub fn values(bytes: &[u8]) -> Values<'_> {
    Values { rest: bytes }
}

/// The iterator that [`values`] returns.
#[derive(Clone, Debug)]
pub struct Values<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Values<'a> {
    type Item = Result<&'a [u8], Truncated>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let split = split_first(self.rest);
        self.rest = split.map_or(&[], |(_, rest)| rest);
        Some(split.map(|(value, _)| value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use proptest::prelude::*;

    fn packed(input: &[Vec<u8>]) -> Vec<u8> {
        let mut out = Vec::new();
        for value in input {
            push(&mut out, value);
        }
        out
    }

    #[test]
    fn the_byte_layout_matches_the_documentation() {
        assert_eq!(packed(&[b"ab".to_vec(), vec![], b"c".to_vec()]), b"\x02ab\x00\x01c");
        assert_eq!(packed(&[vec![7; 254]])[..2], [254, 7]);
        assert_eq!(packed(&[vec![7; 255]])[..4], [255, 0, 0, 7]);
        assert_eq!(packed(&[vec![7; 65_536]])[..4], [255, 0x01, 0xff, 7]);
        assert_eq!(packed(&[vec![7; LEN_MAX]])[..4], [255, 0xff, 0xff, 7]);
    }

    #[test]
    #[should_panic(expected = "at most 65790 bytes")]
    fn pushing_a_too_long_value_panics() {
        push(&mut Vec::new(), &vec![0; LEN_MAX + 1]);
    }

    #[test]
    fn iteration_ends_after_an_error() {
        let seen: Vec<_> = values(b"\x01a\x02b").collect();
        assert_eq!(seen, [Ok(&b"a"[..]), Err(Truncated)]);
    }

    fn value() -> impl Strategy<Value = Vec<u8>> {
        let len = prop_oneof![0usize..40, 250usize..260, Just(65_536), 0usize..=LEN_MAX];
        (len, any::<u8>()).prop_map(|(len, byte)| vec![byte; len])
    }

    proptest! {
        #[test]
        fn values_round_trip(input in proptest::collection::vec(value(), 0..8)) {
            let bytes = packed(&input);
            prop_assert_eq!(bytes.len(), input.iter().map(|value| encoded_len(value.len())).sum::<usize>());
            let seen: Result<Vec<_>, _> = values(&bytes).map(|value| value.map(<[u8]>::to_vec)).collect();
            prop_assert_eq!(seen, Ok(input));
        }
    }
}
