//! What a keeper removes when no process is left that could want it.

use rustix::fs::{FlockOperation, Mode, OFlags};
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use wireup_os::files;

#[derive(Default)]
pub(super) struct Directories {
    at_end: Vec<Vec<u8>>,
    unclaimed: Vec<Unclaimed>,
}

/// What lies at the path by then may be another one.
struct Unclaimed {
    path: Vec<u8>,
    directory: OwnedFd,
}

impl Directories {
    pub fn remove_at_end(&mut self, directory: Vec<u8>) {
        self.at_end.push(directory);
    }

    /// Unless somebody has claimed it by then.
    pub fn remove_unclaimed(&mut self, path: Vec<u8>) {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        // What is not there need not be removed.
        if let Ok(directory) = rustix::fs::open(OsStr::from_bytes(&path), flags, Mode::empty()) {
            self.unclaimed.push(Unclaimed { path, directory });
        }
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
        for unclaimed in &self.unclaimed {
            unclaimed.remove();
        }
    }
}

impl Unclaimed {
    /// Somebody who has begun to use it anew keeps it.
    fn remove(&self) {
        let path = Path::new(OsStr::from_bytes(&self.path));
        // Nobody takes it away, and puts another one there, while it is locked.
        let locked = rustix::fs::flock(&self.directory, FlockOperation::NonBlockingLockExclusive).is_ok();
        if locked && files::is_at(&self.directory, path) {
            let _ = std::fs::remove_dir_all(path);
        }
    }
}
