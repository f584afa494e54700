//! Where a node keeps what was staged: contents by their digests, and a way to see each set under its original names.
//!
//! ```text
//!   STORE/                 0700, the user's
//!     packs/NAME/…                files with many contents (`packs`)
//!     sets/DIGEST/manifest        there when the set is whole; its time is that of the last use; locked while in use
//!     sets/DIGEST/places          where its contents are in the packs: an image of it is mounted when a job uses it
//!     new/…                       what is being received or removed; the rest is removed when who did it has ended
//!     made-by                     the version of this, the boot id and the name of the machine; `renewing` is locked
//!                                 while it changes
//!
//!   where images cannot be mounted, instead of packs:
//!     objects/DIGEST-MODE-TIME    a content with the bits and the time of a file: the trees' files are hard links
//!                                 to it
//!     sets/DIGEST/tree/…          the files under their original names
//!     libraries/DIGEST/…          a copy of `libwireup-staged`, which stays until the store is emptied
//!     protected                   there once files were shown without mounts: then their write bits are removed
//!     sets/DIGEST/shown-…/        the map for `libwireup-staged`, if processes cannot have mounts either
//! ```
//!
//! Files are read-only. Several receivers may work at once: each has files of its own, and the last step of each is one
//! rename.

pub(crate) mod packs;
pub(crate) mod placeholders;
#[cfg(test)]
mod tests;
pub(crate) mod tree;
mod without_mounts;

use crate::image::{ContentLocation, image};
use crate::mounts::{Files, may_mount, owner};
use crate::set::{Digest, Entry, EntryKind, Set};
pub use placeholders::{Placeholders, Registry};
use rustix::fs::{FlockOperation, StatVfsMountFlags, flock, statvfs};
use serde::{Deserialize, Serialize};
use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};
pub use without_mounts::Shown;

/// Errors are texts for the user.
pub(crate) type Result<T> = std::result::Result<T, String>;

pub(crate) fn at<T>(path: &Path, result: std::result::Result<T, impl Into<io::Error>>) -> Result<T> {
    result.map_err(|error| problem_at(path, error.into()))
}

pub(crate) fn problem_at(path: &Path, problem: impl Display) -> String {
    format!("{}: {problem}", path.display())
}

/// The reason why a set is refused: numbers of blocks in an image have 32 bits.
pub(crate) const TOO_LARGE: &str = "more than 16 TiB cannot be staged at once; stage less";

/// The message that a content of a set differs from the announced content.
pub(crate) fn damaged(set: &Set, content: u32) -> String {
    problem_at(set.path_of(&set.contents()[content as usize]), "its content is not what was announced")
}

fn busy(path: &Path) -> String {
    problem_at(path, "it is being changed by another process, which does not end; try again")
}

pub struct Store {
    root: PathBuf,
    /// Most bytes that the store may hold; 0: half of what its file system has for it.
    room: u64,
    form: OnceCell<Form>,
}

/// How sets are kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// Contents in packs, and a file system image for each set, which is mounted.
    Image,
    /// Plain files under their original names, which needs no right to mount.
    Tree,
}

/// The locations of a set's contents in packs, by the numbers of the contents.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Places {
    /// Names of packs.
    pub packs: Vec<String>,
    pub contents: Vec<ContentLocation>,
}

impl Places {
    pub fn read(set: &Path) -> Option<Places> {
        postcard::from_bytes(&fs::read(set.join("places")).ok()?).ok()
    }

    /// Reads only the names of the packs from a set's list of places.
    pub fn read_packs(set: &Path) -> Option<Vec<String>> {
        let bytes = fs::read(set.join("places")).ok()?;
        postcard::take_from_bytes(&bytes).ok().map(|(packs, _)| packs)
    }
}

/// A set in use, which is locked so that nobody removes it.
pub struct InUse {
    pub set: Set,
    folder: PathBuf,
    /// The root of the store.
    root: PathBuf,
    _lock: File,
}

impl InUse {
    pub fn is_tree(&self) -> bool {
        self.tree().exists()
    }

    /// The folder with the files of the set; it exists only if the set is kept as [`Form::Tree`].
    pub fn tree(&self) -> PathBuf {
        self.folder.join("tree")
    }

    /// Makes the set's files accessible. If the set is kept as an image, mounts the image over the store's folder, in
    /// the mount namespace of this process, which must not share that namespace with other processes.
    ///
    /// # Errors
    /// The image cannot be mounted, or parts of the set are missing.
    pub fn files(&self) -> Result<Files> {
        let Some(places) = Places::read(&self.folder) else { return at(&self.tree(), Files::of_tree(&self.tree())) };
        let open = |name: &String| {
            let path = self.root.join("packs").join(name).join("data");
            at(&path, File::open(&path).and_then(|file| Ok((file.metadata()?.len(), file))))
        };
        let packs = places.packs.iter().map(open).collect::<Result<Vec<_>>>()?;
        let (lens, packs): (Vec<u64>, Vec<File>) = packs.into_iter().unzip();
        let numbers = self.set.contents().iter().map(|content| content.digest).zip(places.contents);
        let numbers: BTreeMap<Digest, ContentLocation> = numbers.collect();
        let place = |index: usize| numbers.get(&digest(&self.set.entry(index))?);
        let image = image(&self.set, place, &lens, owner()).ok_or(TOO_LARGE)?;
        at(&self.folder, Files::of_image(&image, &packs, &self.root))
    }
}

/// A set in the store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Kept {
    pub name: String,
    pub bytes: u64,
    pub files: usize,
    pub used: SystemTime,
    pub is_in_use: bool,
    /// The staged paths, without what lies inside of staged folders.
    pub roots: Vec<PathBuf>,
}

/// Version of the store's format; a store of another version is emptied.
const FORMAT: u32 = 5;
const FOLDERS: [&str; 5] = ["packs", "objects", "libraries", "sets", "new"];
/// Longest wait for a lock that another process holds while it removes sets or finds out which are in use (chosen).
const LOCK_MAX: Duration = Duration::from_secs(2);
const LOCK_PAUSE: Duration = Duration::from_millis(5);

fn lock_shared(file: &File) -> io::Result<()> {
    lock_within(file, FlockOperation::NonBlockingLockShared)
}

fn lock_within(file: &File, how: FlockOperation) -> io::Result<()> {
    let until = Instant::now() + LOCK_MAX;
    loop {
        match flock(file, how) {
            Err(rustix::io::Errno::WOULDBLOCK) if Instant::now() < until => std::thread::sleep(LOCK_PAUSE),
            result => return Ok(result?),
        }
    }
}

/// Whether this file is the one at a path.
fn is_at(file: &File, path: &Path) -> bool {
    let number = |meta: fs::Metadata| (meta.dev(), meta.ino());
    fs::metadata(path).ok().map(number) == file.metadata().ok().map(number)
}

/// Format version, boot and host name with which this process makes stores. A store is not used after a reboot.
fn maker() -> String {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let node = rustix::system::uname().nodename().to_string_lossy().replace(' ', "");
    format!("{FORMAT} {} {node}", boot.trim())
}

/// The name of the machine that has made a store, if it is another one than this: not only the boot differs, as after a
/// reboot, and not only the host name, as in a container of the same machine.
fn other_node<'a>(made_by: &'a str, own: &str) -> Option<&'a str> {
    let differs = |at| made_by.split(' ').nth(at) != own.split(' ').nth(at);
    made_by.split(' ').nth(2).filter(|node| !node.is_empty() && differs(1) && differs(2))
}

impl Store {
    /// Opens the store at `root`, or makes it. `room`: bytes that it may hold; 0: half of what its file system has for
    /// it.
    ///
    /// # Errors
    /// The folder cannot be made, or is accessible to other users, or its file system is mounted noexec.
    pub fn open(root: &Path, room: u64) -> Result<Store> {
        for folder in std::iter::once(root.to_owned()).chain(FOLDERS.map(|folder| root.join(folder))) {
            match DirBuilder::new().mode(0o700).create(&folder) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                made => at(&folder, made)?,
            }
            let meta = at(&folder, fs::symlink_metadata(&folder))?;
            if !meta.is_dir() || meta.uid() != rustix::process::geteuid().as_raw() || meta.mode() & 0o077 != 0 {
                let problem = "it belongs to somebody else, or is open to others; remove it";
                return Err(problem_at(&folder, problem));
            }
        }
        if at(root, statvfs(root))?.f_flag.contains(StatVfsMountFlags::NOEXEC) {
            let problem = "its file system is mounted noexec, so no program can be run from it; choose another folder \
                           with --stage=DIR";
            return Err(problem_at(root, problem));
        }
        let store = Store { root: root.to_owned(), room, form: OnceCell::new() };
        store.renew()?;
        Ok(store)
    }

    /// Empties the store if the machine was started again, or another version has made it: a file system may have lost
    /// what was written just before, and the contents are trusted by their names.
    fn renew(&self) -> Result<()> {
        let path = self.root.join("made-by");
        let own = maker();
        let made_by = || fs::read_to_string(&path).ok();
        if made_by().is_some_and(|maker| maker == own) {
            return Ok(());
        }
        let lock = self.root.join("renewing");
        let open = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(&lock);
        let lock_file = at(&lock, open)?;
        lock_within(&lock_file, FlockOperation::NonBlockingLockExclusive).map_err(|_| busy(&lock))?;
        match made_by() {
            Some(maker) if maker == own => return Ok(()),
            Some(maker) => {
                if let Some(node) = other_node(&maker, &own) {
                    let cure = "choose a folder that is each node's own with --stage=DIR";
                    return Err(problem_at(&self.root, format_args!("node {node} keeps files there; {cure}")));
                }
                for folder in FOLDERS.map(|folder| self.root.join(folder)) {
                    remove_tree(&folder)?;
                    at(&folder, DirBuilder::new().mode(0o700).create(&folder))?;
                }
            }
            None => {}
        }
        let new = at(&self.root, tempfile::NamedTempFile::new_in(&self.root))?;
        at(new.path(), fs::write(new.path(), own))?;
        at(&path, new.persist(&path).map(drop).map_err(|error| error.error))
    }

    /// Makes the store keep sets in `form`, whether or not this process may mount images.
    #[cfg(test)]
    pub(crate) fn with_form(self, form: Form) -> Store {
        Store { form: OnceCell::from(form), ..self }
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    pub(crate) fn set_folder(&self, set: &Digest) -> PathBuf {
        self.root.join("sets").join(hex(set))
    }

    /// Locks a set for use; `None`: the store does not have it.
    pub fn use_set(&self, set: &Digest) -> Result<Option<InUse>> {
        let folder = self.set_folder(set);
        let Some(lock) = self.lock(&folder)? else { return Ok(None) };
        let manifest = folder.join("manifest");
        let set = Set::from_manifest(at(&manifest, fs::read(&manifest))?).map_err(|problem| problem.to_string())?;
        Ok(Some(InUse { set, folder, root: self.root.clone(), _lock: lock }))
    }

    /// Whether the store has the set; the call counts as a use of the set.
    pub(crate) fn touch(&self, set: &Digest) -> Result<bool> {
        Ok(self.lock(&self.set_folder(set))?.is_some())
    }

    /// Locks a set against removal; `None`: the set is not here, or parts of it are missing.
    fn lock(&self, folder: &Path) -> Result<Option<File>> {
        let manifest = folder.join("manifest");
        let Ok(lock) = File::open(&manifest) else { return Ok(None) };
        at(&manifest, lock_shared(&lock))?;
        // The set may have been removed before it was locked, and another one may have taken its place.
        if !is_at(&lock, &manifest) {
            return Ok(None);
        }
        let is_whole = match Places::read_packs(folder) {
            Some(packs) => packs.iter().all(|pack| self.pack_data(pack).exists()),
            None => folder.join("tree").exists(),
        };
        if is_whole {
            at(&manifest, lock.set_modified(SystemTime::now()))?;
        }
        Ok(is_whole.then_some(lock))
    }

    /// The form in which sets that arrive from now on are kept; the first call tests whether this process can make
    /// mounts.
    pub fn form(&self) -> Form {
        *self.form.get_or_init(|| if may_mount(&self.root) { Form::Image } else { Form::Tree })
    }

    /// Puts a set that was made in a folder of `new` into its place.
    pub(crate) fn put(&self, set: &Digest, made: &Path) -> Result<()> {
        let place = self.set_folder(set);
        if fs::rename(made, &place).is_ok() {
            return Ok(());
        }
        // Another receiver has put the set there first, or an incomplete set is in its place.
        if self.touch(set)? {
            return Ok(());
        }
        remove_tree(&place)?;
        at(&place, fs::rename(made, &place))
    }

    /// The paths of the entries in one of [`FOLDERS`].
    fn inside(&self, name: &str) -> Result<Vec<PathBuf>> {
        let folder = self.root.join(name);
        let inside = at(&folder, fs::read_dir(&folder))?;
        Ok(inside.flatten().map(|inside| inside.path()).collect())
    }

    /// The sets that are here.
    pub fn sets(&self) -> Result<Vec<Kept>> {
        let _looks = self.looks()?;
        let mut all = Vec::new();
        for folder in self.inside("sets")? {
            let path = folder.join("manifest");
            let Ok(manifest) = File::open(&path) else { continue };
            // A set whose manifest cannot be read is listed too, so that it can be dropped.
            let set = fs::read(&path).ok().and_then(|bytes| Set::from_manifest(bytes).ok()).unwrap_or_default();
            let is_in_use = flock(&manifest, FlockOperation::NonBlockingLockExclusive).is_err();
            let used = at(&path, manifest.metadata().and_then(|meta| meta.modified()))?;
            let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let roots = set.roots().map(|entry| entry.path().to_owned()).collect();
            all.push(Kept { name, bytes: set.len(), files: set.files(), used, is_in_use, roots });
        }
        Ok(all)
    }

    /// Serializes tests of whether sets are in use: such a test locks the set for a moment, and another process would
    /// take the lock of the test for a use.
    fn looks(&self) -> Result<File> {
        self.lock_folder("sets", FlockOperation::NonBlockingLockExclusive)
    }

    /// Locks the folder `new`, which holds sets that are being received or removed: shared while a file is put there
    /// that has no lock of its own yet, otherwise exclusively.
    pub(crate) fn new_folder(&self, how: FlockOperation) -> Result<File> {
        self.lock_folder("new", how)
    }

    fn lock_folder(&self, name: &str, how: FlockOperation) -> Result<File> {
        let folder = self.root.join(name);
        let lock = at(&folder, File::open(&folder))?;
        match lock_within(&lock, how) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(busy(&folder)),
            locked => at(&folder, locked.map(|()| lock)),
        }
    }

    /// Removes a set, unless it is in use.
    pub fn drop_set(&self, name: &str) -> Result<bool> {
        let folder = self.root.join("sets").join(name);
        let looks = self.looks()?;
        let Ok(lock) = File::open(folder.join("manifest")) else { return Ok(false) };
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            return Ok(false);
        }
        let alone = self.new_folder(FlockOperation::NonBlockingLockExclusive)?;
        let away = self.away()?;
        at(&folder, fs::rename(&folder, away.join("set")))?;
        drop((lock, looks));
        remove_tree(&away)?;
        drop(alone);
        self.sweep()?;
        Ok(true)
    }

    /// Makes a folder in `new`, into which what is to be removed is renamed first: if this process is killed, a later
    /// [`Store::sweep`] removes the rest.
    fn away(&self) -> Result<PathBuf> {
        let new = self.root.join("new");
        Ok(at(&new, tempfile::Builder::new().prefix("drop-").tempdir_in(&new))?.keep())
    }

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
    fn sweep(&self) -> Result<()> {
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

    fn objects(&self) -> Result<Vec<(PathBuf, fs::Metadata)>> {
        let objects = self.inside("objects")?.into_iter();
        Ok(objects.filter_map(|path| Some((path.clone(), fs::symlink_metadata(path).ok()?))).collect())
    }
}

/// Removes a folder, also one whose folders are read-only.
pub(crate) fn remove_tree(path: &Path) -> Result<()> {
    let Ok(inside) = fs::read_dir(path) else { return Ok(()) };
    let _ = fs::set_permissions(path, fs::Permissions::from_mode(0o700));
    for entry in inside.flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => remove_tree(&entry.path())?,
            _ => match fs::remove_file(entry.path()) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => at(&entry.path(), Err(error))?,
                _ => {}
            },
        }
    }
    match fs::remove_dir(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => at(path, Err(error)),
        _ => Ok(()),
    }
}

pub(crate) fn digest(entry: &Entry) -> Option<Digest> {
    if let EntryKind::File { len: 1.., digest } = entry.kind { Some(digest) } else { None }
}

/// The name of a file's object.
pub(crate) fn object(entry: &Entry) -> Option<String> {
    let (seconds, nanoseconds) = entry.modified;
    Some(format!("{}-{:o}-{seconds}.{nanoseconds}", hex(&digest(entry)?), entry.mode))
}

fn hex(digest: &Digest) -> String {
    blake3::Hash::from_bytes(*digest).to_hex().to_string()
}
