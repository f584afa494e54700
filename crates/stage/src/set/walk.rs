//! Puts the files and folders at a path into a set, and reads the files whose digests are not known, several at once.

use super::listing::{Listing, Listings, Seen, THREADS, list};
use super::{Digest, ENTRIES_MAX, Entry, EntryKind, PIECE_LEN, Problem, Set};
use crate::digests::{Digests, DigestsOf};
use crate::known::Identity;
use rustix::fs::{CWD, FileType, Mode, OFlags, Stat, fstat, lstat, openat, readlink};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Number of files that a thread claims at once.
const FILES: usize = 32;
/// Most attempts to read a file that changes while it is read (chosen).
const READS_MAX: u32 = 3;

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
        while let Some(some) = paths.chunks(FILES).nth(next.fetch_add(1, Ordering::Relaxed)) {
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
