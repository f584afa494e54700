//! The packed puts of a fence: concatenated pairs, forwarded without parsing.
//!
//! ```text
//! +---------+-----------+-----+-------+   key and value of up to 255 and 65,535 bytes; the blobs of several
//! | key_len | value_len | key | value |   nodes are joined by concatenation
//! | u8      | u16 LE    |     |       |
//! +---------+-----------+-----+-------+
//! ```
//!
//! Cost: 3 bytes per pair.

use alloc::vec::Vec;
use thiserror::Error;

/// Bytes of a pair besides its key and value.
pub const PAIR_OVERHEAD: usize = 3;

/// A blob ends inside a pair, or a pair is longer than its length fields allow.
#[derive(Error, Clone, Copy, PartialEq, Eq, Debug)]
#[error("packed pairs are cut short")]
pub struct Truncated;

/// Appends one pair.
///
/// # Panics
/// If key or value are longer than the format allows; `limits` keeps clients far below that.
pub fn push(blob: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    let key_len = u8::try_from(key.len()).expect("keys are at most 255 bytes");
    let value_len = u16::try_from(value.len()).expect("values are at most 65,535 bytes");
    blob.reserve(PAIR_OVERHEAD + key.len() + value.len());
    blob.push(key_len);
    blob.extend_from_slice(&value_len.to_le_bytes());
    blob.extend_from_slice(key);
    blob.extend_from_slice(value);
}

/// The pair at `offset`, and the offset of the next one; `None` at the end.
pub fn pair_at(blob: &[u8], offset: usize) -> Result<Option<(Pair<'_>, usize)>, Truncated> {
    let Some(rest) = blob.get(offset..).filter(|rest| !rest.is_empty()) else {
        return Ok(None);
    };
    let [key_len, value_lo, value_hi, body @ ..] = rest else {
        return Err(Truncated);
    };
    let key_len = *key_len as usize;
    let value_len = u16::from_le_bytes([*value_lo, *value_hi]) as usize;
    let pair = body.get(..key_len + value_len).ok_or(Truncated)?;
    let (key, value) = pair.split_at(key_len);
    Ok(Some((Pair { key, value }, offset + PAIR_OVERHEAD + key_len + value_len)))
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pair<'a> {
    pub key: &'a [u8],
    pub value: &'a [u8],
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

    fn pairs(blob: &[u8]) -> Result<Pairs, Truncated> {
        let (mut offset, mut seen) = (0, Vec::new());
        while let Some((pair, next)) = pair_at(blob, offset)? {
            seen.push((pair.key.to_vec(), pair.value.to_vec()));
            offset = next;
        }
        Ok(seen)
    }

    proptest! {
        #[test]
        fn joined_blobs_hold_all_pairs(
            input in proptest::collection::vec(
                (proptest::collection::vec(any::<u8>(), 0..64), proptest::collection::vec(any::<u8>(), 0..100)),
                0..20,
            ),
            cut in 0usize..20,
        ) {
            let cut = cut.min(input.len());
            let (mut left, mut right) = (Vec::new(), Vec::new());
            for (key, value) in &input[..cut] {
                push(&mut left, key, value);
            }
            for (key, value) in &input[cut..] {
                push(&mut right, key, value);
            }
            left.extend_from_slice(&right);
            prop_assert_eq!(pairs(&left), Ok(input));
        }
    }
}
