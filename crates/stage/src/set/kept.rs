//! The listing of a folder is kept in a file. If no folder in it has changed since, no name has been added or removed: then it is enough to
//! look at what the listing has, and no folder is read.
//!
//! A folder counts as unchanged if number, length and both of its times are the same. So a listing is kept only if its file system changes
//! the times of a folder with every name in it, and if no folder has changed only just now.
//!
//! ```text
//!   check u64 | entries u64, folders u64, bytes of names u64
//!   of each entry, the first one is the root: mode u32, number of a folder u32, end of its name u32, u32, identity (seven u64)
//!   of each folder: its first entry u32, the end of its entries u32 (the root is not counted)
//!   the names
//! ```
//!
//! All numbers are little-endian. The check is XXH3 of all that follows it.

use super::listing::{Listing, Part, Seen, list, threads};
use crate::digests::Digests;
use crate::file_system::FileSystem;
use crate::known::{self, IDENTITY_LEN, Identity};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, lstat, openat, statat};
use std::fs;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use twox_hash::XxHash3_64;

const HEAD_LEN: usize = 32;
const ENTRY_LEN: usize = 16 + IDENTITY_LEN;
const FOLDER_LEN: usize = 8;
const KEPT_LEN_MAX: u64 = 256 << 20;
/// Folders that a thread looks at one after the other.
const FOLDERS: usize = 64;

/// Looks at all that is in a folder, with the help of what was kept of an earlier time, and keeps it for the next one.
pub fn list_with(root: &Path, digests: &Digests) -> Listing {
    let Some(path) = digests.listing_of(root) else { return list(root) };
    if let Some(known) = read(root, &path).filter(is_unchanged) {
        return known;
    }
    let began_s = known::now_s();
    let listing = list(root);
    if is_to_be_kept(&listing, began_s) {
        // Without it the next one reads all folders again.
        let _ = known::write(&path, &encode(&listing));
    }
    listing
}

/// Whether every later change of a name will be seen.
fn is_to_be_kept(listing: &Listing, began_s: i64) -> bool {
    let Some(root) = listing.root.as_ref().filter(|root| root.kind() == FileType::Directory) else { return false };
    let is_settled = |seen: &Seen| {
        seen.kind() != FileType::Directory
            || seen.identity.device() == root.identity.device() && seen.identity.is_settled(began_s)
    };
    listing.is_whole()
        && FileSystem::of(&listing.path).is_some_and(|kind| kind.folders_have_times)
        && is_settled(root)
        && listing.parts.iter().flat_map(|part| &part.seen).all(is_settled)
}

fn encode(listing: &Listing) -> Vec<u8> {
    let Some(root) = &listing.root else { return Vec::new() };
    let (mut entries, mut folders, mut names) = (Vec::new(), Vec::new(), Vec::new());
    let mut push = |seen: &Seen, name: &[u8], names: &mut Vec<u8>| {
        names.extend_from_slice(name);
        for number in [seen.mode, seen.folder, names.len() as u32, 0] {
            entries.extend(number.to_le_bytes());
        }
        seen.identity.encode(&mut entries);
    };
    push(root, &[], &mut names);
    let mut count = 0u32;
    for (part, inside) in &listing.folders {
        let part = &listing.parts[*part];
        folders.extend(count.to_le_bytes());
        for seen in &part.seen[inside.clone()] {
            push(seen, part.name(seen), &mut names);
            count += 1;
        }
        folders.extend(count.to_le_bytes());
    }
    let mut out = vec![0; 8];
    for number in [count as usize + 1, listing.folders.len(), names.len()] {
        out.extend((number as u64).to_le_bytes());
    }
    [entries, folders, names].iter().for_each(|bytes| out.extend_from_slice(bytes));
    let check = XxHash3_64::oneshot(&out[8..]).to_le_bytes();
    out[..8].copy_from_slice(&check);
    out
}

fn read(root: &Path, path: &Path) -> Option<Listing> {
    let is_small = fs::metadata(path).is_ok_and(|meta| meta.len() <= KEPT_LEN_MAX);
    is_small.then(|| fs::read(path).ok()).flatten().and_then(|bytes| decode(root, &bytes))
}

/// `None`: it is damaged.
fn decode(root: &Path, bytes: &[u8]) -> Option<Listing> {
    let (check, rest) = bytes.split_first_chunk()?;
    if u64::from_le_bytes(*check) != XxHash3_64::oneshot(rest) {
        return None;
    }
    let (head, rest) = rest.split_at_checked(HEAD_LEN - 8)?;
    let number = |at: usize| usize::try_from(u64::from_le_bytes(*head.get(at..)?.first_chunk()?)).ok();
    let (entries, folders, names) = (number(0)?, number(8)?, number(16)?);
    let (entries, rest) = rest.split_at_checked(entries.checked_mul(ENTRY_LEN)?)?;
    let (folders, rest) = rest.split_at_checked(folders.checked_mul(FOLDER_LEN)?)?;
    let (entries, _) = entries.as_chunks::<ENTRY_LEN>();
    let (folders, _) = folders.as_chunks::<FOLDER_LEN>();
    let half = |bytes: &[u8], at: usize| Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
    let mut begin = 0;
    let mut seen = Vec::with_capacity(entries.len());
    for entry in entries {
        let (mode, folder, end) = (half(entry, 0)?, half(entry, 4)?, half(entry, 8)?);
        let name = std::mem::replace(&mut begin, end)..end;
        seen.push(Seen { mode, identity: Identity::decode(entry.last_chunk()?), name, folder });
    }
    let all = folders.iter().map(|folder| Some((half(folder, 0)? as usize, half(folder, 4)? as usize)));
    let folders = all.map(|inside| inside.map(|(from, to)| (0, from..to))).collect::<Option<Vec<_>>>()?;
    let root_seen = if seen.is_empty() { return None } else { seen.remove(0) };
    let part = Part::of(seen, rest.to_vec());
    let fits = rest.len() == names && is_tree(&part, &folders);
    fits.then(|| Listing {
        path: root.to_owned(),
        root: Some(root_seen),
        parts: vec![part],
        folders,
        problems: Vec::new(),
    })
}

/// Whether the entries of each folder are there, and each folder is in one that was numbered before it.
fn is_tree(part: &Part, folders: &[(usize, Range<usize>)]) -> bool {
    let has_names = part.seen.iter().all(|seen| seen.name.start <= seen.name.end)
        && part.seen.last().map_or(0, |last| last.name.end as usize) == part.names.len();
    let mut next = 0;
    let mut above = vec![false; folders.len()];
    has_names
        && folders.iter().enumerate().all(|(number, (_, inside))| {
            let follows = inside.start == next && inside.end >= next && inside.end <= part.seen.len();
            next = inside.end;
            follows
                && part.seen[inside.clone()].iter().filter(|seen| seen.kind() == FileType::Directory).all(|seen| {
                    let folder = seen.folder as usize;
                    folder > number && above.get_mut(folder).is_some_and(|known| !std::mem::replace(known, true))
                })
        })
        && next == part.seen.len()
}

/// Looks at all that is in a listing.
fn is_unchanged(listing: &Listing) -> bool {
    let same = |seen: &Seen, stat: &rustix::fs::Stat| seen.mode == stat.st_mode && seen.identity == Identity::of(stat);
    let (Some(root), [part]) = (&listing.root, &listing.parts[..]) else { return false };
    if !lstat(&listing.path).is_ok_and(|stat| same(root, &stat)) {
        return false;
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let Ok(top) = openat(CWD, &listing.path, flags, Mode::empty()) else { return false };
    // Of each folder: its entry, and the folder that it is in.
    let mut entries = vec![(0, 0); listing.folders.len()];
    for (number, (_, inside)) in listing.folders.iter().enumerate() {
        for at in inside.clone().filter(|at| part.seen[*at].kind() == FileType::Directory) {
            entries[part.seen[at].folder as usize] = (at, number);
        }
    }
    let (next, changed) = (AtomicUsize::new(0), AtomicBool::new(false));
    let look = || {
        let (mut path, mut way) = (Vec::new(), Vec::new());
        while !changed.load(Ordering::Relaxed) {
            let from = next.fetch_add(FOLDERS, Ordering::Relaxed);
            if from >= entries.len() {
                return;
            }
            for number in from..entries.len().min(from + FOLDERS) {
                way.clear();
                let mut folder = number;
                while folder != 0 {
                    let (entry, above) = entries[folder];
                    way.push(entry);
                    folder = above;
                }
                path.clear();
                for entry in way.iter().rev() {
                    path.extend_from_slice(part.name(&part.seen[*entry]));
                    path.push(b'/');
                }
                let len = path.len();
                for seen in &part.seen[listing.folders[number].1.clone()] {
                    path.truncate(len);
                    path.extend_from_slice(part.name(seen));
                    if !statat(&top, &path[..], AtFlags::SYMLINK_NOFOLLOW).is_ok_and(|stat| same(seen, &stat)) {
                        changed.store(true, Ordering::Relaxed);
                        return;
                    }
                }
            }
        }
    };
    std::thread::scope(|scope| {
        (1..threads(&listing.path)).for_each(|_| {
            scope.spawn(look);
        });
        look();
    });
    !changed.into_inner()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{Timespec, Timestamps, utimensat};
    use std::convert::Infallible;
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;

    /// A folder in which nothing has changed for long.
    fn old_tree() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for name in ["a/b/c", "a/d", "e"] {
            fs::create_dir_all(folder.path().join(name)).unwrap();
            fs::write(folder.path().join(name).join("file"), name).unwrap();
        }
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

    #[test]
    fn every_change_below_is_seen() {
        let changes: [(&str, fn(&Path)); 9] = [
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
            assert_eq!(is_unchanged(&kept), what == "nothing", "{what}");
        }
    }

    #[test]
    fn a_folder_that_has_just_changed_is_not_kept() {
        let (folder, cache) = (old_tree(), tempfile::tempdir().unwrap());
        let listing = list(folder.path());
        let now_s = known::now_s();
        let has_times = FileSystem::of(folder.path()).unwrap().folders_have_times;
        assert_eq!((is_to_be_kept(&listing, now_s), is_to_be_kept(&listing, now_s + 10)), (false, has_times));
        let digests = Digests::in_folder(cache.path().to_owned());
        let path = digests.listing_of(folder.path()).unwrap();
        assert_eq!(shown(&list_with(folder.path(), &digests)), shown(&listing));
        assert!(!path.exists());
        // What was kept is used if it is right, and only then.
        known::write(&path, &encode(&listing)).unwrap();
        assert_eq!(list_with(folder.path(), &digests).parts.len(), 1);
        fs::write(folder.path().join("e/new"), "").unwrap();
        assert_eq!(list_with(folder.path(), &digests).len(), listing.len() + 1);
    }
}
