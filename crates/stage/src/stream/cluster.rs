//! Cuts contents into clusters. Each cluster is stored and sent by itself: plain, or packed by LZ4, as a file system
//! image can hold it.

use crate::set::{PIECE_LEN, Set};
use lz4_flex::block::decompress_into;
use std::ops::Range;

/// Length of a cluster (bytes): the kernel decompresses a whole cluster to read one byte of it.
pub(crate) const CLUSTER_LEN: usize = 64 << 10;
/// Size of a block (bytes): stored clusters begin at multiples of it.
pub(crate) const BLOCK: u64 = 4096;
/// Most clusters in a piece, which may have many small files.
pub(super) const CLUSTERS_MAX: usize = 1024;

pub(crate) fn blocks(len: u64) -> u64 {
    len.div_ceil(BLOCK)
}

/// A part of a content within a piece.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cluster {
    pub content: u32,
    /// The position in the content, in bytes.
    pub offset: u64,
    pub len: usize,
    /// The stored form of the cluster, as a range of bytes in the piece.
    pub stored: Range<usize>,
}

impl Cluster {
    /// Whether the content ends with this cluster.
    pub(crate) fn is_last(&self, set: &Set) -> bool {
        self.offset + self.len as u64 == set.contents()[self.content as usize].len
    }
}

/// How a cluster is stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stored {
    /// Not stored at all: the cluster contains only zeros.
    Hole,
    Plain,
    /// Compressed, in fewer blocks than the plain cluster.
    Packed,
}

impl Stored {
    /// The form of a cluster, derived from its stored bytes. `None`: no sender stores a cluster like this.
    pub fn of(len: usize, stored: &[u8]) -> Option<Stored> {
        match stored {
            [] => Some(Stored::Hole),
            _ if stored.len() == len => Some(Stored::Plain),
            // A packed cluster does not begin with 0: zeros are the padding before it.
            [1..=u8::MAX, ..] if blocks(stored.len() as u64) < blocks(len as u64) => Some(Stored::Packed),
            _ => None,
        }
    }
}

/// The content of a cluster of `len` bytes; `None`: it is damaged.
pub(crate) fn unpack<'a>(len: usize, stored: &'a [u8], buffer: &'a mut Vec<u8>) -> Option<&'a [u8]> {
    match Stored::of(len, stored)? {
        Stored::Plain => return Some(stored),
        Stored::Hole => {
            buffer.clear();
            buffer.resize(len, 0);
        }
        Stored::Packed => {
            buffer.resize(len, 0);
            decompress_into(stored, buffer).ok().filter(|count| *count == len)?;
        }
    }
    Some(buffer)
}

/// Contents one behind the other, cut into pieces of clusters. Both ends cut contents in the same way, so that the
/// receiver knows the clusters of a piece whose bytes were damaged.
#[derive(Default)]
pub(crate) struct Cut {
    /// The number of each content, and its length in bytes.
    contents: Vec<(u32, u64)>,
    /// The index in `contents` of the content with the next cluster, whose first byte is at `offset`.
    at: usize,
    offset: u64,
    /// The number of bytes that have been cut.
    done: u64,
    len: u64,
}

impl Cut {
    /// Appends a content of `len` bytes. `None`: the total length overflows.
    pub fn push(&mut self, number: u32, len: u64) -> Option<()> {
        self.len = self.len.checked_add(len)?;
        self.contents.push((number, len));
        Some(())
    }

    pub fn last(&self) -> Option<u32> {
        self.contents.last().map(|(number, _)| *number)
    }

    /// The number of bytes that have been cut.
    pub fn done(&self) -> u64 {
        self.done
    }

    pub fn left(&self) -> u64 {
        self.len - self.done
    }

    /// The clusters of the next piece; none: there is nothing left.
    pub fn next_piece(&mut self) -> Vec<Cluster> {
        let (mut clusters, mut room) = (Vec::new(), PIECE_LEN);
        while let Some((content, len)) = self.contents.get(self.at).copied() {
            let count = (len - self.offset).min(CLUSTER_LEN as u64) as usize;
            if count > room || clusters.len() == CLUSTERS_MAX {
                break;
            }
            clusters.push(Cluster { content, offset: self.offset, len: count, stored: 0..0 });
            room -= count;
            self.offset += count as u64;
            self.done += count as u64;
            if self.offset == len {
                (self.at, self.offset) = (self.at + 1, 0);
            }
        }
        clusters
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::send::{PACKED_LEN_MAX, Packer};
    use crate::testing::noise;
    use proptest::prelude::*;

    #[test]
    fn how_a_cluster_is_stored_can_be_told_by_its_length() {
        let mut packer = Packer::new();
        let noise = noise(1, CLUSTER_LEN);
        let words = b"one word after the other, ".repeat(3_000);
        for (bytes, form) in [
            (&noise[..], Stored::Plain),
            (&words[..CLUSTER_LEN], Stored::Packed),
            (&words[..5_000], Stored::Packed),
            (&words[..4_096], Stored::Plain),
            (&[0; 9_000], Stored::Hole),
            (b"\0", Stored::Hole),
        ] {
            let stored = packer.pack(bytes, PACKED_LEN_MAX);
            assert_eq!(Stored::of(bytes.len(), stored), Some(form));
            assert!(unpack(bytes.len(), stored, &mut Vec::new()) == Some(bytes));
        }
        assert!(packer.pack(&words[..5_000], PACKED_LEN_MAX + 1) == &words[..5_000]);
        for (len, stored) in [(3, &b"four"[..]), (5_000, &[1; 4_999]), (5_000, b"\0as it begins")] {
            assert_eq!(Stored::of(len, stored), None);
            assert_eq!(unpack(len, stored, &mut Vec::new()), None);
        }
        // The stored length is possible, but the bytes are not LZ4.
        assert_eq!(unpack(9_000, b"\x11no", &mut Vec::new()), None);
    }

    proptest! {
        #[test]
        fn pieces_contain_all_contents_in_order(lens in proptest::collection::vec(1u64..300_000, 0..40)) {
            let mut cut = Cut::default();
            for (number, len) in (0..).zip(&lens) {
                cut.push(number, *len).unwrap();
            }
            let mut seen = vec![0; lens.len()];
            loop {
                let piece = cut.next_piece();
                let (count, total) = (piece.len(), piece.iter().map(|cluster| cluster.len).sum::<usize>());
                prop_assert!(count <= CLUSTERS_MAX && total <= PIECE_LEN);
                for cluster in piece {
                    prop_assert_eq!(seen[cluster.content as usize], cluster.offset);
                    seen[cluster.content as usize] += cluster.len as u64;
                }
                if count == 0 {
                    break;
                }
            }
            prop_assert!(seen == lens && cut.left() == 0);
        }
    }
}
