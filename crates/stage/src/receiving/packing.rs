//! The contents of a set in packs: contents that arrive are appended to one new pack; contents that the node has stay
//! in their packs.

use crate::image::ContentLocation;
use crate::set::{Content, Digest, Set};
use crate::store::packs::{Held, Pack, write_index};
use crate::store::{Places, Result, Store, TOO_LARGE, at, damaged};
use crate::stream::{BLOCK, Cluster, Stored, blocks};
use rustix::fs::{FlockOperation, flock, ftruncate};
use rustix::io::{Errno, pwritev};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::{self, DirBuilder, File};
use std::io::{self, IoSlice};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Most buffers of one `pwritev` (Linux: `IOV_MAX`).
const PARTS_MAX: usize = 1024;
static ZEROS: [u8; BLOCK as usize] = [0; BLOCK as usize];

pub(super) struct Packing {
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
