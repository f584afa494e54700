//! Tests functions that start programs: they start the copy, with the library in its environment, or the original.

use super::*;
use crate::exec::{execv, execve, execveat, execvp, execvpe, fexecve, posix_spawn, posix_spawnp};
use crate::files::open;
use crate::names::chroot;
use core::ffi::c_void;
use std::io::Read;
use std::ptr::{null, null_mut};

unsafe extern "C" {
    fn tested_execl(path: *const c_char, ...) -> c_int;
    fn tested_execle(path: *const c_char, ...) -> c_int;
    fn tested_execlp(path: *const c_char, ...) -> c_int;
}

/// The output of a child that makes this call; if the call returns, `errno` and its number.
fn says(call: impl FnOnce() -> c_int) -> String {
    let mut ends = [0; 2];
    // SAFETY: there is room for two descriptors. The child makes system calls only, writes to its own memory, and ends
    // or runs another program: the functions under test allocate nothing and take no lock.
    let child = unsafe {
        assert_eq!(libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC), 0);
        let quiet = libc::open(c"/dev/null".as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
        let child = libc::fork();
        if child == 0 {
            libc::dup2(ends[1], 1);
            // Hides the loader's messages that there is no library at the path in the environment.
            libc::dup2(quiet, 2);
            let number = match call() {
                -1 => last_error(),
                number => number,
            };
            let digits = [b'0' + (number / 10) as u8, b'0' + (number % 10) as u8];
            libc::write(1, b"errno ".as_ptr().cast(), 6);
            libc::write(1, digits.as_ptr().cast(), 2);
            libc::_exit(0);
        }
        libc::close(quiet);
        child
    };
    let [read, write] = ends.map(Fd::new);
    drop(write);
    let mut said = String::new();
    fs::File::from(read.0).read_to_string(&mut said).expect("what it says");
    // SAFETY: `child` is a child of this process, and no memory is passed.
    unsafe { libc::waitpid(child, null_mut(), 0) };
    said
}

/// A null-terminated list of C strings.
struct List {
    _texts: Vec<CString>,
    pointers: Vec<*const c_char>,
}

impl List {
    fn new(words: &[&str]) -> List {
        let texts: Vec<CString> = words.iter().map(|word| CString::new(*word).expect("no zeros")).collect();
        let pointers = texts.iter().map(|text| text.as_ptr()).chain([null()]).collect();
        List { _texts: texts, pointers }
    }

    fn at(&self) -> *const *const c_char {
        self.pointers.as_ptr()
    }
}

const ERRNO_NONE: &str = "errno 02";

#[test]
fn a_staged_program_is_started_from_its_copy() {
    let shown = shown();
    let copy = format!("{}\n", shown.tree().join("env/bin/where").display());
    let (path, near) = (shown.env("bin/where"), shown.env("near/../../bin/where"));
    let words = List::new(&["where", "-v", "/proc/self/exe"]);
    let none = List::new(&[]);
    let folder = shown.open_env();
    let (words, none, folder) = (words.at(), none.at(), folder.number());
    let file = Fd::new(
        // SAFETY: the path ends with a zero.
        unsafe { open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC, 0) },
    );
    let file = file.number();
    let [own, option, link] = [c"where", c"-v", c"/proc/self/exe"].map(CStr::as_ptr);
    let end = null::<c_char>();
    let mut pid = 0;
    let pid = &raw mut pid;
    let wait = |result: c_int| {
        // SAFETY: no memory is passed except that of `pid`.
        unsafe {
            if result == 0 {
                libc::waitpid(*pid, null_mut(), 0);
                libc::_exit(0);
            }
        }
        result
    };
    let calls: [(&str, &dyn Fn() -> c_int); 13] = [
        // SAFETY: all texts end with a zero, the lists with a null.
        ("execve", &|| unsafe { execve(path.as_ptr(), words, none) }),
        ("execv", &|| unsafe { execv(path.as_ptr(), words) }),
        ("through a link", &|| unsafe { execv(near.as_ptr(), words) }),
        ("execvp", &|| unsafe { execvp(c"where".as_ptr(), words) }),
        ("execvpe", &|| unsafe { execvpe(path.as_ptr(), words, none) }),
        ("fexecve", &|| unsafe { fexecve(file, words, none) }),
        ("execveat", &|| unsafe { execveat(folder, c"bin/where".as_ptr(), words, none, 0) }),
        ("execveat of open", &|| unsafe { execveat(file, c"".as_ptr(), words, none, libc::AT_EMPTY_PATH) }),
        ("execl", &|| unsafe { tested_execl(path.as_ptr(), own, option, link, end) }),
        ("execle", &|| unsafe { tested_execle(path.as_ptr(), own, option, link, end, none) }),
        ("execlp", &|| unsafe { tested_execlp(own, own, option, option, option, option, option, link, end) }),
        ("posix_spawn", &|| wait(unsafe { posix_spawn(pid, path.as_ptr(), null(), null(), words, none) })),
        ("posix_spawnp", &|| wait(unsafe { posix_spawnp(pid, own, null(), null(), words, none) })),
    ];
    for (name, call) in calls {
        assert_eq!(says(call), copy, "{name}");
    }
}

#[test]
fn a_copy_gets_the_library_whatever_its_environment() {
    let shown = shown();
    let path = shown.env("bin/env");
    let words = List::new(&["env"]);
    let library = "/none/libwireup-staged.so.0";
    let variables = [format!("LD_AUDIT={library}"), format!("LD_PRELOAD={library}")];
    let with = [&variables[0][..], &variables[1][..], "WIREUP_STAGED=/none/map"];
    for (env, expected) in [
        (std::vec![], with.map(str::to_string).to_vec()),
        (
            std::vec!["A=b", "LD_PRELOAD=", "WIREUP_STAGED=/other"],
            [&["A=b"][..], &with].concat().iter().map(ToString::to_string).collect(),
        ),
        (
            std::vec![with[0], with[1], with[2], "A=b"],
            [&["A=b"][..], &with].concat().iter().map(ToString::to_string).collect(),
        ),
        (
            std::vec!["LD_PRELOAD=/none/other.so"],
            std::vec![variables[0].clone(), format!("{}:/none/other.so", variables[1]), with[2].to_string()],
        ),
    ] {
        let env = List::new(&env);
        // SAFETY: all texts end with a zero, the lists with a null.
        let said = says(|| unsafe { execve(path.as_ptr(), words.at(), env.at()) });
        let mut said: Vec<&str> = said.lines().collect();
        said.sort_unstable();
        assert_eq!(said, expected);
    }
}

#[test]
fn a_script_is_run_by_its_interpreters_copy_under_its_own_name() {
    let shown = shown();
    let path = shown.env("bin/script");
    // The interpreter gets its argument and the path of the script, which is no symbolic link.
    let words = List::new(&["ignored", "/proc/self/exe"]);
    let copy = format!("{}\n", shown.tree().join("env/bin/where").display());
    // SAFETY: all texts end with a zero, the lists with a null.
    assert_eq!(says(|| unsafe { execv(path.as_ptr(), words.at()) }), copy);
    // More arguments than fit into the list on the stack.
    let many = List::new(&["/proc/self/exe"; 200]);
    // SAFETY: as above.
    assert_eq!(says(|| unsafe { execv(path.as_ptr(), many.at()) }), copy.repeat(199));
}

#[test]
fn what_cannot_have_the_library_is_the_original() {
    let shown = shown();
    let none = List::new(&[]);
    let words = List::new(&["ignored", "one"]);
    let (words, none) = (words.at(), none.at());
    let plain = shown.env("bin/plain");
    let said = format!("plain {} one\n", plain.to_str().expect("text"));
    // SAFETY: all texts end with a zero, the lists with a null.
    unsafe {
        assert_eq!(says(|| execv(plain.as_ptr(), words)), format!("errno {:02}", libc::ENOEXEC));
        assert_eq!(says(|| execvp(plain.as_ptr(), words)), said, "the shell runs it");
        let outside = c"/usr/bin/readlink";
        let link = List::new(&["readlink", "/proc/self/exe"]);
        assert!(!says(|| execve(outside.as_ptr(), link.at(), none)).contains("tree"));
        for (name, number) in [
            ("env/data", libc::EACCES),
            ("env/dir", libc::EACCES),
            ("env/none", libc::ENOENT),
            ("app/none", libc::ENOENT),
            ("outside/none", libc::ENOENT),
            ("env/data/none", libc::ENOTDIR),
        ] {
            let path = shown.at(name);
            let number = format!("errno {number:02}");
            assert_eq!(says(|| execve(path.as_ptr(), words, none)), number, "{name}");
            assert_eq!(says(|| posix_spawn(&mut 0, path.as_ptr(), null(), null(), words, none)), number, "{name}");
        }
        let unknown = c"none-of-this-name".as_ptr();
        assert_eq!(says(|| execvp(unknown, words)), ERRNO_NONE);
        assert_eq!(says(|| posix_spawnp(&mut 0, unknown, null(), null(), words, none)), ERRNO_NONE);
        let not_open = says(|| fexecve(-5, words, none));
        assert!(not_open.starts_with("errno"), "{not_open}");
        // File actions may change the new process's working directory, where the same name means another file.
        let mut actions = core::mem::MaybeUninit::<libc::posix_spawn_file_actions_t>::zeroed();
        libc::posix_spawn_file_actions_init(actions.as_mut_ptr());
        let actions: *const c_void = actions.as_ptr().cast();
        let link = List::new(&["where", "/proc/self/exe"]);
        let said = says(|| {
            libc::chdir(shown.env("").as_ptr());
            let mut pid = 0;
            let result = posix_spawn(&mut pid, c"bin/where".as_ptr(), actions, null(), link.at(), none);
            libc::waitpid(pid, null_mut(), 0);
            if result == 0 { libc::_exit(0) } else { result }
        });
        assert_eq!(said, format!("{}\n", shown.root().join("env/bin/where").display()));
    }
}

/// After `chroot` the same paths mean other files, so nothing counts as staged.
#[test]
fn nothing_is_staged_after_a_change_of_the_root() {
    let shown = shown();
    let path = shown.env("data");
    let said = says(|| {
        // SAFETY: the paths end with a zero.
        unsafe {
            if chroot(c"/".as_ptr()) != 0 {
                // Only root may call `chroot`.
                return if last_error() == libc::EPERM { 99 } else { -1 };
            }
            let fd = open(path.as_ptr(), libc::O_RDONLY, 0);
            let mut text = [0u8; 8];
            libc::read(fd, text.as_mut_ptr().cast(), text.len());
            if text == *b"original" { 99 } else { 98 }
        }
    });
    assert_eq!(said, "errno 99");
}
