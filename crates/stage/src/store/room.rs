//! The size of a store, and the removal of the least recently used sets to make room for a new one.

use super::{Result, Store, at, remove_tree};
use rustix::fs::{FlockOperation, flock, statvfs};
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

impl Store {
    /// Removes the least recently used sets that are not in use, until `wanted` bytes fit.
    pub(crate) fn make_room(&self, wanted: u64) -> Result<()> {
        if wanted == 0 {
            return Ok(());
        }
        self.sweep()?;
        if self.room > 0 && wanted > self.room {
            return Err(self.no_room(wanted, self.room));
        }
        loop {
            let held = self.held()?;
            let stat = at(&self.root, statvfs(&self.root))?;
            let left = stat.f_bavail * stat.f_frsize;
            let room = if self.room == 0 { (held + left) / 2 } else { self.room };
            let free = room.saturating_sub(held).min(left);
            if wanted <= free {
                return Ok(());
            }
            let oldest = self.sets()?.into_iter().filter(|kept| !kept.is_in_use).min_by_key(|kept| kept.used);
            let Some(oldest) = oldest else {
                return Err(self.no_room(wanted, free));
            };
            self.drop_set(&oldest.name)?;
        }
    }

    fn no_room(&self, wanted: u64, free: u64) -> String {
        let root = self.root.display();
        format!(
            "{wanted} bytes do not fit in {root}: {free} are free; raise --stage-room, or choose another \
             folder with --stage=DIR"
        )
    }

    /// Bytes that the store holds, in files and packs: a store that was used with and without the right to mount has
    /// both.
    pub(crate) fn held(&self) -> Result<u64> {
        let objects: u64 = self.objects()?.iter().map(|(_, meta)| meta.len()).sum();
        Ok(objects + self.pack_bytes()?)
    }

    /// Removes contents that no tree links to, and files that killed receivers have left.
    pub(super) fn sweep(&self) -> Result<()> {
        let _alone = self.new_folder(FlockOperation::NonBlockingLockExclusive)?;
        self.sweep_packs()?;
        for (path, meta) in self.objects()? {
            if meta.nlink() == 1 {
                let _ = fs::remove_file(path);
            }
        }
        for left in self.inside("new")? {
            let is_alone = |folder: File| flock(&folder, FlockOperation::NonBlockingLockExclusive).is_ok();
            if File::open(&left).is_ok_and(is_alone) {
                remove_tree(&left)?;
            }
        }
        Ok(())
    }

    pub(super) fn objects(&self) -> Result<Vec<(PathBuf, fs::Metadata)>> {
        let objects = self.inside("objects")?.into_iter();
        Ok(objects.filter_map(|path| Some((path.clone(), fs::symlink_metadata(path).ok()?))).collect())
    }
}
