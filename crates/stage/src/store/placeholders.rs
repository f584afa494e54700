//! Placeholders: empty folders, empty files and links that a job makes on a node because a staged file is to be shown in a folder that the
//! node does not have.
//!
//! A mount needs something to be mounted on, and in a folder that ranks may write to, the place must really be made. Each placeholder has a
//! record, `STORE/placeholders/NAME`, that says what was made. Each keeper that uses the placeholder holds a shared lock on the record. The
//! last keeper removes both. If keepers were killed, the next process that opens the store does.

use super::packs::is_at;
use super::{Result, at, hex, lock_shared};
use crate::set::{Entry, Kind};
use rustix::fs::{FlockOperation, flock};
use rustix::mount::{UnmountFlags, unmount};
use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};

pub(super) const FOLDER: &str = "placeholders";

/// What is to be made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Placeholder {
    Folder,
    File,
    Link(PathBuf),
}

impl Placeholder {
    pub fn of(entry: &Entry<'_>) -> Placeholder {
        match &entry.kind {
            Kind::Folder => Placeholder::Folder,
            Kind::File { .. } | Kind::Original => Placeholder::File,
            Kind::Link(target) => Placeholder::Link(OsStr::from_bytes(target).into()),
        }
    }

    fn make(&self, path: &Path) -> io::Result<()> {
        let made = match self {
            Placeholder::Folder => DirBuilder::new().mode(0o700).create(path),
            Placeholder::File => OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map(drop),
            Placeholder::Link(target) => symlink(target, path),
        };
        made.or_else(|error| if error.kind() == io::ErrorKind::AlreadyExists { Ok(()) } else { Err(error) })
    }

    /// Removes it unless somebody has put something there.
    fn remove(&self, path: &Path) -> io::Result<()> {
        match self {
            Placeholder::Folder => fs::remove_dir(path),
            Placeholder::File if fs::symlink_metadata(path)?.len() > 0 => Ok(()),
            Placeholder::Link(target) if fs::read_link(path)? != *target => Ok(()),
            Placeholder::File | Placeholder::Link(_) => fs::remove_file(path),
        }
    }

    fn to_record(&self, path: &Path) -> Vec<u8> {
        let (word, target): (&[u8], _) = match self {
            Placeholder::Folder => (b"folder", Path::new("")),
            Placeholder::File => (b"file", Path::new("")),
            Placeholder::Link(target) => (b"link", &**target),
        };
        [word, path.as_os_str().as_bytes(), target.as_os_str().as_bytes()].join(&0)
    }

    fn from_record(record: &[u8]) -> Option<(Placeholder, PathBuf)> {
        let mut parts = record.split(|byte| *byte == 0);
        let (word, path, target) = (parts.next()?, parts.next()?, parts.next()?);
        let path_of = |bytes| PathBuf::from(OsStr::from_bytes(bytes));
        let what = match word {
            b"folder" => Placeholder::Folder,
            b"file" => Placeholder::File,
            b"link" => Placeholder::Link(path_of(target)),
            _ => return None,
        };
        Some((what, path_of(path)))
    }
}

/// A placeholder that is in use, on which something is mounted in the mount namespace of this process.
pub struct Held {
    path: PathBuf,
    record: PathBuf,
    lock: File,
}

impl Held {
    /// Makes `what` at `path` if nothing is there. `None`: there was something that no job has made.
    pub(super) fn make(store: &Path, path: &Path, what: &Placeholder) -> Result<Option<Held>> {
        let record = store.join(FOLDER).join(hex(blake3::hash(path.as_os_str().as_bytes()).as_bytes()));
        if fs::symlink_metadata(path).is_ok() && !record.exists() {
            return Ok(None);
        }
        let lock = loop {
            let open = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(&record);
            let lock = at(&record, open)?;
            at(&record, lock_shared(&lock))?;
            // Otherwise a keeper has removed the record before it was locked here.
            if is_at(&lock, &record) {
                break lock;
            }
        };
        at(&record, fs::write(&record, what.to_record(path)))?;
        at(path, what.make(path))?;
        Ok(Some(Held { path: path.to_owned(), record, lock }))
    }

    /// No process uses it any more in this mount namespace.
    pub fn release(self) {
        // Links are not mounted on.
        let _ = unmount(&self.path, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW);
        remove_unused(&self.record, &self.lock);
    }
}

/// Removes placeholders whose keepers have all ended.
pub(super) fn sweep(store: &Path) {
    for record in fs::read_dir(store.join(FOLDER)).into_iter().flatten().flatten() {
        if let Ok(lock) = File::open(record.path()) {
            remove_unused(&record.path(), &lock);
        }
    }
}

fn remove_unused(record: &Path, lock: &File) {
    let is_unused = flock(lock, FlockOperation::NonBlockingLockExclusive).is_ok() && is_at(lock, record);
    if !is_unused {
        return;
    }
    let made = fs::read(record).ok().and_then(|bytes| Placeholder::from_record(&bytes));
    let removed = made.map_or(Ok(()), |(what, path)| what.remove(&path));
    // What ranks have put into the folder is theirs, and so is the folder then.
    if removed.map_or_else(|error| error.kind() != io::ErrorKind::ResourceBusy, |()| true) {
        let _ = fs::remove_file(record);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Store;

    #[test]
    fn a_placeholder_is_there_until_its_last_user_has_released_it() {
        let home = tempfile::tempdir().unwrap();
        let root = home.path().join("store");
        Store::open(&root, 1 << 20).unwrap();
        let link = Placeholder::Link("elsewhere".into());
        for (name, what) in [("folder", Placeholder::Folder), ("file", Placeholder::File), ("link", link)] {
            let path = home.path().join(name);
            let hold = || Held::make(&root, &path, &what).unwrap().unwrap();
            let (one, other) = (hold(), hold());
            one.release();
            assert!(fs::symlink_metadata(&path).is_ok(), "{name}: another keeper uses it");
            other.release();
            assert!(fs::symlink_metadata(&path).is_err(), "{name}");
            // A keeper was killed: its lock is gone, its placeholder is not.
            drop(hold());
            Store::open(&root, 1 << 20).unwrap();
            assert!(fs::symlink_metadata(&path).is_err(), "{name}");
        }
        assert_eq!(fs::read_dir(root.join(FOLDER)).unwrap().count(), 0);
    }

    #[test]
    fn what_others_have_made_or_filled_stays() {
        let home = tempfile::tempdir().unwrap();
        let root = home.path().join("store");
        Store::open(&root, 1 << 20).unwrap();
        assert!(Held::make(&root, home.path(), &Placeholder::Folder).unwrap().is_none());
        let path = home.path().join("folder");
        let held = Held::make(&root, &path, &Placeholder::Folder).unwrap().unwrap();
        fs::write(path.join("result"), "").unwrap();
        held.release();
        assert!(path.join("result").exists());
        assert!(Held::make(&root, &path, &Placeholder::Folder).unwrap().is_none(), "it is no placeholder any more");
        let file = home.path().join("file");
        let held = Held::make(&root, &file, &Placeholder::File).unwrap().unwrap();
        fs::write(&file, "result").unwrap();
        held.release();
        assert!(file.exists());
    }
}
