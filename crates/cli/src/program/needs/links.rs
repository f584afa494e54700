//! Follows paths as the kernel does, with the symbolic links on the way.

use std::collections::{HashMap, VecDeque};
use std::ffi::OsString;
use std::io;
use std::path::{Component, Path, PathBuf};

/// Links that the kernel follows for one path (`MAXSYMLINKS`).
const LINKS_MAX: usize = 40;

/// The way to a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Way {
    /// The links, each in its canonical folder, in the order in which they are followed.
    pub links: Vec<PathBuf>,
    /// The file or folder at the end; no component of it is a link.
    pub end: PathBuf,
}

/// A cache of the links on the way to files: many files lie in the same folders.
#[derive(Default)]
pub struct Links {
    /// The target of each path that is a link; `None`: the path is no link.
    known: HashMap<PathBuf, Option<PathBuf>>,
}

impl Links {
    /// The way to `path`, which is absolute. An error if there is nothing at its end, or too many links on the way
    /// (`ELOOP`).
    pub fn follow(&mut self, path: &Path) -> io::Result<Way> {
        let mut links = Vec::new();
        let mut end = PathBuf::from("/");
        let mut left: VecDeque<OsString> = components(path).collect();
        while let Some(name) = left.pop_front() {
            if name == ".." {
                end.pop();
                continue;
            }
            end.push(&name);
            let Some(target) = self.target(&end)? else { continue };
            if links.len() == LINKS_MAX {
                return Err(io::Error::from_raw_os_error(rustix::io::Errno::LOOP.raw_os_error()));
            }
            let mut names: VecDeque<OsString> = components(target).collect();
            names.append(&mut left);
            left = names;
            let is_absolute = target.is_absolute();
            links.push(end.clone());
            match is_absolute {
                true => end = PathBuf::from("/"),
                false => drop(end.pop()),
            }
        }
        Ok(Way { links, end })
    }

    /// The target of the symbolic link at a path; `None`: the path is no symbolic link.
    fn target(&mut self, path: &Path) -> io::Result<Option<&Path>> {
        if !self.known.contains_key(path) {
            let target = match std::fs::read_link(path) {
                Ok(target) => Some(target),
                Err(error) if error.raw_os_error() == Some(rustix::io::Errno::INVAL.raw_os_error()) => None,
                Err(error) => return Err(error),
            };
            self.known.insert(path.to_owned(), target);
        }
        Ok(self.known.get(path).and_then(Option::as_deref))
    }
}

/// The names in a path, with `..`.
fn components(path: &Path) -> impl Iterator<Item = OsString> {
    path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn links_are_listed_in_their_canonical_folders() {
        let folder = tempfile::tempdir().expect("a folder");
        let folder = folder.path().canonicalize().expect("it exists");
        std::fs::create_dir_all(folder.join("app-1.2/bin")).expect("a folder");
        std::fs::write(folder.join("app-1.2/bin/x"), "").expect("a file");
        let link = |target: &str, name: &str| symlink(target, folder.join(name)).expect("a link");
        link("app-1.2", "app");
        link("x", "app-1.2/bin/y");
        link("../app/bin/y", "app-1.2/z");
        let mut followed = Links::default();
        let mut way = |path: &str| followed.follow(&folder.join(path)).expect("it exists");
        let paths = |names: &[&str]| names.iter().map(|name| folder.join(name)).collect::<Vec<_>>();
        let end = folder.join("app-1.2/bin/x");
        assert_eq!(way("app/bin/x"), Way { links: paths(&["app"]), end: end.clone() });
        assert_eq!(way("app/../app/./bin/y"), Way { links: paths(&["app", "app", "app-1.2/bin/y"]), end: end.clone() });
        assert_eq!(way("app/z"), Way { links: paths(&["app", "app-1.2/z", "app", "app-1.2/bin/y"]), end });
        assert_eq!(
            followed.follow(&folder.join("app/none")).expect_err("no such file").kind(),
            io::ErrorKind::NotFound
        );
        link("loop", "loop");
        let error = followed.follow(&folder.join("loop")).expect_err("a loop");
        assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::LOOP.raw_os_error()));
    }
}
