//! What a keeper removes when no process is left that could want it.

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

/// What is kept of a log (bytes). Chosen: the message of a panic, and some lines before it.
const LAST_WORDS_BYTES_MAX: u64 = 4 << 10;
/// Whoever had claimed the directory may be about to end: looked at so often, with a pause in between.
const LOOKS_MAX: u32 = 100;
const LOOK: Duration = Duration::from_millis(10);

#[derive(Default)]
pub(super) struct Directories {
    at_end: Vec<Vec<u8>>,
    unclaimed: Vec<Unclaimed>,
}

/// What lies at the path by then may be another one.
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

    /// Unless somebody has claimed it by then; but for the end of its log.
    pub fn remove_unclaimed(&mut self, path: Vec<u8>, log: String, last_words: String) {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        // What is not there need not be removed.
        if let Ok(directory) = rustix::fs::open(OsStr::from_bytes(&path), flags, Mode::empty()) {
            self.unclaimed.push(Unclaimed { path, directory, log, last_words });
        }
    }

    /// The processes that came so far are gone.
    pub fn remove(&mut self) {
        for directory in std::mem::take(&mut self.at_end) {
            // It may be gone, or on a file server that is.
            let _ = fs::remove_dir_all(OsStr::from_bytes(&directory));
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
        for _ in 0..LOOKS_MAX {
            if !files::is_at(&self.directory, path) {
                return;
            }
            // Nobody takes it away, and puts another one there, while it is locked.
            if rustix::fs::flock(&self.directory, FlockOperation::NonBlockingLockExclusive).is_ok() {
                if files::is_at(&self.directory, path) && !self.keep_last_words(path).unwrap_or(false) {
                    let _ = fs::remove_dir_all(path);
                }
                return;
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Removes all but the end of the log; `false`: there is none.
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

/// Removes all that is in a directory.
///
/// # Errors
/// The first thing that cannot be removed.
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
