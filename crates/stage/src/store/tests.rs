//! Tests stores in both forms: what they contain, what is removed, what remains after a receiver was interrupted.

use super::*;
use crate::stream::Cluster;
use crate::testing::{forms, home, look, noise, set_of, stage};
use std::os::unix::fs::symlink;

const ROOM: u64 = 1 << 30;

struct Bench {
    files: tempfile::TempDir,
    home: tempfile::TempDir,
    form: Form,
}

impl Bench {
    fn new(form: Form) -> Bench {
        Bench { files: tempfile::tempdir().unwrap(), home: home(), form }
    }

    fn root(&self) -> PathBuf {
        self.home.path().join("store")
    }

    fn store(&self, room: u64) -> Store {
        Store::open(&self.root(), room).unwrap().with_form(self.form)
    }

    fn file(&self, name: &str, content: &[u8]) -> PathBuf {
        let path = self.files.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        path
    }

    fn set(&self) -> Set {
        Set::collect([self.files.path()]).unwrap()
    }

    /// Checks that the store has this set, with the files that are in the folder now.
    fn assert_has(&self, store: &Store, set: &Set) {
        let kept = store.use_set(&set.digest()).unwrap().unwrap();
        assert_eq!(&set_of(&kept, self.form, self.files.path()), set);
    }

    /// How many files are in the store's new folder.
    fn new_files(&self) -> usize {
        fs::read_dir(self.root().join("new")).unwrap().count()
    }
}

/// Runs a test with both forms.
fn with_each(test: impl Fn(&Bench)) {
    for form in forms() {
        println!("{form:?}");
        test(&Bench::new(form));
    }
}

fn plain(content: u32, offset: u64, len: usize) -> [Cluster; 1] {
    [Cluster { content, offset, len, stored: 0..len }]
}

#[test]
fn what_is_here_is_not_sent_again() {
    with_each(|bench| {
        bench.file("same", &[1; 1_000]);
        bench.file("copy", &[1; 1_000]);
        bench.file("other", &[2; 500]);
        let store = bench.store(ROOM);
        assert_eq!(stage(&store, &bench.set()).unwrap(), 1_500);
        assert_eq!(stage(&store, &bench.set()).unwrap(), 0);
        bench.file("other", &[3; 400]);
        assert_eq!(stage(&store, &bench.set()).unwrap(), 400);
        assert_eq!(store.sets().unwrap().len(), 2);
        // The set takes one content from the old pack, and one from a new one.
        bench.assert_has(&store, &bench.set());
    });
}

#[test]
fn the_set_that_was_not_used_for_the_longest_time_makes_room() {
    with_each(|bench| {
        // Two contents of two blocks fit, three do not.
        let store = bench.store(20_000);
        let sets: Vec<Set> = (1..4)
            .map(|byte| {
                bench.file("file", &noise(byte, 8_000));
                let set = bench.set();
                if byte < 3 {
                    stage(&store, &set).unwrap();
                }
                set
            })
            .collect();
        // The first set is in use, so the second one is removed to make room.
        let first = store.use_set(&sets[0].digest()).unwrap().unwrap();
        bench.file("file", &noise(3, 8_000));
        stage(&store, &bench.set()).unwrap();
        assert!(store.use_set(&sets[1].digest()).unwrap().is_none());
        let read = |kept: &InUse, set: &Set| {
            look(kept, bench.form, |root| fs::read(root.join(&set.entry(1).path().to_str().unwrap()[1..])).unwrap())
        };
        assert_eq!(read(&first, &sets[0]), noise(1, 8_000));
        drop(first);
        bench.file("file", &noise(4, 21_000));
        let refused = stage(&store, &bench.set()).expect_err("it is larger than the room");
        let wanted = refused.split_once(" bytes do not fit in ").and_then(|(wanted, _)| wanted.parse().ok());
        assert!(wanted.is_some_and(|wanted: u64| wanted >= 21_000), "{refused}");
    });
}

#[test]
fn a_file_with_two_times_takes_its_room_twice_only_as_two_files() {
    for form in forms() {
        let bench = Bench::new(form);
        let one = bench.file("one", &[1; 8_000]);
        bench.file("two", &[1; 8_000]);
        fs::File::open(&one).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
        let fits = stage(&bench.store(10_000), &bench.set()).is_ok();
        assert_eq!(fits, form == Form::Image, "{form:?}");
    }
}

#[test]
fn contents_that_no_set_uses_go_and_the_others_of_their_pack_stay() {
    with_each(|bench| {
        bench.file("goes", &noise(1, 100_000));
        bench.file("stays", &noise(2, 100_000));
        bench.file("packed stays", &b"words ".repeat(40_000));
        let store = bench.store(ROOM);
        let first = bench.set();
        stage(&store, &first).unwrap();
        bench.file("goes", &noise(3, 50_000));
        let second = bench.set();
        assert_eq!(stage(&store, &second).unwrap(), 50_000);
        let before = store.held().unwrap();
        assert!(store.drop_set(&hex(&first.digest())).unwrap());
        let after = store.held().unwrap();
        assert!(before - after >= 100_000 && after >= 150_000, "{before} {after}");
        bench.assert_has(&store, &second);
        let kept = store.use_set(&second.digest()).unwrap().unwrap();
        assert!(!store.drop_set(&hex(&second.digest())).unwrap(), "it is in use");
        drop(kept);
        // A content that was removed is sent again.
        bench.file("goes", &noise(1, 100_000));
        assert_eq!(stage(&store, &bench.set()).unwrap(), 100_000);
        for kept in store.sets().unwrap() {
            assert!(store.drop_set(&kept.name).unwrap());
        }
        assert_eq!((store.held().unwrap(), bench.new_files(), store.sets().unwrap().len()), (0, 0, 0));
    });
}

#[test]
fn parts_that_do_not_follow_are_ignored_and_nothing_half_is_used() {
    with_each(|bench| {
        bench.file("file", &[1; 1_000]);
        let (store, set) = (bench.store(ROOM), bench.set());
        let mut receiving = store.receive(set.clone()).unwrap();
        receiving.write(&plain(0, 0, 500), &[1; 500]).unwrap();
        receiving.spoil(&plain(0, 500, 100)).unwrap();
        // The rest of a damaged content is ignored; the content is taken when it is sent again.
        receiving.write(&plain(0, 600, 400), &[1; 400]).unwrap();
        assert!(receiving.missing().contains(&0));
        receiving.write(&plain(0, 0, 1_000), &[1; 1_000]).unwrap();
        assert!(receiving.missing().is_empty());
        drop(receiving);
        // The contents that had arrived are still there, until somebody needs the room.
        assert!(store.receive(set.clone()).unwrap().missing().is_empty());
        bench.file("file", &[2; 1_000]);
        let set = bench.set();
        let mut receiving = store.receive(set.clone()).unwrap();
        receiving.write(&plain(0, 0, 999), &[2; 999]).unwrap();
        assert!(receiving.finish().is_err_and(|why| why.contains("not what was announced")));
        assert!(store.use_set(&set.digest()).unwrap().is_none());
        assert_eq!(bench.new_files(), 0);
        assert_eq!(stage(&store, &set).unwrap(), 1_000);
        fs::write(bench.root().join("made-by"), b"3 another-boot another-node").unwrap();
        let refused = Store::open(&bench.root(), ROOM).err().expect("it is another node's");
        assert!(refused.contains("node another-node keeps files there"), "{refused}");
    });
}

#[test]
fn two_receivers_of_the_same_set_may_work_at_once() {
    with_each(|bench| {
        bench.file("file", &[1; 10_000]);
        let (store, set) = (bench.store(ROOM), bench.set());
        let mut one = store.receive(set.clone()).unwrap();
        let mut other = store.receive(set.clone()).unwrap();
        one.write(&plain(0, 0, 10_000), &[1; 10_000]).unwrap();
        other.write(&plain(0, 0, 10_000), &[1; 10_000]).unwrap();
        one.finish().unwrap();
        other.finish().unwrap();
        bench.assert_has(&store, &set);
        assert!(store.held().unwrap() <= 12_288 && bench.new_files() == 0);
    });
}

/// Contents that a receiver relies on are not removed, although no set has these contents any more.
#[test]
fn contents_that_a_receiver_counts_on_are_not_removed() {
    with_each(|bench| {
        bench.file("same", &[1; 10_000]);
        let (store, first) = (bench.store(ROOM), bench.set());
        stage(&store, &first).unwrap();
        bench.file("other", &[2; 10_000]);
        let second = bench.set();
        let mut receiving = store.receive(second.clone()).unwrap();
        assert_eq!(receiving.missing().len(), 1);
        let number = *receiving.missing().first().unwrap();
        assert!(store.drop_set(&hex(&first.digest())).unwrap());
        receiving.write(&plain(number, 0, 10_000), &[2; 10_000]).unwrap();
        receiving.finish().unwrap();
        bench.assert_has(&store, &second);
    });
}

/// The state after a kill: nobody holds the lock of what lies in `new`, and there is a pack that no set uses.
#[test]
fn what_a_killed_receiver_leaves_goes_with_the_next_set_that_needs_room() {
    with_each(|bench| {
        bench.file("file", &[1; 10_000]);
        let store = bench.store(ROOM);
        let left = bench.root().join("new/left");
        fs::create_dir_all(left.join("pack")).unwrap();
        fs::write(left.join("pack/data"), [0; 10_000]).unwrap();
        let pack = bench.root().join("packs/left");
        fs::create_dir_all(&pack).unwrap();
        fs::write(pack.join("data"), [0; 10_000]).unwrap();
        stage(&store, &bench.set()).unwrap();
        assert!(!left.exists() && !pack.exists());
    });
}

#[test]
fn holes_take_no_room() {
    with_each(|bench| {
        let path = bench.file("sparse", b"begin");
        fs::File::options().write(true).open(&path).unwrap().set_len(40 << 20).unwrap();
        let (store, set) = (bench.store(ROOM), bench.set());
        stage(&store, &set).unwrap();
        let used = |path: &Path| fs::metadata(path).unwrap().blocks() * 512;
        let files = match bench.form {
            Form::Image => fs::read_dir(bench.root().join("packs"))
                .unwrap()
                .flatten()
                .map(|pack| pack.path().join("data"))
                .collect(),
            Form::Tree => store.objects().unwrap().into_iter().map(|(path, _)| path).collect::<Vec<_>>(),
        };
        assert!(files.iter().map(|path| used(path)).sum::<u64>() < 1 << 20);
        bench.assert_has(&store, &set);
    });
}

#[test]
fn a_store_that_others_may_change_is_refused() {
    let bench = Bench::new(Form::Tree);
    let root = bench.root();
    drop(bench.store(ROOM));
    for folder in ["packs", "objects"] {
        fs::set_permissions(root.join(folder), fs::Permissions::from_mode(0o770)).unwrap();
        assert!(Store::open(&root, ROOM).is_err_and(|why| why.contains("belongs to somebody else")));
        fs::set_permissions(root.join(folder), fs::Permissions::from_mode(0o700)).unwrap();
    }
    symlink(bench.files.path(), bench.home.path().join("link")).unwrap();
    assert!(Store::open(&bench.home.path().join("link"), ROOM).is_err());
}

#[test]
fn one_that_looks_is_not_seen_as_use_by_another() {
    let bench = Bench::new(Form::Tree);
    bench.file("file", &[1; 1_000]);
    stage(&bench.store(ROOM), &bench.set()).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let store = bench.store(ROOM);
                for _ in 0..50 {
                    assert!(store.sets().unwrap().iter().all(|kept| !kept.is_in_use));
                }
            });
        }
    });
}

#[test]
fn what_is_left_of_a_set_and_a_store_of_another_start_are_cleared() {
    with_each(|bench| {
        bench.file("file", &[1; 1_000]);
        let (store, set) = (bench.store(ROOM), bench.set());
        stage(&store, &set).unwrap();
        let folder = store.set_folder(&set.digest());
        let manifest = folder.join("manifest");
        fs::remove_file(&manifest).unwrap();
        stage(&store, &set).unwrap();
        assert!(store.use_set(&set.digest()).unwrap().is_some());
        // Simulates that somebody has removed a part of the set.
        match bench.form {
            Form::Image => remove_tree(&bench.root().join("packs"))
                .and_then(|()| at(&folder, fs::create_dir(bench.root().join("packs")))),
            Form::Tree => remove_tree(&folder.join("tree")),
        }
        .unwrap();
        assert!(store.use_set(&set.digest()).unwrap().is_none());
        stage(&store, &set).unwrap();
        assert!(store.use_set(&set.digest()).unwrap().is_some());
        fs::write(&manifest, b"").unwrap();
        assert_eq!(store.sets().unwrap().len(), 1, "a damaged one can be dropped");
        fs::write(bench.root().join("made-by"), b"another start").unwrap();
        fs::set_permissions(bench.root().join("packs"), fs::Permissions::from_mode(0o700)).unwrap();
        let store = bench.store(ROOM);
        assert_eq!((store.sets().unwrap().len(), store.held().unwrap()), (0, 0));
        assert_eq!(stage(&store, &set).unwrap(), 1_000);
    });
}
