//! Tests views: each test stages a set, changes the originals, and looks at what ranks would see.

use super::*;
use crate::store::{Form, Registry, Store};
use crate::testing::{folder_with, forms, home, stage};
use std::thread;

/// A staged set: in one store for each form of stores that can be tested here, each in a folder of its own.
struct Staged<'a> {
    set: &'a Set,
    homes: Vec<(Form, tempfile::TempDir)>,
}

fn store(home: &tempfile::TempDir, form: Form) -> Store {
    Store::open(&home.path().join("store"), 1 << 30).unwrap().with_form(form)
}

impl Staged<'_> {
    fn new(set: &Set) -> Staged<'_> {
        let stage = |form| {
            let home = home();
            stage(&store(&home, form), set).unwrap();
            (form, home)
        };
        Staged { set, homes: forms().into_iter().map(stage).collect() }
    }

    /// For each form, mounts the set over the originals in a new mount namespace and calls `look` there. All folders
    /// but those directly below `/` count as folders of a network file system, so that they are closed, except those in
    /// `keep`. Returns `false` without a call of `look` if this process may not make mounts.
    fn look(&self, keep: &[&Path], look: impl Fn(&View) + Sync) -> bool {
        let keep: Keep = keep.iter().map(|folder| folder.to_path_buf()).collect();
        let show_and_look = |(form, home): &(Form, tempfile::TempDir)| {
            let kept = store(home, *form).use_set(&self.set.digest()).unwrap().unwrap();
            // A thread may not make a user namespace.
            if own_mounts(false).is_err() {
                return false;
            }
            let bare = &Bare::default();
            let closing = Closing { keep: &keep, bare, is_remote: |folder| folder.parent() != Some(Path::new("/")) };
            let planned = plan_where(self.set, &closing).unwrap();
            let mut placeholders = Placeholders::new(Registry::new(home.path().join("registry")));
            planned.make_places(&mut placeholders).unwrap();
            let files = kept.files().unwrap();
            assert_eq!(files.is_image(), *form == Form::Image);
            let view = planned.show(&files).unwrap();
            drop(files);
            look(&view);
            drop(placeholders);
            true
        };
        // The namespace ends with the thread that has made it.
        let in_thread = |home| thread::scope(|scope| scope.spawn(|| show_and_look(home)).join().unwrap());
        self.homes.iter().map(in_thread).fold(false, |all, one| all | one)
    }
}

#[test]
fn a_staged_folder_hides_the_original() {
    let folder = folder_with([("env/module", &b"staged"[..])]);
    let at = |name: &str| folder.path().join(name);
    let set = Set::collect([&*at("env")]).unwrap();
    let staged = Staged::new(&set);
    fs::write(at("env/module"), b"changed").unwrap();
    fs::write(at("env/later"), b"").unwrap();
    let was_run = staged.look(&[], |view| {
        assert!(view.open.contains(folder.path()) || view.closed.contains(folder.path()));
        assert_eq!(fs::read(at("env/module")).unwrap(), b"staged");
        assert!(!at("env/later").exists());
        let refused = fs::write(at("env/module"), b"").unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ReadOnlyFilesystem);
    });
    assert!(was_run || !rustix::process::geteuid().is_root());
    assert_eq!(fs::read(at("env/module")).unwrap(), b"changed", "outside nothing has changed");
}

#[test]
fn a_program_with_rights_of_its_own_stays_the_original_in_a_staged_folder() {
    let folder = folder_with([("env/module", &b"staged"[..]), ("env/privileged", b"staged")]);
    let at = |name: &str| folder.path().join(name);
    fs::set_permissions(at("env/privileged"), Permissions::from_mode(0o4755)).unwrap();
    let set = Set::collect([&*at("env")]).unwrap();
    let staged = Staged::new(&set);
    // Writing to a file clears its set-user-ID bit.
    for name in ["module", "privileged"] {
        fs::write(at("env").join(name), b"original").unwrap();
    }
    fs::set_permissions(at("env/privileged"), Permissions::from_mode(0o4755)).unwrap();
    staged.look(&[], |_| {
        let read = |name: &str| fs::read(at(name)).unwrap();
        assert_eq!([read("env/module"), read("env/privileged")], [&b"staged"[..], b"original"]);
        assert_eq!(fs::metadata(at("env/privileged")).unwrap().permissions().mode() & 0o7777, 0o4755);
    });
    fs::remove_file(at("env/privileged")).unwrap();
    staged.look(&[], |_| assert_eq!(fs::metadata(at("env/privileged")).unwrap().len(), 0));
}

#[test]
fn the_folder_of_a_staged_program_has_what_it_had_and_no_other_names() {
    let folder = folder_with([("program", &b"staged"[..]), ("data", b"data"), ("input/one", b"1")]);
    let at = |name: &str| folder.path().join(name);
    symlink("data", at("link")).unwrap();
    let set = Set::collect([&*at("program")]).unwrap();
    let staged = Staged::new(&set);
    fs::write(at("program"), b"changed").unwrap();
    let was_run = staged.look(&[], |view| {
        assert!(view.closed.contains(folder.path()));
        let read = |name: &str| fs::read(at(name)).unwrap();
        assert_eq!(
            [read("program"), read("data"), read("input/one"), read("link")],
            [&b"staged"[..], b"data", b"1", b"data"]
        );
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 4);
        // A folder in it is the original: what is made there stays.
        fs::write(at("input/two"), b"2").unwrap();
        assert!(fs::write(at("new"), b"").is_err());
    });
    assert_eq!(fs::read(at("input/two")).is_ok(), was_run);
}

#[test]
fn the_folder_in_which_the_ranks_work_stays_writable() {
    let folder = folder_with([("program", &b"staged"[..])]);
    let program = folder.path().join("program");
    let set = Set::collect([&*program]).unwrap();
    let staged = Staged::new(&set);
    fs::write(&program, b"changed").unwrap();
    let was_run = staged.look(&[folder.path()], |view| {
        assert!(view.open.contains(folder.path()));
        assert_eq!(fs::read(&program).unwrap(), b"staged");
        fs::write(folder.path().join("result"), b"").unwrap();
    });
    assert_eq!(folder.path().join("result").exists(), was_run);
}

#[test]
fn what_this_node_has_no_folder_for_gets_places_that_are_removed_again() {
    let names = ["work/a/program", "work/a/b/data", "other/c/library", "file"];
    let folder = folder_with(names.map(|name| (name, &b"staged"[..])));
    let at = |name: &str| folder.path().join(name);
    symlink("program", at("work/a/link")).unwrap();
    let paths = names.map(at).into_iter().chain([at("work/a/link")]).collect::<Vec<_>>();
    let set = Set::collect(paths.iter().map(|path| &**path)).unwrap();
    let staged = Staged::new(&set);
    for name in ["work", "other"] {
        fs::remove_dir_all(at(name)).unwrap();
    }
    fs::remove_file(at("file")).unwrap();
    let was_run = staged.look(&[folder.path(), &at("work/a")], |_| {
        for path in &paths {
            assert_eq!(fs::read(path).unwrap(), b"staged", "{}", path.display());
        }
        // The ranks work in this folder: files that ranks make are kept unless the ranks remove them.
        fs::write(at("work/a/result"), b"").unwrap();
        fs::remove_file(at("work/a/result")).unwrap();
        assert!(fs::write(at("work/a/b/result"), b"").is_err(), "nobody works in this one");
    });
    assert!(!was_run || fs::read_dir(folder.path()).unwrap().next().is_none());
}

#[test]
fn a_place_with_something_else_is_told_before_anything_is_covered() {
    let folder = folder_with([("here", &b"staged"[..]), ("other", b"staged")]);
    let at = |name: &str| folder.path().join(name);
    let set = Set::collect([&*at("here"), &*at("other")]).unwrap();
    fs::remove_file(at("other")).unwrap();
    fs::create_dir(at("other")).unwrap();
    let keep = [folder.path().to_path_buf()].into();
    let refused = plan(&set, &keep, &Bare::default()).err().expect("it is a folder now");
    assert_eq!((refused.path, refused.error.kind()), (at("other"), io::ErrorKind::AlreadyExists));
}
