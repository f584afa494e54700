//! The data that agents exchange in a fence or an allgather: one block per node, forwarded without parsing its bytes.
//!
//! ```text
//! +--------------------------+-------------+-------+   varint: seven bits per byte, the lowest first, the high bit
//! | node << 1 | compressed   | len         | bytes |   set in all but the last byte (LEB128); the blocks of several
//! | varint, 1 to 5 bytes     | varint, 1-5 |       |   nodes are joined by concatenation, in any order
//! +--------------------------+-------------+-------+
//! ```
//!
//! `bytes` are packed pairs ([`crate::blob`]) for a fence and values in local-rank order ([`crate::values`]) for an
//! allgather, either plain or compressed ([`crate::packed`]). Code that joins, counts or splits blocks reads only their
//! headers.
//!
//! Cost: 2 to 6 bytes per node for up to 8,192 nodes with up to 268 million bytes each; 4 for a node with 16 values of
//! 18 bytes, a quarter of a byte per value.

use alloc::vec;
use alloc::vec::Vec;
use bytes::Bytes;

use crate::ids::NodeId;
use crate::packed;
pub use crate::packed::Truncated;
use crate::rope::Rope;
use crate::varint;

/// One node's part of an exchange.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Block {
    pub node: NodeId,
    pub compressed: bool,
    pub bytes: Bytes,
}

impl Block {
    /// The node's data, uncompressed.
    ///
    /// # Errors
    /// [`Truncated`]: the data is marked as compressed, but is not valid compressed data.
    pub fn into_plain(self) -> Result<Bytes, Truncated> {
        if self.compressed { packed::unpack(&self.bytes) } else { Ok(self.bytes) }
    }

    /// The length of the node's data, uncompressed.
    ///
    /// # Errors
    /// The errors of [`Block::into_plain`].
    pub fn plain_len(&self) -> Result<usize, Truncated> {
        if self.compressed { packed::unpacked_len(&self.bytes) } else { Ok(self.bytes.len()) }
    }

    pub fn encode(&self) -> Bytes {
        let mut out = Vec::with_capacity(encoded_len(self.node, self.bytes.len()));
        push(&mut out, self.node, self.compressed, &self.bytes);
        out.into()
    }
}

/// Encoded length of the block of `node` with `len` bytes, header included.
pub fn encoded_len(node: NodeId, len: usize) -> usize {
    varint::len(u64::from(node.0) << 1) + varint::len(len as u64) + len
}

/// Appends one block.
///
/// # Panics
/// If `bytes` is longer than a `u32` can represent; a frame holds far less.
pub fn push(out: &mut Vec<u8>, node: NodeId, compressed: bool, bytes: &[u8]) {
    assert!(u32::try_from(bytes.len()).is_ok(), "a block is shorter than 4 GiB");
    out.reserve(encoded_len(node, bytes.len()));
    varint::push(out, u64::from(node.0) << 1 | u64::from(compressed));
    varint::push(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// The blocks in `bytes`, each a slice of it; stops after an error.
pub fn blocks(bytes: Bytes) -> Blocks {
    Blocks { rest: bytes }
}

/// An iterator over blocks, returned by [`blocks`].
#[derive(Clone, Debug)]
pub struct Blocks {
    rest: Bytes,
}

impl Iterator for Blocks {
    type Item = Result<Block, Truncated>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        Some(match header(&self.rest) {
            Ok(header) => {
                let mut block = self.rest.split_to(header.end);
                Ok(Block { node: header.node, compressed: header.compressed, bytes: block.split_off(header.start) })
            }
            Err(truncated) => {
                self.rest.clear();
                Err(truncated)
            }
        })
    }
}

/// The total uncompressed length of the data of all blocks in `bytes`.
///
/// # Errors
/// [`Truncated`]: the bytes are not blocks.
pub fn plain_len(bytes: &Bytes) -> Result<usize, Truncated> {
    blocks(bytes.clone()).map(|block| block?.plain_len()).sum()
}

/// The data of all blocks in `bytes`, uncompressed and concatenated without headers; at most `max` bytes.
///
/// # Errors
/// [`Truncated`]: the bytes are not blocks, or their data has more than `max` bytes.
pub fn plain(bytes: Bytes, max: usize) -> Result<Bytes, Truncated> {
    let len = plain_len(&bytes)?;
    if len > max {
        return Err(Truncated);
    }
    let (mut out, mut at) = (vec![0; len], 0);
    for block in blocks(bytes) {
        let block = block?;
        let to = &mut out[at..at + block.plain_len()?];
        at += to.len();
        match block.compressed {
            true => packed::unpack_into(&block.bytes, to)?,
            false => to.copy_from_slice(&block.bytes),
        }
    }
    Ok(out.into())
}

/// The number of blocks in `bytes`; each slice contains whole blocks.
///
/// # Errors
/// [`Truncated`]: a slice ends inside a block.
pub fn count(bytes: &Rope) -> Result<usize, Truncated> {
    ends(bytes).try_fold(0, |count, end| end.map(|_| count + 1))
}

/// The first `blocks` blocks of `bytes`, without copying.
///
/// # Errors
/// [`Truncated`]: there are fewer blocks, or a slice ends inside a block.
pub fn first(bytes: &Rope, blocks: usize) -> Result<Rope, Truncated> {
    match blocks.checked_sub(1) {
        None => Ok(Rope::default()),
        Some(last) => ends(bytes).nth(last).ok_or(Truncated)?.map(|len| bytes.prefix(len)),
    }
}

/// Whether `bytes` is only a header: the block of a node without data.
pub fn is_bare(bytes: &[u8]) -> bool {
    header(bytes).is_ok_and(|header| header.start == bytes.len())
}

/// The end of each block, as an offset from the start of the first one.
fn ends(bytes: &Rope) -> impl Iterator<Item = Result<usize, Truncated>> {
    let mut end = 0;
    bytes.slices().flat_map(|slice| lens(slice)).map(move |len| {
        end += len?;
        Ok(end)
    })
}

/// The encoded length of each block of `bytes`; stops after an error.
fn lens(mut rest: &[u8]) -> impl Iterator<Item = Result<usize, Truncated>> {
    core::iter::from_fn(move || {
        let len = (!rest.is_empty()).then(|| header(rest).map(|header| header.end))?;
        rest = len.map_or(&[], |len| &rest[len..]);
        Some(len)
    })
}

/// The header of the block at the start of some bytes; the block's data is `start..end`, which lies within them.
struct Header {
    node: NodeId,
    compressed: bool,
    start: usize,
    end: usize,
}

fn header(bytes: &[u8]) -> Result<Header, Truncated> {
    let (node, node_len) = varint::read(bytes)?;
    let (len, len_len) = varint::read(&bytes[node_len..])?;
    let start = node_len + len_len;
    let len = usize::try_from(len).map_err(|_| Truncated)?;
    let end = start.checked_add(len).filter(|&end| end <= bytes.len()).ok_or(Truncated)?;
    let compressed = node & 1 == 1;
    let node = NodeId(u32::try_from(node >> 1).map_err(|_| Truncated)?);
    Ok(Header { node, compressed, start, end })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(bytes: &[u8]) -> Result<Vec<Block>, Truncated> {
        blocks(Bytes::copy_from_slice(bytes)).collect()
    }

    fn joined(blocks: &[Block]) -> Vec<u8> {
        let mut out = Vec::new();
        for block in blocks {
            push(&mut out, block.node, block.compressed, &block.bytes);
        }
        out
    }

    #[test]
    fn the_byte_layout_matches_the_documentation() {
        let of = |node, compressed, bytes: &'static [u8]| Block {
            node: NodeId(node),
            compressed,
            bytes: Bytes::from_static(bytes),
        };
        assert_eq!(joined(&[of(3, false, b"ab"), of(3, true, b"")]), [6, 2, b'a', b'b', 7, 0]);
        assert_eq!(joined(&[of(64, false, b"")]), [0x80, 1, 0]);
        assert_eq!(joined(&[of(u32::MAX, true, b"")]), [0xff, 0xff, 0xff, 0xff, 0x1f, 0]);
        assert_eq!(joined(&[of(0, false, &[9; 200])])[..4], [0, 0xc8, 1, 9]);
    }

    #[test]
    fn a_single_empty_block_is_bare() {
        assert!(is_bare(&[6, 0]) && is_bare(&[0x80, 1, 0]));
        assert!(!is_bare(&[6, 1, b'a']) && !is_bare(&[6, 0, 8, 0]) && !is_bare(&[6, 1]));
    }

    #[test]
    fn a_decoded_block_is_a_slice_of_the_received_bytes() {
        let bytes = Block { node: NodeId(1), compressed: false, bytes: Bytes::from_static(b"pairs") }.encode();
        let block = blocks(bytes.clone()).next().unwrap().unwrap();
        assert!(bytes.as_ptr_range().contains(&block.bytes.as_ptr()));
    }

    #[test]
    fn plain_joins_the_uncompressed_bytes_of_all_blocks() {
        let long: Vec<u8> = b"card ".repeat(100);
        let short = packed::pack(&long).expect("repeated bytes compress well");
        let (mut bytes, mut all) = (Vec::new(), Vec::new());
        for (node, compressed, sent, given) in
            [(7, false, &b"ab"[..], &b"ab"[..]), (1, true, &short[..], &long[..]), (2, false, b"", b"")]
        {
            push(&mut bytes, NodeId(node), compressed, sent);
            all.extend_from_slice(given);
        }
        let bytes = Bytes::from(bytes);
        assert_eq!(plain_len(&bytes), Ok(502));
        assert_eq!(plain(bytes.clone(), 502), Ok(all.into()));
        assert_eq!(plain(bytes.clone(), 501), Err(Truncated), "longer than `max`");
        assert_eq!(plain(bytes.slice(..bytes.len() - 3), 502), Err(Truncated), "cut in a block");
        assert_eq!(plain(Bytes::new(), 0), Ok(Bytes::new()));
        // The header of the compressed data gives a length that is one byte too large.
        let mut liar = short.to_vec();
        liar[0] += 1;
        assert_eq!(
            plain(joined(&[Block { node: NodeId(0), compressed: true, bytes: liar.into() }]).into(), 9999),
            Err(Truncated)
        );
    }

    #[test]
    fn malformed_block_headers_are_refused() {
        assert_eq!(read(&[0x80]), Err(Truncated), "ends inside the node number");
        assert_eq!(read(&[2]), Err(Truncated), "ends before the length");
        assert_eq!(read(&[2, 3, 1, 1]), Err(Truncated), "ends inside the data");
        assert_eq!(read(&[0x80, 0x80, 0x80, 0x80, 0x80, 0, 0]), Err(Truncated), "a varint of six bytes");
        assert_eq!(read(&[0xff, 0xff, 0xff, 0xff, 0x20, 0]), Err(Truncated), "a node beyond 32 bits");
        assert_eq!(read(&[0, 0xff, 0xff, 0xff, 0xff, 0x7f]), Err(Truncated), "the length exceeds the data");
        let seen: Vec<_> = blocks(Bytes::from_static(&[2, 0, 2, 9])).collect();
        assert_eq!(seen.len(), 2, "the iterator stops after the error");
    }

    fn block() -> impl Strategy<Value = Block> {
        let node = prop_oneof![0u32..200, any::<u32>()];
        let len = prop_oneof![Just(0usize), 1usize..300, Just(70_000)];
        (node, any::<bool>(), len, any::<u8>()).prop_map(|(node, compressed, len, byte)| Block {
            node: NodeId(node),
            compressed,
            bytes: vec![byte; len].into(),
        })
    }

    proptest! {
        #[test]
        fn joined_bytes_hold_all_blocks(input in proptest::collection::vec(block(), 0..12), cut in 0usize..12) {
            let cut = cut.min(input.len());
            let mut bytes = joined(&input[..cut]);
            bytes.extend(joined(&input[cut..]));
            let len =
                |blocks: &[Block]| blocks.iter().map(|block| encoded_len(block.node, block.bytes.len())).sum::<usize>();
            prop_assert_eq!(bytes.len(), len(&input));
            prop_assert_eq!(read(&bytes), Ok(input.clone()));
            let bytes = Bytes::from(bytes);
            let middle = len(&input[..cut]);
            let halves = [bytes.slice(..middle).into(), bytes.slice(middle..).into()];
            for rope in [bytes.clone().into(), Rope::join(halves)] {
                prop_assert_eq!(count(&rope), Ok(input.len()));
                prop_assert_eq!(first(&rope, cut).map(Rope::into_bytes), Ok(bytes.slice(..middle)));
                prop_assert_eq!(first(&rope, input.len() + 1), Err(Truncated));
            }
        }
    }
}
