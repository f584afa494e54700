//! A set: files, folders and links under their original names, with what identifies their contents.
//!
//! A set is named by the digest of its manifest, so the same files make the same set, and a changed file another one.

mod walk;

pub use walk::{Listing, Listings, Seen, list, open_file};

use crate::digests::Digests;
use serde::{Deserialize, Serialize};
use std::cmp::Ordering;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use thiserror::Error;
use walk::walk;

/// Bytes that are read at once.
pub const PIECE_LEN: usize = 256 << 10;
/// Entries of a set, and bytes of its manifest: a Python environment has some 50,000 (chosen: twenty times that).
pub const ENTRIES_MAX: usize = 1 << 20;
pub const MANIFEST_LEN_MAX: usize = 256 << 20;

/// BLAKE3 of a file's content, or of a manifest.
pub type Digest = [u8; 32];

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Kind {
    Folder,
    /// Where it leads, as written.
    Link(Vec<u8>),
    File {
        len: u64,
        digest: Digest,
    },
    /// A file with rights that a copy would not have: the original is shown.
    Original,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Entry {
    /// Absolute, without `.` and `..`; any bytes but zero.
    pub path: Vec<u8>,
    /// The permission bits.
    pub mode: u32,
    /// Of the original, in seconds and nanoseconds: Python compares it with that of its compiled files.
    pub modified: (i64, u32),
    pub kind: Kind,
}

impl Entry {
    pub fn path(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.path))
    }
}

/// Whether this is the library that shows staged files to processes without mounts; how its name goes on is its version.
pub fn is_library(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_bytes().starts_with(b"libwireup-staged.so.0"))
}

/// Sorted by path, so that a folder precedes what is in it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Set {
    pub entries: Vec<Entry>,
}

#[derive(Error, Debug)]
pub enum Problem {
    #[error("{}: {error}", path.display())]
    Io { path: PathBuf, error: io::Error },
    #[error("{}: it changes while it is read; stage it when nobody writes to it", .0.display())]
    Changes(PathBuf),
    #[error("{}: a program with the set-user-ID or set-group-ID bit is not staged", .0.display())]
    Privileged(PathBuf),
    #[error("{}: neither a file nor a folder", .0.display())]
    Special(PathBuf),
    #[error("{}: not an absolute path", .0.display())]
    Relative(PathBuf),
    #[error("more than {ENTRIES_MAX} files and folders")]
    TooMany,
    #[error("not the manifest of a set: {0}")]
    Manifest(&'static str),
}

impl Set {
    /// The files and folders at these paths, folders with all that is in them. Pipes, sockets and devices inside of folders are left out;
    /// of programs with the set-user-ID or set-group-ID bit there are only the names.
    ///
    /// # Errors
    /// One cannot be read, is itself privileged, or changes.
    pub fn collect<'a>(roots: impl IntoIterator<Item = &'a Path>) -> Result<Set, Problem> {
        Set::collect_with(roots, &Listings::new(), &mut Digests::default())
    }

    /// The same, without reading folders that were listed, and files whose digests are known.
    ///
    /// # Errors
    /// Those of [`Set::collect`].
    pub fn collect_with<'a>(
        roots: impl IntoIterator<Item = &'a Path>,
        listings: &Listings,
        digests: &mut Digests,
    ) -> Result<Set, Problem> {
        let mut found = Vec::new();
        for root in roots {
            if !root.is_absolute() {
                return Err(Problem::Relative(root.to_owned()));
            }
            if !walk(root, listings, digests, &mut found)? {
                return Err(Problem::Special(root.to_owned()));
            }
            if found.last().is_some_and(|last: &Entry| last.kind == Kind::Original && last.path() == root) {
                return Err(Problem::Privileged(root.to_owned()));
            }
        }
        found.sort_unstable_by(|one: &Entry, other| order(&one.path, &other.path));
        found.dedup_by(|one, other| one.path == other.path);
        Ok(Set { entries: found })
    }

    /// For the stream.
    ///
    /// # Panics
    /// Never: a set has no type that cannot be encoded.
    pub fn manifest(&self) -> Vec<u8> {
        postcard::to_allocvec(self).expect("plain data")
    }

    /// # Errors
    /// These bytes are no manifest, or one that no launcher makes: names that lead out of the tree, or are not in order.
    pub fn from_manifest(bytes: &[u8]) -> Result<Set, Problem> {
        if bytes.len() > MANIFEST_LEN_MAX {
            return Err(Problem::Manifest("too long"));
        }
        let set: Set = postcard::from_bytes(bytes).map_err(|_| Problem::Manifest("malformed"))?;
        if set.entries.len() > ENTRIES_MAX {
            return Err(Problem::TooMany);
        }
        let is_plain = |path: &[u8]| {
            let Some(inside) = path.strip_prefix(b"/") else { return false };
            inside.split(|byte| *byte == b'/').all(|part| ![&b""[..], b".", b".."].contains(&part))
        };
        let mut before: Option<&Entry> = None;
        for entry in &set.entries {
            if !is_plain(&entry.path) || entry.path.contains(&0) {
                return Err(Problem::Manifest("a name that leads elsewhere"));
            }
            if entry.mode & !0o1777 != 0 {
                return Err(Problem::Manifest("a privileged file"));
            }
            if before.is_some_and(|before| order(&before.path, &entry.path).is_ge()) {
                return Err(Problem::Manifest("names out of order"));
            }
            // Nothing is under a name that is no folder: a link there would lead out of the tree. It would be the next in order.
            if before.is_some_and(|before| before.kind != Kind::Folder && is_below(&before.path, &entry.path)) {
                return Err(Problem::Manifest("something inside of a file"));
            }
            before = Some(entry);
        }
        Ok(set)
    }

    /// What the set is called.
    pub fn digest(&self) -> Digest {
        *blake3::hash(&self.manifest()).as_bytes()
    }

    pub fn find(&self, path: &Path) -> Option<&Entry> {
        let at = self.entries.binary_search_by(|entry| order(&entry.path, path.as_os_str().as_bytes())).ok()?;
        self.entries.get(at)
    }

    /// What was named: the entries that are in no folder of the set.
    pub fn roots(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(|entry| entry.path().parent().is_some_and(|folder| self.find(folder).is_none()))
    }

    /// Files inside of folders that are not staged.
    pub fn originals(&self) -> impl Iterator<Item = &Path> {
        self.entries.iter().filter(|entry| entry.kind == Kind::Original).map(Entry::path)
    }

    /// How many files.
    pub fn files(&self) -> usize {
        self.entries.iter().filter(|entry| matches!(entry.kind, Kind::File { .. })).count()
    }

    /// Bytes of all files.
    pub fn len(&self) -> u64 {
        self.entries.iter().map(|entry| if let Kind::File { len, .. } = entry.kind { len } else { 0 }).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

/// The order of paths by their components, as that of [`Path`], for plain paths: the slash comes before all other bytes.
fn order(one: &[u8], other: &[u8]) -> Ordering {
    let shared = one.iter().zip(other).take_while(|(one, other)| one == other).count();
    let rank = |path: &[u8]| path.get(shared).map(|byte| if *byte == b'/' { 0 } else { *byte });
    rank(one).cmp(&rank(other))
}

fn is_below(folder: &[u8], path: &[u8]) -> bool {
    path.strip_prefix(folder).is_some_and(|rest| rest.first() == Some(&b'/'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn entry(path: &str, kind: Kind) -> Entry {
        Entry { path: path.as_bytes().to_vec(), mode: 0o755, modified: (1, 2), kind }
    }

    #[test]
    fn a_folder_is_collected_with_all_that_is_in_it() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("a")).unwrap();
        fs::write(at("a/file"), b"content").unwrap();
        fs::write(folder.path().join(OsStr::from_bytes(b"not \xff UTF-8")), b"").unwrap();
        symlink("a/file", at("link")).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, at("pipe"), rustix::fs::Mode::RUSR).unwrap();
        let set = Set::collect([folder.path()]).unwrap();
        let kinds: Vec<_> = set.entries.iter().map(|entry| entry.path().strip_prefix(folder.path()).unwrap()).collect();
        let names = ["", "a", "a/file", "link"].map(Path::new);
        assert_eq!(kinds[..4], names);
        assert_eq!(kinds.len(), 5);
        assert_eq!(set.find(&at("link")).unwrap().kind, Kind::Link(b"a/file".to_vec()));
        let digest = *blake3::hash(b"content").as_bytes();
        assert_eq!(set.find(&at("a/file")).unwrap().kind, Kind::File { len: 7, digest });
        assert_eq!(Set::from_manifest(&set.manifest()).unwrap(), set);
        assert!(matches!(Set::collect([&*at("pipe")]), Err(Problem::Special(_))));
    }

    #[test]
    fn a_set_has_another_name_when_a_file_has_changed() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        let name = |content: &[u8]| {
            fs::write(&file, content).unwrap();
            Set::collect([&*file]).unwrap().digest()
        };
        assert_ne!(name(b"one"), name(b"two"));
        let set = Set::collect([&*file]).unwrap();
        assert_eq!(set.digest(), Set::collect([&*file]).unwrap().digest());
    }

    #[test]
    fn privileged_programs_and_relative_names_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, b"").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o4755)).unwrap();
        assert!(matches!(Set::collect([&*file]), Err(Problem::Privileged(_))));
        assert!(matches!(Set::collect([Path::new("here")]), Err(Problem::Relative(_))));
        assert!(matches!(Set::collect([Path::new("/no/such/file")]), Err(Problem::Io { .. })));
    }

    #[test]
    fn manifests_that_lead_out_of_the_tree_are_refused() {
        let refused = |entries: Vec<Entry>| Set::from_manifest(&Set { entries }.manifest()).is_err();
        assert!(!refused(vec![entry("/a", Kind::Folder), entry("/a/b", Kind::Folder)]));
        for path in ["", "a", "/", "//a", "/a/", "/a/..", "/a/./b", "/a\0b"] {
            assert!(refused(vec![entry(path, Kind::Folder)]), "{path:?}");
        }
        assert!(refused(vec![entry("/b", Kind::Folder), entry("/a", Kind::Folder)]));
        assert!(refused(vec![entry("/a", Kind::Folder), entry("/a", Kind::Folder)]));
        assert!(refused(vec![entry("/a", Kind::Link(b"/etc".to_vec())), entry("/a/b", Kind::Folder)]));
        assert!(refused(vec![Entry { mode: 0o4755, ..entry("/a", Kind::Folder) }]));
    }

    proptest! {
        #[test]
        fn paths_are_ordered_as_the_library_orders_them(one in "(/[a.!-]{1,3}){1,4}", other in "(/[a.!-]{1,3}){1,4}") {
            let is_plain = |path: &str| path.split('/').all(|part| part != "." && part != "..");
            prop_assume!(is_plain(&one) && is_plain(&other));
            prop_assert_eq!(order(one.as_bytes(), other.as_bytes()), Path::new(&one).cmp(Path::new(&other)));
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(set) = Set::from_manifest(&bytes) {
                prop_assert_eq!(Set::from_manifest(&set.manifest()).unwrap(), set);
            }
        }
    }
}
