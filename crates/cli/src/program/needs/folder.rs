//! What lies in a folder that is staged whole, as far as files outside may follow from it: libraries, links, programs.

use std::fs::{DirEntry, FileType};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Entries that are looked at; a folder with more is staged nevertheless (chosen: some ten large Python environments).
const ENTRIES_MAX: usize = 2_000_000;
/// Folders that hold neither libraries nor programs.
const PASSED_OVER: [&str; 2] = ["__pycache__", ".git"];

/// Each list is sorted.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Contents {
    /// By their names: `.so`, `.so.1`.
    pub libraries: Vec<PathBuf>,
    pub links: Vec<PathBuf>,
    /// Other files that may be executed, if asked for.
    pub programs: Vec<PathBuf>,
    /// Folders that could not be read.
    pub unreadable: Vec<PathBuf>,
    /// There are more entries than the limit.
    pub is_cut: bool,
}

/// Reads the names below `folder`, without following links.
pub fn contents(folder: &Path, with_programs: bool) -> Contents {
    let mut found = Contents::default();
    let mut left = ENTRIES_MAX;
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = std::fs::read_dir(&folder) else {
            found.unreadable.push(folder);
            continue;
        };
        for entry in entries.flatten() {
            if left == 0 {
                found.is_cut = true;
                break;
            }
            left -= 1;
            let Ok(kind) = entry.file_type() else { continue };
            if !kind.is_dir() {
                found.add(&entry, kind, with_programs);
            } else if !PASSED_OVER.iter().any(|name| entry.file_name() == *name) {
                folders.push(entry.path());
            }
        }
    }
    for list in [&mut found.libraries, &mut found.links, &mut found.programs, &mut found.unreadable] {
        list.sort();
    }
    found
}

impl Contents {
    fn add(&mut self, entry: &DirEntry, kind: FileType, with_programs: bool) {
        let may_be_executed = || entry.metadata().is_ok_and(|meta| meta.permissions().mode() & 0o111 != 0);
        if kind.is_symlink() {
            self.links.push(entry.path());
        } else if kind.is_file() && is_library(Path::new(&entry.file_name())) {
            self.libraries.push(entry.path());
        } else if kind.is_file() && with_programs && may_be_executed() {
            self.programs.push(entry.path());
        }
    }
}

/// Whether a file has the name of a shared library.
pub fn is_library(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().as_bytes();
    name.ends_with(b".so") || memchr::memmem::find(name, b".so.").is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_links_and_programs_are_listed() {
        let folder = std::env::temp_dir().join(format!("wireup-contents-{}", std::process::id()));
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
        assert_eq!(contents(&folder, true), expected);
        assert_eq!(contents(&folder, false), Contents { programs: Vec::new(), ..expected });
        std::fs::remove_dir_all(folder).expect("remove the folder");
    }
}
