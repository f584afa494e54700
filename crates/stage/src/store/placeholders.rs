//! Placeholders: empty folders, empty files and links that a job makes on a node because a staged file has a path that
//! does not exist there.
//!
//! A mount needs something to be mounted on, and in a folder in which ranks may create files, the place must really be
//! made.
//!
//! ```text
//!   REGISTRY/lock          locked while a placeholder is made or removed
//!   REGISTRY/NAME          for each placeholder: what was made, where, and its inode; locked (shared) by each keeper
//!                          that uses it
//! ```
//!
//! A user has one registry on a node, whatever folder keeps the staged files: a placeholder that one job has made may
//! be used by another one, and its removal would take away the mounts of that job. The last keeper removes placeholder
//! and record, and the registry if it has no other record. If keepers were killed, the next keeper with staged files
//! removes them. A file or folder that has another inode than the record says, or is not empty, belongs to the user and
//! is kept.
//!
//! No other user can remove or exchange a placeholder: see [`check_owners`].

use crate::set::{Entry, EntryKind};
use rustix::fs::{CWD, FlockOperation, RenameFlags, flock, renameat_with};
use rustix::mount::{UnmountFlags, unmount};
use serde::{Deserialize, Serialize};
use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};

/// The kind of file that is made as a placeholder.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Placeholder {
    Folder,
    File,
    Link(OsString),
}

impl Placeholder {
    pub fn of(entry: &Entry<'_>) -> Placeholder {
        match &entry.kind {
            EntryKind::Folder => Placeholder::Folder,
            EntryKind::File { .. } | EntryKind::Original => Placeholder::File,
            EntryKind::Link(target) => Placeholder::Link(OsStr::from_bytes(target).into()),
        }
    }

    /// # Errors
    /// The user may not write to the folder, or the path exists.
    fn make(&self, path: &Path) -> io::Result<()> {
        match self {
            Placeholder::Folder => DirBuilder::new().mode(0o700).create(path),
            Placeholder::File => OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map(drop),
            Placeholder::Link(target) => symlink(target, path),
        }
    }

    /// Removes the placeholder, unless it is not empty or has another inode. A file is first moved away: another file
    /// that takes its name at this moment stays.
    fn remove(&self, path: &Path, inode: Inode) -> io::Result<()> {
        if Inode::at(path)? != inode {
            return Ok(());
        }
        if *self == Placeholder::Folder {
            return fs::remove_dir(path);
        }
        let mut away = path.as_os_str().to_owned();
        away.push(".wireup-removed");
        let away = PathBuf::from(away);
        renameat_with(CWD, path, CWD, &away, RenameFlags::NOREPLACE)?;
        let is_ours = Inode::at(&away)? == inode && (*self != Placeholder::File || fs::metadata(&away)?.len() == 0);
        match is_ours {
            true => fs::remove_file(&away),
            false => Ok(renameat_with(CWD, &away, CWD, path, RenameFlags::NOREPLACE)?),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Inode {
    device: u64,
    number: u64,
}

impl Inode {
    fn at(path: &Path) -> io::Result<Inode> {
        fs::symlink_metadata(path).map(|meta| Inode::of(&meta))
    }

    fn of(meta: &fs::Metadata) -> Inode {
        Inode { device: meta.dev(), number: meta.ino() }
    }
}

#[derive(Serialize, Deserialize)]
struct Record {
    what: Placeholder,
    path: OsString,
    inode: Inode,
}

impl Record {
    /// The record in a file; `None`: there is none, or it was not written to its end.
    fn read(file: &Path) -> Option<Record> {
        postcard::from_bytes(&fs::read(file).ok()?).ok()
    }

    /// Whether the placeholder is still there.
    fn holds(&self) -> bool {
        Inode::at(Path::new(&self.path)).is_ok_and(|inode| inode == self.inode)
    }
}

/// Most attempts to make a registry that another job has just removed (chosen: far more jobs than end on a node at the
/// same moment).
const LOCK_ATTEMPTS_MAX: u32 = 1_000;

/// The records of a user's placeholders on this node.
pub struct Registry {
    /// The folder with one file for each record, and the lock. The folder exists while there are records or somebody
    /// holds the lock.
    folder: PathBuf,
}

impl Registry {
    /// `folder`: the path of the registry, in a folder that only the user can write to.
    pub fn new(folder: PathBuf) -> Registry {
        Registry { folder }
    }

    fn lock_path(&self) -> PathBuf {
        self.folder.join("lock")
    }

    /// Makes the registry if it is missing, and locks the registry. A lock file that was removed while this process
    /// waited for the lock excludes nobody, so another lock file is made.
    fn lock(&self) -> io::Result<File> {
        let path = self.lock_path();
        for _ in 0..LOCK_ATTEMPTS_MAX {
            match DirBuilder::new().mode(0o700).create(&self.folder) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
            let lock = match OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                lock => lock?,
            };
            super::lock_within(&lock, FlockOperation::NonBlockingLockExclusive)?;
            if Inode::at(&path).is_ok_and(|inode| lock.metadata().is_ok_and(|meta| inode == Inode::of(&meta))) {
                return Ok(lock);
            }
        }
        Err(io::ErrorKind::WouldBlock.into())
    }

    /// Removes the registry if it has no records: first the lock, then the folder. The folder is kept if another
    /// process makes a lock between the two removals.
    fn remove_if_empty(&self) {
        if !self.folder.exists() {
            return;
        }
        let Ok(_alone) = self.lock() else { return };
        let mut names = fs::read_dir(&self.folder).into_iter().flatten();
        if names.all(|entry| entry.is_ok_and(|entry| entry.file_name() == "lock")) {
            let _ = fs::remove_file(self.lock_path()).and_then(|()| fs::remove_dir(&self.folder));
        }
    }

    fn record_of(&self, path: &Path) -> PathBuf {
        self.folder.join(blake3::hash(path.as_os_str().as_bytes()).to_hex().as_str())
    }

    /// Makes `what` at `path` if nothing is there. `None`: a file or folder that no job has made is at `path`.
    pub(crate) fn hold(&self, path: &Path, what: &Placeholder) -> io::Result<Option<HeldPlaceholder>> {
        let _alone = self.lock()?;
        let file = self.record_of(path);
        let known = Record::read(&file).filter(Record::holds);
        if known.is_none() {
            match fs::symlink_metadata(path) {
                Ok(_) => return Ok(None),
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                Err(_) => {}
            }
            check_owners(path)?;
            what.make(path)?;
            let made = Inode::at(path).and_then(|inode| {
                let record = Record { what: what.clone(), path: path.into(), inode };
                let bytes = postcard::to_allocvec(&record).map_err(io::Error::other)?;
                // The record of a placeholder that is gone may be in the way.
                let _ = fs::remove_file(&file);
                let mut new = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&file)?;
                new.write_all(&bytes).inspect_err(|_| drop(what.remove(path, inode)))
            });
            made?;
        }
        let record = File::open(&file)?;
        flock(&record, FlockOperation::NonBlockingLockShared)?;
        Ok(Some(HeldPlaceholder { path: path.to_owned(), record }))
    }

    /// Unmounts and removes the placeholder. No process of this mount namespace uses it any longer.
    fn release(&self, held: HeldPlaceholder) {
        // Nothing is mounted on a symbolic link, nor on a placeholder whose file could not be shown.
        let _ = unmount(&held.path, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW);
        if let Ok(_alone) = self.lock() {
            remove_unused(&self.record_of(&held.path), &held.record);
        }
    }

    /// Removes placeholders whose keepers have all ended.
    pub fn sweep(&self) {
        if !self.folder.exists() {
            return;
        }
        let Ok(_alone) = self.lock() else { return };
        let mut unused = Vec::new();
        for file in fs::read_dir(&self.folder).into_iter().flatten().flatten() {
            if let Ok(record) = File::open(file.path())
                && let Some(known) = Record::read(&file.path())
            {
                unused.push((known.path, file.path(), record));
            }
        }
        // Descending order: the contents of a folder are removed before the folder, which must be empty by then.
        unused.sort_by(|one, other| other.0.cmp(&one.0));
        unused.iter().for_each(|(_, file, record)| remove_unused(file, record));
    }
}

fn remove_unused(file: &Path, record: &File) {
    if flock(record, FlockOperation::NonBlockingLockExclusive).is_err() {
        return;
    }
    let removed = Record::read(file).map_or(Ok(()), |known| known.what.remove(Path::new(&known.path), known.inode));
    // A folder into which ranks have put files is kept, and is no placeholder from then on. The removal of a
    // placeholder that is mounted on is tried again later.
    if removed.map_or_else(|error| error.kind() != io::ErrorKind::ResourceBusy, |()| true) {
        let _ = fs::remove_file(file);
    }
}

/// A placeholder that is in use, on which something is mounted in the mount namespace of this process.
pub struct HeldPlaceholder {
    path: PathBuf,
    record: File,
}

/// Placeholders of a job, which are released when this value is dropped: the last placeholder, which may lie in another
/// placeholder, is released first.
pub struct Placeholders {
    registry: Registry,
    held: Vec<HeldPlaceholder>,
}

impl Placeholders {
    /// An empty list of placeholders; removes the placeholders of jobs whose keepers were killed.
    pub fn new(registry: Registry) -> Placeholders {
        registry.sweep();
        Placeholders { registry, held: Vec::new() }
    }

    pub(crate) fn hold(&mut self, path: &Path, what: &Placeholder) -> io::Result<()> {
        self.held.extend(self.registry.hold(path, what)?);
        Ok(())
    }
}

impl Drop for Placeholders {
    fn drop(&mut self) {
        while let Some(last) = self.held.pop() {
            self.registry.release(last);
        }
        self.registry.remove_if_empty();
    }
}

/// Whether no other user can remove what is at `path`, or put something in its place: below a folder to which everybody
/// may write, which must have the sticky bit, everything on the way belongs to this user or to root. Another user who
/// removes a file also removes what is mounted on it for the ranks, and could then run a program of their own in its
/// place.
///
/// # Errors
/// Another user can remove or replace it.
pub(crate) fn check_owners(path: &Path) -> io::Result<()> {
    let own = rustix::process::geteuid().as_raw();
    let mut above = 0;
    let ways: Vec<&Path> = path.ancestors().collect();
    for way in ways.into_iter().rev() {
        let meta = fs::symlink_metadata(way).ok();
        let (everybody, sticky) = (above & 0o002 != 0, above & 0o1000 != 0);
        let is_ours = meta.is_none_or(|meta| [0, own].contains(&meta.uid()));
        if everybody && !(sticky && is_ours) {
            let text = format!("{} can be changed by another user", way.display());
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
        }
        above = fs::metadata(way).map_or(0, |meta| if meta.is_dir() { meta.mode() } else { 0 });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn registry(home: &Path) -> Registry {
        Registry::new(home.join("registry"))
    }

    fn records(home: &Path) -> usize {
        fs::read_dir(home.join("registry")).unwrap().count() - 1
    }

    #[test]
    fn a_placeholder_is_there_until_its_last_user_has_released_it() {
        let home = tempfile::tempdir().unwrap();
        let (one, other) = (registry(home.path()), registry(home.path()));
        let link = Placeholder::Link("elsewhere".into());
        for (name, what) in [("folder", Placeholder::Folder), ("file", Placeholder::File), ("link", link)] {
            let path = home.path().join(name);
            let is_there = || fs::symlink_metadata(&path).is_ok();
            let [first, second] = [&one, &other].map(|registry| registry.hold(&path, &what).unwrap().unwrap());
            one.release(first);
            assert!(is_there(), "{name}: another keeper uses it");
            one.sweep();
            assert!(is_there(), "{name}: another keeper uses it");
            other.release(second);
            assert!(!is_there(), "{name}");
        }
        assert_eq!(records(home.path()), 0);
    }

    #[test]
    fn what_killed_keepers_have_left_is_swept() {
        let home = tempfile::tempdir().unwrap();
        let registry = registry(home.path());
        for (name, what) in [("a", Placeholder::Folder), ("a/b", Placeholder::Folder), ("a/b/c", Placeholder::File)] {
            drop(registry.hold(&home.path().join(name), &what).unwrap().unwrap());
        }
        registry.sweep();
        assert!(!home.path().join("a").exists());
        assert_eq!(records(home.path()), 0);
    }

    #[test]
    fn what_users_have_made_or_filled_stays() {
        let home = tempfile::tempdir().unwrap();
        let registry = registry(home.path());
        let at = |name: &str| home.path().join(name);
        assert!(registry.hold(home.path(), &Placeholder::Folder).unwrap().is_none());
        let held = registry.hold(&at("folder"), &Placeholder::Folder).unwrap().unwrap();
        fs::write(at("folder/result"), "").unwrap();
        registry.release(held);
        assert!(at("folder/result").exists());
        assert!(registry.hold(&at("folder"), &Placeholder::Folder).unwrap().is_none(), "it is the user's from now on");
        let held = registry.hold(&at("file"), &Placeholder::File).unwrap().unwrap();
        fs::write(at("file"), "result").unwrap();
        registry.release(held);
        assert!(at("file").exists());
        // A keeper was killed, and the user has put an empty file of their own instead of the placeholder.
        drop(registry.hold(&at("done"), &Placeholder::File).unwrap().unwrap());
        fs::write(at("other"), "").unwrap();
        fs::rename(at("other"), at("done")).unwrap();
        registry.sweep();
        assert!(at("done").exists() && registry.hold(&at("done"), &Placeholder::File).unwrap().is_none());
        // A placeholder that cannot be made leaves no record.
        assert!(registry.hold(&at("missing/file"), &Placeholder::File).is_err());
        assert_eq!(records(home.path()), 0);
    }

    /// Each thread stands for a keeper.
    #[test]
    fn the_registry_is_there_as_long_as_somebody_needs_it() {
        const THREADS: usize = 4;
        let home = tempfile::tempdir().unwrap();
        drop(Placeholders::new(registry(home.path())));
        assert!(!home.path().join("registry").exists(), "nothing is made without a placeholder");
        std::thread::scope(|scope| {
            for number in 0..THREADS {
                let path = home.path().join(format!("{}", number % 2));
                let registry = || registry(home.path());
                scope.spawn(move || {
                    for _ in 0..200 {
                        let mut placeholders = Placeholders::new(registry());
                        placeholders.hold(&path, &Placeholder::Folder).unwrap();
                        assert!(path.exists(), "it is held");
                        assert_eq!(placeholders.held.len(), 1, "it is a placeholder");
                    }
                });
            }
        });
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0);
    }

    #[test]
    fn places_that_another_user_can_change_are_refused() {
        let home = tempfile::tempdir().unwrap();
        let all = home.path().join("all");
        fs::create_dir(&all).unwrap();
        let allow = |mode| fs::set_permissions(&all, fs::Permissions::from_mode(mode)).unwrap();
        let registry = registry(home.path());
        allow(0o777);
        assert!(registry.hold(&all.join("file"), &Placeholder::File).is_err(), "anybody may exchange it");
        allow(0o1777);
        let held = registry.hold(&all.join("file"), &Placeholder::File).unwrap().unwrap();
        registry.release(held);
        if rustix::process::geteuid().is_root() {
            fs::create_dir(all.join("theirs")).unwrap();
            std::os::unix::fs::chown(all.join("theirs"), Some(61002), Some(61002)).unwrap();
            assert!(registry.hold(&all.join("theirs/file"), &Placeholder::File).is_err());
            assert!(check_owners(&all.join("theirs")).is_err());
        }
    }
}
