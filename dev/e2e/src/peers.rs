//! Programs that need software of other projects on the machine: they are found, or the test is skipped with a message.

use std::io::Write;
use std::path::PathBuf;
use xtask::programs::{self, Flavour};

/// Path of a compiled test program. If the library that it needs is not installed, returns `None` and prints a message
/// that the test runner does not capture, or fails the test if everything must be installed.
pub fn program(flavour: Flavour, name: &str) -> Option<PathBuf> {
    match flavour.missing() {
        None => Some(programs::build(flavour, name).unwrap_or_else(|why| panic!("{why}"))),
        Some(why) => skip(&why),
    }
}

/// Path of a compiled test program that needs only the C library.
pub fn plain(name: &str) -> PathBuf {
    programs::build(Flavour::Plain, name).unwrap_or_else(|why| panic!("{why}"))
}

/// Path of the Python interpreter that has mpi4py, on MPICH 5 or Open MPI 5.
pub fn mpi4py(flavour: Flavour) -> Option<PathBuf> {
    programs::mpi4py(flavour).map_or_else(|why| skip(&why), Some)
}

/// Path of a tool from a Debian package, if the tool is installed.
pub fn tool(path: &str) -> Option<PathBuf> {
    let path = PathBuf::from(path);
    if path.exists() { Some(path) } else { skip(&format!("no {}", path.display())) }
}

/// Prints that the current test is skipped.
pub fn skip<T>(why: &str) -> Option<T> {
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    assert!(!programs::required(), "{test}: {why}; `cargo xtask setup` installs it");
    // `eprintln` is not used, because the test runner would capture its output.
    let _ = writeln!(std::io::stderr(), "skipped: {test}: {why}; `cargo xtask setup` installs it");
    None
}
