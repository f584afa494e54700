//! What a set in the store needs while it is shown to ranks without mounts, by `libwireup-staged`: files that nobody
//! can change, and a copy of that library.
//!
//! A mount can be read-only, a plain file of the store cannot: so the write bits of its files are removed. Several sets
//! may share one file (hard links). So where mounts can be made, the bits of each set of a store are put back if any
//! were removed in that store, but not as long as any set is shown without mounts. Such a set has a folder `shown-…`,
//! which its keeper has locked.
//!
//! The library has a path that outlives the set: ranks get this path in `LD_AUDIT` and `LD_PRELOAD`, and so does each
//! process that they start. Such a process may outlive the job, and the loader complains about a missing library.

use super::{InUse, Result, at, hex, lock_within};
use crate::set::{Entry, EntryKind};
use rustix::fs::{AtFlags, CWD, FlockOperation, Mode, chmodat, flock, lstat};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

const WRITE: u32 = 0o222;
/// The name of a file in the store that exists if write bits were ever removed; the file is locked while write bits are
/// removed or put back.
const MARK: &str = "protected";
const SHOWN: &str = "shown-";
/// The name of a copy of the library.
const LIBRARY: &str = "libwireup-staged.so.0";

/// A set that is shown without mounts as long as this value is held.
pub struct Shown {
    folder: PathBuf,
    _lock: File,
}

impl Shown {
    /// A new folder for this job's use, which is removed with the set at the latest.
    pub fn folder(&self) -> &Path {
        &self.folder
    }
}

impl InUse {
    /// Removes the write bits, for as long as the result is held.
    pub fn protect(&self) -> Result<Shown> {
        let mark = self.root.join(MARK);
        let alone = at(&mark, File::create(&mark))?;
        at(&mark, lock_within(&alone, FlockOperation::NonBlockingLockExclusive))?;
        let made = at(&self.folder, tempfile::Builder::new().prefix(SHOWN).tempdir_in(&self.folder))?;
        let lock = at(made.path(), File::open(made.path()))?;
        at(made.path(), flock(&lock, FlockOperation::NonBlockingLockShared))?;
        self.remove_bits()?;
        Ok(Shown { folder: made.keep(), _lock: lock })
    }

    fn remove_bits(&self) -> Result<()> {
        let tree = self.tree();
        let mut above = BTreeSet::new();
        for entry in self.set.entries().filter(|entry| !matches!(entry.kind, EntryKind::Link(_))) {
            let path = in_tree(&tree, &entry);
            set_mode(&path, entry.mode & !WRITE)?;
            above.extend(path.ancestors().skip(1).take_while(|folder| folder.starts_with(&tree)).map(Path::to_owned));
        }
        let above = above.iter().filter(|folder| {
            let original = folder.strip_prefix(&tree).map(|inside| Path::new("/").join(inside));
            original.is_ok_and(|original| self.set.find(&original).is_none())
        });
        above.into_iter().try_for_each(|folder| set_mode(folder, 0o555))
    }

    /// Puts the write bits back that [`InUse::protect`] has removed, unless a set is still shown without mounts.
    pub fn restore(&self) -> Result<()> {
        let mark = self.root.join(MARK);
        if !self.is_tree() || !mark.exists() {
            return Ok(());
        }
        let alone = at(&mark, File::open(&mark))?;
        at(&mark, lock_within(&alone, FlockOperation::NonBlockingLockExclusive))?;
        if self.is_any_shown() {
            return Ok(());
        }
        let tree = self.tree();
        let entries = self.set.entries().filter(|entry| !matches!(entry.kind, EntryKind::Link(_)));
        entries.into_iter().try_for_each(|entry| set_mode(&in_tree(&tree, &entry), entry.mode))
    }

    /// The path of a copy of the library, which is this file of the set. The copy lies in a folder that is named by its
    /// content, and is kept until the store is emptied.
    pub fn library(&self, entry: &Entry) -> Result<PathBuf> {
        let EntryKind::File { digest, len } = entry.kind else {
            return at(entry.path(), Err(io::Error::from(io::ErrorKind::InvalidInput)));
        };
        let folder = self.root.join("libraries").join(hex(&digest));
        let place = folder.join(LIBRARY);
        if fs::symlink_metadata(&place).is_ok_and(|meta| meta.is_file() && meta.len() == len) {
            // The copy may be of an earlier job, and every rank is to load the copy, so its content is checked.
            let kept = at(&place, fs::read(&place))?;
            if *blake3::hash(&kept).as_bytes() == digest {
                return at(&place, place.canonicalize());
            }
        }
        at(&folder, DirBuilder::new().recursive(true).mode(0o700).create(&folder))?;
        let from = in_tree(&self.tree(), entry);
        let mut new = at(&folder, tempfile::NamedTempFile::new_in(&folder))?;
        at(&from, File::open(&from).and_then(|mut file| io::copy(&mut file, &mut new)))?;
        at(new.path(), new.as_file().set_permissions(Permissions::from_mode(0o555)))?;
        at(&place, new.persist(&place).map_err(|error| error.error))?;
        at(&place, place.canonicalize())
    }

    /// Whether any set of this store is shown without mounts.
    fn is_any_shown(&self) -> bool {
        let inside = |folder: &Path| fs::read_dir(folder).into_iter().flatten().flatten().map(|inside| inside.path());
        let is_shown = |path: &Path| path.file_name().is_some_and(|name| name.as_bytes().starts_with(SHOWN.as_bytes()));
        // The keeper holds the lock: if it was killed, the kernel has released the lock.
        let is_locked = |path: &Path| {
            File::open(path).is_ok_and(|file| flock(&file, FlockOperation::NonBlockingLockExclusive).is_err())
        };
        inside(&self.root.join("sets"))
            .flat_map(|set| inside(&set).collect::<Vec<_>>())
            .any(|path| is_shown(&path) && is_locked(&path))
    }
}

fn in_tree(tree: &Path, entry: &Entry) -> PathBuf {
    tree.join(OsStr::from_bytes(entry.path.strip_prefix(b"/").unwrap_or(entry.path)))
}

fn set_mode(path: &Path, mode: u32) -> Result<()> {
    let found = at(path, lstat(path))?;
    match Mode::from_raw_mode(found.st_mode) == Mode::from_raw_mode(mode) {
        true => Ok(()),
        false => at(path, chmodat(CWD, path, Mode::from_raw_mode(mode), AtFlags::empty())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::set::Set;
    use crate::store::{Form, Store};
    use crate::testing::{folder_with, stage};

    fn store(folder: &tempfile::TempDir) -> Store {
        Store::open(&folder.path().join("store"), 1 << 20).unwrap().with_form(Form::Tree)
    }

    fn staged(store: &Store, path: &Path) -> InUse {
        let set = Set::collect([path]).unwrap();
        stage(store, &set).unwrap();
        store.use_set(&set.digest()).unwrap().unwrap()
    }

    #[test]
    fn write_bits_are_removed_and_put_back() {
        let folder = folder_with([("env/file", &b"content"[..])]);
        let (env, file) = (folder.path().join("env"), folder.path().join("env/file"));
        fs::set_permissions(&file, fs::Permissions::from_mode(0o664)).unwrap();
        let store = store(&folder);
        let kept = staged(&store, &env);
        let mode = |path: &Path| lstat(kept.tree().join(path.strip_prefix("/").unwrap())).unwrap().st_mode & 0o7777;
        kept.restore().unwrap();
        assert_eq!((mode(&file), mode(&env)), (0o664, 0o755));
        let shown = kept.protect().unwrap();
        let removed = (0o444, 0o555, 0o555);
        assert_eq!((mode(&file), mode(&env), mode(folder.path())), removed);
        // Another set of the same files, with mounts.
        let others = staged(&store, &file);
        others.restore().unwrap();
        kept.restore().unwrap();
        assert_eq!((mode(&file), mode(&env), mode(folder.path())), removed);
        assert!(shown.folder().starts_with(&kept.folder));
        drop((shown, others));
        assert!(store.drop_set(&store.sets().unwrap().iter().find(|set| !set.is_in_use).unwrap().name).unwrap());
        kept.restore().unwrap();
        assert_eq!((mode(&file), mode(&env)), (0o664, 0o755));
        kept.protect().map(drop).unwrap();
        drop(kept);
        assert!(store.drop_set(&store.sets().unwrap()[0].name).unwrap());
        assert!(store.sets().unwrap().is_empty());
    }

    #[test]
    fn the_library_outlives_its_set() {
        let folder = folder_with([("libwireup-staged.so.0.0.0", &b"content"[..])]);
        let file = folder.path().join("libwireup-staged.so.0.0.0");
        let store = store(&folder);
        let kept = staged(&store, &file);
        let entry = kept.set.entries().find(|entry| entry.path() == file).unwrap();
        let library = kept.library(&entry).unwrap();
        assert_eq!(kept.library(&entry).unwrap(), library);
        // A copy that is incomplete or has other contents is made again.
        for content in ["con", "CONTENT"] {
            fs::remove_file(&library).unwrap();
            fs::write(&library, content).unwrap();
            assert_eq!(kept.library(&entry).unwrap(), library);
            assert_eq!(fs::read(&library).unwrap(), b"content");
        }
        drop(kept);
        assert!(store.drop_set(&store.sets().unwrap()[0].name).unwrap());
        assert_eq!(fs::read(&library).unwrap(), b"content");
        assert_eq!(library.file_name().unwrap(), LIBRARY);
    }
}
