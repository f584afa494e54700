//! Looks at all that is in folders, several at once: on a network file system most of the time is spent waiting for answers.

use super::{Digest, ENTRIES_MAX, Entry, Kind, PIECE_LEN, Problem};
use crate::digests::{Digests, Identity};
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat, fstat, lstat, openat, readlink, statat};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Folders or files that are looked at at once (chosen: what a file server answers without more waiting).
const THREADS: usize = 8;
/// Files that a thread reads one after the other.
const FILES: usize = 32;
/// How often a file is read again that has changed meanwhile (chosen).
const READS_MAX: u32 = 3;

/// Something in a folder, as it was when its folder was read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Seen {
    pub path: PathBuf,
    pub mode: u32,
    identity: Identity,
}

impl Seen {
    fn new(path: PathBuf, stat: &Stat) -> Seen {
        Seen { path, mode: stat.st_mode, identity: Identity::of(stat) }
    }

    pub fn kind(&self) -> FileType {
        FileType::from_raw_mode(self.mode)
    }
}

/// A folder and all that is below it, in no order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Listing {
    pub seen: Vec<Seen>,
    /// What could not be looked at, and why.
    pub problems: Vec<(PathBuf, Errno)>,
}

/// By their paths.
pub type Listings = BTreeMap<PathBuf, Listing>;

struct Work {
    folders: Vec<PathBuf>,
    /// Threads that may find more folders.
    busy: usize,
}

/// Looks at all that is in a folder, but no further than a set may have entries.
pub fn list(root: &Path) -> Listing {
    let mut all = Listing::default();
    match lstat(root) {
        Ok(stat) => all.seen.push(Seen::new(root.to_owned(), &stat)),
        Err(error) => all.problems.push((root.to_owned(), error)),
    }
    let work = Mutex::new(Work { folders: vec![root.to_owned()], busy: THREADS });
    let (changed, waiting, count) = (Condvar::new(), AtomicUsize::new(0), AtomicUsize::new(1));
    let run = || take_folders(&work, &changed, &waiting, &count);
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..THREADS).map(|_| scope.spawn(run)).collect();
        let mut found = vec![run()];
        found.extend(others.into_iter().filter_map(|other| other.join().ok()));
        for one in found {
            all.seen.extend(one.seen);
            all.problems.extend(one.problems);
        }
    });
    all
}

fn take_folders(work: &Mutex<Work>, changed: &Condvar, waiting: &AtomicUsize, count: &AtomicUsize) -> Listing {
    let lock = || work.lock().unwrap_or_else(PoisonError::into_inner);
    let (mut found, mut own) = (Listing::default(), Vec::new());
    loop {
        let Some(path) = own.pop().or_else(|| next_folder(lock(), changed, waiting)) else { return found };
        let from = found.seen.len();
        folder(&path, &mut found);
        let new = &found.seen[from..];
        own.extend(new.iter().filter(|seen| seen.kind() == FileType::Directory).map(|seen| seen.path.clone()));
        if count.fetch_add(new.len(), Ordering::Relaxed) > ENTRIES_MAX {
            own.clear();
        }
        if own.len() > 1 && waiting.load(Ordering::Relaxed) > 0 {
            // The first ones are the nearest to the root.
            let half = own.len() / 2;
            lock().folders.extend(own.drain(..half));
            changed.notify_all();
        }
    }
}

/// `None`: there is none, and nobody will find one.
fn next_folder(mut now: MutexGuard<'_, Work>, changed: &Condvar, waiting: &AtomicUsize) -> Option<PathBuf> {
    now.busy -= 1;
    waiting.fetch_add(1, Ordering::Relaxed);
    while now.folders.is_empty() && now.busy > 0 {
        now = changed.wait(now).unwrap_or_else(PoisonError::into_inner);
    }
    waiting.fetch_sub(1, Ordering::Relaxed);
    let next = now.folders.pop();
    match next {
        Some(_) => now.busy += 1,
        None => changed.notify_all(),
    }
    next
}

/// What is directly in a folder.
fn folder(path: &Path, found: &mut Listing) {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = openat(CWD, path, flags, Mode::empty()).and_then(Dir::new);
    let looked = opened.and_then(|mut names| {
        let all = names.by_ref().collect::<Result<Vec<_>, Errno>>()?;
        let opened = names.fd()?;
        for inside in all {
            let name = OsStr::from_bytes(inside.file_name().to_bytes());
            if name == "." || name == ".." {
                continue;
            }
            match statat(opened, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => found.seen.push(Seen::new(path.join(name), &stat)),
                // It has just been removed.
                Err(Errno::NOENT) => {}
                Err(error) => found.problems.push((path.join(name), error)),
            }
        }
        Ok(())
    });
    match looked {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(error) => found.problems.push((path.to_owned(), error)),
    }
}

/// Adds all that is at `root`; a folder may have been listed. `false`: it is neither file nor folder nor link.
pub(super) fn walk(
    root: &Path,
    listings: &Listings,
    digests: &mut Digests,
    found: &mut Vec<Entry>,
) -> Result<bool, Problem> {
    let stat = lstat(root).map_err(|error| io_problem(root, error))?;
    let made;
    let seen = match (FileType::from_raw_mode(stat.st_mode), listings.get(root)) {
        (FileType::Directory, Some(listing)) => checked(listing)?,
        (FileType::Directory, None) => {
            made = list(root);
            checked(&made)?
        }
        (FileType::Symlink | FileType::RegularFile, _) => {
            made = Listing { seen: vec![Seen::new(root.to_owned(), &stat)], problems: Vec::new() };
            &made.seen
        }
        _ => return Ok(false),
    };
    if found.len() + seen.len() > ENTRIES_MAX {
        return Err(Problem::TooMany);
    }
    let mut unknown = Vec::new();
    for seen in seen {
        let kind = match seen.kind() {
            FileType::Directory => Kind::Folder,
            FileType::Symlink => match readlink(&seen.path, Vec::new()) {
                Ok(target) => Kind::Link(target.into_bytes()),
                Err(Errno::NOENT) if seen.path != root => continue,
                Err(error) => return Err(io_problem(&seen.path, error)),
            },
            FileType::RegularFile if seen.mode & 0o6000 != 0 => Kind::Original,
            FileType::RegularFile => match digests.find(&seen.identity) {
                Some(digest) => Kind::File { len: seen.identity.len(), digest: *digest },
                None => {
                    unknown.push(&*seen.path);
                    continue;
                }
            },
            _ => continue,
        };
        found.push(entry(&seen.path, seen.mode, &seen.identity, kind));
    }
    for (path, read) in read_all(&unknown) {
        match read {
            Ok((stat, digest)) => {
                let identity = Identity::of(&stat);
                let kind = Kind::File { len: identity.len(), digest };
                found.push(entry(path, stat.st_mode, &identity, kind));
                digests.add(identity, digest);
            }
            Err(Problem::Io { error, .. }) if path != root && error.kind() == io::ErrorKind::NotFound => {}
            Err(problem) => return Err(problem),
        }
    }
    Ok(true)
}

fn checked(listing: &Listing) -> Result<&[Seen], Problem> {
    match listing.problems.first() {
        Some((path, error)) => Err(io_problem(path, *error)),
        None => Ok(&listing.seen),
    }
}

fn entry(path: &Path, mode: u32, identity: &Identity, kind: Kind) -> Entry {
    // Of a link neither the bits nor the time matter, and an original has its own.
    let (mode, modified) = match kind {
        Kind::Link(_) | Kind::Original => (0, (0, 0)),
        _ => (mode & 0o1777, identity.modified()),
    };
    Entry { path: path.as_os_str().to_owned().into_vec(), mode, modified, kind }
}

/// A file's digest, and its state.
type ReadFile = Result<(Stat, Digest), Problem>;

/// Reads files for their digests, in no order.
fn read_all<'p>(paths: &[&'p Path]) -> Vec<(&'p Path, ReadFile)> {
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::with_capacity(paths.len())));
    let run = || {
        while let Some(some) = paths.chunks(FILES).nth(next.fetch_add(1, Ordering::Relaxed)) {
            let read: Vec<_> = some.iter().map(|path| (*path, read(path))).collect();
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

/// Reads a file once, in one state.
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
/// It cannot be opened, or has become a link.
pub fn open_file(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    Ok(File::from(openat(CWD, path, flags, Mode::empty())?))
}

fn io_problem(path: &Path, error: Errno) -> Problem {
    Problem::Io { path: path.to_owned(), error: error.into() }
}
