//! The key-value space of one job on one node.
//!
//! Puts are packed as they come ([`wireup_wire::blob`]) and leave with the next fence. What a fence brings back is
//! one immutable buffer, shared with every other holder; its pairs are indexed on the first get after it, as offsets
//! into the buffers: the index costs 4 bytes a slot and one control byte, at a load of 7/8 at most. Later pairs win
//! over earlier ones with the same key.

use bytes::Bytes;
use foldhash::fast::FixedState;
use hashbrown::HashTable;
use std::hash::BuildHasher;
use wireup_wire::blob::{self, Truncated};

/// Blobs below this are copied when they are committed.
const COPIED_BYTES_MAX: usize = 16 << 10;

#[derive(Default)]
pub struct Kvs {
    pending: Vec<u8>,
    blobs: Vec<Committed>,
    /// Bytes of all blobs; the offset of the next one.
    committed_bytes: u32,
    index: HashTable<u32>,
    indexed: usize,
}

struct Committed {
    start: u32,
    bytes: Bytes,
}

/// A commit that this node cannot hold.
#[derive(thiserror::Error, Clone, Copy, PartialEq, Eq, Debug)]
pub enum CommitError {
    #[error("the pairs of all fences together are larger than 4 GiB")]
    TooMany,
    #[error(transparent)]
    Truncated(#[from] Truncated),
}

impl Kvs {
    pub fn put(&mut self, key: &[u8], value: &[u8]) {
        blob::push(&mut self.pending, key, value);
    }

    /// Bytes put since the last fence, packed.
    pub fn pending_bytes(&self) -> usize {
        self.pending.len()
    }

    /// The pairs put since the last call.
    pub fn take_pending(&mut self) -> Bytes {
        Bytes::from(std::mem::take(&mut self.pending))
    }

    /// Adds what a fence brought. Checked here once, so that later look-ups cannot fail.
    pub fn commit(&mut self, bytes: Bytes) -> Result<(), CommitError> {
        if bytes.is_empty() {
            return Ok(());
        }
        // A slice of a large read would keep all of that read alive.
        let bytes = if bytes.len() < COPIED_BYTES_MAX { Bytes::copy_from_slice(&bytes) } else { bytes };
        let start = self.committed_bytes;
        let length = u32::try_from(bytes.len()).map_err(|_| CommitError::TooMany)?;
        self.committed_bytes = start.checked_add(length).ok_or(CommitError::TooMany)?;
        self.blobs.push(Committed { start, bytes });
        Ok(())
    }

    pub fn get(&mut self, key: &[u8]) -> Result<Option<&[u8]>, Truncated> {
        self.index_new()?;
        let Self { index, blobs, .. } = self;
        let found = index.find(hash(key), |offset| pair(blobs, *offset).0 == key);
        Ok(found.map(|offset| pair(blobs, *offset).1))
    }

    fn index_new(&mut self) -> Result<(), Truncated> {
        while self.indexed < self.blobs.len() {
            let blobs = &self.blobs;
            let blob = &blobs[self.indexed];
            let (mut offset, mut count) = (0, 0);
            while let Some((_, next)) = blob::pair_at(&blob.bytes, offset)? {
                (offset, count) = (next, count + 1);
            }
            self.index.reserve(count, |offset| hash(pair(blobs, *offset).0));
            offset = 0;
            while let Some((found, next)) = blob::pair_at(&blob.bytes, offset)? {
                let at = blob.start + offset as u32;
                let entry = self.index.entry(
                    hash(found.key),
                    |other| pair(blobs, *other).0 == found.key,
                    |other| hash(pair(blobs, *other).0),
                );
                *entry.or_insert(at).into_mut() = at;
                offset = next;
            }
            self.indexed += 1;
        }
        Ok(())
    }
}

fn hash(key: &[u8]) -> u64 {
    FixedState::default().hash_one(key)
}

/// Key and value at an offset that the index holds.
fn pair(blobs: &[Committed], offset: u32) -> (&[u8], &[u8]) {
    let at = blobs.partition_point(|blob| blob.start <= offset) - 1;
    let blob = &blobs[at];
    match blob::pair_at(&blob.bytes, (offset - blob.start) as usize) {
        Ok(Some((pair, _))) => (pair.key, pair.value),
        Ok(None) | Err(Truncated) => panic!("the index points at pairs that were read before"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn answers_as_a_map_would(rounds in proptest::collection::vec(proptest::collection::vec(("[a-f]{1,2}", "[x-z]{0,5}"), 0..20), 0..6)) {
            let (mut kvs, mut map) = (Kvs::default(), BTreeMap::new());
            for round in rounds {
                for (key, value) in round {
                    kvs.put(key.as_bytes(), value.as_bytes());
                    map.insert(key, value);
                }
                let blob = kvs.take_pending();
                kvs.commit(blob).unwrap();
                for (key, value) in &map {
                    prop_assert_eq!(kvs.get(key.as_bytes()), Ok(Some(value.as_bytes())));
                }
                prop_assert_eq!(kvs.get(b"missing"), Ok(None));
            }
        }

        #[test]
        fn a_cut_blob_is_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            let mut kvs = Kvs::default();
            kvs.commit(Bytes::from(bytes)).unwrap();
            let _ = kvs.get(b"k");
        }
    }

    #[test]
    fn a_put_is_not_seen_before_its_commit() {
        let mut kvs = Kvs::default();
        kvs.put(b"k", b"v");
        assert_eq!(kvs.get(b"k"), Ok(None));
    }
}
