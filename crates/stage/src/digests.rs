//! What is known of files that have not changed since they were last read, so that a second run reads no file: their digests, and what a
//! caller wants to keep besides.
//!
//! A file counts as unchanged if device, number, length and both of its times are the same. A file that was changed only just now may change
//! again within the resolution of its times, so nothing of it is kept.

use crate::set::Digest;
use rustix::fs::Stat;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// Files of which something is kept: of twenty large environments (chosen). Beyond that all are forgotten.
const KEPT_MAX: usize = 1 << 20;
/// A file must be at least this old (s): file systems keep times to 2 s or better.
const AGE_MIN_S: i64 = 2;
const FILE_LEN_MAX: u64 = 256 << 20;

/// What a file has had as long as it has not changed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Identity {
    device: u64,
    number: u64,
    len: i64,
    modified: (i64, u64),
    changed: (i64, u64),
}

impl Identity {
    pub fn of(stat: &Stat) -> Identity {
        Identity {
            device: stat.st_dev,
            number: stat.st_ino,
            len: stat.st_size,
            modified: (stat.st_mtime, stat.st_mtime_nsec),
            changed: (stat.st_ctime, stat.st_ctime_nsec),
        }
    }

    pub(crate) fn len(&self) -> u64 {
        self.len as u64
    }

    pub(crate) fn modified(&self) -> (i64, u32) {
        (self.modified.0, self.modified.1 as u32)
    }
}

/// Something of each file, as read from a file of such, and what was added.
pub struct Known<T> {
    files: BTreeMap<Identity, T>,
    has_new: bool,
}

pub type Digests = Known<Digest>;

impl<T> Default for Known<T> {
    fn default() -> Known<T> {
        Known { files: BTreeMap::new(), has_new: false }
    }
}

impl<T: Serialize + DeserializeOwned + Clone> Known<T> {
    /// What is in a file; nothing if there is no such file, or a damaged one.
    pub fn read(path: &Path) -> Known<T> {
        let is_small = fs::metadata(path).is_ok_and(|meta| meta.len() <= FILE_LEN_MAX);
        let bytes = if is_small { fs::read(path).unwrap_or_default() } else { Vec::new() };
        Known { files: postcard::from_bytes(&bytes).unwrap_or_default(), has_new: false }
    }

    /// Writes it, if there is something new. Only the user may read or change the file: who could change it could exchange staged files.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        if !self.has_new {
            return Ok(());
        }
        let folder = path.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(folder)?;
        let new: PathBuf = folder.join(format!(".new-{}", std::process::id()));
        let bytes = postcard::to_allocvec(&self.files).map_err(io::Error::other)?;
        let _ = fs::remove_file(&new);
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        io::Write::write_all(&mut file, &bytes)?;
        fs::rename(&new, path)
    }

    pub fn find(&self, file: &Identity) -> Option<&T> {
        self.files.get(file)
    }

    pub fn add(&mut self, file: Identity, value: T) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs() as i64);
        if now - file.modified.0.max(file.changed.0) < AGE_MIN_S {
            return;
        }
        if self.files.len() >= KEPT_MAX {
            self.files.clear();
        }
        self.files.insert(file, value);
        self.has_new = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, stat, utimensat};

    #[test]
    fn a_file_is_known_until_it_changes() {
        let folder = tempfile::tempdir().unwrap();
        let (file, kept) = (folder.path().join("file"), folder.path().join("cache/digests"));
        fs::write(&file, b"content").unwrap();
        let now = stat(&file).unwrap();
        let with = |change: fn(&mut Stat)| {
            let mut other = now;
            (other.st_mtime, other.st_ctime) = (1, 1);
            change(&mut other);
            other
        };
        let old = with(|_| {});
        let mut digests = Digests::read(&kept);
        digests.add(Identity::of(&now), [1; 32]);
        assert_eq!(digests.find(&Identity::of(&now)), None, "it may change again");
        digests.add(Identity::of(&old), [1; 32]);
        digests.write(&kept).unwrap();
        let read = Digests::read(&kept);
        assert_eq!(read.find(&Identity::of(&old)), Some(&[1; 32]));
        assert_eq!(read.find(&Identity::of(&with(|stat| stat.st_size = 8))), None);
        assert_eq!(read.find(&Identity::of(&with(|stat| stat.st_ctime = 2))), None);
        // A time that was set back changes the other time.
        let time = Timespec { tv_sec: 1, tv_nsec: 0 };
        let times = Timestamps { last_access: time, last_modification: time };
        utimensat(CWD, &file, &times, AtFlags::empty()).unwrap();
        assert_eq!(read.find(&Identity::of(&stat(&file).unwrap())), None);
        fs::write(&kept, b"damaged").unwrap();
        assert_eq!(Digests::read(&kept).find(&Identity::of(&old)), None);
    }
}
