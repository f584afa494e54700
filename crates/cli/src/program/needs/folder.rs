//! Finds in a folder that is staged whole the entries that may need files outside of it: libraries, links, programs.

use rustix::fs::FileType;
use std::convert::Infallible;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use wireup_stage::set::{ENTRIES_MAX, Listing};

/// Folders that hold neither libraries nor programs.
const PASSED_OVER: [&str; 2] = ["__pycache__", ".git"];

/// The entries that may need files outside of the folder. Each list is sorted.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Contents {
    /// Files with the name of a shared library: `.so`, `.so.1`.
    pub libraries: Vec<PathBuf>,
    pub links: Vec<PathBuf>,
    /// Other files that may be executed; filled only if programs were asked for.
    pub programs: Vec<PathBuf>,
    /// Folders that could not be read.
    pub unreadable: Vec<PathBuf>,
    /// Whether the folder has more entries than `ENTRIES_MAX`.
    pub is_cut: bool,
}

/// The entries in the listing of a folder that may need files outside of it.
pub fn contents(folder: &Path, listing: &Listing, with_programs: bool) -> Contents {
    let mut found = Contents { is_cut: listing.len() > ENTRIES_MAX, ..Contents::default() };
    let Ok(()) = listing.each(|path, seen| {
        match seen.kind() {
            FileType::Directory => return Ok(path == folder || !PASSED_OVER.iter().any(|name| path.ends_with(name))),
            FileType::Symlink => found.links.push(path.to_owned()),
            FileType::RegularFile if is_library(path) => found.libraries.push(path.to_owned()),
            FileType::RegularFile if with_programs && seen.mode & 0o111 != 0 => found.programs.push(path.to_owned()),
            _ => {}
        }
        Ok::<_, Infallible>(true)
    });
    found.unreadable = listing.problems.iter().map(|(path, _)| path.clone()).collect();
    found.unreadable.sort();
    found
}

/// Whether a file has the name of a shared library.
pub fn is_library(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().as_bytes();
    name.ends_with(b".so") || memchr::memmem::find(name, b".so.").is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use wireup_stage::set::list;

    #[test]
    fn libraries_links_and_programs_are_listed() {
        let folder = tempfile::tempdir().expect("a folder");
        let folder = folder.path();
        std::fs::create_dir_all(folder.join("a/__pycache__")).expect("a folder");
        for name in ["a/b.so", "a/c.so.1", "a/d.sox", "a/__pycache__/e.so", "f"] {
            std::fs::write(folder.join(name), "").expect("a file");
        }
        std::fs::set_permissions(folder.join("f"), PermissionsExt::from_mode(0o755)).expect("its own file");
        std::os::unix::fs::symlink("a", folder.join("l")).expect("a link");
        let paths = |names: &[&str]| names.iter().map(|name| folder.join(name)).collect::<Vec<_>>();
        let expected = Contents {
            libraries: paths(&["a/b.so", "a/c.so.1"]),
            links: paths(&["l"]),
            programs: paths(&["f"]),
            ..Contents::default()
        };
        let listing = list(folder);
        assert_eq!(contents(folder, &listing, true), expected);
        assert_eq!(contents(folder, &listing, false), Contents { programs: Vec::new(), ..expected });
    }
}
