//! Makes a directory for one job on this node: for the sockets and shared memory of its PMIx server process, or for the
//! error files of its ranks.
//!
//! The directory is created with mode 0700; an existing one is never used. The job's keeper removes it when all
//! processes of the keeper are gone, however they ended. If the keeper is killed, the agent removes it. The directory
//! itself is locked (`flock`) while its agent lives. If agent and keeper are killed together, as Slurm does with the
//! processes of a cancelled step, no process is left to remove it: the next agent on this node that starts a PMIx
//! server finds the directory without a lock and removes it. Where a file system cannot lock a directory (NFS), such a
//! directory stays.

use crate::keeper::Process;
use crate::remedy::spawn_error;
use bytes::Bytes;
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;
use wireup_os::{files, random};
use wireup_wire::ids::LocalRank;
use wireup_wire::limits::RANK_ERROR_BYTES_MAX;
use wireup_wire::peer::{SpawnError, SpawnStep};

/// Longest base path (bytes): libpmix appends names of its own, and the path of a Unix socket is limited to 108 bytes.
const BASE_LEN_MAX: usize = 32;
/// Most tries of `make`: another agent may take a new, not yet locked directory for an abandoned one and remove it.
const RACES_MAX: usize = 16;

pub struct Directory {
    path: PathBuf,
    /// The directory, opened and locked (`flock`) while this agent lives.
    lock: Option<OwnedFd>,
}

impl Directory {
    /// A directory with a new name that tells nothing about the job; it is not created yet.
    pub fn new() -> io::Result<Directory> {
        Ok(Directory { path: place(&usual_base())?, lock: None })
    }

    /// A directory for a PMIx server process that is started before its job is known; it is not created yet.
    pub fn of_standby() -> io::Result<Directory> {
        let mut path = place(&usual_base())?.into_os_string();
        path.push("-next");
        Ok(Directory { path: path.into(), lock: None })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn bytes(&self) -> Vec<u8> {
        self.path.as_os_str().as_bytes().to_vec()
    }

    /// The path of the directory as text, for the PMIx server process.
    pub fn name(&self) -> String {
        self.path.to_string_lossy().into_owned()
    }

    /// Creates the directory; fails if it already exists. Call it only after the keeper got `Request::RemoveAtEnd` for
    /// the directory.
    pub fn make(&mut self) -> Result<(), SpawnError> {
        let made = self.try_make();
        made.map_err(|error| spawn_error(SpawnStep::Cwd, format!("the directory {}", self.path.display()), &error))
    }

    fn try_make(&mut self) -> io::Result<()> {
        for _ in 0..RACES_MAX {
            fs::DirBuilder::new().mode(0o700).create(&self.path)?;
            let Ok(directory) = open_directory(&self.path) else { continue };
            // An agent that holds the lock took the new directory for an abandoned one and removes it: then make
            // another.
            match rustix::io::retry_on_intr(|| rustix::fs::flock(&directory, FlockOperation::LockExclusive)) {
                Ok(()) if !files::is_at(&directory, &self.path) => {}
                Ok(()) | Err(_) => {
                    self.lock = Some(directory);
                    return Ok(());
                }
            }
        }
        Err(Errno::AGAIN.into())
    }
}

/// Removes directories left by agents of this user that were killed together with their keepers.
pub fn remove_left() {
    remove_abandoned(&usual_base());
}

fn remove_abandoned(base: &Path) {
    let prefix = prefix();
    for entry in fs::read_dir(base).into_iter().flatten().flatten() {
        if entry.file_name().as_bytes().starts_with(prefix.as_bytes()) {
            let path = entry.path();
            // This lock, held until the directory is removed, keeps other agents away from it.
            if let Some(_lock) = lock_if_abandoned(&path) {
                let _ = fs::remove_dir_all(&path);
            }
        }
    }
}

/// Locks the directory at `path` if it belongs to this user, has mode 0700 and no process has locked it. Returns the
/// descriptor that holds the lock.
fn lock_if_abandoned(path: &Path) -> Option<OwnedFd> {
    let directory = open_directory(path).ok()?;
    let stat = rustix::fs::fstat(&directory).ok()?;
    if stat.st_uid != rustix::process::geteuid().as_raw() || stat.st_mode & 0o777 != 0o700 {
        return None;
    }
    rustix::fs::flock(&directory, FlockOperation::NonBlockingLockExclusive).ok().map(|()| directory)
}

fn open_directory(path: &Path) -> rustix::io::Result<OwnedFd> {
    rustix::fs::open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
}

/// The base directory if `TMPDIR` is not used: it is in memory. libpmix shares data with its clients through files,
/// which take long to remove from a disk (20 ms at the end of a job, measured).
const SHARED_MEMORY: &str = "/dev/shm";

/// The base directory: `TMPDIR` if it is short enough and exists, else `SHARED_MEMORY`, else `/tmp`. `TMPDIR` may come
/// from another machine: remote shells and containers pass such variables on.
fn base(tmpdir: Option<OsString>) -> PathBuf {
    let fits = |path: &OsString| {
        path.len() <= BASE_LEN_MAX && path.as_bytes().starts_with(b"/") && is_ours_to_use(Path::new(path))
    };
    let usual = || if is_ours_to_use(Path::new(SHARED_MEMORY)) { SHARED_MEMORY } else { "/tmp" };
    PathBuf::from(tmpdir.filter(fits).unwrap_or_else(|| usual().into()))
}

fn is_ours_to_use(directory: &Path) -> bool {
    use rustix::fs::Access;
    directory.is_dir() && rustix::fs::access(directory, Access::WRITE_OK | Access::EXEC_OK).is_ok()
}

/// A path that no other user can have created in advance, because its name is random.
fn place(base: &Path) -> io::Result<PathBuf> {
    Ok(base.join(format!("{}{:016x}", prefix(), random::number()?)))
}

/// The common prefix of the names of this user's directories. No other kind of directory that wireup makes has this
/// prefix.
fn prefix() -> String {
    format!("wireup-job-{}-", rustix::process::geteuid().as_raw())
}

fn usual_base() -> PathBuf {
    base(std::env::var_os("TMPDIR"))
}

/// Files in which ranks write why they fail, one for each rank of a job on this node.
pub struct ErrorFiles(Directory);

impl ErrorFiles {
    pub fn new() -> Result<ErrorFiles, SpawnError> {
        let failed = |error| spawn_error(SpawnStep::Cwd, "a random name for the directory of error files", &error);
        Directory::new().map(ErrorFiles).map_err(failed)
    }

    /// The directory of the files, which must be removed when the job has ended.
    pub fn directory(&self) -> Vec<u8> {
        self.0.bytes()
    }

    /// Makes the directory, and puts the path of each process's file into its variable `variable`. Call it only after
    /// the keeper got `Request::RemoveAtEnd` for the directory.
    pub fn make(&mut self, variable: &str, processes: &mut [Process]) -> Result<(), SpawnError> {
        self.0.make()?;
        for (local, process) in (0..).map(LocalRank).zip(processes) {
            process.env.push(format!("{variable}={}", self.path(local).display()).into_bytes());
        }
        Ok(())
    }

    fn path(&self, local: LocalRank) -> PathBuf {
        self.0.path().join(format!("error.{local}.json"))
    }

    /// What a rank has written, and when (ns since 1970); `None`: nothing.
    pub fn read(&self, local: LocalRank) -> Option<(u64, Bytes)> {
        self.try_read(local).ok().flatten()
    }

    fn try_read(&self, local: LocalRank) -> io::Result<Option<(u64, Bytes)>> {
        // The rank may have put anything in the file's place, even a FIFO, which would block the open.
        let flags = (OFlags::NONBLOCK | OFlags::NOFOLLOW).bits() as i32;
        let file = OpenOptions::new().read(true).custom_flags(flags).open(self.path(local))?;
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Ok(None);
        }
        let written = metadata.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut text = Vec::new();
        file.take(RANK_ERROR_BYTES_MAX as u64).read_to_end(&mut text)?;
        Ok((!text.is_empty()).then(|| (written.as_nanos() as u64, text.into())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    /// Unlocks the directory as the end of its agent would. Closing it is not enough: a process that another test has
    /// just forked holds a copy of its descriptor until it executes its program.
    fn abandon(directory: Directory) {
        rustix::fs::flock(directory.lock.unwrap(), FlockOperation::Unlock).unwrap();
    }

    #[test]
    fn a_directory_is_new_private_and_removed_once_abandoned() {
        let base = tempfile::tempdir().unwrap();
        let base = base.path();
        let path = place(base).unwrap();
        assert_ne!(place(base).unwrap(), path);
        let directory = |name: &str| Directory { path: base.join(name), lock: None };
        let mut made = Directory { path: path.clone(), lock: None };
        made.make().unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
        let again = Directory { path: path.clone(), lock: None }.try_make().map_err(|error| error.kind());
        assert_eq!(again, Err(io::ErrorKind::AlreadyExists), "an existing directory is never used");
        // Only directories of this user that have mode 0700 and that no agent has locked are removed: `half-removed`
        // and `lost`. Left are `open` (mode 0755), `link` (a symbolic link), and the locked one.
        let prefix = prefix();
        let names = |rest: [&str; 4]| rest.map(|rest| format!("{prefix}{rest}"));
        let [half_removed, lost, open, link] = names(["half-removed", "lost", "open", "link"]);
        fs::DirBuilder::new().mode(0o700).create(base.join(&half_removed)).unwrap();
        for name in [&lost, &open] {
            let mut directory = directory(name);
            directory.make().unwrap();
            fs::write(base.join(name).join("data"), "").unwrap();
            abandon(directory);
        }
        fs::set_permissions(base.join(&open), fs::Permissions::from_mode(0o755)).unwrap();
        symlink(base.join(&lost), base.join(&link)).unwrap();
        remove_abandoned(base);
        let mut left: Vec<_> = fs::read_dir(base).unwrap().map(|entry| entry.unwrap().path()).collect();
        left.sort();
        let mut wanted = [link, open].map(|name| base.join(name)).to_vec();
        wanted.push(path.clone());
        wanted.sort();
        assert_eq!(left, wanted);
        abandon(made);
        remove_abandoned(base);
        assert!(!path.exists());
    }

    #[test]
    fn missing_relative_or_overlong_base_directories_are_not_used() {
        let usual = if is_ours_to_use(Path::new(SHARED_MEMORY)) { SHARED_MEMORY } else { "/tmp" };
        assert_eq!(base(None), Path::new(usual));
        assert_eq!(base(Some("/tmp".into())), Path::new("/tmp"));
        assert_eq!(base(Some("/scratch/of/another/machine".into())), Path::new(usual));
        assert_eq!(base(Some("relative".into())), Path::new(usual));
        assert_eq!(base(Some("/very/long/way/to/a/temporary/directory".into())), Path::new(usual));
    }

    #[test]
    fn each_process_is_told_its_file_and_what_it_writes_there_is_read() {
        let mut files = ErrorFiles::new().unwrap();
        let mut processes = [Process::new(0), Process::new(1)];
        files.make("ERROR_FILE", &mut processes).unwrap();
        let path = files.path(LocalRank(1));
        assert_eq!(processes[1].env, [format!("ERROR_FILE={}", path.display()).into_bytes()]);
        assert_eq!(files.read(LocalRank(1)), None, "it has written nothing");
        fs::write(&path, "{}").unwrap();
        let (at_ns, text) = files.read(LocalRank(1)).unwrap();
        assert!(at_ns > 1_000_000_000_000_000_000 && text == "{}");
        fs::write(&path, vec![b'x'; RANK_ERROR_BYTES_MAX + 1]).unwrap();
        assert_eq!(files.read(LocalRank(1)).unwrap().1.len(), RANK_ERROR_BYTES_MAX);
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", &path).unwrap();
        assert_eq!(files.read(LocalRank(1)), None, "it is no file of its own");
        fs::remove_dir_all(files.0.path()).unwrap();
    }
}
