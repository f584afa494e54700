//! Removes directories at a keeper's end, once no process that might need them is left.

use rustix::fs::{FlockOperation, Mode, OFlags};
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;
use wireup_os::files;

/// Longest end of a log that is kept (bytes). Chosen: enough for a panic's message and some lines before it.
const LAST_WORDS_BYTES_MAX: u64 = 4 << 10;
/// Most attempts to lock the directory, since the process that holds the lock may be about to exit. `LOOK`: the pause
/// between two attempts.
const LOOKS_MAX: u32 = 100;
const LOOK: Duration = Duration::from_millis(10);

#[derive(Default)]
pub(super) struct Directories {
    at_end: Vec<Vec<u8>>,
    unclaimed: Vec<Unclaimed>,
}

/// A directory that is removed unless a process has claimed it. The open descriptor identifies the directory, since
/// another one may have taken its path by then.
struct Unclaimed {
    path: Vec<u8>,
    directory: OwnedFd,
    log: String,
    last_words: String,
}

impl Directories {
    pub fn remove_at_end(&mut self, directory: Vec<u8>) {
        self.at_end.push(directory);
    }

    /// Notes a directory to be removed at the keeper's end, except for the end of its log, unless another process has
    /// claimed the directory by then.
    pub fn remove_unclaimed(&mut self, path: Vec<u8>, log: String, last_words: String) {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        // A missing directory need not be removed.
        if let Ok(directory) = rustix::fs::open(OsStr::from_bytes(&path), flags, Mode::empty()) {
            self.unclaimed.push(Unclaimed { path, directory, log, last_words });
        }
    }

    /// Removes the directories of `remove_at_end`: all processes that used them have ended.
    pub fn remove(&mut self) {
        remove_all(std::mem::take(&mut self.at_end));
    }

    /// Removes all directories, because the agent has ended too.
    pub fn remove_all(mut self) {
        self.remove();
        for unclaimed in &self.unclaimed {
            unclaimed.remove();
        }
    }
}

pub(super) fn remove_all(directories: Vec<Vec<u8>>) {
    for directory in directories {
        // The directory may already be gone, or be on a file server that does not respond.
        let _ = fs::remove_dir_all(OsStr::from_bytes(&directory));
    }
}

impl Unclaimed {
    /// Removes the directory, unless another process has locked it or replaced it.
    fn remove(&self) {
        let path = Path::new(OsStr::from_bytes(&self.path));
        for _ in 0..LOOKS_MAX {
            if !files::is_at(&self.directory, path) {
                return;
            }
            // While the directory is locked, no process removes it and puts another one there.
            if rustix::fs::flock(&self.directory, FlockOperation::NonBlockingLockExclusive).is_ok() {
                if files::is_at(&self.directory, path) && !self.keep_last_words(path).unwrap_or(false) {
                    let _ = fs::remove_dir_all(path);
                }
                return;
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Empties the directory, but keeps the last `LAST_WORDS_BYTES_MAX` bytes of the log in the file `last_words`.
    /// `false`: the log is empty or cannot be read, and nothing was removed.
    fn keep_last_words(&self, path: &Path) -> io::Result<bool> {
        let words = end_of(&path.join(&self.log)).unwrap_or_default();
        if words.is_empty() {
            return Ok(false);
        }
        clear(path)?;
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        options.open(path.join(&self.last_words))?.write_all(&words)?;
        Ok(true)
    }
}

fn end_of(path: &Path) -> io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(LAST_WORDS_BYTES_MAX)))?;
    let mut end = Vec::new();
    file.take(LAST_WORDS_BYTES_MAX).read_to_end(&mut end)?;
    Ok(end)
}

/// Removes the contents of a directory.
pub fn clear(directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        match entry.file_type()?.is_dir() {
            true => fs::remove_dir_all(entry.path())?,
            false => fs::remove_file(entry.path())?,
        }
    }
    Ok(())
}
