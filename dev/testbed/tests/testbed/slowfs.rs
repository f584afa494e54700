//! The slow file system, through a real mount.
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use wireup_testbed::slowfs::{SlowFs, Spec};

use super::{eventually, output, text};

/// Number of entries of a large folder: more than fit into many answers to the kernel.
const CROWD: usize = 20_000;

/// A source folder and a mount point; both are removed at the end of the test.
struct Folders(PathBuf);

impl Folders {
    fn new() -> Folders {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let root = std::env::temp_dir().join(format!("wireup-slowfs-{}-{count}", std::process::id()));
        for folder in ["source", "mount", "view"] {
            fs::create_dir_all(root.join(folder)).expect("a folder");
        }
        Folders(root)
    }

    fn source(&self, path: &str) -> PathBuf {
        self.0.join("source").join(path)
    }

    fn mount(&self, path: &str) -> PathBuf {
        self.0.join("mount").join(path)
    }

    /// Without delays, since most tests are not about time.
    fn spec(&self) -> Spec {
        let mut spec = Spec::new(env!("CARGO_BIN_EXE_wireup-testbed"), self.source(""), self.mount(""));
        spec.delay = Duration::from_micros(5);
        spec
    }

    fn is_mounted(&self) -> bool {
        let mounts = fs::read_to_string("/proc/self/mountinfo").expect("mounts");
        mounts.contains(&format!(" {} ", self.0.join("mount").display()))
    }
}

impl Drop for Folders {
    fn drop(&mut self) {
        // Deletes nothing if the file system is still mounted, since that would delete through the mount.
        if !self.is_mounted() {
            let _ = fs::remove_dir_all(&self.0);
        }
    }
}

/// All files of a tree by relative path: mode with kind, nanoseconds of the modification time, and contents or link
/// target.
fn tree(root: &Path) -> BTreeMap<PathBuf, (u32, i64, Vec<u8>)> {
    let mut found = BTreeMap::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root.join(&folder)).expect("a folder") {
            let entry = entry.expect("an entry");
            let path = folder.join(entry.file_name());
            let state = fs::symlink_metadata(root.join(&path)).expect("metadata");
            let contents = match state.file_type() {
                kind if kind.is_symlink() => {
                    fs::read_link(root.join(&path)).expect("a link").into_os_string().into_encoded_bytes()
                }
                kind if kind.is_file() => fs::read(root.join(&path)).expect("contents"),
                kind => {
                    folders.extend(kind.is_dir().then(|| path.clone()));
                    Vec::new()
                }
            };
            assert_eq!(entry.file_type().expect("a type"), state.file_type());
            found.insert(path, (state.mode(), state.mtime_nsec(), contents));
        }
    }
    found
}

fn count(slow: &SlowFs, operation: &str, path: &str) -> usize {
    slow.log().iter().filter(|line| line.operation == operation && line.path == Path::new(path)).count()
}

#[test]
fn every_view_reads_from_the_server_what_only_another_view_has_cached() {
    let folders = Folders::new();
    fs::write(folders.source("file"), "text").expect("a file");
    let view = folders.0.join("view");
    let spec = Spec { views: vec![view.clone()], ..folders.spec() };
    let Some(slow) = SlowFs::mount_or_skip(&spec) else { return };
    let reads = || slow.log().iter().filter(|line| line.operation == "read").count();
    for (path, count) in [(folders.mount("file"), 1), (view.join("file"), 2), (view.join("file"), 2)] {
        assert_eq!(fs::read(&path).expect("the file"), b"text");
        assert_eq!(reads(), count, "{}", path.display());
    }
    drop(slow);
    assert_eq!(fs::read_dir(&view).expect("the folder below the mount").count(), 0);
}

#[test]
fn a_tree_is_the_same_through_it() {
    let folders = Folders::new();
    let strange = folders.source("").join(OsStr::from_bytes(b"not \xff UTF-8\n"));
    fs::create_dir(&strange).expect("a folder");
    fs::write(strange.join(OsStr::from_bytes(b"\xfe")), "strange").expect("a file");
    fs::write(folders.source("large"), (0..3_000_000_u32).map(|i| (i / 7) as u8).collect::<Vec<u8>>()).expect("a file");
    fs::write(folders.source("empty"), "").expect("a file");
    fs::hard_link(folders.source("large"), folders.source("again")).expect("a second name");
    fs::set_permissions(folders.source("empty"), fs::Permissions::from_mode(0o604)).expect("a mode");
    let sparse = fs::File::create(folders.source("sparse")).expect("a file");
    sparse.write_all_at(b"end", 50_000_000).expect("its end");
    for (name, target) in [("link", "large"), ("dangling", "../nothing"), ("absolute", "/dev/null"), ("to-folder", ".")]
    {
        symlink(target, folders.source(name)).expect("a link");
    }
    let Some(slow) = SlowFs::mount_or_skip(&folders.spec()) else { return };
    assert!(tree(&folders.mount("")) == tree(&folders.source("")), "{:?}", tree(&folders.mount("")).keys());
    assert_eq!(
        fs::read(folders.mount("link")).expect("through a link"),
        fs::read(folders.source("large")).expect("it")
    );
    let of = |name: &str| fs::metadata(folders.mount(name)).expect("metadata");
    assert_eq!((of("again").ino(), of("again").nlink()), (of("large").ino(), 2));
    assert_eq!(of("sparse").blocks(), sparse.metadata().expect("metadata").blocks());
    let refused = fs::write(folders.mount("new"), "").expect_err("it is read-only");
    assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    let newline = Path::new(OsStr::from_bytes(b"not \xff UTF-8?"));
    assert!(slow.log().iter().any(|line| line.operation == "opendir" && line.path == newline));
}

#[test]
fn a_large_folder_is_complete() {
    let folders = Folders::new();
    for i in 0..CROWD {
        fs::File::create(folders.source(&format!("file-{i}"))).expect("a file");
    }
    let Some(_slow) = SlowFs::mount_or_skip(&folders.spec()) else { return };
    let names: std::collections::BTreeSet<_> = fs::read_dir(folders.mount(""))
        .expect("the folder")
        .map(|entry| entry.expect("an entry").file_name())
        .collect();
    assert_eq!(names.len(), CROWD);
}

#[test]
fn programs_run_from_it_and_their_operations_are_logged() {
    let folders = Folders::new();
    fs::copy("/bin/cat", folders.source("cat")).expect("a program");
    fs::write(folders.source("text"), "hello\n").expect("a file");
    for cold in [false, true] {
        let mut spec = folders.spec();
        spec.cold = cold;
        let Some(slow) = SlowFs::mount_or_skip(&spec) else { return };
        let mut cat = Command::new(folders.mount("cat"));
        assert_eq!(text(cat.arg(folders.mount("text"))), "hello");
        let log = slow.log();
        let of = |operation: &str, path: &str| {
            log.iter().find(|line| line.operation == operation && line.path == Path::new(path))
        };
        assert!(of("lookup", "cat").is_some() && of("open", "cat").is_some() && of("read", "cat").is_some(), "{log:?}");
        let opened = of("open", "text").unwrap_or_else(|| panic!("{log:?}"));
        assert_eq!(of("lookup", "text").map(|line| line.pid), Some(opened.pid));
        assert!(opened.pid != 0 && opened.pid != std::process::id());
        slow.clear();
        assert!(!slow.log().iter().any(|line| line.operation == "lookup" || line.operation == "open"));
        assert_eq!(fs::read(folders.mount("text")).expect("the file"), b"hello\n");
        assert_eq!((count(&slow, "open", "text"), count(&slow, "read", "text")), (1, usize::from(cold)));
    }
}

#[test]
fn what_does_not_exist_is_remembered() {
    let folders = Folders::new();
    let mut spec = folders.spec();
    // Longer than this test may take on a busy machine, so that cached attributes do not expire.
    spec.timeout = Duration::from_secs(3600);
    let Some(slow) = SlowFs::mount_or_skip(&spec) else { return };
    for _ in 0..3 {
        assert!(!folders.mount("nothing").exists());
    }
    assert_eq!(count(&slow, "lookup", "nothing"), 1);
    drop(slow);
    spec.timeout = Duration::ZERO;
    let Some(slow) = SlowFs::mount_or_skip(&spec) else { return };
    for _ in 0..3 {
        assert!(!folders.mount("nothing").exists());
    }
    assert_eq!(count(&slow, "lookup", "nothing"), 3);
}

#[test]
fn a_file_that_is_replaced_is_read_anew() {
    let folders = Folders::new();
    let mut spec = folders.spec();
    spec.timeout = Duration::ZERO;
    let Some(_slow) = SlowFs::mount_or_skip(&spec) else { return };
    for i in 0..20 {
        fs::write(folders.source("new"), format!("version {i}")).expect("a file");
        fs::rename(folders.source("new"), folders.source("file")).expect("its place");
        assert_eq!(fs::read(folders.mount("file")).expect("the file"), format!("version {i}").into_bytes());
    }
    fs::remove_file(folders.source("file")).expect("it exists");
    fs::create_dir(folders.source("file")).expect("a folder in its place");
    assert!(folders.mount("file").is_dir());
}

#[test]
fn operations_are_counted_one_after_another() {
    let folders = Folders::new();
    for i in 0..40 {
        fs::write(folders.source(&format!("file-{i}")), [0; 8000]).expect("a file");
    }
    let mut spec = folders.spec();
    spec.delay = Duration::from_micros(300);
    spec.bandwidth_mb = 16;
    // Cached look-ups do not expire during the test, even on a busy machine.
    spec.timeout = Duration::from_secs(3600);
    let Some(slow) = SlowFs::mount_or_skip(&spec) else { return };
    let begin = Instant::now();
    thread::scope(|scope| {
        for part in 0..4 {
            let folders = &folders;
            scope.spawn(move || {
                for i in part * 10..part * 10 + 10 {
                    assert_eq!(fs::read(folders.mount(&format!("file-{i}"))).expect("a file").len(), 8000);
                }
            });
        }
    });
    let elapsed = begin.elapsed();
    let of = |operation: &str| slow.log().iter().filter(|line| line.operation == operation).count();
    eventually("all files are closed", || of("release") == 40);
    assert_eq!((of("open"), of("read"), of("lookup")), (40, 40, 40));
    let least = Duration::from_micros(300) * 3 * 40 + Duration::from_micros(500) * 40;
    assert!(elapsed >= least, "{elapsed:?}");
}

#[test]
fn the_mount_ends_with_its_handle_and_after_its_server_was_killed() {
    let folders = Folders::new();
    fs::write(folders.source("file"), "contents").expect("a file");
    let Some(slow) = SlowFs::mount_or_skip(&folders.spec()) else { return };
    assert!(folders.is_mounted());
    let open = fs::File::open(folders.mount("file")).expect("the file");
    drop(slow);
    assert!(!folders.is_mounted() && !folders.mount("file").exists());
    drop(open);

    // This handle is never dropped, like that of a process that was killed.
    let killed = std::mem::ManuallyDrop::new(SlowFs::mount(&folders.spec()).expect("a second start"));
    kill(killed.pid());
    let dead = || fs::metadata(folders.mount("")).is_err_and(|error| error.kind() == std::io::ErrorKind::NotConnected);
    eventually("the mount is dead", dead);
    let slow = SlowFs::mount(&folders.spec()).expect("a start at the same place");
    assert_eq!(fs::read(folders.mount("file")).expect("the file"), b"contents");
    kill(slow.pid());
    drop(slow);
    assert!(!folders.is_mounted());
}

fn kill(pid: u32) {
    assert!(Command::new("kill").args(["-KILL", &pid.to_string()]).status().expect("run kill").success());
}

#[test]
fn a_source_can_be_covered_by_its_own_mount_but_not_contain_it() {
    let folders = Folders::new();
    fs::write(folders.source("file"), "contents").expect("a file");
    fs::create_dir(folders.source("inside")).expect("a folder");
    let mut spec = folders.spec();
    spec.mount = folders.source("");
    let Some(slow) = SlowFs::mount_or_skip(&spec) else { return };
    assert_eq!(fs::read(folders.source("file")).expect("the file"), b"contents");
    assert_eq!(count(&slow, "open", "file"), 1);
    drop(slow);
    spec.mount = folders.source("inside");
    let Err(refused) = SlowFs::mount(&spec) else { panic!("it would wait for itself") };
    assert!(refused.to_string().contains("inside of the source"), "{refused}");
}

#[test]
fn the_slowfs_command_returns_the_exit_code_of_its_program() {
    let folders = Folders::new();
    fs::write(folders.source("file"), "contents").expect("a file");
    if SlowFs::mount_or_skip(&folders.spec()).is_none() {
        return;
    }
    let log = folders.0.join("log");
    let run = |words: &[&OsStr]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_wireup-testbed"));
        command.arg("slowfs").args(["--delay-us", "5", "--source"]).arg(folders.source("")).arg("--log").arg(&log);
        output(command.args(words).stdin(Stdio::null()))
    };
    let (flag, point) = (OsStr::new("--mount"), folders.mount("").into_os_string());
    let script = OsStr::new("cat \"$0\"/file; exit 5");
    let result = run(&[flag, &point, OsStr::new("--"), OsStr::new("sh"), OsStr::new("-c"), script, &point]);
    assert_eq!((&*result.stdout, result.status.code()), (&b"contents"[..], Some(5)), "{result:?}");
    assert!(!folders.is_mounted());
    let log = fs::read_to_string(&log).expect("the log");
    assert!(log.lines().any(|line| line.starts_with("open ") && line.ends_with(" file")), "{log}");
    for (words, code, part) in [
        (&[flag, &point, OsStr::new("no-such-program")][..], 127, "no-such-program"),
        (&[flag, &point], 125, "which command"),
        (&[OsStr::new("true")], 125, "--mount is missing"),
        (&[flag, OsStr::new("/no/such/folder"), OsStr::new("true")], 125, "/no/such/folder: No such file"),
    ] {
        let result = run(words);
        assert_eq!(result.status.code(), Some(code));
        assert!(String::from_utf8_lossy(&result.stderr).contains(part), "{result:?}");
    }
}
