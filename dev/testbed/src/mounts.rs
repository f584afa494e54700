//! The file system as seen on the hub and on the nodes: private mounts only, which vanish with their name space.
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::CWD;
use rustix::mount::{MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags};

/// The testbed's own files: a tmpfs of the hub, visible at the same path on every node. Outside of the testbed the
/// folder is empty; it is not removed, since another testbed may be mounting there.
pub const OWN: &str = "/run/wireup-testbed";
pub const PROGRAMS: &str = "/run/wireup-testbed/bin";
const HOSTS: &str = "/run/wireup-testbed/hosts";

/// Makes the calling process's mounts independent of the machine's, and adds the testbed's own files.
pub fn enter_hub(hosts: &str, program: &Path) -> io::Result<()> {
    rustix::mount::mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    fs::create_dir_all(OWN)?;
    tmpfs(Path::new(OWN), "mode=0755")?;
    fs::write(HOSTS, hosts)?;
    rustix::mount::mount_bind(HOSTS, "/etc/hosts")?;
    fs::create_dir(PROGRAMS)?;
    fs::copy(program, format!("{PROGRAMS}/wireup-testbed")).map(drop)
}

/// Covers the folders that are private to a machine (such as `/tmp`) with empty ones; `shares` stay visible.
pub fn enter_node(home: &Path, shares: &[PathBuf]) -> io::Result<()> {
    let [tmp, shm, run] = ["/tmp", "/dev/shm", "/run"].map(Path::new);
    let covered = [(tmp, "mode=1777"), (shm, "mode=1777"), (run, "mode=0755"), (home, "mode=0700")];
    let shares = shares.iter().map(PathBuf::as_path).chain([Path::new(OWN)]);
    let hidden: Vec<&Path> = shares.filter(|share| covered.iter().any(|(path, _)| share.starts_with(path))).collect();
    let trees: Vec<OwnedFd> = hidden.iter().map(|path| tree(path)).collect::<io::Result<_>>()?;
    for (path, options) in &covered {
        tmpfs(path, options)?;
    }
    for (path, tree) in hidden.iter().zip(&trees) {
        fs::create_dir_all(path)?;
        rustix::mount::move_mount(tree, "", CWD, *path, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?;
    }
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    rustix::mount::mount("proc", "/proc", "proc", flags, None).map_err(Into::into)
}

/// A detached copy of the mount tree at `path`.
fn tree(path: &Path) -> io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
    rustix::mount::open_tree(CWD, path, flags)
        .map_err(|error| io::Error::new(io::Error::from(error).kind(), format!("{}: {error}", path.display())))
}

/// Mounts an empty file system of limited size; creates the folder if it is missing.
pub fn small_disk(path: &Path, bytes: u64) -> io::Result<()> {
    fs::create_dir_all(path)?;
    tmpfs(path, &format!("mode=0755,size={bytes}"))
}

/// Replaces the file or folder `path` by the one at `with`, by a bind mount.
pub fn cover(path: &Path, with: &Path) -> io::Result<()> {
    rustix::mount::mount_bind(with, path).map_err(Into::into)
}

fn tmpfs(path: &Path, options: &str) -> io::Result<()> {
    let options = std::ffi::CString::new(options)?;
    rustix::mount::mount("tmpfs", path, "tmpfs", MountFlags::NODEV, &*options).map_err(Into::into)
}
