//! Builds the bytes of a map (`map`) from the staged names.

use crate::map::{HEAD_LEN, Hash, MAGIC, RECORD_HEAD_LEN, StagedKind, WRITE};
use std::collections::BTreeMap;
use std::vec::Vec;

/// The names for a map, before its bytes are built.
#[derive(Default)]
pub struct Names {
    /// The records by name, each with its kind and its further bytes. The flag in the key is set for records of
    /// [`StagedKind::Bits`], which a name may have in addition to another record.
    all: BTreeMap<(Vec<u8>, bool), (StagedKind, Vec<u8>)>,
    bits: u32,
}

impl Names {
    /// Adds a record, unless the name already has one ([`StagedKind::Bits`] counts separately). A record with more than
    /// 65,535 bytes of name or content is omitted: no path is that long.
    pub fn add(&mut self, kind: StagedKind, name: &[u8], more: &[u8]) {
        if u16::try_from(name.len()).is_ok() && u16::try_from(more.len()).is_ok() {
            self.all.entry((name.to_vec(), kind == StagedKind::Bits)).or_insert((kind, more.to_vec()));
        }
    }

    /// Adds records for the write bits of originals: the most frequent bits are the default and need no records.
    pub fn add_bits<'a>(&mut self, modes: impl Iterator<Item = (&'a [u8], u32)> + Clone) {
        let mut counts = BTreeMap::new();
        modes.clone().for_each(|(_, mode)| *counts.entry(mode & WRITE).or_insert(0usize) += 1);
        self.bits = counts.iter().max_by_key(|(_, count)| **count).map_or(0, |(bits, _)| *bits);
        for (name, mode) in modes.filter(|(_, mode)| mode & WRITE != self.bits).collect::<Vec<_>>() {
            self.add(StagedKind::Bits, name, &((mode & WRITE) as u16).to_le_bytes());
        }
    }

    /// The bytes of the map; `None`: they would exceed 4 GiB.
    pub fn map(&self, tree: &[u8], library: &[u8], place: &[u8]) -> Option<Vec<u8>> {
        let slots = (2 * self.all.len()).next_power_of_two();
        let number = |number: usize| u32::try_from(number).ok().map(u32::to_ne_bytes);
        let mut bytes = MAGIC.to_vec();
        for value in [tree.len(), library.len(), slots, self.bits as usize, place.len()] {
            bytes.extend(number(value)?);
        }
        debug_assert_eq!(bytes.len(), HEAD_LEN);
        bytes.extend_from_slice(tree);
        bytes.extend_from_slice(library);
        bytes.extend_from_slice(place);
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        let table = bytes.len();
        bytes.resize(table + 8 * slots, 0);
        for ((name, _), (kind, more)) in &self.all {
            let hash = Hash::EMPTY.with(name).0;
            let is_empty = |at: &usize| bytes[table + 8 * at + 4..table + 8 * at + 8] == [0; 4];
            let slot = (0..slots).map(|step| (hash as usize).wrapping_add(step) & (slots - 1)).find(is_empty)?;
            let (at, record) = (table + 8 * slot, number(bytes.len())?);
            bytes[at..at + 4].copy_from_slice(&hash.to_ne_bytes());
            bytes[at + 4..at + 8].copy_from_slice(&record);
            let head = bytes.len();
            bytes.push(*kind as u8);
            bytes.extend((name.len() as u16).to_ne_bytes());
            bytes.extend((more.len() as u16).to_ne_bytes());
            debug_assert_eq!(bytes.len() - head, RECORD_HEAD_LEN);
            bytes.extend_from_slice(name);
            bytes.extend_from_slice(more);
        }
        Some(bytes)
    }
}
