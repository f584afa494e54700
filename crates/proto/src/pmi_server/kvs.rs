//! The key-value space of one job on one node.
//!
//! Puts are packed as they come ([`wireup_wire::blob`]) and leave with the next fence. What fences bring back is
//! collected; with the first get after it, or when a client asks for the index, it becomes one indexed *segment*
//! ([`wireup_wire::shared::segment`]). Text clients are answered from it; a client of our own gets memory with the very same bytes
//! and reads them itself. Look-ups go from the newest to the oldest.
//!
//! Segments are merged so that each is more than twice as large as the next: a new one takes along those before it that
//! are not. A merge drops pairs that were overwritten, so that rounds of the same keys do not grow. So there are at most
//! 31 segments, a pair is copied at most once for each doubling of what is held, and a client that maps what is new
//! fetches as little.
//!
//! A fence that brought pairs has a number, its *version*; a segment is known by the version where it ends, since it
//! begins where the one before ends.
//!
//! Cost, a pair: key, value and 3 bytes until it is indexed, then 5.33 bytes more, once per node, and as much in shared memory
//! if a client of our own asks for it.
//! While segments are made both are held; pairs that nobody asks for are indexed when they exceed
//! [`COLLECTED_BYTES_MAX`].
//!
//! The barrier of a group publishes what was put, too, though only to the group, and a fence publishes it once more: what is put
//! stays until a fence takes it, and each group has a [`Mark`] up to which it has seen it.

use super::shares::Shares;
use crate::memory::{Content, ShareId};
use bytes::Bytes;
use std::collections::BTreeMap;
use wireup_wire::blob::{self, Pair, Truncated};
use wireup_wire::shared::segment::{Layout, Segment, TooLarge};

/// A fence that brings less is copied when it is committed, and so is one whose nodes bring less each: what a slice takes
/// besides its bytes is a tenth then.
const COPIED_BYTES_MAX: usize = 16 << 10;
const COPIED_PART_BYTES_MAX: usize = 512;
/// Puts that were overwritten since are dropped once what waits for a fence has doubled, from this on: programs that only know
/// groups never have a fence. Chosen: small beside an agent's own 3 MiB.
const PENDING_KEPT_BYTES: usize = 256 << 10;
/// What several fences may leave without an index, unless the segments are larger still: a job that only ever fences
/// overwrites its own pairs. Chosen: few megabytes, and yet a thousand ranks may do so many times before it costs an index.
const COLLECTED_BYTES_MAX: usize = 4 << 20;

#[derive(Default)]
pub struct Kvs {
    pending: Vec<u8>,
    /// Tells what was pending at one time from what was at another: marks of before mean nothing.
    generation: u64,
    /// Bytes of what is pending after overwritten puts were dropped.
    kept_bytes: usize,
    /// What fences brought since the last segment was made.
    collected: Vec<Bytes>,
    collected_bytes: usize,
    /// Oldest first.
    segments: Vec<Indexed>,
    /// Memory of segments that were merged.
    merged: Vec<ShareId>,
    version: u32,
}

struct Indexed {
    /// The last version that is in it.
    end: u32,
    /// Of its pairs, packed.
    blob_len: usize,
    bytes: Bytes,
    /// Memory with the same bytes, once a client has asked for it.
    share: Option<ShareId>,
}

/// What a client must do to have what the agent has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mapping {
    /// It keeps so many of its segments, the oldest.
    pub keep: u32,
    /// Those that come after them, with the versions where they end.
    pub fresh: Vec<(u32, ShareId)>,
}

/// Up to where a group has seen what waits for a fence.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Mark {
    generation: u64,
    at: usize,
}

/// Pairs that this node cannot hold or read.
#[derive(thiserror::Error, Clone, PartialEq, Eq, Debug)]
pub enum KvsError {
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
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
        self.generation += 1;
        self.kept_bytes = 0;
        Bytes::from(std::mem::take(&mut self.pending))
    }

    /// A copy of the pairs put since `mark`, which moves on. The next fence takes them all the same.
    pub fn pending_since(&mut self, mark: &mut Mark) -> Bytes {
        if self.pending.len() > 2 * self.kept_bytes.max(PENDING_KEPT_BYTES) {
            self.drop_overwritten();
        }
        let from = if mark.generation == self.generation { mark.at } else { 0 };
        *mark = Mark { generation: self.generation, at: self.pending.len() };
        Bytes::copy_from_slice(&self.pending[from..])
    }

    /// Of several puts of one key the last one stays.
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

    /// Memory that is of no more use, since its segments were merged.
    pub fn take_merged(&mut self) -> impl Iterator<Item = ShareId> {
        self.merged.drain(..)
    }

    /// How many fences have brought pairs.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// Adds what a fence brought, in the order in which it was put; it is looked at when somebody asks for it.
    ///
    /// # Errors
    /// It is too much, or what came before cannot be indexed.
    pub fn commit(&mut self, mut parts: Vec<Bytes>) -> Result<(), KvsError> {
        parts.retain(|part| !part.is_empty());
        let len: usize = parts.iter().map(Bytes::len).sum();
        if len == 0 {
            return Ok(());
        }
        let indexed_bytes: usize = self.segments.iter().map(|segment| segment.blob_len).sum();
        let collected_bytes = self.collected_bytes + len;
        if indexed_bytes + collected_bytes >= u32::MAX as usize {
            return Err(TooLarge.into());
        }
        if collected_bytes > indexed_bytes.max(COLLECTED_BYTES_MAX) {
            self.index()?;
        }
        if len < COPIED_BYTES_MAX || len < parts.len() * COPIED_PART_BYTES_MAX {
            // A slice of a large read would keep all of that read alive.
            self.collected.push(parts.concat().into());
        } else {
            self.collected.append(&mut parts);
        }
        self.collected_bytes += len;
        self.version += 1;
        Ok(())
    }

    /// The value that the last fence with this key has published.
    ///
    /// # Errors
    /// What the fences brought cannot be indexed.
    pub fn get(&mut self, key: &[u8]) -> Result<Option<&[u8]>, KvsError> {
        self.index()?;
        Ok(self.segments.iter().rev().find_map(|segment| segment.read().get(key)))
    }

    /// A pair by its number, or the first behind it, and the next number; `None` behind the last. Between two fences each pair is
    /// met once by whoever begins at 0 and goes on with the next number.
    ///
    /// # Errors
    /// What the fences brought cannot be indexed.
    pub fn at(&mut self, number: u32) -> Result<Option<(Pair<'_>, u32)>, KvsError> {
        self.index()?;
        // Numbers are slots, those of the oldest segment first.
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

    /// What a client needs that has segments which end at `have`, oldest first.
    ///
    /// # Errors
    /// What the fences brought cannot be indexed.
    pub fn map(&mut self, have: &[u32], shares: &mut Shares) -> Result<Mapping, KvsError> {
        self.index()?;
        let keep = self.segments.iter().zip(have).take_while(|(segment, end)| segment.end == **end).count();
        let fresh = self.segments[keep..].iter_mut().map(|segment| (segment.end, segment.share(shares))).collect();
        Ok(Mapping { keep: keep as u32, fresh })
    }

    /// Makes a segment of what was collected.
    fn index(&mut self) -> Result<(), KvsError> {
        if self.collected.is_empty() {
            return Ok(());
        }
        let layout = layout_of(&self.collected)?;
        let blobs = || self.collected.iter().map(|blob| &blob[..]);
        let kept = self.segments.len() - self.small_before(layout.blob_len());
        let merged = &self.segments[kept..];
        let mut bytes = vec![0; layout.total_len()];
        let keys = layout.build_packed(&mut bytes, blobs());
        let (layout, bytes) = if merged.is_empty() && self.collected.len() == 1 {
            (layout, bytes)
        } else {
            // Its index tells which pairs are still worth something.
            let older: Vec<Segment<'_>> = merged.iter().map(Indexed::read).collect();
            merge(&older, (layout, bytes, keys))?
        };
        self.merged.extend(self.segments.drain(kept..).filter_map(|segment| segment.share));
        let (end, blob_len) = (self.version, layout.blob_len());
        self.segments.push(Indexed { end, blob_len, bytes: bytes.into(), share: None });
        self.collected.clear();
        self.collected_bytes = 0;
        Ok(())
    }

    /// How many of the newest segments are not more than twice as large as what follows them.
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
        read(&self.bytes)
    }

    /// Memory with its bytes, made once.
    fn share(&mut self, shares: &mut Shares) -> ShareId {
        *self.share.get_or_insert_with(|| shares.make(Content::Bytes(self.bytes.clone())))
    }
}

fn read(bytes: &[u8]) -> Segment<'_> {
    Segment::read(bytes).expect("a segment that was made here, and that nobody can change")
}

fn layout_of(blobs: &[Bytes]) -> Result<Layout, KvsError> {
    let mut layout = Layout::default();
    for blob in blobs {
        let mut offset = 0;
        while let Some((pair, next)) = blob::pair_at(blob, offset)? {
            layout.add(pair)?;
            offset = next;
        }
    }
    Ok(layout)
}

/// One segment of several, oldest first, and of a newest one: its layout, bytes and number of keys. Pairs that a newer one
/// overwrites are left out.
fn merge(older: &[Segment<'_>], (layout, newest, keys): (Layout, Vec<u8>, u32)) -> Result<(Layout, Vec<u8>), KvsError> {
    let index = read(&newest);
    let mut live = Vec::new();
    for (at, part) in older.iter().enumerate() {
        let newer = &older[at + 1..];
        let is_live =
            |pair: &Pair<'_>| index.get(pair.key).is_none() && newer.iter().all(|newer| newer.get(pair.key).is_none());
        live.extend(part.pairs().filter(is_live));
    }
    if live.is_empty() && keys == layout.pair_count() {
        // The same keys again.
        return Ok((layout, newest));
    }
    let pairs = || live.iter().copied().chain(index.pairs());
    let mut layout = Layout::default();
    pairs().try_for_each(|pair| layout.add(pair))?;
    let mut merged = vec![0; layout.total_len()];
    layout.build(&mut merged, pairs());
    Ok((layout, merged))
}

#[cfg(test)]
mod tests;
