//! What a keeper removes when no process is left that could want it.

use rustix::fs::{FlockOperation, Mode, OFlags};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

#[derive(Default)]
pub(super) struct Directories {
    at_end: Vec<Vec<u8>>,
    unclaimed: Vec<Vec<u8>>,
}

impl Directories {
    pub fn remove_at_end(&mut self, directory: Vec<u8>) {
        self.at_end.push(directory);
    }

    /// Unless somebody has claimed it by then.
    pub fn remove_unclaimed(&mut self, directory: Vec<u8>) {
        self.unclaimed.push(directory);
    }

    /// The processes that came so far are gone.
    pub fn remove(&mut self) {
        for directory in std::mem::take(&mut self.at_end) {
            // It may be gone, or on a file server that is.
            let _ = std::fs::remove_dir_all(OsStr::from_bytes(&directory));
        }
    }

    /// The agent is gone as well.
    pub fn remove_all(mut self) {
        self.remove();
        for directory in &self.unclaimed {
            remove_if_unclaimed(Path::new(OsStr::from_bytes(directory)));
        }
    }
}

/// Somebody who has begun to use it anew keeps it.
fn remove_if_unclaimed(path: &Path) {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let Ok(directory) = rustix::fs::open(path, flags, Mode::empty()) else { return };
    if rustix::fs::flock(&directory, FlockOperation::NonBlockingLockExclusive).is_ok() {
        let _ = std::fs::remove_dir_all(path);
    }
}
