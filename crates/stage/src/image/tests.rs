//! Sets in a store, above all images that the kernel has mounted, compared with the folders that they were made of.

use super::*;
use crate::mounts::owner;
use crate::set::{Digest, Entry, Set};
use crate::store::{Form, Store};
use crate::testing::{forms, home, look, noise, set_of, stage};
use proptest::prelude::*;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::time::{Duration, SystemTime};

fn may_mount() -> bool {
    forms().contains(&Form::Image)
}

/// Checks that the set of a folder, staged in this form, has the same files.
fn same_as_folder(form: Form, folder: &Path, looks: impl FnOnce(&Path) + Send) {
    let home = home();
    let store = Store::open(&home.path().join("store"), 16 << 30).unwrap().with_form(form);
    let set = Set::collect([folder]).unwrap();
    stage(&store, &set).unwrap();
    assert_eq!(fs::read_dir(home.path().join("store/new")).unwrap().count(), 0);
    let kept = store.use_set(&set.digest()).unwrap().unwrap();
    assert!(set_of(&kept, form, folder) == set);
    look(&kept, form, |root| looks(&root.join(folder.strip_prefix("/").unwrap())));
}

#[test]
fn files_of_every_kind_are_those_of_the_folder() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let bytes = |len: usize| (0..len).map(|at| (at * 31 % 251) as u8).collect::<Vec<u8>>();
    for len in [0, 1, 4095, 4096, 4097, 8192, 300_000] {
        fs::write(at(&format!("{len} bytes")), bytes(len)).unwrap();
    }
    fs::write(folder.path().join(OsStr::from_bytes(b"not \xff UTF-8")), b"x").unwrap();
    fs::write(at(&"n".repeat(255)), b"a long name").unwrap();
    // Names before and after `.` and `..`.
    for name in ["!", "-", "...", ".a", "~", "a b\nc"] {
        fs::write(at(name), name).unwrap();
    }
    fs::create_dir_all(at("a/b/c/empty")).unwrap();
    // Only root can stage a file that nobody may read.
    let nothing = if rustix::process::geteuid().is_root() { 0o000 } else { 0o400 };
    for (name, mode) in [("private", 0o400), ("program", 0o755), ("nothing", nothing)] {
        fs::write(at(name), name).unwrap();
        fs::set_permissions(at(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    for (name, mode) in [("a/b/c", 0o555), ("a/b", 0o1750)] {
        fs::set_permissions(at(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    for (name, time) in [
        ("old", SystemTime::UNIX_EPOCH - Duration::new(5, 7)),
        ("new", SystemTime::UNIX_EPOCH + Duration::new(1 << 33, 999_999_999)),
    ] {
        fs::write(at(name), name).unwrap();
        File::open(at(name)).unwrap().set_modified(time).unwrap();
    }
    for (name, target) in
        [("link", "a/b".to_owned()), ("nowhere", "/no/such".to_owned()), ("long link", "d/".repeat(2_047))]
    {
        symlink(target, at(name)).unwrap();
    }
    same_as_folder(Form::Tree, folder.path(), |_| {});
    if may_mount() {
        same_as_folder(Form::Image, folder.path(), |there| {
            let meta = fs::metadata(there.join("private")).unwrap();
            let own = fs::metadata(folder.path()).unwrap();
            assert_eq!((meta.uid(), meta.gid(), meta.nlink()), (own.uid(), rustix::process::getegid().as_raw(), 1));
            assert_eq!(fs::metadata(there.join("a")).unwrap().nlink(), 3);
            assert!(fs::write(there.join("old"), b"").is_err());
        });
    }
    fs::set_permissions(at("a/b/c"), fs::Permissions::from_mode(0o755)).unwrap();
}

/// Clusters that are packed, plain and holes, in any order; some files have the same content, some lie in an older
/// pack.
#[test]
fn packed_files_are_those_of_the_folder() {
    if !may_mount() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let cluster = |kind: usize, seed: u8| match kind {
        0 => noise(seed, CLUSTER_LEN),
        1 => vec![0; CLUSTER_LEN],
        // Clusters that are packed into a few blocks, and into many.
        2 => [seed, 1, 2, 3].repeat(CLUSTER_LEN / 4),
        _ => [noise(seed, CLUSTER_LEN - 9_000), vec![7; 9_000]].concat(),
    };
    let content = |number: usize, len: usize| {
        let kinds = (0..len.div_ceil(CLUSTER_LEN)).map(|at| cluster((number >> (2 * at)) % 4, number as u8));
        let mut bytes = kinds.collect::<Vec<_>>().concat();
        bytes.truncate(len);
        bytes
    };
    let lens = [1, 4_096, 4_097, 8_192, 60_000, CLUSTER_LEN, CLUSTER_LEN + 1, 2 * CLUSTER_LEN + 5_000, 4 * CLUSTER_LEN];
    let home = home();
    let store = Store::open(&home.path().join("store"), 16 << 30).unwrap().with_form(Form::Image);
    let mut written = Vec::new();
    for round in 0..2 {
        for number in (0..256).filter(|number| number % 2 <= round) {
            let bytes = content(number, lens[number % lens.len()]);
            fs::write(folder.path().join(format!("{number} in {round}")), &bytes).unwrap();
            written.push((format!("{number} in {round}"), bytes));
        }
        stage(&store, &Set::collect([folder.path()]).unwrap()).unwrap();
    }
    let set = Set::collect([folder.path()]).unwrap();
    let kept = store.use_set(&set.digest()).unwrap().unwrap();
    assert!(set_of(&kept, Form::Image, folder.path()) == set);
    look(&kept, Form::Image, |root| {
        let root = root.join(folder.path().strip_prefix("/").unwrap());
        // Reads the end of each file first, and the files in another order than they were written.
        for (name, bytes) in written.iter().rev() {
            let file = File::open(root.join(name)).unwrap();
            for at in [bytes.len() - 1, bytes.len() / 3, 0] {
                let mut part = vec![0; (bytes.len() - at).min(5_000)];
                file.read_exact_at(&mut part, at as u64).unwrap();
                assert!(part == bytes[at..at + part.len()], "{name} at {at}");
            }
        }
    });
    let full: u64 = written.iter().map(|(_, bytes)| bytes.len() as u64).sum();
    assert!(store.held().unwrap() < full / 2, "{} of {full}", store.held().unwrap());
}

#[test]
fn a_folder_may_have_thousands_of_names() {
    if !may_mount() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for number in 0..5_000 {
        let name = format!("{number}-{}", "x".repeat(number % 200));
        fs::write(folder.path().join(name), number.to_string()).unwrap();
    }
    same_as_folder(Form::Image, folder.path(), |there| {
        // Looks up each file by its name, and also names that do not exist.
        for number in (0..5_000).step_by(7) {
            let name = format!("{number}-{}", "x".repeat(number % 200));
            assert_eq!(fs::read(there.join(&name)).unwrap(), number.to_string().as_bytes());
            assert!(!there.join(name + "y").exists());
        }
    });
}

#[test]
fn a_file_may_be_longer_than_4_gib() {
    if !may_mount() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = File::create(folder.path().join("sparse")).unwrap();
    let far = (4 << 30) + 123_457;
    file.write_all_at(b"begin", 0).unwrap();
    file.write_all_at(b"end", far).unwrap();
    file.set_len((far + 3).next_multiple_of(BLOCK)).unwrap();
    let len = far + 3;
    let digest = Digest::default();
    let entry = |path, len| Entry { path, mode: 0o644, modified: (1, 0), kind: EntryKind::File { len, digest } };
    let set = Set::from_entries([entry(b"/large", len), entry(b"/middle", 4), entry(b"/one", 1)]).unwrap();
    // The locations are set here, because sending the contents would take a minute.
    let places =
        [0, far / BLOCK, 0].map(|block| ContentLocation { pack: 0, block: block as u32, clusters: Vec::new() });
    let image = image(&set, |index| places.get(index), &[len], owner()).unwrap();
    std::thread::scope(|scope| {
        let looks = scope.spawn(|| {
            crate::view::own_mounts(false).unwrap();
            let pack = File::open(folder.path().join("sparse")).unwrap();
            let files = crate::Files::of_image(&image, &[pack], folder.path()).unwrap();
            let large = File::open(files.path().join("large")).unwrap();
            let mut bytes = [1; 8];
            large.read_exact_at(&mut bytes[..4], far - 1).unwrap();
            assert_eq!((&bytes[..4], large.metadata().unwrap().len()), (&b"\0end"[..], len));
            large.read_exact_at(&mut bytes, 2 << 30).unwrap();
            assert_eq!(bytes, [0; 8]);
            assert_eq!(fs::read(files.path().join("one")).unwrap(), b"b");
        });
        looks.join().unwrap();
    });
}

/// Names of few letters, so that some are the beginning of others and some folders are of the same name as files
/// elsewhere.
fn paths() -> impl Strategy<Value = Vec<String>> {
    proptest::collection::btree_set("(/[a!.~]{1,4}){1,4}", 1..60).prop_map(|paths| {
        let is_plain = |path: &String| path.split('/').all(|part| part != "." && part != "..");
        let mut found: Vec<String> = paths.into_iter().filter(is_plain).collect();
        let all = found.clone();
        found.retain(|path| !all.iter().any(|other| other.starts_with(&format!("{path}/"))));
        found
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn any_tree_is_the_same_as_an_image(paths in paths(), lens in proptest::collection::vec(0usize..9_000, 60)) {
        if may_mount() {
            let folder = tempfile::tempdir().unwrap();
            for (path, len) in paths.iter().zip(lens) {
                let path = folder.path().join(&path[1..]);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(&path, vec![len as u8; len]).unwrap();
            }
            same_as_folder(Form::Image, folder.path(), |_| {});
        }
    }
}
