//! Programs that need other software on the machine: found, or skipped with a message.

use std::io::Write;
use std::path::PathBuf;
use xtask::programs::{self, Flavour};

/// A compiled test program. If its peer is not installed, returns `None` and prints that on stderr, past the test
/// runner's capture; fails the test if the set-up has promised all peers.
pub fn program(flavour: Flavour, name: &str) -> Option<PathBuf> {
    match flavour.missing() {
        None => Some(programs::build(flavour, name).unwrap_or_else(|why| panic!("{why}"))),
        Some(why) => skip(&why),
    }
}

/// A program that needs only the C library.
pub fn plain(name: &str) -> PathBuf {
    programs::build(Flavour::Plain, name).unwrap_or_else(|why| panic!("{why}"))
}

/// The interpreter that has mpi4py, on MPICH 5 or Open MPI 5.
pub fn mpi4py(flavour: Flavour) -> Option<PathBuf> {
    programs::mpi4py(flavour).map_or_else(|why| skip(&why), Some)
}

/// A tool from a Debian package.
pub fn tool(path: &str) -> Option<PathBuf> {
    let path = PathBuf::from(path);
    if path.exists() { Some(path) } else { skip(&format!("no {}", path.display())) }
}

/// Prints that the current test is skipped.
pub fn skip<T>(why: &str) -> Option<T> {
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    assert!(!programs::required(), "{test}: {why}; `cargo xtask setup` installs it");
    // `eprintln` is not used, because the test runner captures it.
    let _ = writeln!(std::io::stderr(), "skipped: {test}: {why}; `cargo xtask setup` installs it");
    None
}
