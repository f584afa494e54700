//! A set on its way into a store: its files are made under their final names, in a folder that becomes the set's when everything is there.
//!
//! A Python environment has tens of thousands of small files, and what takes time is not their bytes but the system calls for each. So names are
//! looked up relative to open folders, and a file gets its bits, its time and its second name (that of its content) while it is open.

use crate::set::{Digest, Entry, Kind, Set};
use crate::store::{Result, Store, StoreError, at, digest, object, remove_tree};
use crate::stream::Content;
use rustix::fs::{
    AtFlags, FlockOperation, Mode, OFlags, Timespec, Timestamps, chmodat, fchmod, flock, ftruncate, futimens, linkat,
    mkdirat, open, openat, symlinkat, unlinkat, utimensat,
};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// A set that is being received. What it has made is removed if it is not finished.
pub struct Receiving<'a> {
    store: &'a Store,
    set: Set,
    contents: Vec<Content>,
    /// The entries that have a content, by its number, and whether they are in the tree.
    users: Vec<Vec<usize>>,
    is_there: Vec<bool>,
    missing: BTreeSet<u32>,
    folder: tempfile::TempDir,
    tree: Tree,
    objects: OwnedFd,
    /// The content that is arriving: one after the other.
    open: Option<Part>,
    /// Tells the sweeper that somebody works here.
    _lock: File,
}

struct Part {
    content: u32,
    entry: usize,
    file: File,
    arrived: u64,
    /// Bytes behind this are a hole.
    written: u64,
}

impl<'a> Receiving<'a> {
    pub(crate) fn begin(store: &'a Store, set: Set) -> Result<Receiving<'a>> {
        let new = store.root().join("new");
        let folder = at(&new, tempfile::Builder::new().prefix("").tempdir_in(&new))?;
        let lock = at(folder.path(), File::open(folder.path()))?;
        at(folder.path(), flock(&lock, FlockOperation::LockShared).map_err(Into::into))?;
        let path = folder.path().join("tree");
        at(&path, fs::create_dir(&path))?;
        let objects = store.root().join("objects");
        let contents = set.contents();
        let numbers: BTreeMap<Digest, usize> =
            contents.iter().enumerate().map(|(number, content)| (content.digest, number)).collect();
        let mut users = vec![Vec::new(); contents.len()];
        for (index, entry) in set.entries.iter().enumerate() {
            if let Some(number) = digest(entry).and_then(|digest| numbers.get(&digest)) {
                users[*number].push(index);
            }
        }
        let mut receiving = Receiving {
            store,
            is_there: vec![false; set.entries.len()],
            contents,
            users,
            missing: BTreeSet::new(),
            tree: Tree { root: folder_fd(&path)?, path, last: None },
            objects: folder_fd(&objects)?,
            folder,
            set,
            open: None,
            _lock: lock,
        };
        receiving.make_folders()?;
        receiving.link_present()?;
        Ok(receiving)
    }

    /// The contents that are to be sent.
    pub fn missing(&self) -> &BTreeSet<u32> {
        &self.missing
    }

    /// How long a content is.
    pub(crate) fn len_of(&self, content: u32) -> u64 {
        self.contents[content as usize].len
    }

    fn make_folders(&mut self) -> Result<()> {
        let mut made: HashSet<&[u8]> = HashSet::new();
        for entry in &self.set.entries {
            let (folder, name) = parts(entry);
            if made.insert(folder) {
                // Above what was named; folders of the set come before what is in them.
                let path = self.tree.path.join(inside(folder));
                at(&path, fs::create_dir_all(&path))?;
            }
            if entry.kind == Kind::Folder {
                let within = self.tree.folder(folder)?;
                let result = mkdirat(within, name, Mode::RWXU);
                at(
                    entry.path(),
                    result.or_else(|error| if error == Errno::EXIST { Ok(()) } else { Err(error.into()) }),
                )?;
                made.insert(&entry.path);
            }
        }
        Ok(())
    }

    /// Links the contents that are here, so that nobody removes them any more; the others are missing.
    fn link_present(&mut self) -> Result<()> {
        let folder = self.store.root().join("objects");
        let present: HashSet<OsString> =
            at(&folder, fs::read_dir(&folder))?.flatten().map(|object| object.file_name()).collect();
        for number in 0..self.users.len() {
            for index in self.users[number].clone() {
                let entry = &self.set.entries[index];
                let Some(object) = object(entry) else { continue };
                let is_here = present.contains(OsStr::new(&object)) && {
                    let (folder, name) = parts(entry);
                    linkat(&self.objects, object, self.tree.folder(folder)?, name, AtFlags::empty()).is_ok()
                };
                self.is_there[index] = is_here;
                if !is_here {
                    self.missing.insert(number as u32);
                }
            }
        }
        Ok(())
    }

    /// Of this content a piece was damaged: it is to be sent again, from its beginning. What arrives of it before that is ignored.
    pub fn spoil(&mut self, content: u32) {
        if self.open.as_ref().is_some_and(|part| part.content == content)
            && let Some(part) = self.open.take()
        {
            let (folder, name) = parts(&self.set.entries[part.entry]);
            if let Ok(folder) = self.tree.folder(folder) {
                let _ = unlinkat(folder, name, AtFlags::empty());
            }
        }
    }

    /// Bytes of a content, in order, that are what the sender has read. Those of contents that are here are ignored.
    ///
    /// # Errors
    /// They are not what was announced, or cannot be written.
    pub fn write(&mut self, content: u32, offset: u64, bytes: &[u8]) -> Result<()> {
        if !self.missing.contains(&content) {
            return Ok(());
        }
        if let Some(other) = self.open.as_ref().map(|part| part.content).filter(|open| *open != content) {
            self.spoil(other);
        }
        let len = self.len_of(content);
        let mut part = match self.open.take() {
            Some(part) => part,
            // The rest of what was spoiled.
            None if offset > 0 => return Ok(()),
            None => self.create(content)?,
        };
        if part.arrived != offset || offset + bytes.len() as u64 > len {
            self.open = Some(part);
            self.spoil(content);
            return Err(StoreError::Damaged(self.contents[content as usize].path.clone()));
        }
        // Holes stay holes.
        if bytes.iter().any(|byte| *byte != 0) {
            at(self.set.entries[part.entry].path(), part.file.write_all_at(bytes, offset))?;
            part.written = offset + bytes.len() as u64;
        }
        part.arrived += bytes.len() as u64;
        if part.arrived < len {
            self.open = Some(part);
            return Ok(());
        }
        self.missing.remove(&content);
        self.complete(&part, len)
    }

    /// Makes the first file that has this content and is not in the tree.
    fn create(&mut self, content: u32) -> Result<Part> {
        let first = self.users[content as usize].iter().copied().find(|index| !self.is_there[*index]);
        let Some(entry) = first else { return Err(StoreError::Damaged(self.contents[content as usize].path.clone())) };
        let file = self.create_file(entry)?;
        Ok(Part { content, entry, file, arrived: 0, written: 0 })
    }

    fn create_file(&mut self, entry: usize) -> Result<File> {
        let entry = &self.set.entries[entry];
        let (folder, name) = parts(entry);
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = openat(self.tree.folder(folder)?, name, flags, Mode::RUSR | Mode::WUSR);
        Ok(File::from(at(entry.path(), file.map_err(Into::into))?))
    }

    /// A whole content: it gets its name among the contents, and its other files.
    fn complete(&mut self, part: &Part, len: u64) -> Result<()> {
        if part.written < len {
            at(self.set.entries[part.entry].path(), ftruncate(&part.file, len).map_err(Into::into))?;
        }
        self.dress(part.entry, &part.file)?;
        for index in self.users[part.content as usize].clone() {
            if self.is_there[index] {
                continue;
            }
            let Some(object) = object(&self.set.entries[index]) else { continue };
            let (folder, name) = parts(&self.set.entries[index]);
            let within = self.tree.folder(folder)?;
            // Another file with the same bits and the same time has just been made.
            if linkat(&self.objects, &object, within, name, AtFlags::empty()).is_err() {
                if index != part.entry {
                    let from = self.tree.path.join(inside(&self.set.entries[part.entry].path));
                    let file = self.create_file(index)?;
                    at(&from, io::copy(&mut at(&from, File::open(&from))?, &mut &file))?;
                    self.dress(index, &file)?;
                }
                let (folder, name) = parts(&self.set.entries[index]);
                // Another receiver may be faster.
                let _ = linkat(self.tree.folder(folder)?, name, &self.objects, &object, AtFlags::empty());
            }
            self.is_there[index] = true;
        }
        Ok(())
    }

    /// Gives a file its bits and its time.
    fn dress(&self, index: usize, file: &File) -> Result<()> {
        let entry = &self.set.entries[index];
        let done = fchmod(file, Mode::from_raw_mode(entry.mode)).and_then(|()| futimens(file, &times(entry)));
        at(entry.path(), done.map_err(Into::into))
    }

    /// Everything has arrived: the set can be used.
    ///
    /// # Errors
    /// Something is missing, or cannot be made.
    pub fn finish(mut self) -> Result<()> {
        if let Some(number) = self.missing.first() {
            return Err(StoreError::Damaged(self.contents[*number as usize].path.clone()));
        }
        for index in 0..self.set.entries.len() {
            match &self.set.entries[index].kind {
                Kind::Link(target) => {
                    let entry = &self.set.entries[index];
                    let (folder, name) = parts(entry);
                    let made = symlinkat(OsStr::from_bytes(target), self.tree.folder(folder)?, name);
                    at(entry.path(), made.map_err(Into::into))?;
                }
                Kind::File { len: 0, .. } => {
                    let file = self.create_file(index)?;
                    self.dress(index, &file)?;
                }
                Kind::Folder | Kind::File { .. } => {}
            }
        }
        // The innermost first: what is made in a folder changes its time, and it may be read-only.
        for entry in self.set.entries.iter().rev().filter(|entry| entry.kind == Kind::Folder) {
            let path = inside(&entry.path);
            let done = chmodat(&self.tree.root, path, Mode::from_raw_mode(entry.mode), AtFlags::empty())
                .and_then(|()| utimensat(&self.tree.root, path, &times(entry), AtFlags::SYMLINK_NOFOLLOW));
            at(entry.path(), done.map_err(Into::into))?;
        }
        let manifest = self.folder.path().join("manifest");
        at(&manifest, fs::write(&manifest, self.set.manifest()))?;
        let place = self.store.set_folder(&self.set.digest());
        let made = self.folder.keep();
        match fs::rename(&made, &place) {
            Ok(()) => Ok(()),
            // Another receiver was faster.
            Err(_) if place.join("manifest").exists() => remove_tree(&made),
            Err(_) => {
                // What is left of a set whose manifest is gone.
                remove_tree(&place)?;
                at(&place, fs::rename(&made, &place))
            }
        }
    }
}

/// The tree that is being made.
struct Tree {
    path: PathBuf,
    root: OwnedFd,
    /// The folder that was used last, under its original name.
    last: Option<(Vec<u8>, OwnedFd)>,
}

impl Tree {
    fn folder(&mut self, name: &[u8]) -> Result<BorrowedFd<'_>> {
        if self.last.as_ref().is_none_or(|(last, _)| last != name) {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let opened = openat(&self.root, inside(name), flags, Mode::empty());
            let opened = at(Path::new(OsStr::from_bytes(name)), opened.map_err(Into::into))?;
            self.last = Some((name.to_vec(), opened));
        }
        Ok(self.last.as_ref().map_or(self.root.as_fd(), |(_, folder)| folder.as_fd()))
    }
}

fn folder_fd(path: &Path) -> Result<OwnedFd> {
    at(path, open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).map_err(Into::into))
}

/// The folder and the name of an entry.
fn parts(entry: &Entry) -> (&[u8], &OsStr) {
    let slash = entry.path.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
    (&entry.path[..slash], OsStr::from_bytes(&entry.path[slash + 1..]))
}

/// An original name, relative to the tree.
fn inside(name: &[u8]) -> &Path {
    match name.strip_prefix(b"/").unwrap_or(name) {
        b"" => Path::new("."),
        name => Path::new(OsStr::from_bytes(name)),
    }
}

fn times(entry: &Entry) -> Timestamps {
    let (tv_sec, tv_nsec) = entry.modified;
    let time = Timespec { tv_sec, tv_nsec: tv_nsec.into() };
    Timestamps { last_access: time, last_modification: time }
}
