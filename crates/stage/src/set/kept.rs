//! Keeps the listing of a folder in a file. If no folder of the listing has changed since, no name has been added or
//! removed: then only the entries of the listing are checked, and no folder is read.
//!
//! A folder counts as unchanged if number, length and both of its times are the same. So a listing is kept only if its
//! file system changes the times of a folder with every name in it, and if no folder has changed only just now. On a
//! network file system each folder is opened all the same: then the kernel asks the server, and does not rely on its
//! cached attributes.
//!
//! Without the kept listing, `wireup stage up` of a folder that has not changed takes 1.35 times as long (40 instead of
//! 30 ms; 12,000 files in 1,200 folders on a local disk, 40 interleaved pairs on 2 CPUs).
//!
//! The file has a check (`known`), the entries of each folder (`postcard`), and all names.

use super::listing::{Listing, Seen, list, threads};
use crate::digests::{self, Digests};
use crate::file_system::FileSystem;
use crate::known::{self, CHECK_LEN, Identity};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat, fstat, lstat, openat, statat};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Number of folders that a thread claims at once.
const FOLDERS: usize = 64;
/// Minimum age (s) of a folder's last change on a network file system for its listing to be kept: more than the clocks
/// of server and node differ (chosen).
const AGE_MIN_REMOTE_S: i64 = 60;

/// Lists all that is in a folder, with the help of the listing that an earlier call has kept, and keeps the new listing
/// for the next call.
pub fn list_with(root: &Path, digests: &Digests) -> Listing {
    let Some(path) = digests.listing_of(root) else { return list(root) };
    let kind = FileSystem::of(root).filter(|kind| kind.folders_have_times);
    let Some(FileSystem { is_network, .. }) = kind else { return list(root) };
    if let Some(known) = decode(root, &known::read(&path)).filter(|known| is_unchanged(known, is_network)) {
        return known;
    }
    let began_s = known::now_s();
    let listing = list(root);
    if is_to_be_kept(&listing, began_s, is_network) {
        // Without the file the next call reads all folders again.
        let _ = digests::write(&path, &encode(&listing));
    }
    listing
}

/// Whether the listing may be kept: every later change of a name will change the times of its folder.
fn is_to_be_kept(listing: &Listing, began_s: i64, is_network: bool) -> bool {
    let Some(root) = listing.root.as_ref().filter(|root| root.kind() == FileType::Directory) else { return false };
    let age_min_s = if is_network { AGE_MIN_REMOTE_S } else { known::AGE_MIN_S };
    let is_settled = |seen: &Seen| {
        seen.kind() != FileType::Directory
            || seen.identity.device() == root.identity.device() && seen.identity.age_s(began_s) >= age_min_s
    };
    listing.is_whole() && is_settled(root) && listing.seen.iter().all(is_settled)
}

fn encode(listing: &Listing) -> Vec<u8> {
    let Some(root) = &listing.root else { return Vec::new() };
    let entries = (root, &listing.seen, &listing.folders);
    let mut out = postcard::to_extend(&entries, vec![0; CHECK_LEN]).expect("plain data");
    out.extend_from_slice(&listing.names);
    known::seal(&mut out);
    out
}

/// Decodes the listing of the folder at `path` from the contents of its file; `None`: the contents are damaged.
fn decode(path: &Path, bytes: &[u8]) -> Option<Listing> {
    let ((root, seen, folders), names) = postcard::take_from_bytes(known::opened(bytes)?).ok()?;
    let (path, root, names) = (path.to_owned(), Some(root), names.to_vec());
    Some(Listing { path, root, seen, names, folders, problems: Vec::new() }).filter(is_tree)
}

/// Whether the entries of each folder are in the listing, and each folder has a higher number than its parent folder.
fn is_tree(listing: &Listing) -> bool {
    let Listing { seen, names, folders, .. } = listing;
    let has_name = |seen: &Seen| seen.name.start <= seen.name.end && seen.name.end as usize <= names.len();
    let mut next = 0;
    let mut above = vec![false; folders.len()];
    seen.iter().all(has_name)
        && folders.iter().enumerate().all(|(number, inside)| {
            let follows = inside.start == next && inside.end >= next && inside.end <= seen.len();
            next = inside.end;
            follows
                && seen[inside.clone()].iter().filter(|seen| seen.kind() == FileType::Directory).all(|seen| {
                    let folder = seen.folder as usize;
                    folder > number && above.get_mut(folder).is_some_and(|known| !std::mem::replace(known, true))
                })
        })
        && next == seen.len()
}

/// Whether every file and folder of a listing is unchanged.
fn is_unchanged(listing: &Listing, is_network: bool) -> bool {
    let Some(root) = &listing.root else { return false };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let Ok(top) = openat(CWD, &listing.path, flags, Mode::empty()) else { return false };
    if !lstat(&listing.path).is_ok_and(|stat| is_same(root, &stat)) {
        return false;
    }
    let look = Look { listing, ways: ways(listing), top, is_network };
    let (next, changed) = (AtomicUsize::new(0), AtomicBool::new(false));
    let run = || {
        let mut path = Vec::new();
        while !changed.load(Ordering::Relaxed) {
            let from = next.fetch_add(FOLDERS, Ordering::Relaxed);
            let mut folders = from..look.ways.len().min(from + FOLDERS);
            if folders.is_empty() {
                return;
            }
            if !folders.all(|folder| look.is_folder_unchanged(folder, &mut path)) {
                changed.store(true, Ordering::Relaxed);
            }
        }
    };
    std::thread::scope(|scope| {
        (1..threads(&listing.path)).for_each(|_| {
            scope.spawn(run);
        });
        run();
    });
    !changed.into_inner()
}

fn is_same(seen: &Seen, stat: &Stat) -> bool {
    seen.mode == stat.st_mode && seen.identity == Identity::of(stat)
}

/// For each folder, the index of its entry in `seen` and the number of its parent folder.
fn ways(Listing { seen, folders, .. }: &Listing) -> Vec<(usize, usize)> {
    let mut ways = vec![(0, 0); folders.len()];
    for (number, inside) in folders.iter().enumerate() {
        for at in inside.clone().filter(|at| seen[*at].kind() == FileType::Directory) {
            ways[seen[at].folder as usize] = (at, number);
        }
    }
    ways
}

struct Look<'a> {
    listing: &'a Listing,
    ways: Vec<(usize, usize)>,
    /// The open folder that the listing is about.
    top: OwnedFd,
    is_network: bool,
}

impl Look<'_> {
    /// Whether the entries of a folder are as they were listed. `path`: a buffer in which the folder's path is built.
    fn is_folder_unchanged(&self, number: usize, path: &mut Vec<u8>) -> bool {
        path.clear();
        self.add_way(number, path);
        if !self.is_network {
            return self.has_all(&self.top, number, path);
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let name = if path.is_empty() { &b"."[..] } else { &path[..] };
        let Ok(folder) = openat(&self.top, name, flags, Mode::empty()) else { return false };
        let seen = match number {
            0 => self.listing.root.as_ref(),
            _ => self.listing.seen.get(self.ways[number].0),
        };
        path.clear();
        seen.is_some_and(|seen| fstat(&folder).is_ok_and(|stat| is_same(seen, &stat)))
            && self.has_all(&folder, number, path)
    }

    /// Whether all entries of a folder are unchanged; `path` leads to it from an open folder, and is empty or ends with
    /// a slash.
    fn has_all(&self, from: &OwnedFd, number: usize, path: &mut Vec<u8>) -> bool {
        let len = path.len();
        self.listing.seen[self.listing.folders[number].clone()].iter().all(|seen| {
            path.truncate(len);
            path.extend_from_slice(self.listing.name(seen));
            statat(from, &path[..], AtFlags::SYMLINK_NOFOLLOW).is_ok_and(|stat| is_same(seen, &stat))
        })
    }

    fn add_way(&self, number: usize, path: &mut Vec<u8>) {
        if number != 0 {
            let (entry, above) = self.ways[number];
            self.add_way(above, path);
            path.extend_from_slice(self.listing.name(&self.listing.seen[entry]));
            path.push(b'/');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::folder_with;
    use rustix::fs::{Timespec, Timestamps, utimensat};
    use std::convert::Infallible;
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;

    /// A folder in which nothing has changed for long.
    fn old_tree() -> tempfile::TempDir {
        let folder = folder_with(["a/b/c/file", "a/d/file", "e/file"].map(|name| (name, name.as_bytes())));
        symlink("a", folder.path().join("link")).unwrap();
        folder
    }

    fn shown(listing: &Listing) -> Vec<(PathBuf, u32, Identity)> {
        let mut shown = Vec::new();
        let Ok(()) = listing.each(|path, seen| {
            shown.push((path.to_owned(), seen.mode, seen.identity));
            Ok::<_, Infallible>(true)
        });
        shown
    }

    #[test]
    fn what_is_kept_is_what_was_listed() {
        let folder = old_tree();
        let listing = list(folder.path());
        let bytes = encode(&listing);
        let decoded = decode(folder.path(), &bytes).expect("it was just made");
        assert_eq!((decoded.len(), shown(&decoded)), (listing.len(), shown(&listing)));
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert_eq!(decode(folder.path(), &damaged), None, "byte {at}");
            assert_eq!(decode(folder.path(), &bytes[..at]), None, "cut at {at}");
        }
    }

    type Change = (&'static str, fn(&Path));

    #[test]
    fn every_change_below_is_seen() {
        let changes: [Change; 9] = [
            ("nothing", |_| {}),
            ("a new file", |folder| fs::write(folder.join("a/d/new"), "").unwrap()),
            ("a removed one", |folder| fs::remove_file(folder.join("a/b/c/file")).unwrap()),
            ("another content", |folder| fs::write(folder.join("e/file"), "x").unwrap()),
            ("another name", |folder| fs::rename(folder.join("e/file"), folder.join("e/other")).unwrap()),
            ("other bits", |folder| {
                let mut bits = fs::metadata(folder.join("a")).unwrap().permissions();
                bits.set_readonly(true);
                fs::set_permissions(folder.join("a"), bits).unwrap();
            }),
            ("another target", |folder| {
                fs::remove_file(folder.join("link")).unwrap();
                symlink("b", folder.join("link")).unwrap();
            }),
            ("a time that was set back", |folder| {
                let time = Timespec { tv_sec: 1, tv_nsec: 0 };
                let times = Timestamps { last_access: time, last_modification: time };
                utimensat(CWD, folder.join("a/b/c/file"), &times, AtFlags::empty()).unwrap();
            }),
            ("another folder", |folder| {
                fs::rename(folder.join("a/d"), folder.join("old")).unwrap();
                fs::create_dir(folder.join("a/d")).unwrap();
            }),
        ];
        for (what, change) in changes {
            let folder = old_tree();
            let kept = decode(folder.path(), &encode(&list(folder.path()))).unwrap();
            std::thread::sleep(std::time::Duration::from_millis(10));
            change(folder.path());
            for is_network in [false, true] {
                assert_eq!(is_unchanged(&kept, is_network), what == "nothing", "{what}");
            }
        }
    }

    #[test]
    fn a_folder_that_has_just_changed_is_not_kept() {
        let folder = old_tree();
        let (listing, now_s) = (list(folder.path()), known::now_s());
        let kept = |later_s, is_network| is_to_be_kept(&listing, now_s + later_s, is_network);
        assert_eq!([kept(0, false), kept(10, false), kept(10, true), kept(100, true)], [false, true, false, true]);
    }

    #[test]
    fn what_was_kept_is_used_if_it_is_right_and_only_then() {
        let (folder, cache) = (old_tree(), tempfile::tempdir().unwrap());
        if !FileSystem::of(folder.path()).unwrap().folders_have_times {
            return;
        }
        let digests = Digests::in_folder(cache.path().to_owned());
        let path = digests.listing_of(folder.path()).unwrap();
        let listing = list(folder.path());
        assert_eq!(shown(&list_with(folder.path(), &digests)), shown(&listing));
        assert!(!path.exists(), "it has just been made");
        // A kept listing that lacks a name shows, by its result, whether it is used.
        let mut marked = decode(folder.path(), &encode(&listing)).unwrap();
        marked.folders.last_mut().unwrap().end -= 1;
        marked.seen.pop();
        let names = marked.seen.last().unwrap().name.end as usize;
        marked.names.truncate(names);
        known::write(&path, &encode(&marked)).unwrap();
        assert_eq!(list_with(folder.path(), &digests).len(), listing.len() - 1);
        fs::write(folder.path().join("a/new"), "").unwrap();
        assert_eq!(list_with(folder.path(), &digests).len(), listing.len() + 1);
    }

    #[test]
    fn the_oldest_listings_are_removed() {
        let cache = tempfile::tempdir().unwrap();
        for number in 0..200 {
            digests::write(&cache.path().join(format!("{number}.names")), b"").unwrap();
        }
        assert!(fs::read_dir(cache.path()).unwrap().count() < 200);
    }
}
