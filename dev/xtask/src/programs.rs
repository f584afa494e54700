//! The test programs: C sources compiled against each peer, into the target directory.
//!
//! A program is compiled again only when its source is newer. Several processes may do this at once: the result is
//! renamed into place.

pub use crate::flavour::{Flavour, environment};
use crate::step::{Result, run_quietly, step};
use crate::{layout, peers};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::{env, fs, process};

/// Compiles every program whose flavour is installed.
///
/// # Errors
/// A program does not compile.
pub fn build_all() -> Result {
    let wanted = Flavour::ALL.into_iter().filter(|flavour| flavour.missing().is_none());
    let stale: Vec<(Flavour, &str)> = wanted
        .flat_map(|flavour| flavour.names().map(move |name| (flavour, name)))
        .filter(|(flavour, name)| !fresh(&source(*flavour, name), &binary(*flavour, name)))
        .collect();
    if stale.is_empty() {
        return Ok(());
    }
    step(format!("{} test programs", stale.len()), || {
        stale.iter().try_for_each(|(flavour, name)| build(*flavour, name).map(drop))
    })
}

/// Path of the compiled program `name`; it is compiled first if its source is newer.
///
/// # Errors
/// The flavour is not installed, or the program does not compile.
pub fn build(flavour: Flavour, name: &str) -> Result<PathBuf> {
    static SERIAL: AtomicU32 = AtomicU32::new(0);
    if let Some(why) = flavour.missing() {
        return Err(why);
    }
    let (source, binary) = (source(flavour, name), binary(flavour, name));
    if fresh(&source, &binary) {
        return Ok(binary);
    }
    // `binary` always returns a path inside a folder.
    let folder = binary.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder).map_err(|e| format!("create {}: {e}", folder.display()))?;
    let unfinished = folder.join(format!(".{name}.{}.{}", process::id(), SERIAL.fetch_add(1, Ordering::Relaxed)));
    let mut cc = flavour.compiler();
    cc.arg("-o").arg(&unfinished).arg(&source);
    flavour.link(&mut cc)?;
    run_quietly(&mut cc)?;
    fs::rename(&unfinished, &binary).map_err(|e| format!("rename to {}: {e}", binary.display()))?;
    Ok(binary)
}

/// The interpreter with mpi4py in the virtual environment of an MPI from PyPI.
///
/// # Errors
/// The environment or its mpi4py is not installed.
pub fn mpi4py(flavour: Flavour) -> Result<PathBuf> {
    let at = if flavour == Flavour::OpenMpi5 { layout::peer("openmpi") } else { layout::peer("mpich") };
    peers::mpi4py_missing(&at).map_or_else(|| Ok(peers::python(&at)), Err)
}

fn source(flavour: Flavour, name: &str) -> PathBuf {
    flavour.source_folder().join(name).with_extension("c")
}

fn binary(flavour: Flavour, name: &str) -> PathBuf {
    layout::target().join("programs").join(flavour.folder()).join(name)
}

fn fresh(source: &Path, binary: &Path) -> bool {
    let time = |path: &Path| fs::metadata(path).and_then(|meta| meta.modified());
    matches!((time(source), time(binary)), (Ok(source), Ok(binary)) if source <= binary)
}

/// Whether a missing MPI implementation is a failure (`xtask test` sets this) and not just a skip with a message.
pub fn required() -> bool {
    env::var_os("WIREUP_REQUIRE_PEERS").is_some_and(|value| value == "1")
}
