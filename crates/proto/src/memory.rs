//! The contents of the memory that an agent shares with the ranks of its node.
//!
//! The agent only decides what is shared and with which ranks; its driver creates the memory, writes it and passes it
//! to the ranks. The formats are in `wireup_wire::shared`. Values stay slices of the received frames, so that they are
//! copied only once: into the shared memory.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::fmt;
use wireup_wire::shared::rows::{ARENA_SLOTS, Layout};

/// A piece of memory of one job on this node. Ids are not reused within the job.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct ShareId(pub u32);

#[derive(Clone, PartialEq, Eq)]
pub enum Content {
    /// Bytes that never change.
    Bytes(Bytes),
    /// Values of an allgather, which never change.
    Array(Array),
    /// Space for [`ARENA_SLOTS`] arrays of at most `slot_len` bytes, which are rewritten repeatedly.
    Slots { slot_len: usize },
}

/// The values of an allgather and their layout.
#[derive(Clone, PartialEq, Eq)]
pub struct Array {
    pub layout: Layout,
    pub values: Values,
}

/// The values of all ranks, in rank order.
#[derive(Clone, PartialEq, Eq)]
pub enum Values {
    /// The values of several ranks concatenated, as in `wireup_wire::values`.
    InOrder(Vec<Bytes>),
    ByRank(Vec<Bytes>),
}

impl Content {
    /// The memory's size in bytes.
    pub fn byte_len(&self) -> usize {
        match self {
            Content::Bytes(bytes) => bytes.len(),
            Content::Array(array) => array.byte_len(),
            Content::Slots { slot_len } => slot_len * ARENA_SLOTS as usize,
        }
    }

    /// Writes the contents; slots are left unchanged.
    ///
    /// # Panics
    /// If `out` is not [`byte_len`](Self::byte_len) bytes long.
    pub fn fill(&self, out: &mut [u8]) {
        match self {
            Content::Bytes(bytes) => out.copy_from_slice(bytes),
            Content::Array(array) => array.fill(out),
            Content::Slots { .. } => {}
        }
    }
}

impl Array {
    /// The array's size in bytes.
    pub fn byte_len(&self) -> usize {
        self.layout.total_len()
    }

    /// Writes the array.
    ///
    /// # Panics
    /// If `out` is not [`byte_len`](Self::byte_len) bytes long, or the values do not match the layout.
    pub fn fill(&self, out: &mut [u8]) {
        let mut builder = self.layout.build(out);
        match &self.values {
            Values::InOrder(parts) => parts.iter().for_each(|part| builder.place_all(part)),
            Values::ByRank(values) => values.iter().zip(0..).for_each(|(value, rank)| builder.place(rank, value)),
        }
        builder.finish();
    }
}

/// This text goes into the digest of a recording; with all bytes of the memory it would be too long.
impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Content::Bytes(bytes) => write!(f, "{} bytes", bytes.len()),
            Content::Array(array) => array.fmt(f),
            Content::Slots { slot_len } => write!(f, "slots of {slot_len} bytes"),
        }
    }
}

impl fmt::Debug for Array {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an array of {} bytes", self.byte_len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wireup_wire::values;

    fn written(content: &Content) -> Vec<u8> {
        let mut out = vec![0; content.byte_len()];
        content.fill(&mut out);
        out
    }

    #[test]
    fn an_array_is_the_same_from_whole_blocks_and_from_single_values() {
        let own: [&[u8]; 3] = [b"ab", b"", b"c"];
        let mut packed = Vec::new();
        own.iter().for_each(|value| values::push(&mut packed, value));
        for layout in [Layout::rows(3, 2), Layout::packed(3, 2, packed.len())] {
            let blocks = Bytes::copy_from_slice(&packed[..3]);
            let in_order = Values::InOrder(vec![blocks, Bytes::copy_from_slice(&packed[3..])]);
            let by_rank = Values::ByRank(own.map(Bytes::from_static).to_vec());
            let [in_order, by_rank] = [in_order, by_rank].map(|values| Content::Array(Array { layout, values }));
            assert_eq!(written(&in_order), written(&by_rank));
        }
    }

    #[test]
    fn contents_of_memory_are_shown_by_their_length() {
        let bytes = Content::Bytes(Bytes::from_static(b"abc"));
        assert_eq!((written(&bytes), format!("{bytes:?}")), (b"abc".to_vec(), "3 bytes".into()));
        let slots = Content::Slots { slot_len: 8 };
        assert_eq!((slots.byte_len(), format!("{slots:?}")), (16, "slots of 8 bytes".into()));
    }
}
