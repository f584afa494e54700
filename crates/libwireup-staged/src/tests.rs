//! Calls the functions of this library one by one on a real directory: copies lie in a separate tree and contain the
//! text `copy`; originals contain `original`. Only what needs the loader or a separate program is tested elsewhere
//! (`dev/programs/staged/shown.c`).

mod changed;
mod opened;
mod started;
mod told;

use crate::real::last_error;
use crate::staged::{Staged, install};
use core::ffi::{CStr, c_char, c_int};
use std::ffi::CString;
use std::format;
use std::fs;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::string::{String, ToString};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::vec::Vec;
use wireup_redirect::build::Names;
use wireup_redirect::{Map, StagedKind};

const HERE: c_int = libc::AT_FDCWD;

/// Files and their modes. `env` is staged as a directory, `app/run` as a single file.
const FILES: [(&str, u32); 9] = [
    ("env/data", 0o644),
    ("env/open", 0o666),
    ("env/dir/sub/file", 0o644),
    ("env/bin/where", 0o755),
    ("env/bin/env", 0o755),
    ("env/bin/script", 0o755),
    ("env/bin/plain", 0o755),
    ("app/run", 0o755),
    ("outside/secret", 0o644),
];

/// A temporary directory of which a part is staged.
struct Shown {
    folder: tempfile::TempDir,
}

/// The directory that all tests of this process share: a process determines only once what is staged.
fn shown() -> Arc<Shown> {
    static SHOWN: Mutex<Weak<Shown>> = Mutex::new(Weak::new());
    let mut shown = SHOWN.lock().unwrap_or_else(PoisonError::into_inner);
    shown.upgrade().unwrap_or_else(|| {
        let new = Arc::new(Shown::new());
        *shown = Arc::downgrade(&new);
        new
    })
}

impl Shown {
    fn new() -> Shown {
        let folder = tempfile::TempDir::new().expect("a folder");
        let shown = Shown { folder };
        let (root, tree) = (shown.root(), shown.tree());
        for (name, mode) in FILES {
            shown.write(&root.join(name), "original", mode);
            if !name.starts_with("outside") {
                // Copies are stored without write bits.
                shown.write(&tree.join(name), "copy", mode & !0o222);
            }
        }
        shown.write(&root.join("env/left"), "original", 0o644);
        shown.write(&root.join("app/data"), "original", 0o644);
        for (name, program) in [("where", "/usr/bin/readlink"), ("env", "/usr/bin/env")] {
            for place in [&root, &tree] {
                let path = place.join("env/bin").join(name);
                fs::remove_file(&path).expect("an old file");
                fs::copy(program, &path).expect("a program");
            }
        }
        let script = format!("#!{} {}\n", root.join("env/bin/where").display(), "-v");
        shown.write(&tree.join("env/bin/script"), &script, 0o555);
        shown.write(&tree.join("env/bin/plain"), "echo plain \"$0\" \"$1\"\n", 0o555);
        shown.write(&root.join("env/bin/plain"), "echo plain \"$0\" \"$1\"\n", 0o755);
        let absolute = root.join("outside");
        let links = [
            ("near", Path::new("dir/sub")),
            ("out", Path::new("../outside")),
            ("absolute", &absolute),
            ("loop", Path::new("loop")),
        ];
        for (name, target) in links {
            symlink(target, root.join("env").join(name)).expect("a link");
            symlink(target, tree.join("env").join(name)).expect("a link");
        }
        install(shown.staged(&links));
        let search = format!("/none:/etc:{}:/usr/bin:/bin", root.join("env/bin").display());
        // SAFETY: every test begins here, one at a time, and the only other thread is the one that starts the tests.
        unsafe { std::env::set_var("PATH", search) };
        shown
    }

    fn write(&self, path: &Path, content: &str, mode: u32) {
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        let _ = fs::remove_file(path);
        fs::write(path, content).expect("a file");
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("its bits");
    }

    /// A map of the staged files, as the keeper writes it.
    fn staged(&self, links: &[(&str, &Path)]) -> Staged {
        let mut names = Names::default();
        let root = self.root();
        let mut add = |kind, name: &Path, more: &[u8]| names.add(kind, name.as_os_str().as_bytes(), more);
        for way in root.ancestors().chain(self.tree_folder().ancestors()).filter(|way| way.parent().is_some()) {
            if way == self.tree_folder() {
                add(StagedKind::Tree, way, b"");
            }
            add(StagedKind::Open, way, b"");
        }
        add(StagedKind::Folder, &root.join("env"), b"");
        add(StagedKind::Original, &root.join("env/left"), b"");
        for (name, target) in links {
            add(StagedKind::Link, &root.join("env").join(name), target.as_os_str().as_bytes());
        }
        add(StagedKind::Closed, &root.join("app"), b"");
        add(StagedKind::File, &root.join("app/run"), b"");
        add(StagedKind::Other, &root.join("app/data"), b"");
        let paths: Vec<(PathBuf, u32)> = [("env", 0o755), ("env/dir", 0o755), ("env/dir/sub", 0o755)]
            .iter()
            .chain(FILES.iter().filter(|(name, _)| !name.starts_with("outside")))
            .map(|(name, mode)| (root.join(name), *mode))
            .collect();
        names.add_bits(paths.iter().map(|(path, mode)| (path.as_os_str().as_bytes(), *mode)));
        let map = names.map(self.tree_folder().as_os_str().as_bytes(), b"/none/libwireup-staged.so.0", b"mnt:[1]");
        let map: &'static [u8] = map.expect("a small map").leak();
        Staged { map: Map::read(map).expect("a map"), variable: c"WIREUP_STAGED=/none/map", search: b"" }
    }

    fn root(&self) -> PathBuf {
        self.folder.path().join("shared")
    }

    /// The directory of the copies; the path of a copy below it is the original's path.
    fn tree_folder(&self) -> PathBuf {
        self.folder.path().join("store/tree")
    }

    /// The directory of the copies of the files in `root`.
    fn tree(&self) -> PathBuf {
        let root = self.root();
        self.tree_folder().join(root.strip_prefix("/").expect("an absolute path"))
    }

    /// A path below the staged folder `env`.
    fn env(&self, name: &str) -> CString {
        self.at(&format!("env/{name}"))
    }

    /// A path below `root`.
    fn at(&self, name: &str) -> CString {
        c(&self.root().join(name))
    }

    /// An open folder of copies.
    fn open_env(&self) -> Fd {
        // SAFETY: the path ends with a zero.
        Fd::new(unsafe { crate::files::open(self.env("").as_ptr(), libc::O_RDONLY | libc::O_DIRECTORY, 0) })
    }
}

fn c(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).expect("no zeros")
}

/// A descriptor that is closed when this value is dropped.
struct Fd(OwnedFd);

impl Fd {
    #[track_caller]
    fn new(fd: c_int) -> Fd {
        assert!(fd >= 0, "errno {}", last_error());
        // SAFETY: the call has just opened the descriptor for this test.
        Fd(unsafe { OwnedFd::from_raw_fd(fd) })
    }

    fn number(&self) -> c_int {
        std::os::fd::AsRawFd::as_raw_fd(&self.0)
    }

    /// The path of the open file, as the kernel reports it.
    fn path(&self) -> PathBuf {
        fs::read_link(format!("/proc/self/fd/{}", self.number())).expect("its name")
    }
}

/// The content of the file that a call has opened (`copy` or `original`), or its error number.
#[track_caller]
fn opened(fd: c_int) -> String {
    if fd < 0 {
        return last_error().to_string();
    }
    let fd = Fd::new(fd);
    fs::read_to_string(fd.path()).unwrap_or_else(|error| format!("{:?}: {error}", fd.path()))
}

/// Asserts that the call has failed with this error.
#[track_caller]
fn fails(result: c_int, number: c_int) {
    assert_eq!((result, last_error()), (-1, number));
}

/// Gives this thread a working directory of its own.
fn alone() {
    // SAFETY: no memory is passed.
    assert_eq!(unsafe { libc::unshare(libc::CLONE_FS) }, 0);
}

fn text(memory: &[u8]) -> String {
    let end = memory.iter().position(|byte| *byte == 0).unwrap_or(memory.len());
    String::from_utf8_lossy(&memory[..end]).into_owned()
}

/// # Safety
/// `text` ends with a zero.
unsafe fn text_at(text: *const c_char) -> String {
    // SAFETY: guaranteed by the caller.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// Each symbol in the version script must have a function here: the linker does not report a missing one.
#[test]
fn every_exported_name_has_a_function() {
    let sources = [
        include_str!("audit.rs"),
        include_str!("changes.rs"),
        include_str!("exec.rs"),
        include_str!("files.rs"),
        include_str!("names.rs"),
        include_str!("words.rs"),
    ];
    let list = include_str!("../abi/libwireup-staged.map");
    let list = list.split("global:").nth(1).and_then(|list| list.split("local:").next()).expect("a list");
    let names: Vec<&str> = list.split(';').map(str::trim).filter(|name| !name.is_empty()).collect();
    assert!(names.len() > 100, "{names:?}");
    let is_there = |name: &&str| {
        let forms = [format!("fn {name}("), format!("fn {name};"), format!("words!(\"{name}\"")];
        sources.iter().any(|source| forms.iter().any(|form| source.contains(form.as_str())))
    };
    let missing: Vec<&&str> = names.iter().filter(|name| !is_there(name)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}
