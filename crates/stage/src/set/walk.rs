//! Looks at all that is in folders, several at once: on a network file system most of the time is spent waiting for answers.

use super::{Digest, ENTRIES_MAX, Entry, Kind, PIECE_LEN, Problem};
use crate::digests::Digests;
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat, fstat, lstat, openat, readlinkat, statat};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, PoisonError};

/// Folders that are looked into at once (chosen: what a file server answers without more waiting).
const THREADS: usize = 8;
/// How often a file is read again that has changed meanwhile (chosen).
const READS_MAX: u32 = 3;

/// What was found, in no order.
#[derive(Default)]
pub(super) struct Found {
    pub entries: Vec<Entry>,
    /// Digests that were not known.
    pub new: Vec<(Stat, Digest)>,
}

#[derive(Default)]
struct Work {
    folders: Vec<PathBuf>,
    /// Threads that may find more folders.
    busy: usize,
    found: Found,
    problem: Option<Problem>,
}

/// All that is at `root`. `false`: it is neither file nor folder nor link.
pub(super) fn walk(root: &Path, digests: &Digests, found: &mut Found) -> Result<bool, Problem> {
    let stat = lstat(root).map_err(|error| io_problem(root, error))?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
        return look(CWD, root.as_os_str(), root.to_owned(), &stat, digests, found);
    }
    add(root.to_owned(), &stat, Kind::Folder, found)?;
    let work = Mutex::new(Work { folders: vec![root.to_owned()], ..Work::default() });
    let changed = Condvar::new();
    std::thread::scope(|scope| {
        for _ in 1..THREADS {
            scope.spawn(|| take_folders(&work, &changed, digests));
        }
        take_folders(&work, &changed, digests);
    });
    let work = work.into_inner().unwrap_or_else(PoisonError::into_inner);
    found.entries.extend(work.found.entries);
    found.new.extend(work.found.new);
    match work.problem {
        Some(problem) => Err(problem),
        None if found.entries.len() > ENTRIES_MAX => Err(Problem::TooMany),
        None => Ok(true),
    }
}

fn take_folders(work: &Mutex<Work>, changed: &Condvar, digests: &Digests) {
    let lock = || work.lock().unwrap_or_else(PoisonError::into_inner);
    let mut now = lock();
    loop {
        if now.problem.is_some() {
            return;
        }
        let Some(path) = now.folders.pop() else {
            if now.busy == 0 {
                return;
            }
            now = changed.wait(now).unwrap_or_else(PoisonError::into_inner);
            continue;
        };
        now.busy += 1;
        drop(now);
        let mut here = Found::default();
        let looked = folder(&path, digests, &mut here);
        now = lock();
        now.busy -= 1;
        let inside = here.entries.iter().filter(|entry| entry.kind == Kind::Folder);
        now.folders.extend(inside.map(|entry| entry.path().to_owned()));
        now.found.entries.append(&mut here.entries);
        now.found.new.append(&mut here.new);
        if now.found.entries.len() > ENTRIES_MAX {
            now.problem = Some(Problem::TooMany);
        }
        match looked {
            // It has just been removed.
            Err(Problem::Io { error, .. }) if error.kind() == io::ErrorKind::NotFound => {}
            Err(problem) => now.problem = Some(problem),
            Ok(()) => {}
        }
        changed.notify_all();
    }
}

/// What is directly in a folder.
fn folder(path: &Path, digests: &Digests, found: &mut Found) -> Result<(), Problem> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = openat(CWD, path, flags, Mode::empty()).map_err(|error| io_problem(path, error))?;
    let mut names = Dir::new(opened).map_err(|error| io_problem(path, error))?;
    let all: Vec<_> = names.by_ref().collect();
    let opened = names.fd().map_err(|error| io_problem(path, error))?;
    for inside in all {
        let inside = inside.map_err(|error| io_problem(path, error))?;
        let name = OsStr::from_bytes(inside.file_name().to_bytes());
        if name == "." || name == ".." {
            continue;
        }
        let path = path.join(name);
        let looked = match statat(opened, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => look(opened, name, path, &stat, digests, found).map(drop),
            Err(error) => Err(io_problem(&path, error)),
        };
        match looked {
            // It has just been removed.
            Err(Problem::Io { error, .. }) if error.kind() == io::ErrorKind::NotFound => {}
            looked => looked?,
        }
    }
    Ok(())
}

/// Adds one name; `false`: it is neither file nor folder nor link.
fn look(
    folder: BorrowedFd<'_>,
    name: &OsStr,
    path: PathBuf,
    stat: &Stat,
    digests: &Digests,
    found: &mut Found,
) -> Result<bool, Problem> {
    let kind = match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => Kind::Folder,
        FileType::Symlink => {
            let target = readlinkat(folder, name, Vec::new()).map_err(|error| io_problem(&path, error))?;
            Kind::Link(target.into_bytes())
        }
        FileType::RegularFile if stat.st_mode & 0o6000 != 0 => Kind::Original,
        FileType::RegularFile => {
            if let Some(digest) = digests.find(stat).copied() {
                let kind = Kind::File { len: stat.st_size as u64, digest };
                return add(path, stat, kind, found).map(|()| true);
            }
            let (stat, digest) = read(folder, name, &path)?;
            found.new.push((stat, digest));
            return add(path, &stat, Kind::File { len: stat.st_size as u64, digest }, found).map(|()| true);
        }
        _ => return Ok(false),
    };
    add(path, stat, kind, found).map(|()| true)
}

fn add(path: PathBuf, stat: &Stat, kind: Kind, found: &mut Found) -> Result<(), Problem> {
    // Of a link neither the bits nor the time matter, and an original has its own.
    let (mode, modified) = match kind {
        Kind::Link(_) | Kind::Original => (0, (0, 0)),
        _ => (stat.st_mode & 0o1777, (stat.st_mtime, stat.st_mtime_nsec as u32)),
    };
    found.entries.push(Entry { path: path.into_os_string().into_vec(), mode, modified, kind });
    Ok(())
}

/// Reads a file once, in one state.
fn read(folder: BorrowedFd<'_>, name: &OsStr, path: &Path) -> Result<(Stat, Digest), Problem> {
    let wrong = |error: io::Error| Problem::Io { path: path.to_owned(), error };
    for _ in 0..READS_MAX {
        let mut file = open_in(folder, name).map_err(wrong)?;
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
        if state(&before) == state(&after) && len == after.st_size as u64 {
            return Ok((after, *hasher.finalize().as_bytes()));
        }
    }
    Err(Problem::Changes(path.to_owned()))
}

fn state(stat: &Stat) -> (i64, u64, u64, i64, u64) {
    (stat.st_size, stat.st_mtime as u64, stat.st_mtime_nsec, stat.st_ctime, stat.st_ctime_nsec)
}

fn open_in(folder: BorrowedFd<'_>, name: &OsStr) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    Ok(File::from(OwnedFd::from(openat(folder, name, flags, Mode::empty())?)))
}

/// # Errors
/// It cannot be opened, or has become a link.
pub fn open_file(path: &Path) -> io::Result<File> {
    open_in(CWD, path.as_os_str())
}

fn io_problem(path: &Path, error: Errno) -> Problem {
    Problem::Io { path: path.to_owned(), error: error.into() }
}
