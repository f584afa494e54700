//! The index of a packed file: a header, then eight bytes for each block of its content. In a packed cluster, the entry
//! of the first block says where the cluster is stored, the entry of the second one in how many blocks; from the second
//! on, entries have the distances to the first block and to the end of the cluster. In a plain cluster, each entry says
//! where its block is stored.

use crate::stream::{CLUSTER_LEN, blocks};

const HEAD_LEN: usize = 16;
const INDEX_LEN: usize = 8;
/// Packed clusters take several blocks; plain blocks are stored unchanged.
const ADVICE: u16 = 0x2 | 0x10;
/// Kinds of entries: `FIRST` for the first block of a packed cluster, `OTHER` for its other blocks. The kind of a plain
/// block is 0.
const FIRST: u16 = 1;
const OTHER: u16 = 2;
/// Marks the number of stored blocks, which the second entry has instead of its distance to the first block.
const COUNT: u16 = 1 << 11;

/// The number of bytes after the inode of a packed file of this length.
pub(super) fn packed_len(len: u64) -> usize {
    HEAD_LEN + INDEX_LEN * blocks(len) as usize
}

/// Writes the index behind the inode, and returns the number of stored blocks. `None`: these clusters do not fit a
/// content of this length.
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

pub(super) fn put(out: &mut [u8], at: usize, bytes: &[u8]) {
    out[at..at + bytes.len()].copy_from_slice(bytes);
}
