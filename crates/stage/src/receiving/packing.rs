//! The contents of a set in packs: what arrives becomes one new pack, what is here stays where it is.

use super::Arrived;
use crate::image::{BLOCK, Place, blocks};
use crate::set::Digest;
use crate::store::packs::{Held, Pack, Places, write_index};
use crate::store::{Result, Store, StoreError, at};
use crate::stream::Content;
use rustix::fs::{FlockOperation, flock, ftruncate};
use rustix::io::{Errno, pwritev};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::{self, DirBuilder, File};
use std::io::{self, IoSlice};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Parts of one write: Linux takes 1024.
const PARTS_MAX: usize = 1024;
static ZEROS: [u8; BLOCK as usize] = [0; BLOCK as usize];

pub(super) struct Packing {
    /// Those with contents of the set that are here.
    packs: Vec<Pack>,
    /// Where each content is or will be; the new pack comes after the others.
    places: Vec<Place>,
    new: Option<NewPack>,
}

struct NewPack {
    folder: PathBuf,
    data: File,
    blocks: u64,
    whole: BTreeMap<u32, Held>,
    /// It has its place, or is not needed.
    is_settled: bool,
}

impl Packing {
    /// Looks which contents are here; the others are missing.
    pub fn begin(store: &Store, contents: &[Content], folder: &Path) -> Result<(Packing, BTreeSet<u32>)> {
        let numbers: HashMap<Digest, usize> =
            contents.iter().enumerate().map(|(number, content)| (content.digest, number)).collect();
        let found = store.packs_with(|digest| numbers.contains_key(digest))?;
        let mut places: Vec<Option<Place>> = vec![None; contents.len()];
        let mut packs: Vec<Pack> = Vec::new();
        for pack in found {
            let Ok(number) = u16::try_from(packs.len()) else { break };
            let mut is_used = false;
            for held in &pack.index {
                let Some(content) = numbers.get(&held.digest) else { continue };
                if places[*content].is_none() && contents[*content].len == held.len {
                    places[*content] = Some(Place { pack: number, block: held.block });
                    is_used = true;
                }
            }
            if is_used {
                packs.push(pack);
            }
        }
        let (own, mut end, mut missing) = (packs.len() as u16, 0, BTreeSet::new());
        let mut place = |number: usize, content: &Content| -> Result<Place> {
            missing.insert(number as u32);
            let block = u32::try_from(end).map_err(|_| StoreError::TooLarge)?;
            end += blocks(content.len);
            Ok(Place { pack: own, block })
        };
        let all = places.into_iter().zip(contents).enumerate();
        let places = all.map(|(number, (here, content))| here.map_or_else(|| place(number, content), Ok));
        let places = places.collect::<Result<Vec<Place>>>()?;
        let new = (!missing.is_empty()).then(|| NewPack::create(&folder.join("pack"), end)).transpose()?;
        Ok((Packing { packs, places, new }, missing))
    }

    /// Bytes that the missing contents will take.
    pub fn wanted(&self) -> u64 {
        self.new.as_ref().map_or(0, |new| new.blocks * BLOCK)
    }

    pub fn write(&mut self, arrived: &[Arrived]) -> Result<()> {
        let Some(new) = &self.new else { return Ok(()) };
        let mut parts: Vec<IoSlice> = Vec::new();
        // Where the parts begin and end.
        let (mut from, mut to) = (0, 0);
        // Holes stay holes.
        for part in arrived.iter().filter(|part| part.bytes.iter().any(|byte| *byte != 0)) {
            let begin = u64::from(self.places[part.content as usize].block) * BLOCK + part.offset;
            let follows = begin >= to && begin - to < BLOCK;
            if !follows || parts.len() + 2 > PARTS_MAX {
                new.write(&mut parts, from)?;
                (from, to) = (begin, begin);
            }
            if begin > to {
                parts.push(IoSlice::new(&ZEROS[..(begin - to) as usize]));
            }
            parts.push(IoSlice::new(part.bytes));
            to = begin + part.bytes.len() as u64;
        }
        new.write(&mut parts, from)
    }

    pub fn complete(&mut self, number: u32, content: &Content) {
        let held = Held { digest: content.digest, block: self.places[number as usize].block, len: content.len };
        if let Some(new) = &mut self.new {
            new.whole.insert(number, held);
        }
    }

    /// Puts the new pack among the others, and writes down where the contents of the set are.
    pub fn finish(&mut self, store: &Store, folder: &Path) -> Result<()> {
        let mut packs: Vec<String> = self.packs.iter().map(|pack| pack.name.clone()).collect();
        packs.extend(self.keep(store)?);
        let places = Places { packs, contents: std::mem::take(&mut self.places) };
        let path = folder.join("places");
        at(&path, fs::write(&path, postcard::to_allocvec(&places).unwrap_or_default()))
    }

    /// What has arrived stays, until somebody needs the room: its name.
    pub fn keep(&mut self, store: &Store) -> Result<Option<String>> {
        match &mut self.new {
            Some(new) if !new.whole.is_empty() && !new.is_settled => new.keep(store).map(Some),
            _ => Ok(None),
        }
    }

    /// What has arrived is not needed.
    pub fn discard(&mut self) {
        if let Some(new) = &mut self.new {
            new.is_settled = true;
        }
    }
}

impl NewPack {
    fn create(folder: &Path, blocks: u64) -> Result<NewPack> {
        at(folder, DirBuilder::new().mode(0o700).create(folder))?;
        let path = folder.join("data");
        let data = at(&path, File::create_new(&path))?;
        // Until the set that it is for is in its place.
        at(&path, flock(&data, FlockOperation::LockShared).map_err(Into::into))?;
        at(&path, ftruncate(&data, blocks * BLOCK).map_err(Into::into))?;
        Ok(NewPack { folder: folder.to_owned(), data, blocks, whole: BTreeMap::new(), is_settled: false })
    }

    /// Writes these parts one behind the other.
    fn write(&self, parts: &mut Vec<IoSlice>, mut offset: u64) -> Result<()> {
        let mut left = &mut parts[..];
        while !left.is_empty() {
            match pwritev(&self.data, left, offset) {
                Ok(0) => return at(&self.folder, Err(io::ErrorKind::WriteZero.into())),
                Ok(count) => {
                    offset += count as u64;
                    IoSlice::advance_slices(&mut left, count);
                }
                Err(Errno::INTR) => {}
                Err(error) => return at(&self.folder, Err(error.into())),
            }
        }
        parts.clear();
        Ok(())
    }

    fn keep(&mut self, store: &Store) -> Result<String> {
        self.is_settled = true;
        let index: Vec<Held> = self.whole.values().copied().collect();
        write_index(&self.folder, &index)?;
        // The name of the folder around it is this receiver's own.
        let name = self.folder.parent().and_then(Path::file_name).unwrap_or_default().to_string_lossy().into_owned();
        let place = store.pack_data(&name);
        let place = place.parent().unwrap_or(&place);
        at(place, fs::rename(&self.folder, place))?;
        Ok(name)
    }
}
