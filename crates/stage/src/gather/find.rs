//! Finds the paths on this machine that match a shell pattern.

use super::rule::{is_pattern, kept_from, matches, parts, plain};
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A path that matches a pattern.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Match {
    pub path: PathBuf,
    /// The path that the file will have below the rule's target folder.
    pub name: Vec<u8>,
}

/// The matches, in order. `failed` is called for each folder that cannot be read.
pub fn find(pattern: &[u8], folder: &Path, failed: &mut dyn FnMut(&Path, &io::Error)) -> Vec<Match> {
    let parts = parts(pattern);
    let kept = kept_from(&parts);
    let start = if pattern.first() == Some(&b'/') { Path::new("/") } else { folder };
    let mut found = vec![Match { path: start.to_owned(), name: Vec::new() }];
    for (index, part) in parts.iter().enumerate() {
        let mut next = Vec::new();
        for Match { path, name } in found {
            let with = |own: &[u8]| {
                let slash = if name.is_empty() { &b""[..] } else { b"/" };
                let name = if index < kept { Vec::new() } else { [&name, slash, own].concat() };
                Match { path: path.join(OsStr::from_bytes(own)), name }
            };
            if is_pattern(part) {
                let mut names = names(&path, failed);
                names.retain(|own| matches(part, own));
                names.sort_unstable();
                next.extend(names.iter().map(|own| with(own)));
            } else {
                next.push(with(&plain(part)));
            }
        }
        found = next;
    }
    found.retain(|found| found.path.symlink_metadata().is_ok());
    found
}

/// The names in a folder; none if it is no folder.
fn names(folder: &Path, failed: &mut dyn FnMut(&Path, &io::Error)) -> Vec<Vec<u8>> {
    let inside = fs::read_dir(folder)
        .and_then(|inside| inside.map(|entry| Ok(entry?.file_name().as_bytes().to_vec())).collect::<io::Result<_>>());
    inside.unwrap_or_else(|error| {
        if !matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) {
            failed(folder, &error);
        }
        Vec::new()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matches_keep_their_names_from_the_first_pattern_on() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &[u8]| folder.path().join(OsStr::from_bytes(name));
        for name in [&b"run/a/log"[..], b"run/b/log", b"run/b/other", b"run/.hidden/log", b"run/\xff/log", b"run/file"]
        {
            fs::create_dir_all(at(name).parent().unwrap()).unwrap();
            fs::write(at(name), b"x").unwrap();
        }
        let find = |pattern: &[u8]| {
            let found = find(pattern, folder.path(), &mut |path, error| panic!("{path:?}: {error}"));
            found.into_iter().map(|found| found.name).collect::<Vec<_>>()
        };
        assert_eq!(find(b"run/*/log"), [&b"a/log"[..], b"b/log", b"\xff/log"]);
        assert_eq!(find(b"run/b/o*"), [b"other"]);
        assert_eq!(find(b"run/b/log"), [b"log"]);
        assert_eq!(find(b"./run//b"), [b"b"]);
        assert_eq!(find(b"run/b/../a/lo?"), [b"log"]);
        assert!(find(b"run/no*").is_empty() && find(b"no/such").is_empty());
        let absolute = [folder.path().as_os_str().as_bytes(), b"/run/[ab]/log"].concat();
        assert_eq!(find(&absolute), [&b"a/log"[..], b"b/log"]);
    }
}
