//! `wireup clean`: removes what wireup keeps on this machine for later runs, and shared memory that killed MPI
//! processes have left.
//!
//! ```text
//!   staged files that no job uses     /dev/shm/wireup-stage-UID
//!   what saves time                   ~/.cache/wireup: copies of wireup that were sent here, and what programs need
//!   memory of MPI processes           /dev/shm/mpich_shm_*, /dev/shm/Intel_MPI_*
//! ```
//!
//! Anyone can make entries in `/dev/shm` under any name. An entry is removed only if it is a regular file of this user
//! and no process has it open or mapped. From inside another PID namespace some processes are invisible, so the cache
//! and the shared memory are cleaned only in the machine's initial PID namespace.

use crate::out;
use crate::stage::bytes;
use crate::stage::node::existing;
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use std::collections::HashSet;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use wireup_flags::{Command, Flag, Line, Section, Words};
use wireup_node::agent::remote;

const DRY_RUN: Flag = Flag::switch(&["--dry-run"], "Show what would be removed, remove nothing.");

pub const COMMAND: Command = Command {
    name: "clean",
    purpose: "remove staged files, what wireup has cached, and what killed MPI processes left, from this machine",
    intro: "
  wireup clean --dry-run        shows what there is
  wireup clean

It removes this user's staged files that no job uses, what is in ~/.cache/wireup (and in wireup-programs-UID in
$XDG_RUNTIME_DIR, /tmp and /dev/shm), and shared memory in /dev/shm that MPICH or Intel MPI left behind (mpich_shm_*,
Intel_MPI_*) and that no process uses. To clean the nodes of a session: wireup run --ppn 1 --contain none wireup clean.
",
    words: Words::Named(&[]),
    sections: &[Section { title: "Flags", flags: &[DRY_RUN] }],
    end: "
Exit code: 0 if all was removed, 125 if something could not be.
",
};

const MEMORY: &str = "/dev/shm";
/// Prefixes of the names of files that MPI processes use as shared memory.
const OF_MPI: [&str; 2] = ["mpich_shm_", "Intel_MPI_"];
/// What `/proc/self/ns/pid` links to in the machine's initial PID namespace: a constant of the kernel.
const OWN_NAMESPACE: &str = "pid:[4026531836]";

/// A file by device and number.
type FileId = (u64, u64);

#[derive(Default)]
struct Cleaning {
    /// Whether files are only listed.
    is_dry: bool,
    /// The bytes that were freed.
    bytes: u64,
    problems: Vec<String>,
}

pub fn run(line: &Line) -> Result<u8, String> {
    let mut cleaning = Cleaning { is_dry: line.has(DRY_RUN), ..Cleaning::default() };
    cleaning.staged().unwrap_or_else(|problem| cleaning.problems.push(problem));
    match fs::read_link("/proc/self/ns/pid") {
        Ok(namespace) if namespace == Path::new(OWN_NAMESPACE) => {
            cleaning.cached().unwrap_or_else(|problem| cleaning.problems.push(problem));
            let removed = cleaning.memory(Path::new(MEMORY), Path::new("/proc"));
            removed.unwrap_or_else(|error| cleaning.problems.push(format!("{MEMORY}: {error}")));
        }
        _ => cleaning.problems.push(format!(
            "the cache and shared memory of MPI are kept: this process is in a PID namespace and cannot see who uses \
             them and {MEMORY}; run wireup clean outside of containers, or in a job with --contain none"
        )),
    }
    let verb = if cleaning.is_dry { "would be freed" } else { "freed" };
    out::print(&format!("{} {verb}\n", bytes(cleaning.bytes)));
    Ok(if cleaning.problems.is_empty() { 0 } else { out::fail(&cleaning.problems.join("; ")) })
}

impl Cleaning {
    /// Removes one item (`--dry-run`: does not) and prints its name and size.
    fn remove(&mut self, what: &str, size: u64, remove: impl FnOnce() -> Result<(), String>) {
        if !self.is_dry
            && let Err(problem) = remove()
        {
            return self.problems.push(problem);
        }
        let verb = if self.is_dry { "would remove" } else { "removed" };
        out::print(&format!("{verb} {what} ({})\n", bytes(size)));
        self.bytes += size;
    }

    fn staged(&mut self) -> Result<(), String> {
        let Some(store) = existing(Path::new(""))? else { return Ok(()) };
        for set in store.sets()? {
            let name = format!("staged files {}", set.name.get(..12).unwrap_or(&set.name));
            if set.is_in_use {
                out::print(&format!("kept {name}: a job uses them\n"));
                continue;
            }
            self.remove(&name, set.bytes, || match store.drop_set(&set.name)? {
                true => Ok(()),
                false => Err(format!("{name}: a job uses them")),
            });
        }
        Ok(())
    }

    /// Removes the contents of this user's caches (`~/.cache/wireup`, and the folders that hold copies of wireup where
    /// that cannot), except copies that running agents execute: an agent may start further processes from its copy.
    fn cached(&mut self) -> Result<(), String> {
        let is_own = |cache: &PathBuf| cache.symlink_metadata().is_ok_and(|meta| meta.uid() == user());
        for cache in remote::caches(&|name| std::env::var_os(name)).into_iter().filter(is_own) {
            remote::check_folder(&cache, user())?;
            self.all_but(&cache, &running_programs(Path::new("/proc")))?;
        }
        Ok(())
    }

    /// Removes every entry of the folder `cache`, except entries that contain a program in `running`.
    fn all_but(&mut self, cache: &Path, running: &[PathBuf]) -> Result<(), String> {
        let entries = fs::read_dir(cache).map_err(|error| format!("{}: {error}", cache.display()))?;
        for entry in entries.flatten() {
            let path = entry.path();
            if running.iter().any(|program| program.starts_with(&path)) {
                out::print(&format!("kept {}: a process runs it\n", path.display()));
                continue;
            }
            self.remove(&path.display().to_string(), size(&path), || {
                let is_folder = path.symlink_metadata().is_ok_and(|meta| meta.is_dir());
                let removed = if is_folder { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
                removed.map_err(|error| format!("{}: {error}", path.display()))
            });
        }
        Ok(())
    }

    /// Removes the files in `folder` that exited MPI processes have left there.
    fn memory(&mut self, folder: &Path, processes: &Path) -> io::Result<()> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let open = match rustix::fs::open(folder, flags, Mode::empty()) {
            Err(rustix::io::Errno::NOENT) => return Ok(()),
            opened => opened?,
        };
        let mut found = Vec::new();
        for entry in fs::read_dir(folder)? {
            let Ok(name) = entry?.file_name().into_string() else { continue };
            if is_of_mpi(Path::new(&name)) {
                found.extend(own_file(&open, &name).map(|(id, size)| (name, id, size)));
            }
        }
        if found.is_empty() {
            return Ok(());
        }
        // The list of files is made before the scan of processes. A process that opens a listed file later has its
        // name from a process that already has the file open, which the scan finds.
        let used = used(processes)?;
        for (name, id, size) in found {
            if used.contains(&id) {
                out::print(&format!("kept {}: a process uses it\n", folder.join(&name).display()));
                continue;
            }
            self.remove(&folder.join(&name).display().to_string(), size, || match own_file(&open, &name) {
                Some((again, _)) if again == id => {
                    let removed = rustix::fs::unlinkat(&open, &name, AtFlags::empty());
                    removed.map_err(|error| format!("{}: {error}", folder.join(&name).display()))
                }
                _ => Ok(()),
            });
        }
        Ok(())
    }
}

fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// A regular file of this user, and its size.
fn own_file(folder: &OwnedFd, name: &str) -> Option<(FileId, u64)> {
    let stat = rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    let is_own = stat.st_uid == user() && FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    is_own.then_some(((stat.st_dev, stat.st_ino), stat.st_size as u64))
}

fn is_of_mpi(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().as_encoded_bytes();
    OF_MPI.iter().any(|prefix| name.starts_with(prefix.as_bytes()))
}

/// The file in a line `ADDRESSES RIGHTS OFFSET MAJOR:MINOR NUMBER PATH`.
fn mapped_file(line: &str) -> Option<FileId> {
    let mut words = line.split_whitespace().skip(3);
    let (major, minor) = words.next()?.split_once(':')?;
    let device = rustix::fs::makedev(u32::from_str_radix(major, 16).ok()?, u32::from_str_radix(minor, 16).ok()?);
    Some((device, words.next()?.parse().ok().filter(|number| *number != 0)?))
}

/// The files that processes of this user have mapped, and the files with MPI names ([`OF_MPI`]) that they have open.
/// `processes`: `/proc`.
///
/// # Errors
/// A process that may use files of this user cannot be examined.
fn used(processes: &Path) -> io::Result<HashSet<FileId>> {
    let mut used = HashSet::new();
    for process in fs::read_dir(processes)?.flatten() {
        let is_number = process.file_name().to_str().is_some_and(|name| name.parse::<u32>().is_ok());
        let path = process.path();
        if !is_number || !may_use(&path) || is_closed(&path) {
            continue;
        }
        let looked: io::Result<()> = (|| {
            for fd in fs::read_dir(path.join("fd"))?.flatten() {
                if fs::read_link(fd.path()).is_ok_and(|link| is_of_mpi(&link)) {
                    used.extend(fs::metadata(fd.path()).map(|meta| (meta.dev(), meta.ino())));
                }
            }
            let maps = fs::read(path.join("maps"))?;
            used.extend(String::from_utf8_lossy(&maps).lines().filter_map(mapped_file));
            Ok(())
        })();
        match looked {
            // The process has ended, or is process 1, which is no MPI process and may be unreadable even to root.
            Err(_) if !path.exists() || process.file_name() == "1" => {}
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error()) => {}
            Err(error) => {
                let number = process.file_name();
                let problem =
                    format!("process {} cannot be examined ({error}), so nothing is removed", number.display());
                return Err(io::Error::new(error.kind(), problem));
            }
            Ok(()) => {}
        }
    }
    Ok(used)
}

/// The programs that processes run, as far as this user may know.
fn running_programs(processes: &Path) -> Vec<PathBuf> {
    let processes = fs::read_dir(processes).into_iter().flatten().flatten();
    processes.filter_map(|process| fs::read_link(process.path().join("exe")).ok()).collect()
}

/// Whether only root may examine this process of this user: it is a zombie, or a service of the login (sshd,
/// ssh-agent). Neither runs a program of MPI.
fn is_closed(process: &Path) -> bool {
    user() != 0 && fs::metadata(process.join("fd")).is_ok_and(|fd| fd.uid() == 0)
}

/// Whether any user ID of a process (real, effective, saved, file system) is this user's, or this user is root.
fn may_use(process: &Path) -> bool {
    let status = fs::read_to_string(process.join("status")).unwrap_or_default();
    let users = status.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap_or_default();
    user() == 0 || users.split_whitespace().any(|uid| uid.parse() == Ok(user()))
}

fn size(path: &Path) -> u64 {
    match fs::symlink_metadata(path) {
        Ok(meta) if meta.is_dir() => {
            fs::read_dir(path).map_or(0, |inside| inside.flatten().map(|entry| size(&entry.path())).sum())
        }
        meta => meta.map_or(0, |meta| meta.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::unix::fs::{chown, symlink};

    #[test]
    fn the_cache_is_emptied_except_for_programs_that_run() {
        let cache = tempfile::tempdir().expect("a folder");
        for build in ["old", "running"] {
            fs::create_dir(cache.path().join(build)).expect("a folder");
            fs::write(cache.path().join(build).join("wireup"), "").expect("a file");
        }
        fs::write(cache.path().join("needs"), "").expect("a file");
        let mut cleaning = Cleaning::default();
        cleaning.all_but(cache.path(), &[cache.path().join("running/wireup")]).expect("it can be listed");
        assert!(cleaning.problems.is_empty(), "{:?}", cleaning.problems);
        assert_eq!(names(cache.path()), ["running"]);
    }

    fn cleaned(folder: &Path, is_dry: bool) -> Vec<String> {
        let mut cleaning = Cleaning { is_dry, ..Cleaning::default() };
        cleaning.memory(folder, Path::new("/proc")).expect("it can be listed");
        assert!(cleaning.problems.is_empty(), "{:?}", cleaning.problems);
        names(folder)
    }

    /// The sorted names in a folder.
    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).expect("a folder");
        let mut names: Vec<_> =
            entries.map(|entry| entry.expect("an entry").file_name().into_string().expect("text")).collect();
        names.sort();
        names
    }

    #[test]
    fn only_unused_files_of_this_user_are_removed() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        for name in ["mpich_shm_1", "mpich_shm_open", "Intel_MPI_x", "other", "target"] {
            fs::write(at(name), "memory").expect("a file");
        }
        symlink(at("target"), at("mpich_shm_link")).expect("a link");
        fs::create_dir(at("mpich_shm_folder")).expect("a folder");
        let _open = File::open(at("mpich_shm_open")).expect("a file");
        let mut expected = ["mpich_shm_folder", "mpich_shm_link", "mpich_shm_open", "other", "target"].to_vec();
        if user() == 0 {
            fs::write(at("mpich_shm_stranger"), "").expect("a file");
            chown(at("mpich_shm_stranger"), Some(61_002), None).expect("its owner");
            expected.push("mpich_shm_stranger");
        }
        let all = cleaned(folder.path(), true);
        assert!(all.contains(&"mpich_shm_1".to_owned()), "nothing is removed yet");
        expected.sort_unstable();
        assert_eq!(cleaned(folder.path(), false), expected);
        assert!(fs::read(at("target")).is_ok_and(|text| text == b"memory"));
    }

    #[test]
    fn a_file_that_is_only_mapped_is_kept() {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, process) = (folder.path().join("mpich_shm_1"), folder.path().join("proc/7"));
        fs::write(&path, "memory").expect("a file");
        fs::create_dir_all(process.join("fd")).expect("a folder");
        let meta = path.metadata().expect("its number");
        let (major, minor) = (rustix::fs::major(meta.dev()), rustix::fs::minor(meta.dev()));
        let clean = |user: u32, line: &str| {
            fs::write(process.join("status"), format!("Uid:\t1\t{user}\t1\t1\n")).expect("its users");
            fs::write(process.join("maps"), format!("00-01 r--p 0 00:00 0\n{line}\n")).expect("its memory");
            Cleaning::default().memory(folder.path(), &folder.path().join("proc")).expect("it can be listed");
            path.exists()
        };
        let line = format!("7f00-7f01 rw-s 00000000 {major:02x}:{minor:02x} {}   /dev/shm/elsewhere", meta.ino());
        assert!(clean(user(), &line), "the path may differ in another container");
        assert!(!clean(user(), "7f00-7f01 rw-p 00000000 00:00 0 [heap]"));
    }

    #[test]
    fn nothing_is_removed_if_a_process_cannot_be_examined() {
        let folder = tempfile::tempdir().expect("a folder");
        let process = folder.path().join("7");
        fs::create_dir(&process).expect("a folder");
        fs::write(process.join("status"), format!("Uid:\t{}\t0\t0\t0\n", user())).expect("its users");
        let problem = used(folder.path()).expect_err("it has no maps").to_string();
        assert!(problem.contains("process 7 cannot be examined"), "{problem}");
    }
}
