//! All that is in a folder, looked at by several threads at once: on a network file system most of the time is spent
//! waiting for answers.
//!
//! Threads and the listing keep names in one piece of memory: folders of programs have tens of thousands of files.

use super::entry::ENTRIES_MAX;
use crate::file_system::FileSystem;
use crate::known::Identity;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RawDir, Stat, lstat, openat, statat};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ffi::{CStr, OsStr};
use std::ops::Range;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::available_parallelism;

/// Folders or files that are examined at the same time (chosen: with more, a file server only answers later).
pub(super) const THREADS: usize = 8;
/// Size of the buffer for names that the kernel returns in one call (bytes; chosen: that of the C library).
const NAMES_LEN: usize = 32 << 10;

/// Something in a folder, as it was when its folder was read.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Seen {
    pub mode: u32,
    pub(super) identity: Identity,
    /// The position of the entry's name in [`Listing::names`].
    pub(super) name: Range<u32>,
    /// The number of this folder in `Listing::folders`; 0 for the root and for what is no folder.
    pub(super) folder: u32,
}

impl Seen {
    pub(super) fn new(stat: &Stat) -> Seen {
        Seen { mode: stat.st_mode, identity: Identity::of(stat), name: 0..0, folder: 0 }
    }

    pub fn kind(&self) -> FileType {
        FileType::from_raw_mode(self.mode)
    }
}

/// A folder and all that is below it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Listing {
    pub(super) path: PathBuf,
    pub(super) root: Option<Seen>,
    /// The contents of all folders, one folder after the other, each sorted by name.
    pub(super) seen: Vec<Seen>,
    pub(super) names: Vec<u8>,
    /// The contents of each folder, as a range of indices into `seen`. The root has the number 0; every other folder
    /// has a higher number than its parent folder.
    pub(super) folders: Vec<Range<usize>>,
    /// The paths that could not be examined, with the errors.
    pub problems: Vec<(PathBuf, Errno)>,
}

/// Listings by their paths.
pub type Listings = BTreeMap<PathBuf, Listing>;

/// The part of a listing that one thread has found.
#[derive(Default)]
struct PartialListing {
    seen: Vec<Seen>,
    names: Vec<u8>,
    /// The folders that the thread has read, by their numbers, each with the range of its contents in `seen`.
    folders: Vec<(u32, Range<usize>)>,
    problems: Vec<(PathBuf, Errno)>,
}

impl Listing {
    /// How many files and folders there are.
    pub fn len(&self) -> usize {
        usize::from(self.root.is_some()) + self.seen.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(super) fn name(&self, seen: &Seen) -> &[u8] {
        name(&self.names, seen)
    }

    /// Whether everything in the folder could be examined.
    pub(super) fn is_whole(&self) -> bool {
        self.problems.is_empty() && self.len() <= ENTRIES_MAX
    }

    /// Calls `look` for every file and folder, in the order of [`Path`]; enters a folder if `look` returns `true`.
    pub fn each<E>(&self, mut look: impl FnMut(&Path, &Seen) -> Result<bool, E>) -> Result<(), E> {
        let Some(root) = &self.root else { return Ok(()) };
        let mut path = self.path.clone().into_os_string().into_vec();
        let mut left = Vec::new();
        let mut show = |path: &[u8], seen: &Seen, left: &mut Vec<_>| -> Result<(), E> {
            if look(Path::new(OsStr::from_bytes(path)), seen)?
                && seen.kind() == FileType::Directory
                && let Some(inside) = self.folders.get(seen.folder as usize)
            {
                left.push((inside.clone(), path.len()));
            }
            Ok(())
        };
        show(&path, root, &mut left)?;
        while let Some((inside, len)) = left.last_mut() {
            let Some(next) = inside.next() else {
                left.pop();
                continue;
            };
            let seen = &self.seen[next];
            path.truncate(*len);
            if path.last() != Some(&b'/') {
                path.push(b'/');
            }
            path.extend_from_slice(self.name(seen));
            show(&path, seen, &mut left)?;
        }
        Ok(())
    }
}

/// Lists a folder recursively; stops soon after more entries were found than a set may have.
pub fn list(root: &Path) -> Listing {
    let mut all = Listing { path: root.to_owned(), ..Listing::default() };
    match lstat(root) {
        Ok(stat) => all.root = Some(Seen::new(&stat)),
        Err(error) => all.problems.push((root.to_owned(), error)),
    }
    let threads = threads(root);
    let shared = Shared {
        work: Mutex::new(Work { folders: vec![(0, root.to_owned())], busy: threads }),
        changed: Condvar::new(),
        waiting: AtomicUsize::new(0),
        count: AtomicUsize::new(1),
        folders: AtomicU32::new(1),
    };
    let run = || take_folders(&shared);
    let mut parts: Vec<PartialListing> = std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(run)).collect();
        std::iter::once(run()).chain(others.into_iter().filter_map(|other| other.join().ok())).collect()
    });
    let mut found = vec![(0, 0..0); shared.folders.into_inner() as usize];
    for (number, part) in parts.iter_mut().enumerate() {
        part.folders.drain(..).for_each(|(folder, inside)| found[folder as usize] = (number, inside));
        all.problems.append(&mut part.problems);
    }
    for (part, inside) in found {
        let (part, from) = (&parts[part], all.seen.len());
        for seen in &part.seen[inside] {
            let begin = all.names.len() as u32;
            all.names.extend_from_slice(name(&part.names, seen));
            all.seen.push(Seen { name: begin..all.names.len() as u32, ..seen.clone() });
        }
        all.folders.push(from..all.seen.len());
    }
    all
}

/// The number of threads: no more than processors, unless a file server may be waited for.
pub(super) fn threads(root: &Path) -> usize {
    match FileSystem::of(root) {
        Some(FileSystem { is_network: false, .. }) => {
            available_parallelism().map_or(THREADS, |cpus| THREADS.min(cpus.get()))
        }
        _ => THREADS,
    }
}

struct Shared {
    work: Mutex<Work>,
    changed: Condvar,
    waiting: AtomicUsize,
    /// The number of files and folders that were found.
    count: AtomicUsize,
    folders: AtomicU32,
}

struct Work {
    folders: Vec<(u32, PathBuf)>,
    /// The number of threads that are reading a folder and may find more folders.
    busy: usize,
}

fn take_folders(shared: &Shared) -> PartialListing {
    let lock = || shared.work.lock().unwrap_or_else(PoisonError::into_inner);
    let (mut found, mut own, mut names) = (PartialListing::default(), Vec::new(), Vec::with_capacity(NAMES_LEN));
    loop {
        let Some((number, path)) = own.pop().or_else(|| shared.next_folder(lock())) else { return found };
        let from = found.seen.len();
        found.read(&path, &mut names);
        let inside = from..found.seen.len();
        let PartialListing { seen, names, folders, .. } = &mut found;
        seen[inside.clone()].sort_unstable_by(|one, other| name(names, one).cmp(name(names, other)));
        for seen in seen[inside.clone()].iter_mut().filter(|seen| seen.kind() == FileType::Directory) {
            seen.folder = shared.folders.fetch_add(1, Ordering::Relaxed);
            own.push((seen.folder, path.join(OsStr::from_bytes(name(names, seen)))));
        }
        folders.push((number, inside.clone()));
        if shared.count.fetch_add(inside.len(), Ordering::Relaxed) > ENTRIES_MAX {
            own.clear();
        }
        if own.len() > 1 && shared.waiting.load(Ordering::Relaxed) > 0 {
            // The first half is shared, since these folders are nearest to the root and probably have most below them.
            let half = own.len() / 2;
            lock().folders.extend(own.drain(..half));
            shared.changed.notify_all();
        }
    }
}

impl Shared {
    /// Waits for a folder to read. `None`: none is left, and no thread is reading one that may have more.
    fn next_folder(&self, mut now: MutexGuard<'_, Work>) -> Option<(u32, PathBuf)> {
        now.busy -= 1;
        self.waiting.fetch_add(1, Ordering::Relaxed);
        while now.folders.is_empty() && now.busy > 0 {
            now = self.changed.wait(now).unwrap_or_else(PoisonError::into_inner);
        }
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        let next = now.folders.pop();
        match next {
            Some(_) => now.busy += 1,
            None => self.changed.notify_all(),
        }
        next
    }
}

fn name<'a>(names: &'a [u8], seen: &Seen) -> &'a [u8] {
    &names[seen.name.start as usize..seen.name.end as usize]
}

impl PartialListing {
    /// Reads the entries that are directly in a folder. `buffer` receives the names that the kernel returns.
    fn read(&mut self, path: &Path, buffer: &mut Vec<u8>) {
        match self.read_names(path, buffer) {
            // The folder has just been removed.
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => self.problems.push((path.to_owned(), error)),
        }
    }

    fn read_names(&mut self, path: &Path, buffer: &mut Vec<u8>) -> Result<(), Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let folder = openat(CWD, path, flags, Mode::empty())?;
        let mut names = RawDir::new(&folder, buffer.spare_capacity_mut());
        while let Some(inside) = names.next() {
            let inside = inside?;
            let name = inside.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            match statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => self.push(name, &stat),
                Err(Errno::NOENT) => {}
                Err(error) => self.problems.push((path.join(OsStr::from_bytes(name.to_bytes())), error)),
            }
        }
        Ok(())
    }

    fn push(&mut self, name: &CStr, stat: &Stat) {
        let from = self.names.len() as u32;
        self.names.extend_from_slice(name.to_bytes());
        self.seen.push(Seen { name: from..self.names.len() as u32, ..Seen::new(stat) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn all_is_shown_in_order_and_folders_can_be_passed_over() {
        let folder = tempfile::tempdir().unwrap();
        let mut all = vec![folder.path().to_owned()];
        for one in ["a", "a.b", "a-b", "z"] {
            all.push(folder.path().join(one));
            for two in ["", "0", "!", "a.b"].iter().filter(|two| !two.is_empty()) {
                all.push(folder.path().join(one).join(two));
                fs::create_dir_all(all.last().unwrap()).unwrap();
                all.extend((0..3).map(|number| folder.path().join(one).join(two).join(format!("{number}"))));
                all[all.len() - 3..].iter().for_each(|file| fs::write(file, b"x").unwrap());
            }
        }
        all.push(folder.path().join("link"));
        symlink("a", all.last().unwrap()).unwrap();
        let listing = list(folder.path());
        let shown = |passed: &str| {
            let mut shown = Vec::new();
            let Ok(()) = listing.each(|path, _| {
                shown.push(path.to_owned());
                Ok::<_, Infallible>(!path.ends_with(passed))
            });
            shown
        };
        all.sort();
        assert_eq!((listing.len(), shown("none")), (all.len(), all.clone()));
        all.retain(|path| {
            path.parent().is_none_or(|above| !above.ends_with("a") && !above.starts_with(folder.path().join("a")))
        });
        assert_eq!(shown("a"), all);
        assert!(listing.problems.is_empty());
        let none = list(&folder.path().join("none"));
        assert!(none.is_empty() && none.problems.len() == 1);
    }
}
