//! The C libraries that come with the program: beside it (`cargo xtask libraries` puts them there), or where `wireup
//! install` or `pip` did.

use std::path::{Path, PathBuf};

/// A library to which programs are not linked: the loader opens it for ranks on nodes that cannot make mounts.
pub const STAGED: &str = "wireup-staged";

pub fn real_name(library: &str) -> String {
    format!("lib{library}.so.0.0.0")
}

/// Where a library is.
///
/// # Errors
/// The library is not found; the error is the folder next to the program, where it should be.
pub fn find(program: &Path, library: &str) -> Result<PathBuf, PathBuf> {
    // A program's path always has a folder.
    let beside = program.parent().unwrap_or(Path::new("."));
    // A Python wheel has no links, only the name by which programs load it.
    let names = [real_name(library), format!("lib{library}.so.0")];
    // The last folder is that of Debian's and RPM's packages: other packages have a libpmi.so.0 in `lib`.
    let folders = [beside.to_owned(), beside.join("../lib"), beside.join("../lib/wireup")];
    let mut all = folders.iter().flat_map(|folder| names.iter().map(|name| folder.join(name)));
    all.find(|path| path.is_file()).ok_or_else(|| beside.to_owned())
}
