//! A set: files, folders and links under their original names, with what identifies their contents.
//!
//! A set consists of its manifest, in which the entries lie in order, so that a set is made and read without an
//! allocation for each entry. The name of a set is the digest of its manifest: equal files make the same set, and a
//! changed file makes another set.

mod entry;
mod kept;
mod listing;
mod walk;

pub use entry::{Digest, ENTRIES_MAX, Entry, EntryKind, MANIFEST_LEN_MAX};
pub use kept::list_with;
pub use listing::{Listing, Listings, Seen, list};
pub use walk::open_file;

use std::cmp::Ordering;
use std::collections::HashSet;
use std::fmt;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use thiserror::Error;

/// Length of a piece in which files are read, in bytes.
pub const PIECE_LEN: usize = 256 << 10;
/// Whether this is a `libwireup-staged`, of any version, which shows staged files to processes without mounts.
pub fn is_library(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_bytes().starts_with(b"libwireup-staged.so.0"))
}

/// A content of a set, which several files may have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Content {
    pub digest: Digest,
    pub len: u64,
    /// The index of the first entry that has the content.
    pub entry: usize,
}

/// The files, folders and links of a set, sorted by path, so that a folder precedes what is in it.
#[derive(Clone, Default)]
pub struct Set {
    manifest: Vec<u8>,
    /// The position of each entry in the manifest.
    begins: Vec<u32>,
    digest: OnceLock<Digest>,
    contents: OnceLock<Vec<Content>>,
}

impl PartialEq for Set {
    fn eq(&self, other: &Set) -> bool {
        self.manifest == other.manifest
    }
}

impl Eq for Set {}

impl fmt::Debug for Set {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_list().entries(self.entries()).finish()
    }
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
    #[error("more than {ENTRIES_MAX} files and folders, or {} MiB of names", MANIFEST_LEN_MAX >> 20)]
    TooMany,
    #[error("not the manifest of a set: {0}")]
    Manifest(&'static str),
}

impl Set {
    /// Makes a set of `entries`, which may come in any order.
    ///
    /// # Errors
    /// There are more entries than a set may have.
    pub fn from_entries<'a>(entries: impl IntoIterator<Item = Entry<'a>>) -> Result<Set, Problem> {
        let mut set = Set::default();
        entries.into_iter().try_for_each(|entry| set.push(entry))?;
        set.sort()?;
        Ok(set)
    }

    /// Appends an entry; call [`Set::sort`] after the last one.
    fn push(&mut self, entry: Entry<'_>) -> Result<(), Problem> {
        if self.begins.len() == ENTRIES_MAX || self.manifest.len() > MANIFEST_LEN_MAX {
            return Err(Problem::TooMany);
        }
        self.begins.push(self.manifest.len() as u32);
        entry.encode(&mut self.manifest);
        Ok(())
    }

    /// Sorts the entries by path and removes duplicates; entries that are sorted already stay as they are.
    fn sort(&mut self) -> Result<(), Problem> {
        if self.entries().is_sorted_by(|one, other| order(one.path, other.path).is_lt()) {
            return Ok(());
        }
        let mut entries: Vec<Entry> = self.entries().collect();
        // The standard library's stable sort only merges runs that are sorted already.
        entries.sort_by(|one, other| order(one.path, other.path));
        entries.dedup_by(|one, other| one.path == other.path);
        let mut sorted = Set::default();
        sorted.manifest.reserve_exact(self.manifest.len());
        entries.into_iter().try_for_each(|entry| sorted.push(entry))?;
        *self = sorted;
        Ok(())
    }

    /// The encoded entries, as the stream carries them.
    pub fn manifest(&self) -> &[u8] {
        &self.manifest
    }

    /// # Errors
    /// These bytes are no manifest, or one that no launcher makes: names that lead out of the tree, or are not in
    /// order.
    pub fn from_manifest(manifest: Vec<u8>) -> Result<Set, Problem> {
        if manifest.len() > MANIFEST_LEN_MAX {
            return Err(Problem::Manifest("too long"));
        }
        let (mut begins, mut rest, mut before) = (Vec::new(), &manifest[..], None::<Entry>);
        while !rest.is_empty() {
            if begins.len() == ENTRIES_MAX {
                return Err(Problem::TooMany);
            }
            begins.push((manifest.len() - rest.len()) as u32);
            let (entry, next) = Entry::decode(rest).ok_or(Problem::Manifest("malformed"))?;
            check(&entry, before.as_ref())?;
            (rest, before) = (next, Some(entry));
        }
        Ok(Set { manifest, begins, ..Set::default() })
    }

    /// The digest of the manifest, by which the set is named.
    pub fn digest(&self) -> Digest {
        *self.digest.get_or_init(|| *blake3::hash(&self.manifest).as_bytes())
    }

    pub fn entries(&self) -> impl DoubleEndedIterator<Item = Entry<'_>> + ExactSizeIterator + Clone {
        self.begins.iter().map(|begin| self.at(*begin))
    }

    /// # Panics
    /// The set has no entry of this index.
    pub fn entry(&self, index: usize) -> Entry<'_> {
        self.at(self.begins[index])
    }

    fn at(&self, begin: u32) -> Entry<'_> {
        Entry::decode(&self.manifest[begin as usize..]).expect("it was checked, or made here").0
    }

    pub fn find(&self, path: &Path) -> Option<Entry<'_>> {
        let path = path.as_os_str().as_bytes();
        let found = self.begins.binary_search_by(|begin| order(self.at(*begin).path, path)).ok()?;
        Some(self.entry(found))
    }

    /// The entries that are in no folder of the set.
    pub fn roots(&self) -> impl Iterator<Item = Entry<'_>> {
        self.entries().filter(|entry| entry.path().parent().is_some_and(|folder| self.find(folder).is_none()))
    }

    /// Files that are not staged, although they are inside staged folders.
    pub fn originals(&self) -> impl Iterator<Item = &Path> {
        self.entries().filter(|entry| entry.kind == EntryKind::Original).map(|entry| entry.path())
    }

    /// The number of files in the set.
    pub fn files(&self) -> usize {
        self.entries().filter(|entry| matches!(entry.kind, EntryKind::File { .. })).count()
    }

    /// The sum of the lengths of all files, in bytes.
    pub fn len(&self) -> u64 {
        self.entries().map(|entry| if let EntryKind::File { len, .. } = entry.kind { len } else { 0 }).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.begins.is_empty()
    }

    /// The different contents, numbered in the order of the entries. Empty files have none.
    pub fn contents(&self) -> &[Content] {
        self.contents.get_or_init(|| {
            let mut seen = HashSet::with_capacity(self.begins.len());
            let new = |(entry, found)| match found {
                EntryKind::File { len: len @ 1.., digest } => {
                    seen.insert(digest).then_some(Content { digest, len, entry })
                }
                _ => None,
            };
            self.entries().map(|entry| entry.kind).enumerate().filter_map(new).collect()
        })
    }

    /// A file that has a content of this set.
    pub fn path_of(&self, content: &Content) -> &Path {
        self.entry(content.entry).path()
    }
}

/// Checks an entry of a manifest that follows the entry `before`, which has been checked.
fn check(entry: &Entry, before: Option<&Entry>) -> Result<(), Problem> {
    let same = before.map_or(0, |before| shared(before.path, entry.path));
    if !is_plain_from(entry.path, same) {
        return Err(Problem::Manifest("a name that leads elsewhere"));
    }
    if entry.mode & !0o1777 != 0 {
        return Err(Problem::Manifest("a privileged file"));
    }
    let Some(before) = before else { return Ok(()) };
    if order_from(before.path, entry.path, same).is_ge() {
        return Err(Problem::Manifest("names out of order"));
    }
    // Nothing is under a name that is no folder: a link there would lead out of the tree. A name under `before` would
    // be the next name in order.
    if before.kind != EntryKind::Folder && is_below(before.path, entry.path) {
        return Err(Problem::Manifest("something inside of a file"));
    }
    Ok(())
}

/// Number of bytes of two paths that are compared at once.
const STEP: usize = 16;

/// The order of plain paths by their components, as that of [`Path`]: the slash comes before all other bytes. Of paths
/// that are in order, most have the same beginning, which is compared in large steps.
fn order(one: &[u8], other: &[u8]) -> Ordering {
    order_from(one, other, shared(one, other))
}

/// Length of the common prefix, in bytes.
fn shared(one: &[u8], other: &[u8]) -> usize {
    let steps = one.chunks_exact(STEP).zip(other.chunks_exact(STEP));
    let same = STEP * steps.take_while(|(one, other)| one == other).count();
    same + one[same..].iter().zip(&other[same..]).take_while(|(one, other)| one == other).count()
}

/// Compares two paths whose common beginning is `shared` bytes long.
fn order_from(one: &[u8], other: &[u8], shared: usize) -> Ordering {
    let rank = |path: &[u8]| path.get(shared).map(|byte| if *byte == b'/' { 0 } else { *byte });
    rank(one).cmp(&rank(other))
}

fn is_below(folder: &[u8], path: &[u8]) -> bool {
    path.strip_prefix(folder).is_some_and(|rest| rest.first() == Some(&b'/'))
}

/// Whether a path is absolute and without `.`, `..` and empty parts, if a path that shares its first bytes is so.
fn is_plain_from(path: &[u8], shared: usize) -> bool {
    let known = path[..shared].iter().rposition(|byte| *byte == b'/').unwrap_or(0);
    let is_plain = |part: &[u8]| ![&b""[..], b".", b".."].contains(&part) && !part.contains(&0);
    path[known..].strip_prefix(b"/").is_some_and(|rest| rest.split(|byte| *byte == b'/').all(is_plain))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digests::Digests;
    use crate::testing::folder_with;
    use proptest::prelude::*;
    use std::ffi::OsStr;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn entry<'a>(path: &'a str, kind: EntryKind<'a>) -> Entry<'a> {
        Entry { path: path.as_bytes(), mode: 0o755, modified: (1, 2), kind }
    }

    #[test]
    fn a_folder_is_collected_with_all_that_is_in_it() {
        let folder = folder_with([("a/file", &b"content"[..])]);
        let at = |name: &str| folder.path().join(name);
        fs::write(folder.path().join(OsStr::from_bytes(b"not \xff UTF-8")), b"").unwrap();
        symlink("a/file", at("link")).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, at("pipe"), rustix::fs::Mode::RUSR).unwrap();
        let set = Set::collect([folder.path()]).unwrap();
        let kinds: Vec<_> = set.entries().map(|entry| entry.path().strip_prefix(folder.path()).unwrap()).collect();
        let names = ["", "a", "a/file", "link"].map(Path::new);
        assert_eq!(kinds[..4], names);
        assert_eq!(kinds.len(), 5);
        assert_eq!(set.find(&at("link")).unwrap().kind, EntryKind::Link(b"a/file"));
        let digest = *blake3::hash(b"content").as_bytes();
        assert_eq!(set.find(&at("a/file")).unwrap().kind, EntryKind::File { len: 7, digest });
        assert_eq!(Set::from_manifest(set.manifest().to_vec()).unwrap(), set);
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
    fn what_has_changed_since_digests_were_kept_is_noticed() {
        let names = ["single", "tree/a/one", "tree/a/two", "tree/a.b", "tree/z"];
        let folder = folder_with(names.map(|name| (name, name.as_bytes())));
        let (tree, digests) = (folder.path().join("tree"), Digests::in_folder(folder.path().join("kept")));
        let collect =
            || Set::collect_with([&*tree, &*folder.path().join("single")], &Listings::new(), &digests).unwrap();
        let fresh = || Set::collect([&*tree, &*folder.path().join("single")]).unwrap();
        // Digests of files that have just changed are not cached, so the test waits.
        std::thread::sleep(std::time::Duration::from_millis(3_000));
        assert_eq!((collect(), collect().digest()), (fresh(), fresh().digest()));
        let kept = || fs::read_dir(folder.path().join("kept")).unwrap().count();
        assert_eq!(kept(), 2);
        let changes: [&dyn Fn(); 5] = [
            &|| fs::write(tree.join("a/one"), "TREE/A/ONE").unwrap(),
            &|| fs::write(tree.join("a/new"), "new").unwrap(),
            &|| fs::remove_file(tree.join("a.b")).unwrap(),
            &|| fs::rename(tree.join("z"), tree.join("y")).unwrap(),
            &|| fs::write(folder.path().join("single"), "SINGLE").unwrap(),
        ];
        for change in changes {
            let before = collect();
            change();
            assert_eq!(collect(), fresh());
            assert_ne!(collect().digest(), before.digest());
        }
        assert_eq!(kept(), 2);
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
        let refused = |entries: Vec<Entry>| {
            let mut manifest = Vec::new();
            entries.iter().for_each(|entry| entry.encode(&mut manifest));
            Set::from_manifest(manifest).is_err()
        };
        assert!(!refused(vec![entry("/a", EntryKind::Folder), entry("/a/b", EntryKind::Folder)]));
        for path in ["", "a", "/", "//a", "/a/", "/a/..", "/a/./b", "/a\0b"] {
            assert!(refused(vec![entry(path, EntryKind::Folder)]), "{path:?}");
        }
        assert!(refused(vec![entry("/b", EntryKind::Folder), entry("/a", EntryKind::Folder)]));
        assert!(refused(vec![entry("/a", EntryKind::Folder), entry("/a", EntryKind::Folder)]));
        assert!(refused(vec![entry("/a", EntryKind::Link(b"/etc")), entry("/a/b", EntryKind::Folder)]));
        assert!(refused(vec![Entry { mode: 0o4755, ..entry("/a", EntryKind::Folder) }]));
    }

    proptest! {
        #[test]
        fn paths_are_ordered_as_the_library_orders_them(one in "(/[a.!-]{1,3}){1,4}", other in "(/[a.!-]{1,3}){1,4}") {
            let is_plain = |path: &str| path.split('/').all(|part| part != "." && part != "..");
            prop_assume!(is_plain(&one) && is_plain(&other));
            for before in ["", "/a folder with a long name"] {
                let [one, other] = [&one, &other].map(|path| format!("{before}{path}"));
                prop_assert_eq!(order(one.as_bytes(), other.as_bytes()), Path::new(&one).cmp(Path::new(&other)));
            }
        }

        /// The beginning that a path shares with the path before it is not compared again.
        #[test]
        fn names_that_lead_elsewhere_are_refused_behind_any_other(
            paths in proptest::collection::vec("(/[ab.\\x00/]{0,3}){0,4}", 1..4)
        ) {
            let is_plain = |path: &String| {
                let part = |part: &str| !["", ".", ".."].contains(&part) && !part.contains('\0');
                path.strip_prefix('/').is_some_and(|inside| inside.split('/').all(part))
            };
            let is_sorted = paths.is_sorted_by(|one, other| Path::new(one) < Path::new(other));
            let is_fine = is_sorted && paths.iter().all(is_plain);
            let mut manifest = Vec::new();
            paths.iter().for_each(|path| entry(path, EntryKind::Folder).encode(&mut manifest));
            prop_assert_eq!(Set::from_manifest(manifest).is_ok(), is_fine);
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(set) = Set::from_manifest(bytes) {
                prop_assert_eq!(Set::from_manifest(set.manifest().to_vec()).unwrap(), set);
            }
        }
    }
}
