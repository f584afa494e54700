//! How sets are collected, named, ordered and read.

use super::*;
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
    let collect = || Set::collect_with([&*tree, &*folder.path().join("single")], &Listings::new(), &digests).unwrap();
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
