//! Mounts that only this process and those that it starts see.

use rustix::mount::{MountPropagationFlags, mount_change};
use rustix::process::{getegid, geteuid};
use rustix::thread::{UnshareFlags, unshare_unsafe};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use thiserror::Error;

#[derive(Error, Debug)]
#[error("{}: {what}: {error}", path.display())]
pub struct MountError {
    pub path: PathBuf,
    pub what: &'static str,
    pub error: io::Error,
}

pub(super) type Result<T> = std::result::Result<T, MountError>;

pub(super) fn at<T>(
    path: &Path,
    what: &'static str,
    result: std::result::Result<T, impl Into<io::Error>>,
) -> Result<T> {
    result.map_err(|error| MountError { path: path.to_owned(), what, error: error.into() })
}

/// Gives this process, which has one thread, mounts of its own. A process without the right to do so becomes, if
/// `alone`, the only user of a user namespace, in which the process has that right: programs that it then starts get no
/// more rights than the process had before, and set-user-ID programs do not work. Processes of different user
/// namespaces may not read each other's memory, which MPI libraries do on one machine.
///
/// # Errors
/// This process may make neither mounts nor a user namespace.
pub fn own_mounts(alone: bool) -> Result<()> {
    let root = Path::new("/");
    let (user, group) = (geteuid().as_raw(), getegid().as_raw());
    // SAFETY: the descriptor table is not unshared.
    let mounts = unsafe { unshare_unsafe(UnshareFlags::NEWNS) };
    if !alone {
        at(root, "a mount namespace", mounts)?;
    } else if mounts.is_err() {
        // SAFETY: the descriptor table is not unshared.
        let both = unsafe { unshare_unsafe(UnshareFlags::NEWUSER | UnshareFlags::NEWNS) };
        at(root, "a mount namespace", both)?;
        let write = |name: &str, text: String| at(Path::new(name), "a user namespace", fs::write(name, text));
        write("/proc/self/setgroups", "deny".into())?;
        write("/proc/self/uid_map", format!("{user} {user} 1"))?;
        write("/proc/self/gid_map", format!("{group} {group} 1"))?;
    }
    // Mounts that are made from here on do not appear in the parent namespace.
    at(root, "private mounts", mount_change(root, MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC))
}
