//! Numbers of one to five bytes: seven bits per byte, the lowest first, the high bit set in all but the last byte
//! (LEB128).

use alloc::vec::Vec;
use thiserror::Error;

/// Longest varint (bytes): 33 bits for node and flag, 32 bits for a length.
const VARINT_LEN_MAX: usize = 5;

/// The bytes end inside a block, its header has numbers out of range, or what is marked as compressed is not.
#[derive(Error, Clone, Copy, PartialEq, Eq, Debug)]
#[error("the blocks of an exchange are cut short")]
pub struct Truncated;

pub(crate) const fn len(number: u64) -> usize {
    let bits = u64::BITS - number.leading_zeros();
    if bits == 0 { 1 } else { bits.div_ceil(7) as usize }
}

pub(crate) fn push(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// The number at the start of `bytes`, and its length.
pub(crate) fn read(bytes: &[u8]) -> Result<(u64, usize), Truncated> {
    let mut number = 0;
    for (place, byte) in bytes.iter().take(VARINT_LEN_MAX).enumerate() {
        number |= u64::from(byte & 0x7f) << (7 * place);
        if byte & 0x80 == 0 {
            return Ok((number, place + 1));
        }
    }
    Err(Truncated)
}
