//! The files of a set under their final names, for nodes where images cannot be mounted.
//!
//! A Python environment has tens of thousands of small files, and what takes time is not their bytes but the system
//! calls for each. So names are looked up relative to open folders, and a file gets its bits, its time and its second
//! name (that of its content) while it is open.

use super::{Result, Store, at, damaged, digest, object};
use crate::set::{Digest, Entry, EntryKind, Set};
use crate::stream::{CLUSTER_LEN, Cluster, Stored, unpack};
use rustix::fs::{
    AtFlags, Mode, OFlags, Timespec, Timestamps, chmodat, fchmod, ftruncate, futimens, linkat, mkdirat, open, openat,
    symlinkat, unlinkat, utimensat,
};
use rustix::io::Errno;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

pub(crate) struct Tree {
    /// The entries that have a content, by its number, and whether they are in the tree.
    users: Vec<Vec<usize>>,
    is_there: Vec<bool>,
    folders: Folders,
    objects: OwnedFd,
    /// The file that is arriving.
    open: Option<ReceivedFile>,
    /// A buffer for a cluster that is being decompressed.
    buffer: Vec<u8>,
}

struct ReceivedFile {
    entry: usize,
    file: File,
    /// End of the written data, in bytes; the file has a hole from there on.
    written: u64,
}

impl Tree {
    /// Makes the folders, and links the contents that the store has; returns the numbers of the missing contents.
    pub fn begin(store: &Store, set: &Set, folder: &Path) -> Result<(Tree, BTreeSet<u32>)> {
        let path = folder.join("tree");
        at(&path, fs::create_dir(&path))?;
        let objects = store.root().join("objects");
        let numbers = set.contents().iter().enumerate().map(|(number, content)| (content.digest, number));
        let numbers: HashMap<Digest, usize> = numbers.collect();
        let mut users = vec![Vec::new(); set.contents().len()];
        for (index, entry) in set.entries().enumerate() {
            if let Some(number) = digest(&entry).and_then(|digest| numbers.get(&digest)) {
                users[*number].push(index);
            }
        }
        let mut tree = Tree {
            is_there: vec![false; set.entries().len()],
            users,
            folders: Folders { root: folder_fd(&path)?, path, last: None },
            objects: folder_fd(&objects)?,
            open: None,
            buffer: Vec::with_capacity(CLUSTER_LEN),
        };
        tree.make_folders(set)?;
        let missing = tree.link_present(store, set)?;
        Ok((tree, missing))
    }

    /// Bytes that the missing files will take: files with the same content, permission bits and time are stored once.
    pub fn wanted(&self, set: &Set) -> u64 {
        let mut seen = HashSet::new();
        let left = set.entries().zip(&self.is_there).filter(|(_, is_there)| !**is_there);
        let files = left.filter_map(|(entry, _)| match entry.kind {
            EntryKind::File { len: len @ 1.., digest } => {
                seen.insert((digest, entry.mode, entry.modified)).then_some(len)
            }
            _ => None,
        });
        files.sum()
    }

    fn make_folders(&mut self, set: &Set) -> Result<()> {
        let mut made: HashSet<&[u8]> = HashSet::new();
        for entry in set.entries() {
            let (folder, name) = parts(&entry);
            if made.insert(folder) {
                // A folder above the staged paths: a folder of the set precedes what is in it.
                let path = self.folders.path.join(inside(folder));
                at(&path, fs::create_dir_all(&path))?;
            }
            if entry.kind == EntryKind::Folder {
                let within = self.folders.folder(folder)?;
                let result = mkdirat(within, name, Mode::RWXU);
                at(entry.path(), result.or_else(|error| if error == Errno::EXIST { Ok(()) } else { Err(error) }))?;
                made.insert(entry.path);
            }
        }
        Ok(())
    }

    /// Links the contents that the store has, so that nobody removes them any more; returns the numbers of the missing
    /// contents.
    fn link_present(&mut self, store: &Store, set: &Set) -> Result<BTreeSet<u32>> {
        let folder = store.root().join("objects");
        let present: HashSet<OsString> =
            at(&folder, fs::read_dir(&folder))?.flatten().map(|object| object.file_name()).collect();
        let mut missing = BTreeSet::new();
        for number in 0..self.users.len() {
            for index in self.users[number].clone() {
                let entry = set.entry(index);
                let Some(object) = object(&entry) else { continue };
                let is_here = present.contains(OsStr::new(&object)) && {
                    let (folder, name) = parts(&entry);
                    linkat(&self.objects, object, self.folders.folder(folder)?, name, AtFlags::empty()).is_ok()
                };
                self.is_there[index] = is_here;
                if !is_here {
                    missing.insert(number as u32);
                }
            }
        }
        Ok(missing)
    }

    /// Removes the file that was arriving.
    pub fn discard(&mut self, set: &Set) -> Result<()> {
        let Some(part) = self.open.take() else { return Ok(()) };
        let entry = set.entry(part.entry);
        let (folder, name) = parts(&entry);
        let removed = unlinkat(self.folders.folder(folder)?, name, AtFlags::empty());
        at(entry.path(), removed)
    }

    /// Writes the next cluster of a content, whose stored form lies in `bytes`.
    pub fn write(&mut self, set: &Set, cluster: &Cluster, bytes: &[u8]) -> Result<()> {
        if cluster.offset == 0 {
            // A file whose content has not arrived completely is removed.
            self.discard(set)?;
            self.open = Some(self.create(set, cluster.content)?);
        }
        let damaged = || damaged(set, cluster.content);
        let stored = &bytes[cluster.stored.clone()];
        let part = self.open.as_mut().ok_or_else(damaged)?;
        // No bytes are written for a hole: it stays a hole in the file.
        if Stored::of(cluster.len, stored) != Some(Stored::Hole) {
            let content = unpack(cluster.len, stored, &mut self.buffer).ok_or_else(damaged)?;
            at(set.entry(part.entry).path(), part.file.write_all_at(content, cluster.offset))?;
            part.written = cluster.offset + content.len() as u64;
        }
        if cluster.is_last(set) { self.complete(set, cluster.content) } else { Ok(()) }
    }

    /// Makes the first file that has this content and is not in the tree.
    fn create(&mut self, set: &Set, number: u32) -> Result<ReceivedFile> {
        let first = self.users[number as usize].iter().copied().find(|index| !self.is_there[*index]);
        let entry = first.ok_or_else(|| damaged(set, number))?;
        let file = self.create_file(&set.entry(entry))?;
        Ok(ReceivedFile { entry, file, written: 0 })
    }

    fn create_file(&mut self, entry: &Entry) -> Result<File> {
        let (folder, name) = parts(entry);
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = openat(self.folders.folder(folder)?, name, flags, Mode::RUSR | Mode::WUSR);
        Ok(File::from(at(entry.path(), file)?))
    }

    /// Completes a content: gives its file its object name, and makes the other files with the same content.
    fn complete(&mut self, set: &Set, number: u32) -> Result<()> {
        let Some(part) = self.open.take() else { return Ok(()) };
        let (len, made) = (set.contents()[number as usize].len, set.entry(part.entry));
        if part.written < len {
            at(made.path(), ftruncate(&part.file, len))?;
        }
        dress(&made, &part.file)?;
        for index in self.users[number as usize].clone() {
            if self.is_there[index] {
                continue;
            }
            let entry = set.entry(index);
            let Some(object) = object(&entry) else { continue };
            let (folder, name) = parts(&entry);
            let within = self.folders.folder(folder)?;
            // Succeeds if a file with the same content, permission bits and time was made just before, so that its
            // object exists.
            if linkat(&self.objects, &object, within, name, AtFlags::empty()).is_err() {
                if index != part.entry {
                    let from = self.folders.path.join(inside(made.path));
                    let file = self.create_file(&entry)?;
                    at(&from, io::copy(&mut at(&from, File::open(&from))?, &mut &file))?;
                    dress(&entry, &file)?;
                }
                // Another receiver may have stored this content first.
                let _ = linkat(self.folders.folder(folder)?, name, &self.objects, &object, AtFlags::empty());
            }
            self.is_there[index] = true;
        }
        Ok(())
    }

    /// Makes the entries without a content: links, empty files; sets the permission bits and times of folders.
    pub fn finish(&mut self, set: &Set) -> Result<()> {
        for entry in set.entries() {
            match entry.kind {
                EntryKind::Link(target) => {
                    let (folder, name) = parts(&entry);
                    let made = symlinkat(OsStr::from_bytes(target), self.folders.folder(folder)?, name);
                    at(entry.path(), made)?;
                }
                EntryKind::File { len: 0, .. } | EntryKind::Original => {
                    let file = self.create_file(&entry)?;
                    dress(&entry, &file)?;
                }
                EntryKind::Folder | EntryKind::File { .. } => {}
            }
        }
        // The innermost folders first: a file that is made in a folder changes the folder's time, and the folder may be
        // read-only.
        for entry in set.entries().rev().filter(|entry| entry.kind == EntryKind::Folder) {
            let path = inside(entry.path);
            let done = chmodat(&self.folders.root, path, Mode::from_raw_mode(entry.mode), AtFlags::empty())
                .and_then(|()| utimensat(&self.folders.root, path, &times(&entry), AtFlags::SYMLINK_NOFOLLOW));
            at(entry.path(), done)?;
        }
        Ok(())
    }
}

/// Sets the permission bits and the time of a file.
fn dress(entry: &Entry, file: &File) -> Result<()> {
    let done = fchmod(file, Mode::from_raw_mode(entry.mode)).and_then(|()| futimens(file, &times(entry)));
    at(entry.path(), done)
}

/// The folders of the tree. The root and the folder that was used last are kept open.
struct Folders {
    path: PathBuf,
    root: OwnedFd,
    /// The folder that was used last, under its original name.
    last: Option<(Vec<u8>, OwnedFd)>,
}

impl Folders {
    fn folder(&mut self, name: &[u8]) -> Result<BorrowedFd<'_>> {
        if self.last.as_ref().is_none_or(|(last, _)| last != name) {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let opened = openat(&self.root, inside(name), flags, Mode::empty());
            let opened = at(Path::new(OsStr::from_bytes(name)), opened)?;
            self.last = Some((name.to_vec(), opened));
        }
        Ok(self.last.as_ref().map_or(self.root.as_fd(), |(_, folder)| folder.as_fd()))
    }
}

fn folder_fd(path: &Path) -> Result<OwnedFd> {
    at(path, open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()))
}

/// The folder of an entry, and the entry's name in it.
fn parts<'a>(entry: &Entry<'a>) -> (&'a [u8], &'a OsStr) {
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
