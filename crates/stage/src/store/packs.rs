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
//!
//! Contents that arrive are appended to one new pack, in a few large writes; contents that the node has stay in their
//! packs.

use super::{Places, Result, Store, TOO_LARGE, at, damaged, is_at, lock_shared, remove_tree};
use crate::image::ContentLocation;
use crate::set::{Content, Digest, Set};
use crate::stream::{BLOCK, Cluster, Stored, blocks};
use rustix::fs::{FallocateFlags, FlockOperation, fallocate, flock, ftruncate};
use rustix::io::{Errno, pwritev};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::{self, DirBuilder, File};
use std::io::{self, IoSlice};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Most buffers of one `pwritev` (Linux: `IOV_MAX`).
const PARTS_MAX: usize = 1024;
static ZEROS: [u8; BLOCK as usize] = [0; BLOCK as usize];

/// One content in a pack.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Held {
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
struct Pack {
    pub name: String,
    pub index: Vec<Held>,
    _lock: File,
}

/// Writes the index beside the `data` in a folder, which makes the folder a pack.
fn write_index(folder: &Path, index: &[Held]) -> Result<()> {
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
    fn packs_with(&self, is_wanted: impl Fn(&Digest) -> bool) -> Result<Vec<Pack>> {
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

/// The contents of a set that is being received, in packs.
pub(crate) struct Packing {
    /// The packs in this node's store that have contents of the set.
    packs: Vec<Pack>,
    /// The location of each content of the set; `None` if the content is missing, or lies in the new pack, whose number
    /// follows those of `packs`.
    places: Vec<Option<ContentLocation>>,
    /// Bytes that the missing contents take at most.
    pub wanted: u64,
    new: Option<NewPack>,
}

struct NewPack {
    folder: PathBuf,
    data: File,
    /// The number of blocks of the pack that have been used.
    end: u64,
    /// The content that is arriving.
    open: Option<Held>,
    whole: BTreeMap<u32, Held>,
    /// Whether the pack was moved into the store, or is not needed there.
    is_settled: bool,
}

impl Packing {
    /// Prepares a pack for the contents of the set that are not in the store. Also returns the numbers of these
    /// contents.
    pub fn begin(store: &Store, set: &Set, folder: &Path) -> Result<(Packing, BTreeSet<u32>)> {
        let contents = set.contents();
        let numbers: HashMap<Digest, usize> =
            contents.iter().enumerate().map(|(number, content)| (content.digest, number)).collect();
        let found = store.packs_with(|digest| numbers.contains_key(digest))?;
        let mut places: Vec<Option<ContentLocation>> = vec![None; contents.len()];
        let mut packs: Vec<Pack> = Vec::new();
        for pack in found {
            let Ok(number) = u16::try_from(packs.len()) else { break };
            let mut is_used = false;
            for held in &pack.index {
                let Some(content) = numbers.get(&held.digest) else { continue };
                if places[*content].is_none() && contents[*content].len == held.len {
                    places[*content] = Some(held.place(number));
                    is_used = true;
                }
            }
            if is_used {
                packs.push(pack);
            }
        }
        let is_missing = |(number, here): (usize, &Option<ContentLocation>)| here.is_none().then_some(number as u32);
        let missing: BTreeSet<u32> = places.iter().enumerate().filter_map(is_missing).collect();
        let wanted = missing.iter().map(|number| blocks(contents[*number as usize].len) * BLOCK).sum();
        let new = (!missing.is_empty()).then(|| NewPack::create(&folder.join("pack"))).transpose()?;
        Ok((Packing { packs, places, wanted, new }, missing))
    }

    /// Writes these clusters, whose stored forms lie in `bytes`.
    pub fn write(&mut self, clusters: &[&Cluster], bytes: &[u8], set: &Set) -> Result<()> {
        let Some(new) = &mut self.new else { return Ok(()) };
        let mut parts: Vec<IoSlice> = Vec::new();
        let mut from = new.end * BLOCK;
        for cluster in clusters {
            let stored = &bytes[cluster.stored.clone()];
            let (form, end) = new.add(cluster, stored, set)?;
            let zeros = |len: u64| IoSlice::new(&ZEROS[..len as usize]);
            let rest = blocks(stored.len() as u64) * BLOCK - stored.len() as u64;
            match form {
                // No block is written for a hole: it stays a hole in the pack.
                Stored::Hole => {
                    new.write(&mut parts, from)?;
                    from = end * BLOCK;
                }
                Stored::Plain => parts.extend([IoSlice::new(stored), zeros(rest)]),
                // The kernel expects a packed cluster at the end of its blocks, with zeros before it.
                Stored::Packed => parts.extend([zeros(rest), IoSlice::new(stored)]),
            }
            if parts.len() + 2 > PARTS_MAX {
                new.write(&mut parts, from)?;
                from = end * BLOCK;
            }
            if cluster.is_last(set) {
                new.complete(cluster.content);
            }
        }
        new.write(&mut parts, from)
    }

    /// Moves the new pack into the store, and writes the list of where the contents of the set are.
    pub fn finish(&mut self, store: &Store, folder: &Path) -> Result<()> {
        let mut packs: Vec<String> = self.packs.iter().map(|pack| pack.name.clone()).collect();
        let own = packs.len() as u16;
        packs.extend(self.keep(store)?);
        for (number, held) in self.new.iter().flat_map(|new| &new.whole) {
            self.places[*number as usize] = Some(held.place(own));
        }
        // No location is missing at this point.
        let places = Places { packs, contents: std::mem::take(&mut self.places).into_iter().flatten().collect() };
        let path = folder.join("places");
        at(&path, fs::write(&path, postcard::to_allocvec(&places).unwrap_or_default()))
    }

    /// Keeps the contents that have arrived as a pack, until somebody needs the room; returns the name of the pack.
    pub fn keep(&mut self, store: &Store) -> Result<Option<String>> {
        match &mut self.new {
            Some(new) if !new.whole.is_empty() && !new.is_settled => new.keep(store).map(Some),
            _ => Ok(None),
        }
    }

    /// Marks the new pack as not needed, so that it is not moved into the store.
    pub fn discard(&mut self) {
        if let Some(new) = &mut self.new {
            new.is_settled = true;
        }
    }
}

impl NewPack {
    fn create(folder: &Path) -> Result<NewPack> {
        at(folder, DirBuilder::new().mode(0o700).create(folder))?;
        let path = folder.join("data");
        let data = at(&path, File::create_new(&path))?;
        // Locked until the set is in its place, so that its contents do not count as unused.
        at(&path, flock(&data, FlockOperation::LockShared))?;
        let folder = folder.to_owned();
        Ok(NewPack { folder, data, end: 0, open: None, whole: BTreeMap::new(), is_settled: false })
    }

    /// Assigns blocks to a cluster; returns how it is stored, and the number of the block after its last one.
    fn add(&mut self, cluster: &Cluster, stored: &[u8], set: &Set) -> Result<(Stored, u64)> {
        let damaged = || damaged(set, cluster.content);
        let form = Stored::of(cluster.len, stored).ok_or_else(damaged)?;
        if cluster.offset == 0 {
            let block = u32::try_from(self.end).map_err(|_| TOO_LARGE)?;
            let Content { digest, len, .. } = set.contents()[cluster.content as usize];
            self.open = Some(Held { digest, block, len, clusters: Vec::new() });
        }
        let count = blocks(if form == Stored::Packed { stored.len() } else { cluster.len } as u64);
        self.open.as_mut().ok_or_else(damaged)?.clusters.push(count as u8);
        self.end += count;
        Ok((form, self.end))
    }

    /// Records that the content that was arriving is complete.
    fn complete(&mut self, number: u32) {
        let Some(mut held) = self.open.take() else { return };
        let stored: u64 = held.clusters.iter().map(|count| u64::from(*count)).sum();
        if stored == blocks(held.len) {
            held.clusters = Vec::new();
        }
        self.whole.insert(number, held);
    }

    /// Writes these parts to the pack, one directly after the other.
    fn write(&self, parts: &mut Vec<IoSlice>, mut offset: u64) -> Result<()> {
        let mut left = &mut parts[..];
        while !left.is_empty() {
            match pwritev(&self.data, left, offset) {
                Ok(0) => return at(&self.folder, Err(io::Error::from(io::ErrorKind::WriteZero))),
                Ok(count) => {
                    offset += count as u64;
                    IoSlice::advance_slices(&mut left, count);
                }
                Err(Errno::INTR) => {}
                Err(error) => return at(&self.folder, Err(error)),
            }
        }
        parts.clear();
        Ok(())
    }

    fn keep(&mut self, store: &Store) -> Result<String> {
        self.is_settled = true;
        at(&self.folder, ftruncate(&self.data, self.end * BLOCK))?;
        let index: Vec<Held> = self.whole.values().cloned().collect();
        write_index(&self.folder, &index)?;
        // The pack gets the name of this receiver's own folder, which is unique in the store.
        let name = self.folder.parent().and_then(Path::file_name).unwrap_or_default().to_string_lossy().into_owned();
        let place = store.pack_data(&name);
        let place = place.parent().unwrap_or(&place);
        at(place, fs::rename(&self.folder, place))?;
        Ok(name)
    }
}
