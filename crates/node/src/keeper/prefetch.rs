//! A process that reads files into the page cache while the ranks start: each file whole, one after the other, which a
//! file server answers faster than the page faults of many ranks in any order.
//!
//! The process is a fork of the keeper and dies with it. The sweep at the end of the job kills it like any other
//! descendant, even if it has not read everything. What could not be read is reported when it ends; the ranks read it
//! themselves, or fail.

use rustix::fs::{Advice, Mode, OFlags, fadvise};
use rustix::process::Signal;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use wireup_os::files;
use wireup_os::process::{self, Fork};

/// Number of bytes that are read at once.
const STEP: usize = 1 << 20;
/// Longest report (bytes): what a pipe holds in any case, since nobody reads it before the process has ended.
const REPORT_LEN_MAX: usize = 4096;

pub(super) struct Prefetching {
    pub pid: u32,
    report: OwnedFd,
}

impl Prefetching {
    /// Begins to read these files.
    ///
    /// # Errors
    /// Why no process can be forked.
    pub fn begin(paths: &[Vec<u8>]) -> Result<Prefetching, String> {
        let failed = |error: io::Error| format!("no file is read ahead of the ranks: fork failed: {error}");
        let (report, into) = files::pipe().map_err(failed)?;
        match process::fork().map_err(failed)? {
            // A panic must not unwind into the keeper's stack frames, of which this process has a copy.
            Fork::Child => {
                let read = catch_unwind(AssertUnwindSafe(|| in_child(paths, into)));
                process::leave(if read.is_ok() { 0 } else { 1 })
            }
            Fork::Parent { child } => Ok(Prefetching { pid: child, report }),
        }
    }

    /// What the process, which has ended, could not read.
    pub fn problem(self) -> Option<String> {
        let mut text = Vec::new();
        let read = File::from(self.report).read_to_end(&mut text);
        (read.is_ok() && !text.is_empty()).then(|| String::from_utf8_lossy(&text).into_owned())
    }
}

fn in_child(paths: &[Vec<u8>], into: OwnedFd) {
    // Best effort: the agent also kills what a dead keeper leaves.
    let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    process::set_name(c"wireup-prefetch");
    // The keeper's sockets would hide its end from the agent.
    files::close_all_but(&[into.as_fd()]);
    if let Some(problem) = read_all(paths.iter().map(|path| Path::new(OsStr::from_bytes(path)))) {
        let _ = File::from(into).write_all(&problem.as_bytes()[..problem.len().min(REPORT_LEN_MAX)]);
    }
}

/// Reads files, and says which it could not read.
fn read_all<'a>(paths: impl ExactSizeIterator<Item = &'a Path>) -> Option<String> {
    let (all, mut buffer) = (paths.len(), vec![0; STEP]);
    let mut failed = paths.filter_map(|path| Some((path, read_whole(path, &mut buffer).err()?)));
    let (first, error) = failed.next()?;
    let count = 1 + failed.count();
    Some(format!("{count} of {all} files could not be read ahead of the ranks, the first {}: {error}", first.display()))
}

fn read_whole(path: &Path, buffer: &mut [u8]) -> io::Result<()> {
    // On another node the path may be a FIFO or a device, which must neither block nor be read.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    let meta = file.metadata()?;
    if !meta.is_file() {
        return Err(io::Error::other("not a file"));
    }
    // Only advice: the kernel reads more ahead.
    let _ = fadvise(&file, 0, None, Advice::Sequential);
    // A file that grows meanwhile is read up to its former length.
    let mut rest = file.take(meta.len());
    while rest.read(buffer)? > 0 {}
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn what_cannot_be_read_is_counted_and_the_rest_is_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        fs::write(at("long"), vec![1; 2 * STEP + 1]).expect("a file");
        let fifo = std::process::Command::new("mkfifo").arg(at("fifo")).status().expect("mkfifo");
        assert!(fifo.success());
        let read = |names: &[&str]| {
            let paths: Vec<_> = names.iter().map(|name| at(name)).collect();
            read_all(paths.iter().map(|path| path.as_path()))
        };
        assert_eq!(read(&["long"]), None);
        let problem = read(&["missing", "long", "fifo"]).expect("a problem");
        assert!(problem.starts_with("2 of 3 files could not be read ahead of the ranks, the first /"), "{problem}");
        assert!(problem.ends_with("missing: No such file or directory (os error 2)"), "{problem}");
    }
}
