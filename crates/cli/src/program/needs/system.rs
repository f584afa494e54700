//! Which files each node has itself: those in the system's folders, unless they lie on a network file system.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

pub struct System<'a> {
    is_network: &'a dyn Fn(&Path) -> bool,
    /// The answers of `is_network`, by path.
    on_network: RefCell<HashMap<PathBuf, bool>>,
}

impl<'a> System<'a> {
    /// `is_network`: whether a path lies on a network file system.
    pub fn new(is_network: &'a dyn Fn(&Path) -> bool) -> System<'a> {
        System { is_network, on_network: RefCell::default() }
    }

    /// Whether a path is part of the system that each node has; `asked` is the path whose file system counts.
    pub fn has(&self, path: &Path, asked: &Path) -> bool {
        is_system(path) && !self.is_on_network(asked)
    }

    fn is_on_network(&self, path: &Path) -> bool {
        let mut known = self.on_network.borrow_mut();
        match known.get(path) {
            Some(is_network) => *is_network,
            None => *known.entry(path.to_owned()).or_insert_with(|| (self.is_network)(path)),
        }
    }
}

/// Whether a path lies in one of the system's folders: `/usr` without `/usr/local`, `/lib`, `/lib64`, `/bin`, `/sbin`,
/// `/etc`.
fn is_system(path: &Path) -> bool {
    let mut names = path.iter().skip(1).map(OsStr::as_bytes);
    match names.next().unwrap_or_default() {
        b"usr" => names.next() != Some(b"local"),
        b"bin" | b"sbin" | b"etc" | b"lib" | b"lib32" | b"lib64" | b"libx32" => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_systems_folders_are_recognized() {
        let system = |path: &str| is_system(Path::new(path));
        assert!(system("/usr/bin/env") && system("/lib64/x") && system("/lib") && system("/etc/ld.so.cache"));
        assert!(!system("/usr/local/bin/x") && !system("/opt/usr/x") && !system("/library/x") && !system("/"));
    }

    #[test]
    fn a_file_system_is_examined_once_for_each_path() {
        let asked = RefCell::new(Vec::new());
        let is_network = |path: &Path| {
            asked.borrow_mut().push(path.to_owned());
            path.starts_with("/usr/nfs")
        };
        let system = System::new(&is_network);
        for _ in 0..2 {
            assert!(system.has(Path::new("/usr/bin"), Path::new("/usr/bin")));
            assert!(!system.has(Path::new("/usr/nfs"), Path::new("/usr/nfs")));
            assert!(!system.has(Path::new("/home"), Path::new("/home")));
        }
        assert_eq!(*asked.borrow(), [Path::new("/usr/bin"), Path::new("/usr/nfs")]);
    }
}
