//! Where a node keeps what was staged: contents by their digests, and a tree of links to them for each set.
//!
//! ```text
//!   STORE/                 0700, the user's
//!     objects/DIGEST-MODE-TIME    a content with the bits and the time of a file: the trees' files are hard links to it
//!     sets/DIGEST/manifest        there when the set is whole; its time is that of the last use
//!     sets/DIGEST/tree/…          the files under their original names; locked while in use
//!     new/…                       what is being received or removed; the rest is removed when who did it has ended
//!     made-by                     the version of this, and the boot id of the machine
//! ```
//!
//! Files are read-only. Several receivers may work at once: each has files of its own, and the last step of each is one rename.

use crate::receiving::Receiving;
use crate::set::{Digest, Entry, Kind, Problem, Set};
use rustix::fs::{FlockOperation, StatVfsMountFlags, flock, statvfs};
use std::fmt::Write as _;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};
use thiserror::Error;

#[derive(Error, Debug)]
pub enum StoreError {
    #[error("{}: {error}", path.display())]
    Io { path: PathBuf, error: io::Error },
    #[error("{}: it belongs to somebody else, or others may write to it; remove it", .0.display())]
    NotOurs(PathBuf),
    #[error("{wanted} bytes do not fit in {}: {free} are free; a larger --stage-room, or another --stage=DIR", path.display())]
    NoRoom { path: PathBuf, wanted: u64, free: u64 },
    #[error("{}: its file system is mounted noexec, so no program can be run from it; choose another folder with --stage=DIR", .0.display())]
    NoExec(PathBuf),
    #[error("{}: it arrived with another content than was announced", .0.display())]
    Damaged(PathBuf),
    #[error(transparent)]
    Set(#[from] Problem),
}

pub(crate) type Result<T> = std::result::Result<T, StoreError>;

pub(crate) fn at<T>(path: &Path, result: io::Result<T>) -> Result<T> {
    result.map_err(|error| StoreError::Io { path: path.to_owned(), error })
}

pub struct Store {
    root: PathBuf,
    /// Most bytes that it may hold.
    room: u64,
}

/// A set in use: it is not removed.
pub struct InUse {
    pub set: Set,
    pub tree: PathBuf,
    _lock: File,
}

/// A set in the store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Kept {
    pub name: String,
    pub bytes: u64,
    pub files: usize,
    pub used: SystemTime,
    pub is_in_use: bool,
    /// The files and folders that were named; those in folders are not.
    pub roots: Vec<PathBuf>,
}

/// The version of what is in a store.
const FORMAT: u32 = 1;
/// How long to wait for one that removes sets, or looks which are in use (chosen).
const LOCK_MAX: Duration = Duration::from_secs(2);
const LOCK_PAUSE: Duration = Duration::from_millis(5);

fn lock_shared(file: &File) -> io::Result<()> {
    let until = Instant::now() + LOCK_MAX;
    loop {
        match flock(file, FlockOperation::NonBlockingLockShared) {
            Err(rustix::io::Errno::WOULDBLOCK) if Instant::now() < until => std::thread::sleep(LOCK_PAUSE),
            result => return Ok(result?),
        }
    }
}

impl Store {
    /// `room`: bytes that it may hold; 0: half of what its file system has for it.
    ///
    /// # Errors
    /// The folder cannot be made, or may be written to by others.
    pub fn open(root: &Path, room: u64) -> Result<Store> {
        for folder in [root.to_owned(), root.join("objects"), root.join("sets"), root.join("new")] {
            match DirBuilder::new().mode(0o700).create(&folder) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                made => at(&folder, made)?,
            }
            let meta = at(&folder, fs::symlink_metadata(&folder))?;
            if !meta.is_dir() || meta.uid() != rustix::process::geteuid().as_raw() || meta.mode() & 0o077 != 0 {
                return Err(StoreError::NotOurs(folder));
            }
        }
        if at(root, statvfs(root).map_err(Into::into))?.f_flag.contains(StatVfsMountFlags::NOEXEC) {
            return Err(StoreError::NoExec(root.to_owned()));
        }
        let store = Store { root: root.to_owned(), room };
        store.renew()?;
        Ok(store)
    }

    /// Empties the store if the machine was started again, or another version has made it: a file system may have lost what was written
    /// just before, and the contents are trusted by their names.
    fn renew(&self) -> Result<()> {
        let path = self.root.join("made-by");
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let own = format!("{FORMAT} {boot}");
        if fs::read_to_string(&path).is_ok_and(|made_by| made_by == own) {
            return Ok(());
        }
        for folder in ["sets", "objects", "new"].map(|folder| self.root.join(folder)) {
            if path.exists() {
                remove_tree(&folder)?;
                at(&folder, DirBuilder::new().mode(0o700).create(&folder))?;
            }
        }
        let new = at(&self.root, tempfile::NamedTempFile::new_in(&self.root))?;
        at(new.path(), fs::write(new.path(), own))?;
        at(&path, new.persist(&path).map(drop).map_err(|error| error.error))
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    pub(crate) fn set_folder(&self, set: &Digest) -> PathBuf {
        self.root.join("sets").join(hex(set))
    }

    /// The set, if it is here.
    ///
    /// # Errors
    /// It cannot be locked.
    pub fn take(&self, set: &Digest) -> Result<Option<InUse>> {
        let folder = self.set_folder(set);
        let manifest = folder.join("manifest");
        let Ok(lock) = File::open(&manifest) else { return Ok(None) };
        at(&manifest, lock_shared(&lock))?;
        // It may have been removed before it was locked, and another one may have taken its place.
        let number = |meta: fs::Metadata| (meta.dev(), meta.ino());
        if fs::metadata(&manifest).ok().map(number) != lock.metadata().ok().map(number) {
            return Ok(None);
        }
        at(&manifest, lock.set_modified(SystemTime::now()))?;
        let set = Set::from_manifest(&at(&manifest, fs::read(&manifest))?)?;
        Ok(Some(InUse { set, tree: folder.join("tree"), _lock: lock }))
    }

    /// Begins to receive a set.
    ///
    /// # Errors
    /// There is no room for what is missing, even without the sets that are not in use.
    pub fn receive(&self, set: Set) -> Result<Receiving<'_>> {
        let receiving = Receiving::begin(self, set)?;
        self.make_room(receiving.missing().iter().map(|number| receiving.len_of(*number)).sum())?;
        Ok(receiving)
    }

    /// Removes what was not used for the longest time, until so many bytes fit.
    fn make_room(&self, wanted: u64) -> Result<()> {
        if wanted == 0 {
            return Ok(());
        }
        self.sweep()?;
        if self.room > 0 && wanted > self.room {
            return Err(StoreError::NoRoom { path: self.root.clone(), wanted, free: self.room });
        }
        loop {
            let held: u64 = self.objects()?.iter().map(|(_, meta)| meta.len()).sum();
            let stat = at(&self.root, statvfs(&self.root).map_err(Into::into))?;
            let left = stat.f_bavail * stat.f_frsize;
            let room = if self.room == 0 { (held + left) / 2 } else { self.room };
            let free = room.saturating_sub(held).min(left);
            if wanted <= free {
                return Ok(());
            }
            let oldest = self.sets()?.into_iter().filter(|kept| !kept.is_in_use).min_by_key(|kept| kept.used);
            let Some(oldest) = oldest else {
                return Err(StoreError::NoRoom { path: self.root.clone(), wanted, free });
            };
            self.drop_set(&oldest.name)?;
        }
    }

    /// The sets that are here.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn sets(&self) -> Result<Vec<Kept>> {
        let folder = self.root.join("sets");
        let mut all = Vec::new();
        for inside in at(&folder, fs::read_dir(&folder))? {
            let inside = at(&folder, inside)?;
            let path = inside.path().join("manifest");
            let Ok(manifest) = File::open(&path) else { continue };
            // What cannot be read can be dropped like any other.
            let set = fs::read(&path).ok().and_then(|bytes| Set::from_manifest(&bytes).ok()).unwrap_or_default();
            let is_in_use = flock(&manifest, FlockOperation::NonBlockingLockExclusive).is_err();
            let used = at(&path, manifest.metadata().and_then(|meta| meta.modified()))?;
            let name = inside.file_name().to_string_lossy().into_owned();
            let roots = set.roots().map(|entry| entry.path().to_owned()).collect();
            all.push(Kept { name, bytes: set.len(), files: set.files(), used, is_in_use, roots });
        }
        Ok(all)
    }

    /// Removes a set, unless it is in use.
    ///
    /// # Errors
    /// It cannot be removed.
    pub fn drop_set(&self, name: &str) -> Result<bool> {
        let folder = self.root.join("sets").join(name);
        let manifest = folder.join("manifest");
        let Ok(lock) = File::open(&manifest) else { return Ok(false) };
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            return Ok(false);
        }
        // Away in one step: what is in `new` is removed by the next one, if this process is killed.
        let away = at(&self.root, tempfile::Builder::new().prefix("drop-").tempdir_in(self.root.join("new")))?.keep();
        at(&folder, fs::rename(&folder, away.join("set")))?;
        remove_tree(&away)?;
        self.sweep()?;
        Ok(true)
    }

    /// Removes contents that no tree links to, and what killed receivers have left.
    fn sweep(&self) -> Result<()> {
        for (path, meta) in self.objects()? {
            if meta.nlink() == 1 {
                let _ = fs::remove_file(path);
            }
        }
        let new = self.root.join("new");
        for inside in at(&new, fs::read_dir(&new))?.flatten() {
            let is_left = File::open(inside.path())
                .is_ok_and(|folder| flock(&folder, FlockOperation::NonBlockingLockExclusive).is_ok());
            if is_left {
                remove_tree(&inside.path())?;
            }
        }
        Ok(())
    }

    fn objects(&self) -> Result<Vec<(PathBuf, fs::Metadata)>> {
        let folder = self.root.join("objects");
        let mut all = Vec::new();
        for inside in at(&folder, fs::read_dir(&folder))? {
            let inside = at(&folder, inside)?;
            if let Ok(meta) = inside.metadata() {
                all.push((inside.path(), meta));
            }
        }
        Ok(all)
    }
}

/// Removes a folder, also one whose folders are read-only.
pub(crate) fn remove_tree(path: &Path) -> Result<()> {
    let Ok(inside) = fs::read_dir(path) else { return Ok(()) };
    let _ = fs::set_permissions(path, fs::Permissions::from_mode(0o700));
    for entry in inside.flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => remove_tree(&entry.path())?,
            _ => at(&entry.path(), fs::remove_file(entry.path()))?,
        }
    }
    match fs::remove_dir(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => at(path, Err(error)),
        _ => Ok(()),
    }
}

pub(crate) fn digest(entry: &Entry) -> Option<Digest> {
    if let Kind::File { len: 1.., digest } = entry.kind { Some(digest) } else { None }
}

/// The name of a file's object.
pub(crate) fn object(entry: &Entry) -> Option<String> {
    let (seconds, nanoseconds) = entry.modified;
    Some(format!("{}-{:o}-{seconds}.{nanoseconds}", hex(&digest(entry)?), entry.mode))
}

fn hex(digest: &Digest) -> String {
    digest.iter().fold(String::with_capacity(2 * digest.len()), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stream::{Part, Piece, Receiver, Sender};
    use std::os::unix::fs::symlink;

    const ROOM: u64 = 1 << 30;

    struct Bench {
        files: tempfile::TempDir,
        home: tempfile::TempDir,
    }

    impl Bench {
        fn new() -> Bench {
            Bench { files: tempfile::tempdir().unwrap(), home: tempfile::tempdir().unwrap() }
        }

        fn store(&self, room: u64) -> Store {
            Store::open(&self.home.path().join("store"), room).unwrap()
        }

        fn file(&self, name: &str, content: &[u8]) -> PathBuf {
            let path = self.files.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, content).unwrap();
            path
        }

        fn set(&self) -> Set {
            Set::collect([self.files.path()]).unwrap()
        }
    }

    /// Sends a set to a store; how many bytes of contents were sent.
    fn stage(store: &Store, set: &Set) -> Result<u64> {
        let mut receiving = store.receive(set.clone())?;
        let mut sender = Sender::new(set);
        sender.want_set();
        sender.want(receiving.missing());
        let (bytes, mut receiver) = (sender.bytes_left(), Receiver::default());
        while let Part::Bytes(part) = sender.next_part()? {
            receiver.room()[..part.len()].copy_from_slice(&part);
            receiver.fill(part.len());
            while let Some(piece) = receiver.next_piece().unwrap() {
                if let Piece::Bytes { content, offset, bytes } = piece {
                    receiving.write(content, offset, &bytes)?;
                }
            }
        }
        receiving.finish()?;
        Ok(bytes)
    }

    #[test]
    fn a_staged_set_has_the_same_files() {
        let bench = Bench::new();
        bench.file("a/long", &vec![7; 700_000]);
        let program = bench.file("a/program", b"#!/bin/sh\n");
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        bench.file("copy", b"#!/bin/sh\n");
        bench.file("empty", b"");
        symlink("a/program", bench.files.path().join("link")).unwrap();
        fs::set_permissions(bench.files.path().join("a"), fs::Permissions::from_mode(0o555)).unwrap();
        let (store, set) = (bench.store(ROOM), bench.set());
        assert_eq!(stage(&store, &set).unwrap(), 700_010);
        let tree = store.take(&set.digest()).unwrap().unwrap().tree;
        let staged = tree.join(bench.files.path().strip_prefix("/").unwrap());
        let mut there = Set::collect([&*staged]).unwrap();
        for entry in &mut there.entries {
            entry.path.drain(..tree.as_os_str().len());
        }
        assert_eq!(there, set);
        fs::set_permissions(bench.files.path().join("a"), fs::Permissions::from_mode(0o755)).unwrap();
    }

    #[test]
    fn what_is_here_is_not_sent_again() {
        let bench = Bench::new();
        bench.file("same", &[1; 1_000]);
        bench.file("other", &[2; 500]);
        let store = bench.store(ROOM);
        assert_eq!(stage(&store, &bench.set()).unwrap(), 1_500);
        assert_eq!(stage(&store, &bench.set()).unwrap(), 0);
        bench.file("other", &[3; 400]);
        assert_eq!(stage(&store, &bench.set()).unwrap(), 400);
        assert_eq!(store.sets().unwrap().len(), 2);
    }

    #[test]
    fn the_set_that_was_not_used_for_the_longest_time_makes_room() {
        let bench = Bench::new();
        let store = bench.store(2_500);
        let sets: Vec<Set> = (1..4)
            .map(|byte| {
                bench.file("file", &[byte; 1_000]);
                let set = bench.set();
                if byte < 3 {
                    stage(&store, &set).unwrap();
                }
                set
            })
            .collect();
        // The first one is used now, so the second one goes.
        let first = store.take(&sets[0].digest()).unwrap().unwrap();
        bench.file("file", &[3; 1_000]);
        stage(&store, &bench.set()).unwrap();
        assert!(store.take(&sets[1].digest()).unwrap().is_none());
        assert!(first.tree.exists());
        drop(first);
        bench.file("file", &[4; 2_600]);
        let refused = stage(&store, &bench.set());
        assert!(matches!(refused, Err(StoreError::NoRoom { wanted: 2_600, .. })), "{refused:?}");
    }

    #[test]
    fn other_bytes_than_announced_are_refused_and_leave_nothing() {
        let bench = Bench::new();
        bench.file("file", &[1; 1_000]);
        let (store, set) = (bench.store(ROOM), bench.set());
        let mut receiving = store.receive(set.clone()).unwrap();
        receiving.write(0, 0, &[1; 500]).unwrap();
        assert!(matches!(receiving.write(0, 501, &[1; 499]), Err(StoreError::Damaged(_))));
        receiving.spoil(0);
        // The rest of a spoiled content says nothing; its second copy is taken.
        receiving.write(0, 500, &[1; 500]).unwrap();
        assert!(receiving.missing().contains(&0));
        receiving.write(0, 0, &[1; 1_000]).unwrap();
        assert!(receiving.missing().is_empty());
        drop(receiving);
        // What had arrived is still there, until somebody needs the room.
        assert!(store.receive(set.clone()).unwrap().missing().is_empty());
        bench.file("file", &[2; 1_000]);
        let set = bench.set();
        let mut receiving = store.receive(set.clone()).unwrap();
        receiving.write(0, 0, &[2; 999]).unwrap();
        assert!(matches!(receiving.finish(), Err(StoreError::Damaged(_))));
        assert!(store.take(&set.digest()).unwrap().is_none());
        assert_eq!(fs::read_dir(bench.home.path().join("store/new")).unwrap().count(), 0);
        assert_eq!(stage(&store, &set).unwrap(), 1_000);
    }

    #[test]
    fn a_store_that_others_may_change_is_refused() {
        let bench = Bench::new();
        let root = bench.home.path().join("store");
        drop(bench.store(ROOM));
        fs::set_permissions(root.join("objects"), fs::Permissions::from_mode(0o770)).unwrap();
        assert!(matches!(Store::open(&root, ROOM), Err(StoreError::NotOurs(_))));
        symlink(bench.files.path(), bench.home.path().join("link")).unwrap();
        assert!(Store::open(&bench.home.path().join("link"), ROOM).is_err());
    }

    #[test]
    fn dropped_sets_leave_no_content() {
        let bench = Bench::new();
        bench.file("file", &[1; 1_000]);
        let (store, set) = (bench.store(ROOM), bench.set());
        stage(&store, &set).unwrap();
        let used = store.take(&set.digest()).unwrap();
        assert!(!store.drop_set(&hex(&set.digest())).unwrap(), "it is in use");
        drop(used);
        assert!(store.drop_set(&hex(&set.digest())).unwrap());
        assert_eq!((store.objects().unwrap().len(), store.sets().unwrap().len()), (0, 0));
    }

    #[test]
    fn what_is_left_of_a_set_and_a_store_of_another_start_are_cleared() {
        let bench = Bench::new();
        bench.file("file", &[1; 1_000]);
        let (store, set) = (bench.store(ROOM), bench.set());
        stage(&store, &set).unwrap();
        let root = bench.home.path().join("store");
        let manifest = root.join("sets").join(hex(&set.digest())).join("manifest");
        fs::remove_file(&manifest).unwrap();
        stage(&store, &set).unwrap();
        assert!(store.take(&set.digest()).unwrap().is_some());
        fs::write(&manifest, b"").unwrap();
        assert_eq!(store.sets().unwrap().len(), 1, "a damaged one can be dropped");
        fs::write(root.join("made-by"), b"another start").unwrap();
        let store = bench.store(ROOM);
        assert_eq!((store.sets().unwrap().len(), store.objects().unwrap().len()), (0, 0));
        assert_eq!(stage(&store, &set).unwrap(), 1_000);
    }
}
