//! Compression of blocks in transit, and of the bootstrap message.
//!
//! ```text
//! +-------------+---------------+
//! | len         | LZ4 block     |   len: uncompressed length (varint, 1 to 5 bytes); then LZ4's block format without a
//! +-------------+---------------+   frame
//! ```
//!
//! LZ4 rather than deflate, since every node unpacks the blocks of all nodes: it reduces a node's 64 business cards of
//! an MPI library (425 KB of hexadecimal text) to 0.35 of their size and unpacks them at 3.3 GB/s; deflate reduces them
//! to 0.28 and takes ten times as long, which costs more than it saves on a link of 10 Gbit/s. Random bytes do not
//! shrink.

use crate::limits::FRAME_PAYLOAD_MAX;
use crate::varint;
pub use crate::varint::Truncated;
use alloc::vec;
use alloc::vec::Vec;
use bytes::Bytes;

/// The largest expansion of one compressed byte.
const GROWTH_MAX: u64 = 255;

/// The compressed bytes, if that saves at least an eighth.
pub fn pack(bytes: &[u8]) -> Option<Bytes> {
    let out = compress(bytes);
    // The result is kept for a while, so it is copied into a buffer of its own size.
    (out.len() <= bytes.len() - bytes.len() / 8).then(|| Bytes::copy_from_slice(&out))
}

/// The compressed bytes, also if that saves nothing.
pub fn compress(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    varint::push(&mut out, bytes.len() as u64);
    let head = out.len();
    out.resize(head + lz4_flex::block::get_maximum_output_size(bytes.len()), 0);
    let len = lz4_flex::block::compress_into(bytes, &mut out[head..]).expect("the buffer is as long as any result");
    out.truncate(head + len);
    out
}

/// Uncompresses the bytes.
///
/// # Errors
/// [`Truncated`]: the bytes are not valid compressed data, or longer than a frame may hold.
pub fn unpack(packed: &[u8]) -> Result<Bytes, Truncated> {
    decompress(packed, FRAME_PAYLOAD_MAX).map(Bytes::from)
}

/// Like [`unpack`], but for at most `max` uncompressed bytes.
///
/// # Errors
/// [`Truncated`]: the bytes are not valid compressed data, or expand to more than `max` bytes.
pub fn decompress(packed: &[u8], max: usize) -> Result<Vec<u8>, Truncated> {
    let mut bytes = vec![0; len_within(packed, max)?];
    unpack_into(packed, &mut bytes)?;
    Ok(bytes)
}

/// The uncompressed length, checked against what the bytes could expand to.
///
/// # Errors
/// The errors of [`unpack`].
pub fn unpacked_len(packed: &[u8]) -> Result<usize, Truncated> {
    len_within(packed, FRAME_PAYLOAD_MAX)
}

fn len_within(packed: &[u8], max: usize) -> Result<usize, Truncated> {
    let (len, head) = varint::read(packed)?;
    if len > GROWTH_MAX * (packed.len() - head) as u64 || len > max as u64 {
        return Err(Truncated);
    }
    Ok(len as usize)
}

/// Uncompresses into `out`, which must have exactly the uncompressed length.
///
/// # Errors
/// [`Truncated`]: the bytes are not valid compressed data, or do not expand to exactly the length of `out`.
pub fn unpack_into(packed: &[u8], out: &mut [u8]) -> Result<(), Truncated> {
    let (_, head) = varint::read(packed)?;
    match lz4_flex::block::decompress_into(&packed[head..], out) {
        Ok(written) if written == out.len() => Ok(()),
        Ok(_) | Err(_) => Err(Truncated),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_bytes_that_shrink_are_packed() {
        let cards: Vec<u8> =
            (0..64).flat_map(|rank| std::format!("card-{rank}:20DEBCE07A4121D194[4]00").into_bytes()).collect();
        let packed = pack(&cards).expect("similar cards compress");
        assert!(packed.len() < cards.len() / 2, "{} of {}", packed.len(), cards.len());
        assert_eq!(unpack(&packed), Ok(cards.into()));
        let mut state = 1u64;
        let random: Vec<u8> = (0..1000)
            .map(|_| {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                (state >> 56) as u8
            })
            .collect();
        assert_eq!((pack(&random), pack(b"")), (None, None));
    }

    #[test]
    fn false_uncompressed_lengths_are_refused() {
        let mut bomb = Vec::new();
        varint::push(&mut bomb, 200 << 20);
        bomb.extend([0; 1000]);
        assert_eq!(unpack(&bomb), Err(Truncated), "longer than the bytes can expand to");
        let mut bomb = Vec::new();
        varint::push(&mut bomb, FRAME_PAYLOAD_MAX as u64 + 1);
        bomb.resize(FRAME_PAYLOAD_MAX / 200, 0);
        assert_eq!(unpack(&bomb), Err(Truncated), "longer than a frame can hold");
        let packed = pack(&[7; 100]).unwrap();
        for len in [99, 101] {
            let mut other = Vec::new();
            varint::push(&mut other, len);
            other.extend_from_slice(&packed[1..]);
            assert_eq!(unpack(&other), Err(Truncated), "a length of {len} instead of 100");
        }
        assert_eq!(unpack(&packed[..packed.len() - 1]), Err(Truncated));
    }

    proptest! {
        #[test]
        fn packed_bytes_round_trip(bytes in proptest::collection::vec(0u8..4, 0..2000)) {
            if let Some(packed) = pack(&bytes) {
                prop_assert!(packed.len() <= bytes.len() - bytes.len() / 8);
                prop_assert_eq!(unpack(&packed), Ok(bytes.into()));
            }
        }
    }
}
