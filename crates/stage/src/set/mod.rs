//! A set: files, folders and links under their original names, with what identifies their contents.
//!
//! A set consists of its manifest, in which the entries lie in order, so that a set is made and read without an
//! allocation for each entry. The name of a set is the digest of its manifest: equal files make the same set, and a
//! changed file makes another set. To make one, the files and folders at some paths are walked through; files whose
//! digests are not known from earlier runs are read, several at once.

mod entry;
mod kept;
mod listing;

pub use entry::{Digest, ENTRIES_MAX, Entry, EntryKind, MANIFEST_LEN_MAX};
pub use kept::list_with;
pub use listing::{Listing, Listings, Seen, list};

use crate::digests::{Digests, DigestsOf};
use crate::known::Identity;
use listing::THREADS;
use rustix::fs::{CWD, FileType, Mode, OFlags, Stat, fstat, lstat, openat, readlink};
use rustix::io::Errno;
use std::cmp::Ordering;
use std::collections::HashSet;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{self, AtomicUsize};
use std::sync::{Mutex, OnceLock, PoisonError};
use thiserror::Error;

/// Length of a piece in which files are read, in bytes.
pub const PIECE_LEN: usize = 256 << 10;
/// Number of files that a thread claims at once.
const FILES: usize = 32;
/// Most attempts to read a file that changes while it is read (chosen).
const READS_MAX: u32 = 3;

/// Whether this is a `libwireup-staged`, of any version, which shows staged files to processes without mounts.
pub fn is_library(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_bytes().starts_with(b"libwireup-staged.so.0"))
}

/// A content of a set, which several files may have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Content {
    pub digest: Digest,
    pub len: u64,
    /// The index of the first entry that has the content.
    pub entry: usize,
}

/// The files, folders and links of a set, sorted by path, so that a folder precedes what is in it.
#[derive(Clone, Default)]
pub struct Set {
    manifest: Vec<u8>,
    /// The position of each entry in the manifest.
    begins: Vec<u32>,
    digest: OnceLock<Digest>,
    contents: OnceLock<Vec<Content>>,
}

impl PartialEq for Set {
    fn eq(&self, other: &Set) -> bool {
        self.manifest == other.manifest
    }
}

impl Eq for Set {}

impl fmt::Debug for Set {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_list().entries(self.entries()).finish()
    }
}

#[derive(Error, Debug)]
pub enum Problem {
    #[error("{}: {error}", path.display())]
    Io { path: PathBuf, error: io::Error },
    #[error("{}: it changes while it is read; stage it when nobody writes to it", .0.display())]
    Changes(PathBuf),
    #[error("{}: a program with the set-user-ID or set-group-ID bit is not staged", .0.display())]
    Privileged(PathBuf),
    #[error("{}: neither a file nor a folder", .0.display())]
    Special(PathBuf),
    #[error("{}: not an absolute path", .0.display())]
    Relative(PathBuf),
    #[error("more than {ENTRIES_MAX} files and folders, or {} MiB of names", MANIFEST_LEN_MAX >> 20)]
    TooMany,
    #[error("not the manifest of a set: {0}")]
    Manifest(&'static str),
}

impl Set {
    /// Makes a set of `entries`, which may come in any order.
    ///
    /// # Errors
    /// There are more entries than a set may have.
    pub fn from_entries<'a>(entries: impl IntoIterator<Item = Entry<'a>>) -> Result<Set, Problem> {
        let mut set = Set::default();
        entries.into_iter().try_for_each(|entry| set.push(entry))?;
        set.sort()?;
        Ok(set)
    }

    /// Appends an entry; call [`Set::sort`] after the last one.
    fn push(&mut self, entry: Entry<'_>) -> Result<(), Problem> {
        if self.begins.len() == ENTRIES_MAX || self.manifest.len() > MANIFEST_LEN_MAX {
            return Err(Problem::TooMany);
        }
        self.begins.push(self.manifest.len() as u32);
        entry.encode(&mut self.manifest);
        Ok(())
    }

    /// Sorts the entries by path and removes duplicates; entries that are sorted already stay as they are.
    fn sort(&mut self) -> Result<(), Problem> {
        if self.entries().is_sorted_by(|one, other| order(one.path, other.path).is_lt()) {
            return Ok(());
        }
        let mut entries: Vec<Entry> = self.entries().collect();
        // The standard library's stable sort only merges runs that are sorted already.
        entries.sort_by(|one, other| order(one.path, other.path));
        entries.dedup_by(|one, other| one.path == other.path);
        let mut sorted = Set::default();
        sorted.manifest.reserve_exact(self.manifest.len());
        entries.into_iter().try_for_each(|entry| sorted.push(entry))?;
        *self = sorted;
        Ok(())
    }

    /// The encoded entries, as the stream carries them.
    pub fn manifest(&self) -> &[u8] {
        &self.manifest
    }

    /// # Errors
    /// These bytes are no manifest, or one that no launcher makes: names that lead out of the tree, or are not in
    /// order.
    pub fn from_manifest(manifest: Vec<u8>) -> Result<Set, Problem> {
        if manifest.len() > MANIFEST_LEN_MAX {
            return Err(Problem::Manifest("too long"));
        }
        let (mut begins, mut rest, mut before) = (Vec::new(), &manifest[..], None::<Entry>);
        while !rest.is_empty() {
            if begins.len() == ENTRIES_MAX {
                return Err(Problem::TooMany);
            }
            begins.push((manifest.len() - rest.len()) as u32);
            let (entry, next) = Entry::decode(rest).ok_or(Problem::Manifest("malformed"))?;
            check(&entry, before.as_ref())?;
            (rest, before) = (next, Some(entry));
        }
        Ok(Set { manifest, begins, ..Set::default() })
    }

    /// The digest of the manifest, by which the set is named.
    pub fn digest(&self) -> Digest {
        *self.digest.get_or_init(|| *blake3::hash(&self.manifest).as_bytes())
    }

    pub fn entries(&self) -> impl DoubleEndedIterator<Item = Entry<'_>> + ExactSizeIterator + Clone {
        self.begins.iter().map(|begin| self.at(*begin))
    }

    /// # Panics
    /// The set has no entry of this index.
    pub fn entry(&self, index: usize) -> Entry<'_> {
        self.at(self.begins[index])
    }

    fn at(&self, begin: u32) -> Entry<'_> {
        Entry::decode(&self.manifest[begin as usize..]).expect("it was checked, or made here").0
    }

    pub fn find(&self, path: &Path) -> Option<Entry<'_>> {
        let path = path.as_os_str().as_bytes();
        let found = self.begins.binary_search_by(|begin| order(self.at(*begin).path, path)).ok()?;
        Some(self.entry(found))
    }

    /// The entries that are in no folder of the set.
    pub fn roots(&self) -> impl Iterator<Item = Entry<'_>> {
        self.entries().filter(|entry| entry.path().parent().is_some_and(|folder| self.find(folder).is_none()))
    }

    /// Files that are not staged, although they are inside staged folders.
    pub fn originals(&self) -> impl Iterator<Item = &Path> {
        self.entries().filter(|entry| entry.kind == EntryKind::Original).map(|entry| entry.path())
    }

    /// The number of files in the set.
    pub fn files(&self) -> usize {
        self.entries().filter(|entry| matches!(entry.kind, EntryKind::File { .. })).count()
    }

    /// The sum of the lengths of all files, in bytes.
    pub fn len(&self) -> u64 {
        self.entries().map(|entry| if let EntryKind::File { len, .. } = entry.kind { len } else { 0 }).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.begins.is_empty()
    }

    /// The different contents, numbered in the order of the entries. Empty files have none.
    pub fn contents(&self) -> &[Content] {
        self.contents.get_or_init(|| {
            let mut seen = HashSet::with_capacity(self.begins.len());
            let new = |(entry, found)| match found {
                EntryKind::File { len: len @ 1.., digest } => {
                    seen.insert(digest).then_some(Content { digest, len, entry })
                }
                _ => None,
            };
            self.entries().map(|entry| entry.kind).enumerate().filter_map(new).collect()
        })
    }

    /// A file that has a content of this set.
    pub fn path_of(&self, content: &Content) -> &Path {
        self.entry(content.entry).path()
    }
}

/// Checks an entry of a manifest that follows the entry `before`, which has been checked.
fn check(entry: &Entry, before: Option<&Entry>) -> Result<(), Problem> {
    let same = before.map_or(0, |before| shared(before.path, entry.path));
    if !is_plain_from(entry.path, same) {
        return Err(Problem::Manifest("a name that leads elsewhere"));
    }
    if entry.mode & !0o1777 != 0 {
        return Err(Problem::Manifest("a privileged file"));
    }
    let Some(before) = before else { return Ok(()) };
    if order_from(before.path, entry.path, same).is_ge() {
        return Err(Problem::Manifest("names out of order"));
    }
    // Nothing is under a name that is no folder: a link there would lead out of the tree. A name under `before` would
    // be the next name in order.
    if before.kind != EntryKind::Folder && is_below(before.path, entry.path) {
        return Err(Problem::Manifest("something inside of a file"));
    }
    Ok(())
}

/// Number of bytes of two paths that are compared at once.
const STEP: usize = 16;

/// The order of plain paths by their components, as that of [`Path`]: the slash comes before all other bytes. Of paths
/// that are in order, most have the same beginning, which is compared in large steps.
fn order(one: &[u8], other: &[u8]) -> Ordering {
    order_from(one, other, shared(one, other))
}

/// Length of the common prefix, in bytes.
fn shared(one: &[u8], other: &[u8]) -> usize {
    let steps = one.chunks_exact(STEP).zip(other.chunks_exact(STEP));
    let same = STEP * steps.take_while(|(one, other)| one == other).count();
    same + one[same..].iter().zip(&other[same..]).take_while(|(one, other)| one == other).count()
}

/// Compares two paths whose common beginning is `shared` bytes long.
fn order_from(one: &[u8], other: &[u8], shared: usize) -> Ordering {
    let rank = |path: &[u8]| path.get(shared).map(|byte| if *byte == b'/' { 0 } else { *byte });
    rank(one).cmp(&rank(other))
}

fn is_below(folder: &[u8], path: &[u8]) -> bool {
    path.strip_prefix(folder).is_some_and(|rest| rest.first() == Some(&b'/'))
}

/// Whether a path is absolute and without `.`, `..` and empty parts, if a path that shares its first bytes is so.
fn is_plain_from(path: &[u8], shared: usize) -> bool {
    let known = path[..shared].iter().rposition(|byte| *byte == b'/').unwrap_or(0);
    let is_plain = |part: &[u8]| ![&b""[..], b".", b".."].contains(&part) && !part.contains(&0);
    path[known..].strip_prefix(b"/").is_some_and(|rest| rest.split(|byte| *byte == b'/').all(is_plain))
}

impl Set {
    /// The files and folders at these paths, folders with all that is in them. Pipes, sockets and devices inside of
    /// folders are left out; of programs with the set-user-ID or set-group-ID bit there are only the names.
    ///
    /// # Errors
    /// A root cannot be read, is itself privileged, or changes.
    pub fn collect<'a>(roots: impl IntoIterator<Item = &'a Path>) -> Result<Set, Problem> {
        Set::collect_with(roots, &Listings::new(), &Digests::default())
    }

    /// Makes the set that [`Set::collect`] makes, but reads neither folders whose contents are in `listings` nor files
    /// whose digests are in `digests`.
    pub fn collect_with<'a>(
        roots: impl IntoIterator<Item = &'a Path>,
        listings: &Listings,
        digests: &Digests,
    ) -> Result<Set, Problem> {
        let (mut set, mut of_files) = (Set::default(), digests.of_files());
        for root in roots {
            if !root.is_absolute() {
                return Err(Problem::Relative(root.to_owned()));
            }
            walk(root, listings, digests, &mut of_files, &mut set)?;
        }
        of_files.keep();
        set.sort()?;
        Ok(set)
    }
}

/// Adds all that is at `root`; a folder may have been listed.
fn walk(
    root: &Path,
    listings: &Listings,
    digests: &Digests,
    of_files: &mut DigestsOf,
    set: &mut Set,
) -> Result<(), Problem> {
    let stat = lstat(root).map_err(|error| io_problem(root, error))?;
    let mut adding = Adding { root, set, unknown: Vec::new() };
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => {
            let mut of_folder = digests.of_folder(root);
            match listings.get(root) {
                Some(listing) => adding.add_all(listing, &mut of_folder)?,
                None => adding.add_all(&list(root), &mut of_folder)?,
            }
            of_folder.keep();
            Ok(())
        }
        FileType::RegularFile if is_privileged(stat.st_mode) => Err(Problem::Privileged(root.to_owned())),
        FileType::Symlink | FileType::RegularFile => {
            adding.add(root, &Seen::new(&stat), of_files)?;
            adding.add_unknown(of_files)
        }
        _ => Err(Problem::Special(root.to_owned())),
    }
}

struct Adding<'a> {
    root: &'a Path,
    set: &'a mut Set,
    /// Files whose digests are not known.
    unknown: Vec<PathBuf>,
}

impl Adding<'_> {
    fn add_all(&mut self, listing: &Listing, digests: &mut DigestsOf) -> Result<(), Problem> {
        if let Some((path, error)) = listing.problems.first() {
            return Err(io_problem(path, *error));
        }
        if listing.len() > ENTRIES_MAX {
            return Err(Problem::TooMany);
        }
        listing.each(|path, seen| self.add(path, seen, digests).map(|()| true))?;
        self.add_unknown(digests)
    }

    fn add(&mut self, path: &Path, seen: &Seen, digests: &mut DigestsOf) -> Result<(), Problem> {
        let target;
        let kind = match seen.kind() {
            FileType::Directory => EntryKind::Folder,
            FileType::Symlink => match readlink(path, Vec::new()) {
                Ok(found) => {
                    target = found;
                    EntryKind::Link(target.as_bytes())
                }
                Err(Errno::NOENT) if path != self.root => return Ok(()),
                Err(error) => return Err(io_problem(path, error)),
            },
            FileType::RegularFile if is_privileged(seen.mode) => EntryKind::Original,
            FileType::RegularFile => match digests.find(&seen.identity) {
                Some(digest) => EntryKind::File { len: seen.identity.len(), digest },
                None => {
                    self.unknown.push(path.to_owned());
                    return Ok(());
                }
            },
            _ => return Ok(()),
        };
        self.set.push(entry(path, seen.mode, &seen.identity, kind))
    }

    fn add_unknown(&mut self, digests: &mut DigestsOf) -> Result<(), Problem> {
        for (path, read) in read_all(&self.unknown) {
            match read {
                Ok((stat, digest)) => {
                    let identity = Identity::of(&stat);
                    let kind = EntryKind::File { len: identity.len(), digest };
                    self.set.push(entry(path, stat.st_mode, &identity, kind))?;
                    digests.add(identity, &digest);
                }
                Err(Problem::Io { error, .. }) if path != self.root && error.kind() == io::ErrorKind::NotFound => {}
                Err(problem) => return Err(problem),
            }
        }
        Ok(())
    }
}

fn is_privileged(mode: u32) -> bool {
    mode & 0o6000 != 0
}

fn entry<'a>(path: &'a Path, mode: u32, identity: &Identity, kind: EntryKind<'a>) -> Entry<'a> {
    // The permission bits and the time of a link do not matter; the permission bits and the time of an unstaged file
    // are taken from the original.
    let (mode, modified) = match kind {
        EntryKind::Link(_) | EntryKind::Original => (0, (0, 0)),
        _ => (mode & 0o1777, identity.modified()),
    };
    Entry { path: path.as_os_str().as_bytes(), mode, modified, kind }
}

/// The state and the digest of a file that was read.
type ReadFile = Result<(Stat, Digest), Problem>;

/// Reads files for their digests, in no order.
fn read_all(paths: &[PathBuf]) -> Vec<(&Path, ReadFile)> {
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::with_capacity(paths.len())));
    let run = || {
        while let Some(some) = paths.chunks(FILES).nth(next.fetch_add(1, atomic::Ordering::Relaxed)) {
            let read: Vec<_> = some.iter().map(|path| (&**path, read(path))).collect();
            done.lock().unwrap_or_else(PoisonError::into_inner).extend(read);
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..THREADS.min(paths.len().div_ceil(FILES)) {
            scope.spawn(run);
        }
        run();
    });
    done.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// Reads a file for its digest, again if the file has changed meanwhile.
fn read(path: &Path) -> ReadFile {
    let wrong = |error: io::Error| Problem::Io { path: path.to_owned(), error };
    for _ in 0..READS_MAX {
        let mut file = open_file(path).map_err(wrong)?;
        let before = fstat(&file).map_err(|error| io_problem(path, error))?;
        let (mut hasher, mut len) = (blake3::Hasher::new(), 0);
        let mut piece = vec![0; PIECE_LEN.min(before.st_size as usize + 1)];
        loop {
            let count = file.read(&mut piece).map_err(wrong)?;
            if count == 0 {
                break;
            }
            hasher.update(&piece[..count]);
            len += count as u64;
        }
        let after = fstat(&file).map_err(|error| io_problem(path, error))?;
        if Identity::of(&before) == Identity::of(&after) && len == after.st_size as u64 {
            return Ok((after, *hasher.finalize().as_bytes()));
        }
    }
    Err(Problem::Changes(path.to_owned()))
}

/// # Errors
/// The file cannot be opened, or has become a symbolic link.
pub fn open_file(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    Ok(File::from(openat(CWD, path, flags, Mode::empty())?))
}

fn io_problem(path: &Path, error: Errno) -> Problem {
    Problem::Io { path: path.to_owned(), error: error.into() }
}

#[cfg(test)]
mod tests;
