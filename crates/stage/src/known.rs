//! A cache, in a file, of values that were computed from other files, such as digests: a later run need not read those
//! files again unless they have changed.
//!
//! A file counts as unchanged if device, number, length and both of its times are the same. A file that was changed
//! only just now may change again within the resolution of its times, so nothing of it is kept.
//!
//! The cache file has a check (u64, little-endian), the identity of each file with the end of its value (`postcard`,
//! sorted), and the values. The check is XXH3 of all that follows it: a damaged file counts as empty.

use rustix::fs::Stat;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{self, DirBuilder};
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};
use twox_hash::XxHash3_64;

/// Minimum age (s) of a file's last change for its value to be cached: file times have a resolution of 2 s or better.
pub(crate) const AGE_MIN_S: i64 = 2;
const KEPT_LEN_MAX: u64 = 256 << 20;
/// Most entries that a cache keeps although this run did not look them up (chosen: the libraries of a large
/// environment). A larger number is kept if this run did look up at least as many entries.
const UNUSED_MAX: usize = 4096;

/// Length of the check at the beginning of a cache file (bytes).
pub(crate) const CHECK_LEN: usize = 8;

/// Identifies one state of a file: device, inode number, length, seconds and nanoseconds of its two times.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Identity([u64; 7]);

impl Identity {
    pub fn of(stat: &Stat) -> Identity {
        let (modified, changed) = ((stat.st_mtime, stat.st_mtime_nsec), (stat.st_ctime, stat.st_ctime_nsec));
        let (len, [modified_s, changed_s]) =
            (stat.st_size as u64, [modified.0, changed.0].map(|seconds| seconds as u64));
        Identity([stat.st_dev, stat.st_ino, len, modified_s, modified.1, changed_s, changed.1])
    }

    pub(crate) fn len(&self) -> u64 {
        self.0[2]
    }

    pub(crate) fn modified(&self) -> (i64, u32) {
        (self.0[3] as i64, self.0[4] as u32)
    }

    pub(crate) fn device(&self) -> u64 {
        self.0[0]
    }

    /// The age of the file's last change (s).
    pub(crate) fn age_s(&self, now_s: i64) -> i64 {
        now_s - (self.0[3] as i64).max(self.0[5] as i64)
    }
}

/// The wall clock (s).
pub(crate) fn now_s() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs() as i64)
}

/// Writes a cache file that only the user can read or change: a user who could change the cache file could replace
/// staged files.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    // `NamedTempFile` creates files with the mode 0600.
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(bytes)?;
    file.persist(path)?;
    Ok(())
}

/// The contents of a cache file; empty if it cannot be read or is too long.
pub(crate) fn read(path: &Path) -> Vec<u8> {
    let is_small = fs::metadata(path).is_ok_and(|meta| meta.len() <= KEPT_LEN_MAX);
    if is_small { fs::read(path).unwrap_or_default() } else { Vec::new() }
}

/// Version of the format; a file of another version counts as damaged.
const FORMAT: u64 = 1;

fn check(kept: &[u8]) -> [u8; CHECK_LEN] {
    XxHash3_64::oneshot_with_seed(FORMAT, kept).to_le_bytes()
}

/// Writes the check into the first [`CHECK_LEN`] bytes.
pub(crate) fn seal(bytes: &mut [u8]) {
    let check = check(&bytes[CHECK_LEN..]);
    bytes[..CHECK_LEN].copy_from_slice(&check);
}

/// The contents after the check; `None`: the file is damaged.
pub(crate) fn opened(bytes: &[u8]) -> Option<&[u8]> {
    let (expected, kept) = bytes.split_first_chunk()?;
    (*expected == check(kept)).then_some(kept)
}

/// The cached values by file: those read from the cache file, and those added by this run.
#[derive(Default)]
pub struct Known {
    /// Entries from the cache file, sorted, each with the end of its value in `values`.
    old: Vec<(Identity, usize)>,
    values: Vec<u8>,
    /// For each entry of `old`, whether this process has looked it up.
    used: Vec<bool>,
    /// The index in `old` of the entry that was looked up last.
    last: usize,
    new: BTreeMap<Identity, Vec<u8>>,
}

impl Known {
    /// The values in a cache file; none if there is no such file, or a damaged one.
    pub fn read(path: &Path) -> Known {
        let bytes = read(path);
        let found = opened(&bytes).and_then(|kept| postcard::take_from_bytes::<Vec<(Identity, usize)>>(kept).ok());
        let Some((old, values)) = found else { return Known::default() };
        Known { used: vec![false; old.len()], old, values: values.to_owned(), ..Known::default() }
    }

    /// Writes the cache file, if there are new values; returns `false` if there are none.
    pub fn write(&self, path: &Path) -> io::Result<bool> {
        if self.new.is_empty() {
            return Ok(false);
        }
        write(path, &self.kept())?;
        Ok(true)
    }

    fn kept(&self) -> Vec<u8> {
        let asked = self.new.len() + self.used.iter().filter(|is_used| **is_used).count();
        let all_stay = self.new.len() + self.used.len() - asked <= asked.max(UNUSED_MAX);
        let old = self.old.iter().enumerate().filter(|(index, _)| all_stay || self.used[*index]);
        let mut all: BTreeMap<Identity, &[u8]> =
            old.filter_map(|(index, (file, _))| Some((*file, self.value(index)?))).collect();
        all.extend(self.new.iter().map(|(file, value)| (*file, &value[..])));
        let mut end = 0;
        let ends = all.iter().map(|(file, value)| {
            end += value.len();
            (file, end)
        });
        let mut out = postcard::to_extend(&ends.collect::<Vec<_>>(), vec![0; CHECK_LEN]).expect("plain data");
        all.values().for_each(|value| out.extend_from_slice(value));
        seal(&mut out);
        out
    }

    pub fn find(&mut self, file: &Identity) -> Option<&[u8]> {
        let Some(index) = self.index(file) else { return self.new.get(file).map(Vec::as_slice) };
        self.last = index;
        self.used[index] = true;
        self.value(index)
    }

    pub fn add(&mut self, file: Identity, value: &[u8]) {
        if file.age_s(now_s()) >= AGE_MIN_S {
            self.new.insert(file, value.to_owned());
        }
    }

    fn index(&self, file: &Identity) -> Option<usize> {
        // Files that were made one after the other are often asked for in this order.
        let next = self.last + 1;
        if self.old.get(next).is_some_and(|(known, _)| known == file) {
            return Some(next);
        }
        self.old.binary_search_by_key(&file, |(known, _)| known).ok()
    }

    fn value(&self, index: usize) -> Option<&[u8]> {
        let from = index.checked_sub(1).map_or(0, |before| self.old[before].1);
        self.values.get(from..self.old[index].1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, stat, utimensat};
    use std::os::unix::fs::PermissionsExt;

    fn file(number: u64) -> Identity {
        Identity([1, number, 0, 0, 0, 0, 0])
    }

    #[test]
    fn a_file_is_known_until_it_changes() {
        let folder = tempfile::tempdir().unwrap();
        let (file, kept) = (folder.path().join("file"), folder.path().join("cache/known"));
        fs::write(&file, b"content").unwrap();
        let now = stat(&file).unwrap();
        let with = |change: fn(&mut Stat)| {
            let mut other = now;
            (other.st_mtime, other.st_ctime) = (1, 1);
            change(&mut other);
            Identity::of(&other)
        };
        let old = with(|_| {});
        let mut known = Known::read(&kept);
        known.add(Identity::of(&now), b"value");
        assert_eq!(known.find(&Identity::of(&now)), None, "it may change again");
        assert!(!known.write(&kept).unwrap(), "there is nothing to keep");
        known.add(old, b"value");
        assert_eq!(known.find(&old), Some(&b"value"[..]));
        assert!(known.write(&kept).unwrap());
        assert_eq!(fs::metadata(&kept).unwrap().permissions().mode() & 0o777, 0o600);
        let mut read = Known::read(&kept);
        assert_eq!(read.find(&old), Some(&b"value"[..]));
        assert_eq!(read.find(&with(|stat| stat.st_size = 8)), None);
        assert_eq!(read.find(&with(|stat| stat.st_ctime = 2)), None);
        // Setting back the modification time changes the time of the last status change.
        let time = Timespec { tv_sec: 1, tv_nsec: 0 };
        let times = Timestamps { last_access: time, last_modification: time };
        utimensat(CWD, &file, &times, AtFlags::empty()).unwrap();
        assert_eq!(read.find(&Identity::of(&stat(&file).unwrap())), None);
    }

    #[test]
    fn a_damaged_file_counts_as_empty() {
        let folder = tempfile::tempdir().unwrap();
        let kept = folder.path().join("known");
        let mut known = Known::default();
        (0..3).for_each(|number| known.add(file(number), b"value"));
        known.write(&kept).unwrap();
        let whole = fs::read(&kept).unwrap();
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 1;
            fs::write(&kept, damaged).unwrap();
            assert_eq!(Known::read(&kept).find(&file(1)), None, "byte {at}");
            fs::write(&kept, &whole[..at]).unwrap();
            assert_eq!(Known::read(&kept).find(&file(1)), None, "cut at {at}");
        }
    }

    #[test]
    fn what_nobody_asks_for_is_forgotten_when_it_is_much() {
        let folder = tempfile::tempdir().unwrap();
        let kept = folder.path().join("known");
        let add = |numbers: std::ops::Range<u64>| {
            let mut known = Known::read(&kept);
            numbers.for_each(|number| known.add(file(number), b""));
            known.write(&kept).unwrap();
            Known::read(&kept).used.len()
        };
        let many = UNUSED_MAX as u64;
        assert_eq!(add(0..many), UNUSED_MAX);
        assert_eq!(add(many..many + 1), UNUSED_MAX + 1, "so many are nothing");
        assert_eq!(add(many + 1..many + 2), 1);
        let mut known = Known::read(&kept);
        assert_eq!(known.find(&file(0)), None);
        assert_eq!(known.find(&file(many + 1)), Some(&b""[..]));
    }

    proptest! {
        #[test]
        fn all_that_was_added_is_found(
            first in proptest::collection::btree_map(0u64..200, proptest::collection::vec(any::<u8>(), 0..9), 0..60),
            second in proptest::collection::btree_map(0u64..200, proptest::collection::vec(any::<u8>(), 0..9), 0..60),
        ) {
            let folder = tempfile::tempdir().unwrap();
            let kept = folder.path().join("known");
            for some in [&first, &second] {
                let mut known = Known::read(&kept);
                some.iter().for_each(|(number, value)| known.add(file(*number), value));
                known.write(&kept).unwrap();
            }
            let mut known = Known::read(&kept);
            for number in 0..200 {
                let expected = second.get(&number).or(first.get(&number)).map(Vec::as_slice);
                prop_assert_eq!(known.find(&file(number)), expected);
            }
        }
    }
}
