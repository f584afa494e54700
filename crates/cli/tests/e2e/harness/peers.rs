//! Programs that need a peer on the machine: found, or skipped aloud.

use std::io::Write;
use std::path::PathBuf;
use xtask::programs::{self, Flavour};

/// A compiled test program; nothing if its peer is not installed, which is said on stderr past the test runner's
/// capture, and is a failure where the set-up has promised all peers.
pub fn program(flavour: Flavour, name: &str) -> Option<PathBuf> {
    match flavour.missing() {
        None => Some(programs::build(flavour, name).unwrap_or_else(|why| panic!("{why}"))),
        Some(why) => skip(&why),
    }
}

/// A program of the C library alone.
pub fn plain(name: &str) -> PathBuf {
    programs::build(Flavour::Plain, name).unwrap_or_else(|why| panic!("{why}"))
}

/// The interpreter that has mpi4py, on MPICH 5 or Open MPI 5.
pub fn mpi4py(flavour: Flavour) -> Option<PathBuf> {
    programs::mpi4py(flavour).map_or_else(|why| skip(&why), Some)
}

/// A tool that Debian has.
pub fn tool(path: &str) -> Option<PathBuf> {
    let path = PathBuf::from(path);
    if path.exists() { Some(path) } else { skip(&format!("no {}", path.display())) }
}

/// Says aloud that the test that runs now cannot.
pub fn skip<T>(why: &str) -> Option<T> {
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    assert!(!programs::required(), "{test}: {why}; `cargo xtask setup` installs it");
    // Not `eprintln`, which the test runner keeps to itself.
    let _ = writeln!(std::io::stderr(), "skipped: {test}: {why}; `cargo xtask setup` installs it");
    None
}
