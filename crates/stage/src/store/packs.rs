//! Packs: files with many contents, each with an index.
//!
//! ```text
//!   packs/NAME/data     what is stored of the contents, each from a block's boundary on; locked by those who rely on
//!                       its index
//!   packs/NAME/index    the digest, the length and the blocks of each; what lies elsewhere in `data` counts for
//!                       nothing
//! ```
//!
//! A receiver that builds a set locks the packs from which it takes contents, until the set is in its place. Contents
//! that no set uses are removed from packs that nobody has locked: first their entries in the index, then their blocks
//! are freed.

use super::{Places, Result, Store, at, is_at, lock_shared, remove_tree};
use crate::image::ContentLocation;
use crate::set::Digest;
use crate::stream::{BLOCK, blocks};
use rustix::fs::{FallocateFlags, FlockOperation, fallocate, flock};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// One content in a pack.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Held {
    pub digest: Digest,
    pub block: u32,
    pub len: u64,
    /// The number of blocks of each cluster; empty: no cluster is packed.
    pub clusters: Vec<u8>,
}

impl Held {
    /// The location of this content. `pack`: the index of its pack in the set's list of packs.
    pub fn place(&self, pack: u16) -> ContentLocation {
        ContentLocation { pack, block: self.block, clusters: self.clusters.clone() }
    }

    /// The number of blocks that the content takes.
    fn blocks(&self) -> u64 {
        match &self.clusters[..] {
            [] => blocks(self.len),
            clusters => clusters.iter().map(|count| u64::from(*count)).sum(),
        }
    }
}

/// A pack with a lock, which keeps its contents from being removed.
pub(crate) struct Pack {
    pub name: String,
    pub index: Vec<Held>,
    _lock: File,
}

/// Writes the index beside the `data` in a folder, which makes the folder a pack.
pub(crate) fn write_index(folder: &Path, index: &[Held]) -> Result<()> {
    let path = folder.join("index");
    let bytes = postcard::to_allocvec(index).unwrap_or_default();
    // The index is replaced in one step, because another process may read it.
    let new = folder.join(".index");
    at(&path, fs::write(&new, bytes).and_then(|()| fs::rename(&new, &path)))
}

fn read_index(folder: &Path) -> Vec<Held> {
    fs::read(folder.join("index")).ok().and_then(|bytes| postcard::from_bytes(&bytes).ok()).unwrap_or_default()
}

impl Store {
    pub(crate) fn pack_data(&self, name: &str) -> PathBuf {
        self.root.join("packs").join(name).join("data")
    }

    /// The packs with wanted contents; a lock keeps them from being removed.
    pub(crate) fn packs_with(&self, is_wanted: impl Fn(&Digest) -> bool) -> Result<Vec<Pack>> {
        let mut found = Vec::new();
        for folder in self.inside("packs")? {
            // A pack that cannot be locked, or has just been removed, is skipped.
            let Ok(lock) = File::open(folder.join("data")) else { continue };
            if lock_shared(&lock).is_err() || !is_at(&lock, &folder.join("data")) {
                continue;
            }
            let index = read_index(&folder);
            if index.iter().any(|held| is_wanted(&held.digest)) {
                let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
                found.push(Pack { name, index, _lock: lock });
            }
        }
        Ok(found)
    }

    /// The number of bytes that all packs take on the disk.
    pub(super) fn pack_bytes(&self) -> Result<u64> {
        let used = |folder: &PathBuf| fs::metadata(folder.join("data")).map_or(0, |meta| meta.blocks() * 512);
        Ok(self.inside("packs")?.iter().map(used).sum())
    }

    /// Removes contents that no set uses.
    pub(super) fn sweep_packs(&self) -> Result<()> {
        let mut locked = Vec::new();
        for folder in self.inside("packs")? {
            if let Ok(data) = File::options().read(true).write(true).open(folder.join("data"))
                && flock(&data, FlockOperation::NonBlockingLockExclusive).is_ok()
            {
                locked.push((folder, data));
            }
        }
        if locked.is_empty() {
            return Ok(());
        }
        // Read after locking: from now on no new set can take contents from these packs.
        let mut used: BTreeMap<String, BTreeSet<u32>> = BTreeMap::new();
        for set in self.inside("sets")? {
            let Some(places) = Places::read(&set) else {
                // An unreadable list may name any contents, so none is removed. A set kept as files has no list.
                if set.join("places").exists() {
                    return Ok(());
                }
                continue;
            };
            for place in places.contents {
                if let Some(pack) = places.packs.get(usize::from(place.pack)) {
                    used.entry(pack.clone()).or_default().insert(place.block);
                }
            }
        }
        for (folder, data) in locked {
            let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
            match used.get(&name) {
                Some(used) => reduce(&folder, &data, used)?,
                None => {
                    let away = self.away()?;
                    at(&folder, fs::rename(&folder, away.join("pack")))?;
                    remove_tree(&away)?;
                }
            }
        }
        Ok(())
    }
}

/// Removes from a pack all contents except those that begin at the blocks in `used`.
fn reduce(folder: &Path, data: &File, used: &BTreeSet<u32>) -> Result<()> {
    let index = read_index(folder);
    let count = index.len();
    let mut left: Vec<Held> = index.into_iter().filter(|held| used.contains(&held.block)).collect();
    left.sort_unstable_by_key(|held| held.block);
    if left.len() < count {
        write_index(folder, &left)?;
    }
    // Also frees blocks that a process which was killed at this point had not yet freed.
    let end = blocks(at(folder, data.metadata())?.len());
    let mut from = 0;
    for (begin, next) in left.iter().map(|held| (held.block.into(), u64::from(held.block) + held.blocks())) {
        give_back(data, from, begin);
        from = next;
    }
    give_back(data, from, end);
    Ok(())
}

/// Frees blocks by punching a hole. On file systems without holes the blocks stay allocated until the pack is removed.
fn give_back(data: &File, from: u64, to: u64) {
    if from < to {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let _ = fallocate(data, flags, from * BLOCK, (to - from) * BLOCK);
    }
}
