//! The key-value space of one job on one node.
//!
//! Puts are packed as they arrive ([`wireup_wire::blob`]) and are sent with the next fence. The pairs that fences
//! return are collected; at the first get after that, or when a client requests the index, they become one indexed
//! *segment* ([`wireup_wire::shared::segment`]). Text clients are answered from it; our own clients get memory with
//! exactly the same bytes and read them themselves. Look-ups go from the newest segment to the oldest.
//!
//! Segments are merged so that each is more than twice as large as the next: a new segment absorbs the previous ones
//! for which this does not hold. A merge drops pairs that were overwritten, so that rounds with the same keys do not
//! use more and more memory. So there are at most 31 segments, a pair is copied at most once per doubling of the total
//! size, and a client that maps new segments fetches little.
//!
//! Each fence that returned pairs has a number, its *version*; a segment is identified by the version where it ends,
//! since it starts where the previous one ends.
//!
//! Cost per pair: key, value and 3 bytes until it is indexed, then 5.33 bytes more, once per node, and the same in
//! shared memory if one of our own clients requests it. Both copies exist while a segment is built; pairs that are
//! never requested are indexed when they exceed [`COLLECTED_BYTES_MAX`].
//!
//! The barrier of a group also publishes puts, but only to the group, and the next fence publishes them again: puts are
//! kept until a fence takes them, and each group has a [`Mark`] up to which it has seen them.
//!
//! Text is stored as PMI-2 writes it, with each `;` doubled; clients of one dialect may read what clients of the other
//! have written. A line break cannot be in a message of PMI-1.

use super::arena::Shares;
use crate::memory::{Content, ShareId};
use bytes::Bytes;
use std::collections::BTreeMap;
use wireup_wire::blob::{self, Pair};
use wireup_wire::limits::KVS_BYTES_MAX;
use wireup_wire::pmi::escape::{doubled, halve};
use wireup_wire::pmi::{Dialect, Reply};
use wireup_wire::shared::segment::{self, Layout, Segment};

/// The pairs of a fence are copied when they are committed if they are fewer bytes than this in total, or fewer per
/// node: otherwise the bookkeeping of a slice would exceed a tenth of its bytes.
const COPIED_BYTES_MAX: usize = 16 << 10;
const COPIED_PART_BYTES_MAX: usize = 512;
/// Size (bytes) from which on overwritten puts are dropped whenever the pairs that wait for a fence have doubled:
/// programs that only use groups never have a fence. Chosen: small compared with an agent's own 3 MiB.
const PENDING_KEPT_BYTES: usize = 256 << 10;
/// Bytes of pairs that fences may leave unindexed, unless the segments are larger: a job that only enters fences
/// overwrites its own pairs, which only indexing drops. Chosen: only a few megabytes, but a thousand ranks can enter
/// many fences before an index is built.
const COLLECTED_BYTES_MAX: usize = 4 << 20;

pub struct Kvs {
    /// Pairs put since the last fence, packed: each put is added by [`blob::push`].
    pub pending: Vec<u8>,
    /// Identifies the content of `pending`: marks of other generations are invalid.
    generation: u64,
    /// Size of `pending` (bytes) just after overwritten puts were last dropped.
    kept_bytes: usize,
    /// Pairs from fences since the last segment was built.
    collected: Vec<Bytes>,
    collected_bytes: usize,
    /// Segments, oldest first.
    segments: Vec<Indexed>,
    /// Memory of segments that were merged into others: it is no longer used.
    pub merged: Vec<ShareId>,
    /// The number of fences that have returned pairs.
    pub version: u32,
    /// The memory that fences' pairs have taken so far.
    pub memory: PairMemory,
    bytes_max: usize,
}

/// The memory that pairs of fences and their indexes take on this node, for the simulator's costs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PairMemory {
    /// Bytes that were written so far: pairs are copied when they are committed, indexed, and merged.
    pub written_bytes: u64,
    /// Most bytes that were in use at once.
    pub peak_bytes: u64,
}

impl Default for Kvs {
    fn default() -> Self {
        Kvs {
            pending: Vec::new(),
            generation: 0,
            kept_bytes: 0,
            collected: Vec::new(),
            collected_bytes: 0,
            segments: Vec::new(),
            merged: Vec::new(),
            version: 0,
            memory: PairMemory::default(),
            bytes_max: KVS_BYTES_MAX,
        }
    }
}

struct Indexed {
    /// The last version that the segment contains.
    end: u32,
    /// Length of the segment's pairs (bytes), packed.
    blob_len: usize,
    bytes: Bytes,
    /// Memory with the segment's bytes, once a client has requested it.
    share: Option<ShareId>,
}

/// The segments that a client must map to have all pairs of the agent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mapping {
    /// Number of segments that the client keeps: its oldest ones.
    pub keep: u32,
    /// The segments that the client must map after the kept ones, with the versions where they end.
    pub fresh: Vec<(u32, ShareId)>,
}

/// How many of the pairs that wait for a fence were already sent to a group.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Mark {
    generation: u64,
    at: usize,
}

/// The pairs exceed what an agent stores of one job.
fn full() -> String {
    format!("the pairs of the job exceed {} MiB on each node; put less, or the same keys again", KVS_BYTES_MAX >> 20)
}

impl Kvs {
    /// A kvs that contains these pairs from the beginning.
    pub fn with<'a>(pairs: impl Iterator<Item = &'a (Bytes, Bytes)>) -> Kvs {
        let (mut kvs, mut blob) = (Kvs::default(), Vec::new());
        pairs.for_each(|(key, value)| blob::push(&mut blob, key, value));
        if !blob.is_empty() {
            kvs.collected_bytes = blob.len();
            kvs.collected.push(blob.into());
            kvs.version = 1;
        }
        kvs
    }

    /// Removes and returns the pairs that were put since the last call.
    pub fn take_pending(&mut self) -> Bytes {
        self.generation += 1;
        self.kept_bytes = 0;
        Bytes::from(std::mem::take(&mut self.pending))
    }

    /// A copy of the pairs put since `mark`, which is advanced. The next fence publishes these pairs as well.
    pub fn pending_since(&mut self, mark: &mut Mark) -> Bytes {
        if self.pending.len() > 2 * self.kept_bytes.max(PENDING_KEPT_BYTES) {
            self.drop_overwritten();
        }
        let from = if mark.generation == self.generation { mark.at } else { 0 };
        *mark = Mark { generation: self.generation, at: self.pending.len() };
        Bytes::copy_from_slice(&self.pending[from..])
    }

    /// Keeps only the last put of each key.
    fn drop_overwritten(&mut self) {
        let (mut puts, mut at, mut kept) = (BTreeMap::new(), 0, Vec::new());
        while let Ok(Some((pair, next))) = blob::pair_at(&self.pending, at) {
            puts.insert(pair.key, pair.value);
            at = next;
        }
        puts.into_iter().for_each(|(key, value)| blob::push(&mut kept, key, value));
        self.pending = kept;
        self.kept_bytes = self.pending.len();
        self.generation += 1;
    }

    /// Adds the pairs from a fence, in the order in which they were put; they are parsed only when a pair is requested.
    ///
    /// # Errors
    /// There are too many pairs, or the previous pairs cannot be indexed.
    pub fn commit(&mut self, mut parts: Vec<Bytes>) -> Result<(), String> {
        parts.retain(|part| !part.is_empty());
        let len: usize = parts.iter().map(Bytes::len).sum();
        if len == 0 {
            return Ok(());
        }
        let (indexed_bytes, collected_bytes) = (self.indexed_bytes(), self.collected_bytes + len);
        if indexed_bytes + collected_bytes > self.bytes_max {
            // Overwritten pairs do not count towards the limit: building the index drops them.
            self.index()?;
            if self.indexed_bytes() + len > self.bytes_max {
                return Err(full());
            }
        } else if collected_bytes > indexed_bytes.max(COLLECTED_BYTES_MAX) {
            self.index()?;
        }
        self.collected_bytes += len;
        let is_copied = len < COPIED_BYTES_MAX || len < parts.len() * COPIED_PART_BYTES_MAX;
        if is_copied {
            // A slice of a large read would keep the whole read in memory.
            self.collected.push(parts.concat().into());
        } else {
            self.collected.append(&mut parts);
        }
        self.count_memory(if is_copied { len } else { 0 }, 0);
        self.version += 1;
        Ok(())
    }

    /// Counts bytes that were written. `more_bytes`: bytes in use now besides the collected pairs and the segments.
    fn count_memory(&mut self, written_bytes: usize, more_bytes: usize) {
        let segments_bytes: usize = self.segments.iter().map(|segment| segment.bytes.len()).sum();
        let used_bytes = self.collected_bytes + segments_bytes + more_bytes;
        self.memory.written_bytes += written_bytes as u64;
        self.memory.peak_bytes = self.memory.peak_bytes.max(used_bytes as u64);
    }

    fn indexed_bytes(&self) -> usize {
        self.segments.iter().map(|segment| segment.blob_len).sum()
    }

    /// The value most recently published for this key.
    ///
    /// # Errors
    /// The fences' pairs cannot be indexed.
    pub fn get(&mut self, key: &[u8]) -> Result<Option<&[u8]>, String> {
        self.index()?;
        Ok(self.segments.iter().rev().find_map(|segment| segment.read().get(key)))
    }

    /// The pair with this number or, if there is none, the first one after it, and the next number; `None` after the
    /// last pair. Between two fences, starting at 0 and continuing with the next number visits each pair once.
    ///
    /// # Errors
    /// The fences' pairs cannot be indexed.
    pub fn at(&mut self, number: u32) -> Result<Option<(Pair<'_>, u32)>, String> {
        self.index()?;
        // Numbers are slots, starting with those of the oldest segment.
        let mut before = 0;
        for (place, segment) in self.segments.iter().enumerate() {
            let (segment, newer) = (segment.read(), &self.segments[place + 1..]);
            let mut slot = number.saturating_sub(before);
            while let Some((found, pair)) = segment.pair_from(slot) {
                slot = found + 1;
                if newer.iter().all(|newer| newer.read().get(pair.key).is_none()) {
                    return Ok(Some((pair, before + slot)));
                }
            }
            before += segment.slot_count();
        }
        Ok(None)
    }

    /// The segments that a client must map if its own segments end at the versions `have`, oldest first.
    ///
    /// # Errors
    /// The fences' pairs cannot be indexed.
    pub fn map(&mut self, have: &[u32], shares: &mut Shares) -> Result<Mapping, String> {
        self.index()?;
        let keep = self.segments.iter().zip(have).take_while(|(segment, end)| segment.end == **end).count();
        let fresh = self.segments[keep..].iter_mut().map(|segment| (segment.end, segment.share(shares))).collect();
        Ok(Mapping { keep: keep as u32, fresh })
    }

    /// Builds a segment from the collected pairs.
    fn index(&mut self) -> Result<(), String> {
        if self.collected.is_empty() {
            return Ok(());
        }
        let blobs = || self.collected.iter().map(|blob| &blob[..]);
        let layout = Layout::of_packed(blobs()).map_err(|error| error.to_string())?;
        let kept = self.segments.len() - self.small_before(layout.blob_len());
        let merged = &self.segments[kept..];
        let mut bytes = vec![0; layout.total_len()];
        let (newest, mut built_bytes) = (bytes.as_ptr(), bytes.len());
        let keys = layout.build_packed(&mut bytes, blobs());
        let (layout, bytes) = if merged.is_empty() && self.collected.len() == 1 {
            (layout, bytes)
        } else {
            // The merge drops the pairs that were overwritten.
            let older: Vec<Segment<'_>> = merged.iter().map(Indexed::read).collect();
            let (layout, bytes) = segment::merge(&older, (layout, bytes, keys)).map_err(|error| error.to_string())?;
            // Without older pairs that are still valid the newest segment is the result.
            built_bytes += if bytes.as_ptr() == newest { 0 } else { bytes.len() };
            (layout, bytes)
        };
        self.count_memory(built_bytes, built_bytes);
        self.merged.extend(self.segments.drain(kept..).filter_map(|segment| segment.share));
        let (end, blob_len) = (self.version, layout.blob_len());
        self.segments.push(Indexed { end, blob_len, bytes: bytes.into(), share: None });
        self.collected.clear();
        self.collected_bytes = 0;
        Ok(())
    }

    /// The number of newest segments that are not more than twice as large as everything after them.
    fn small_before(&self, blob_len: usize) -> usize {
        let mut following = blob_len;
        let is_small = |segment: &&Indexed| {
            let small = segment.blob_len <= following * 2;
            following += segment.blob_len;
            small
        };
        self.segments.iter().rev().take_while(is_small).count()
    }
}

impl Indexed {
    fn read(&self) -> Segment<'_> {
        Segment::read(&self.bytes).expect("a segment that was built here is valid")
    }

    /// Memory with the segment's bytes, created once.
    fn share(&mut self, shares: &mut Shares) -> ShareId {
        *self.share.get_or_insert_with(|| shares.make(Content::Bytes(self.bytes.clone())))
    }
}

/// Text of a client as it is stored.
pub fn stored<'a>(dialect: Dialect, text: &'a [u8], room: &'a mut Vec<u8>) -> &'a [u8] {
    match dialect {
        Dialect::Pmi1 => doubled(text, room),
        Dialect::Pmi2 => text,
    }
}

/// Stored text for a client; `None`: it has a line break, and the client speaks PMI-1.
pub fn shown<'a>(dialect: Dialect, text: &'a [u8], room: &'a mut Vec<u8>) -> Option<&'a [u8]> {
    match dialect {
        Dialect::Pmi1 => Some(halve(text, room)).filter(|text| !text.contains(&b'\n')),
        Dialect::Pmi2 => Some(text),
    }
}

/// The answer instead of text that the client's dialect cannot express.
pub const UNSPEAKABLE: Reply<'static> =
    Reply::Failed { message: "the_value_has_a_line_break_which_PMI-1_cannot_carry" };

#[cfg(test)]
mod tests;
