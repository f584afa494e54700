//! Pairs of a kvs with their hash index: the pairs that one or several fences have published.
//!
//! ```text
//! +--------+-------+-------+----------+----------+-----------------+--------------------+
//! | "WKV1" | slots | pairs | blob_len | zero     | slots x u32     | blob               |
//! | u32    | u32   | u32   | u32      | 16 bytes | offset + 1 or 0 | packed pairs       |
//! +--------+-------+-------+----------+----------+-----------------+--------------------+
//! ```
//!
//! A slot refers to a pair of the blob ([`crate::blob`]); 0 is empty. The search for a key starts at the slot given by
//! its [`hash`] and continues with the following slots, wrapping around at the end. There are `pairs * 4 / 3 + 1`
//! slots, so that one is always empty. If several pairs have the same key, the last one wins; the others stay in the
//! blob, without a slot, until segments are merged.
//!
//! Cost: 5.33 bytes of index and 3 of lengths per pair besides its key and value, 36 per segment. A look-up reads 2.5
//! slots on average if the key exists and 8.5 if not (Knuth, TAOCP 3, 6.4: linear probing at a load of 3/4). Keys
//! chosen to collide cost only the job that put them: a look-up ends after one round at the latest.

use super::{Malformed, u32_at};
use crate::blob::{self, PAIR_OVERHEAD, Pair, Truncated};
use alloc::vec;
use alloc::vec::Vec;
use thiserror::Error;

const MAGIC: u32 = u32::from_le_bytes(*b"WKV1");
/// Length of the header, after which the slots begin (bytes).
pub const HEADER_LEN: usize = 32;
const SLOT_LEN: usize = 4;

/// 2^64 divided by the golden ratio: a multiplication by it spreads a number's lower bits to its upper ones.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// A key's hash; only the upper half is used. It takes eight bytes at a time, multiplies and folds, so that keys which
/// differ in a few digits get slots far apart.
pub fn hash(key: &[u8]) -> u64 {
    let fold = |hash: u64, word: u64| {
        let product = (hash ^ word).wrapping_mul(SPREAD);
        product ^ (product >> 32)
    };
    let mut chunks = key.chunks_exact(8);
    let mut hash = key.len() as u64;
    for chunk in &mut chunks {
        hash = fold(hash, chunk.try_into().map_or(0, u64::from_le_bytes));
    }
    let rest = chunks.remainder().iter().rev().fold(0, |word, byte| (word << 8) | u64::from(*byte));
    fold(hash, rest).wrapping_mul(SPREAD)
}

/// The slot at which the search for a key starts.
fn first_slot(key: &[u8], slots: u32) -> u32 {
    (((hash(key) >> 32) * u64::from(slots)) >> 32) as u32
}

/// The next slot of a search.
fn after(slot: u32, slots: u32) -> u32 {
    if slot + 1 == slots { 0 } else { slot + 1 }
}

/// A segment in memory that another process has written.
#[derive(Clone, Copy, Debug)]
pub struct Segment<'a> {
    slots: &'a [u8],
    slot_count: u32,
    pairs: u32,
    blob: &'a [u8],
}

impl<'a> Segment<'a> {
    /// Reads the header of a segment. `bytes`: exactly the segment.
    ///
    /// # Errors
    /// The header is that of another format, or its numbers do not match the length.
    pub fn read(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let field = |index: usize| u32_at(bytes, index * 4).ok_or(Malformed);
        let (magic, slot_count, pairs, blob_len) = (field(0)?, field(1)?, field(2)?, field(3)?);
        let body = bytes.get(HEADER_LEN..).ok_or(Malformed)?;
        let slots_len = u64::from(slot_count) * SLOT_LEN as u64;
        if magic != MAGIC || slot_count == 0 || slots_len + u64::from(blob_len) != body.len() as u64 {
            return Err(Malformed);
        }
        let (slots, blob) = body.split_at(slots_len as usize);
        Ok(Segment { slots, slot_count, pairs, blob })
    }

    pub fn get(&self, key: &[u8]) -> Option<&'a [u8]> {
        let mut slot = first_slot(key, self.slot_count);
        for _ in 0..self.slot_count {
            let pair = self.at(slot)?;
            if pair.key == key {
                return Some(pair.value);
            }
            slot = after(slot, self.slot_count);
        }
        None
    }

    /// Number of pairs that were put, including overwritten ones.
    pub fn pair_count(&self) -> u32 {
        self.pairs
    }

    /// Length of all pairs, packed.
    pub fn blob_len(&self) -> usize {
        self.blob.len()
    }

    /// The pairs that [`get`](Self::get) finds, each once, in arbitrary order.
    pub fn pairs(&self) -> impl Iterator<Item = Pair<'a>> + use<'a> {
        let segment = *self;
        (0..self.slot_count).filter_map(move |slot| segment.at(slot))
    }

    pub fn slot_count(&self) -> u32 {
        self.slot_count
    }

    /// The first of [`pairs`](Self::pairs) at or after slot `from`, with its slot.
    pub fn pair_from(&self, from: u32) -> Option<(u32, Pair<'a>)> {
        (from..self.slot_count).find_map(|slot| self.at(slot).map(|pair| (slot, pair)))
    }

    /// The pair to which a slot refers.
    fn at(&self, slot: u32) -> Option<Pair<'a>> {
        let offset = u32_at(self.slots, slot as usize * SLOT_LEN)?.checked_sub(1)?;
        match blob::pair_at(self.blob, offset as usize) {
            Ok(Some((pair, _))) => Some(pair),
            Ok(None) | Err(Truncated) => None,
        }
    }
}

/// The total length of the pairs exceeds what a segment's numbers can represent.
#[derive(Error, Clone, Copy, PartialEq, Eq, Debug)]
#[error("the pairs of all fences together are larger than 4 GiB")]
pub struct TooLarge;

/// Packed pairs that cannot become a segment.
#[derive(Error, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unfit {
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
    #[error(transparent)]
    Truncated(#[from] Truncated),
}

/// The contents of a segment: counted first, since its length must be known before it is built.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Layout {
    pairs: u32,
    blob_len: u32,
}

impl Layout {
    /// The layout of a segment with these packed pairs.
    ///
    /// # Errors
    /// The pairs are too long in total, or the bytes are no packed pairs.
    pub fn of_packed<'b>(blobs: impl Iterator<Item = &'b [u8]>) -> Result<Layout, Unfit> {
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

    /// Adds one more pair to the count.
    ///
    /// # Errors
    /// The pairs would be too long in total.
    pub fn add(&mut self, pair: Pair<'_>) -> Result<(), TooLarge> {
        let bytes = (PAIR_OVERHEAD + pair.key.len() + pair.value.len()) as u64;
        // One less than the type can represent, because slots contain offsets plus one.
        let blob_len = u64::from(self.blob_len) + bytes;
        self.blob_len = u32::try_from(blob_len).ok().filter(|len| *len < u32::MAX).ok_or(TooLarge)?;
        self.pairs += 1;
        Ok(())
    }

    pub fn pair_count(&self) -> u32 {
        self.pairs
    }

    /// Length of all pairs, packed.
    pub fn blob_len(&self) -> usize {
        self.blob_len as usize
    }

    fn slot_count(&self) -> u32 {
        // A pair has at least 3 bytes: there are fewer than 2^31 of them.
        (u64::from(self.pairs) * 4 / 3 + 1) as u32
    }

    fn blob_start(&self) -> usize {
        HEADER_LEN + self.slot_count() as usize * SLOT_LEN
    }

    pub fn total_len(&self) -> usize {
        self.blob_start() + self.blob_len()
    }

    /// Writes the segment: exactly the pairs that were counted; of pairs with the same key the last one is indexed.
    /// Returns the number of distinct keys.
    ///
    /// # Panics
    /// If `out` is not [`total_len`](Self::total_len) bytes long, or `pairs` differ from those that were counted.
    pub fn build<'p>(&self, out: &mut [u8], pairs: impl Iterator<Item = Pair<'p>>) -> u32 {
        let blob = self.blob_of(out);
        let end = pairs.fold(0, |offset, pair| write_pair(blob, offset, pair));
        assert_eq!(end, blob.len(), "a segment holds the pairs that were counted");
        self.index(out)
    }

    /// Writes the segment as [`build`](Self::build) does, from packed pairs.
    ///
    /// # Panics
    /// If `out` is not [`total_len`](Self::total_len) bytes long, or the pairs in `blobs` differ from those that were
    /// counted.
    pub fn build_packed<'b>(&self, out: &mut [u8], blobs: impl Iterator<Item = &'b [u8]>) -> u32 {
        let mut left = self.blob_of(out);
        for blob in blobs {
            let (place, rest) = left.split_at_mut(blob.len());
            place.copy_from_slice(blob);
            left = rest;
        }
        assert!(left.is_empty(), "a segment holds the pairs that were counted");
        self.index(out)
    }

    fn blob_of<'o>(&self, out: &'o mut [u8]) -> &'o mut [u8] {
        assert_eq!(out.len(), self.total_len(), "a segment is built into a buffer of its length");
        &mut out[self.blob_start()..]
    }

    /// Writes everything before the blob.
    fn index(&self, out: &mut [u8]) -> u32 {
        let (head, blob) = out.split_at_mut(self.blob_start());
        let (header, slots) = head.split_at_mut(HEADER_LEN);
        header.fill(0);
        for (index, number) in [MAGIC, self.slot_count(), self.pairs, self.blob_len].into_iter().enumerate() {
            header[index * 4..][..4].copy_from_slice(&number.to_le_bytes());
        }
        slots.fill(0);
        let (mut pairs, mut keys, mut offset) = (0, 0, 0);
        while let Ok(Some((pair, next))) = blob::pair_at(blob, offset) {
            keys += u32::from(self.point(slots, blob, pair.key, offset as u32));
            (pairs, offset) = (pairs + 1, next);
        }
        assert_eq!((pairs, offset), (self.pairs, blob.len()), "a segment holds the pairs that were counted");
        keys
    }

    /// Makes a slot refer to the pair with that key at `offset`; returns whether the key is new.
    fn point(&self, slots: &mut [u8], blob: &[u8], key: &[u8], offset: u32) -> bool {
        let mut slot = first_slot(key, self.slot_count());
        loop {
            let place = slot as usize * SLOT_LEN;
            // One slot is always empty: there are fewer pairs than slots.
            let other = u32_at(slots, place).and_then(|number| number.checked_sub(1));
            if other.is_none_or(|other| is_key_at(blob, other as usize, key)) {
                slots[place..place + SLOT_LEN].copy_from_slice(&(offset + 1).to_le_bytes());
                return other.is_none();
            }
            slot = after(slot, self.slot_count());
        }
    }
}

/// Merges several segments, oldest first, and a newest one with its layout, bytes and number of keys. Pairs overwritten
/// by a newer segment are left out.
///
/// # Errors
/// The pairs are too long in total.
///
/// # Panics
/// If the bytes of the newest segment do not have its layout.
pub fn merge(
    older: &[Segment<'_>],
    (layout, newest, keys): (Layout, Vec<u8>, u32),
) -> Result<(Layout, Vec<u8>), TooLarge> {
    let index = Segment::read(&newest).expect("the newest segment was built here");
    let mut live = Vec::new();
    for (at, part) in older.iter().enumerate() {
        let newer = &older[at + 1..];
        let is_live =
            |pair: &Pair<'_>| index.get(pair.key).is_none() && newer.iter().all(|newer| newer.get(pair.key).is_none());
        live.extend(part.pairs().filter(is_live));
    }
    if live.is_empty() && keys == layout.pair_count() {
        // All keys of the older segments are in the newest one, which has no key twice.
        return Ok((layout, newest));
    }
    let pairs = || live.iter().copied().chain(index.pairs());
    let mut layout = Layout::default();
    pairs().try_for_each(|pair| layout.add(pair))?;
    let mut merged = vec![0; layout.total_len()];
    layout.build(&mut merged, pairs());
    Ok((layout, merged))
}

/// Writes a pair as [`blob::push`] does; returns the offset after it.
fn write_pair(blob: &mut [u8], offset: usize, pair: Pair<'_>) -> usize {
    let (key_len, value_len) = (pair.key.len(), pair.value.len());
    let end = offset + PAIR_OVERHEAD + key_len + value_len;
    assert!(end <= blob.len(), "a segment holds the pairs that were counted");
    let (lengths, body) = blob[offset..end].split_at_mut(PAIR_OVERHEAD);
    lengths[0] = u8::try_from(key_len).expect("keys are at most 255 bytes");
    lengths[1..].copy_from_slice(&u16::try_from(value_len).expect("values are at most 65,535 bytes").to_le_bytes());
    body[..key_len].copy_from_slice(pair.key);
    body[key_len..].copy_from_slice(pair.value);
    end
}

fn is_key_at(blob: &[u8], offset: usize, key: &[u8]) -> bool {
    blob[offset] as usize == key.len() && &blob[offset + PAIR_OVERHEAD..][..key.len()] == key
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::{BTreeMap, BTreeSet};
    use alloc::format;
    use proptest::prelude::*;

    type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

    fn unpacked(blob: &[u8]) -> Pairs {
        let mut offset = 0;
        let next = || {
            let (pair, next) = blob::pair_at(blob, offset).ok()??;
            offset = next;
            Some((pair.key.to_vec(), pair.value.to_vec()))
        };
        core::iter::from_fn(next).collect()
    }

    fn built(pairs: &Pairs) -> Vec<u8> {
        let pairs = || pairs.iter().map(|(key, value)| Pair { key, value });
        let mut layout = Layout::default();
        pairs().for_each(|pair| layout.add(pair).unwrap());
        // The previous contents of the buffer do not matter.
        let mut out = vec![0xaa; layout.total_len()];
        layout.build(&mut out, pairs());
        out
    }

    fn short() -> impl Strategy<Value = Pairs> {
        let key = proptest::collection::vec(b'a'..=b'd', 0..4);
        proptest::collection::vec((key, proptest::collection::vec(any::<u8>(), 0..20)), 0..60)
    }

    proptest! {
        #[test]
        fn lookups_give_the_same_answers_as_a_map(pairs in short()) {
            let bytes = built(&pairs);
            let segment = Segment::read(&bytes).unwrap();
            let map: BTreeMap<Vec<u8>, Vec<u8>> = pairs.iter().cloned().collect();
            for (key, value) in &map {
                prop_assert_eq!(segment.get(key), Some(&value[..]));
            }
            prop_assert_eq!(segment.get(b"missing"), None);
            let seen: Pairs = segment.pairs().map(|pair| (pair.key.to_vec(), pair.value.to_vec())).collect();
            prop_assert_eq!(seen.len(), map.len(), "each key is listed once");
            prop_assert_eq!(seen.into_iter().collect::<BTreeMap<_, _>>(), map);
        }

        #[test]
        fn a_segment_contains_the_packed_pairs_unchanged(pairs in short()) {
            let bytes = built(&pairs);
            let mut packed = Vec::new();
            pairs.iter().for_each(|(key, value)| blob::push(&mut packed, key, value));
            prop_assert!(bytes.ends_with(&packed));
            prop_assert_eq!(&unpacked(&packed), &pairs);
            let (left, right) = packed.split_at(packed.len() / 2);
            let mut again = vec![0xaa; bytes.len()];
            let mut layout = Layout::default();
            pairs.iter().for_each(|(key, value)| layout.add(Pair { key, value }).unwrap());
            // The result is the same, however the pairs are split into blobs.
            let keys = layout.build_packed(&mut again, [left, right].into_iter());
            prop_assert_eq!(again, bytes);
            prop_assert_eq!(keys as usize, pairs.iter().map(|(key, _)| key).collect::<BTreeSet<_>>().len());
        }
    }

    /// A change of the byte layout breaks clients that are older than their agent.
    #[test]
    fn the_byte_layout_is_fixed() {
        let bytes = built(&vec![(b"k".to_vec(), b"old".to_vec()), (b"k".to_vec(), b"new".to_vec())]);
        let mut expected = Vec::new();
        expected.extend_from_slice(b"WKV1\x03\0\0\0\x02\0\0\0\x0e\0\0\0");
        expected.extend_from_slice(&[0; 16]);
        let slot = first_slot(b"k", 3) as usize;
        assert_eq!(hash(b"key-12345"), 12453266384569042817);
        assert_eq!((hash(b"k"), slot), (7158923045759326252, 1));
        let mut slots = [0u8; 12];
        slots[slot * 4] = 8;
        expected.extend_from_slice(&slots);
        expected.extend_from_slice(b"\x01\x03\0kold\x01\x03\0knew");
        assert_eq!(bytes, expected);
    }

    /// Keys as MPICH and users of Slurm name them: they differ in a few digits.
    #[test]
    fn numbered_keys_are_found_in_few_steps() {
        for name in ["key-", "P1-businesscard-", ""] {
            let keys: Vec<_> = (0..20_000).map(|n| format!("{name}{n}").into_bytes()).collect();
            let slots = keys.len() as u32 * 4 / 3 + 1;
            let mut taken = vec![false; slots as usize];
            let mut steps = 0;
            for key in &keys {
                let mut slot = first_slot(key, slots);
                steps += 1;
                while core::mem::replace(&mut taken[slot as usize], true) {
                    slot = after(slot, slots);
                    steps += 1;
                }
            }
            assert!(steps < keys.len() * 3, "{name}: {steps} steps, 2.5 per key are expected");
        }
    }

    #[test]
    fn an_empty_segment_is_valid() {
        let bytes = built(&Pairs::new());
        let segment = Segment::read(&bytes).unwrap();
        assert_eq!((segment.get(b"k"), segment.pairs().count()), (None, 0));
    }

    #[test]
    fn a_search_ends_if_all_slots_are_full() {
        let mut bytes = built(&vec![(b"k".to_vec(), b"v".to_vec())]);
        // Both slots refer to the one pair.
        bytes[HEADER_LEN..HEADER_LEN + 8].copy_from_slice(&[1, 0, 0, 0, 1, 0, 0, 0]);
        assert_eq!(Segment::read(&bytes).unwrap().get(b"other"), None);
        bytes.push(0);
        assert_eq!(Segment::read(&bytes).unwrap_err(), Malformed);
    }
}
