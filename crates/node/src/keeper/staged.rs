//! Staged files: before the first rank starts the keeper gets mounts of its own, in which they lie over the originals.

use super::protocol::Batch;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use wireup_stage::Store;
use wireup_stage::store::InUse;
use wireup_stage::view::{self, Keep};
use wireup_wire::job::Staged;

/// Shows the staged files to this process and those that it starts. The set is in use as long as the result is held.
///
/// # Errors
/// Why the originals stay visible, for the user. If only some of the files are shown, no rank must be started: that is the second value.
pub fn show(staged: &Staged, batch: &Batch) -> Result<InUse, (String, bool)> {
    let folder = Path::new(OsStr::from_bytes(&staged.store));
    let before = |problem: String| (problem, false);
    let store = Store::open(folder, u64::MAX).map_err(|error| before(error.to_string()))?;
    let kept = store.take(&staged.set).map_err(|error| before(error.to_string()))?;
    let kept = kept.ok_or_else(|| before(format!("they are not in {}", folder.display())))?;
    // Ranks of nodes that share the machine must be able to read each other's memory.
    let alone = batch.processes.iter().all(|process| process.shares_session);
    let why = if alone { "" } else { "; for virtual nodes that needs root" };
    let refused =
        |error: view::MountError| before(format!("no mount namespace can be made here ({}){why}", error.error));
    view::own_mounts(alone).map_err(refused)?;
    match view::mount_over(&kept.set, &kept.tree, &keep(batch)) {
        Ok(_) => Ok(kept),
        Err(error) => Err((error.to_string(), true)),
    }
}

/// The folders in which the ranks can be expected to make files.
fn keep(batch: &Batch) -> Keep {
    let mut keep = Keep::new();
    for program in &batch.programs {
        keep.insert(PathBuf::from(OsStr::from_bytes(&program.cwd)));
        for name in ["HOME", "TMPDIR"] {
            let value =
                program.env.iter().rev().find_map(|variable| {
                    variable.strip_prefix(name.as_bytes())?.strip_prefix(b"=").map(OsStr::from_bytes)
                });
            keep.extend(value.map(PathBuf::from));
        }
    }
    keep.iter().filter_map(|folder| folder.canonicalize().ok()).chain([PathBuf::from("/tmp")]).collect()
}
