//! A file with packed clusters: a header, then eight bytes for each block of its content. A cluster's first block has the place of what is stored,
//! its second one how many blocks that takes; each of the others has its distance from the first and to the end. Blocks of a plain cluster
//! have places of their own.

use super::put;
use crate::stream::{CLUSTER_LEN, blocks};

const HEAD_LEN: usize = 16;
const INDEX_LEN: usize = 8;
/// Clusters of several blocks; plain blocks as they are.
const ADVICE: u16 = 0x2 | 0x10;
/// Kinds of blocks: the first of a packed cluster, another one; plain ones are 0.
const FIRST: u16 = 1;
const OTHER: u16 = 2;
/// In place of the distance to the first block, which is 1: the blocks that are stored.
const COUNT: u16 = 1 << 11;

/// Bytes behind the inode of a file of this length.
pub(super) fn packed_len(len: u64) -> usize {
    HEAD_LEN + INDEX_LEN * blocks(len) as usize
}

/// Writes what belongs behind the inode; how many blocks are stored. `None`: a content of this length has not these clusters.
pub(super) fn write_packed(out: &mut [u8], start: u32, len: u64, clusters: &[u8]) -> Option<u32> {
    put(out, 4, &ADVICE.to_le_bytes());
    if clusters.len() as u64 != len.div_ceil(CLUSTER_LEN as u64) {
        return None;
    }
    let mut at = start;
    let mut indexes = out[HEAD_LEN..packed_len(len)].chunks_exact_mut(INDEX_LEN);
    for (number, stored) in (0..).zip(clusters) {
        let count = blocks((len - number * CLUSTER_LEN as u64).min(CLUSTER_LEN as u64)) as u16;
        let stored = u16::from(*stored);
        let is_plain = stored == count;
        if stored == 0 || stored > count {
            return None;
        }
        for (block, index) in (0..count).zip(&mut indexes) {
            match block {
                _ if is_plain => put(index, 4, &(at + u32::from(block)).to_le_bytes()),
                0 => {
                    put(index, 0, &FIRST.to_le_bytes());
                    put(index, 4, &at.to_le_bytes());
                }
                _ => {
                    let back = if block == 1 { COUNT | stored } else { block };
                    put(index, 0, &OTHER.to_le_bytes());
                    put(index, 4, &back.to_le_bytes());
                    put(index, 6, &(count - block).to_le_bytes());
                }
            }
        }
        at = at.checked_add(stored.into())?;
    }
    Some(at - start)
}
