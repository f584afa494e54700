//! Finds the folder in which a node keeps staged files: the one named by the user, or else one of this user in
//! `/dev/shm`.
//!
//! Each node finds its own folder: if another user has taken the usual name, the folder's name has a random ending
//! (`wireup_os::own_directory`).

use std::io;
use std::path::{Path, PathBuf};
use wireup_os::own_directory::{self, find_or_make};
use wireup_stage::store::Registry;

const MEMORY: &str = "/dev/shm";

fn name() -> String {
    format!("wireup-stage-{}", rustix::process::geteuid().as_raw())
}

/// Finds the folder of staged files. `named`: the folder of `--stage=DIR`; empty: the default folder. Returns `None` if
/// the folder does not exist, because nothing was ever staged on this node.
///
/// # Errors
/// `/dev/shm` cannot be used.
pub fn find(named: &Path) -> io::Result<Option<PathBuf>> {
    if named.as_os_str().is_empty() {
        let found = own_directory::find(Path::new(MEMORY), &name()).map_err(no_default)?;
        return Ok(found.map(|own| own.path));
    }
    Ok(Some(named.to_owned()).filter(|named| named.exists()))
}

/// Finds the folder of staged files; the default folder is created if it is missing.
///
/// # Errors
/// `/dev/shm` is missing or cannot be used.
pub fn find_or_make_default(named: &Path) -> io::Result<PathBuf> {
    if named.as_os_str().is_empty() {
        return Ok(find_or_make(Path::new(MEMORY), &name()).map_err(no_default)?.path);
    }
    Ok(named.to_owned())
}

/// The registry of placeholders that were created on this node to show staged files, whatever folder keeps the files.
///
/// # Errors
/// `/dev/shm` is missing or cannot be used.
pub fn placeholders() -> io::Result<Registry> {
    Ok(Registry::new(find_or_make_default(Path::new(""))?.join("placeholders")))
}

fn no_default(error: io::Error) -> io::Error {
    io::Error::new(
        error.kind(),
        format!("no folder for staged files in {MEMORY}: {error}; choose one with --stage=DIR"),
    )
}
