//! Tests `open` and similar functions: which file a name opens, and that a copy cannot be changed.

use super::*;
use crate::files::{
    __open_2, __open64_2, __openat_2, __openat64_2, access, creat, creat64, eaccess, euidaccess, faccessat, fopen,
    fopen64, freopen, freopen64, open, open64, openat, openat64, opendir,
};
use crate::names::{chdir, fchdir};
use core::ffi::c_void;
use std::ptr::null;

fn open_plain(path: &CStr, flags: c_int) -> c_int {
    // SAFETY: the path ends with a zero.
    unsafe { open(path.as_ptr(), flags, 0o600) }
}

fn null_stream() -> *mut c_void {
    // SAFETY: both texts end with a zero.
    unsafe { libc::fopen(c"/dev/null".as_ptr(), c"r".as_ptr()).cast() }
}

/// What each function that opens a file for reading finds at this path.
fn by_all(path: &CStr) -> Vec<String> {
    let path = path.as_ptr();
    // SAFETY: the paths end with a zero; a stream is closed once.
    unsafe {
        let stream = |stream: *mut c_void| {
            if stream.is_null() {
                return last_error().to_string();
            }
            let fd = libc::dup(libc::fileno(stream.cast()));
            libc::fclose(stream.cast());
            opened(fd)
        };
        std::vec![
            opened(open(path, libc::O_RDONLY, 0)),
            opened(open(path, libc::O_RDONLY | libc::O_CREAT, 0o600)),
            opened(__open_2(path, libc::O_RDONLY)),
            opened(open64(path, libc::O_RDONLY, 0)),
            opened(__open64_2(path, libc::O_RDONLY)),
            opened(openat(HERE, path, libc::O_RDONLY, 0)),
            opened(__openat_2(HERE, path, libc::O_RDONLY)),
            opened(openat64(HERE, path, libc::O_RDONLY, 0)),
            opened(__openat64_2(HERE, path, libc::O_RDONLY)),
            stream(fopen(path, c"r".as_ptr())),
            stream(fopen64(path, c"r".as_ptr())),
            stream(freopen(path, c"re".as_ptr(), null_stream())),
            stream(freopen64(path, c"re".as_ptr(), null_stream())),
        ]
    }
}

#[test]
fn a_staged_name_opens_its_copy_and_any_other_the_original() {
    let shown = shown();
    let number = |number: c_int| number.to_string();
    let long = format!("env{}/data", "/.".repeat(600));
    for (name, expected) in [
        ("env/data", "copy".into()),
        ("env/dir/sub/file", "copy".into()),
        ("env//dir/./sub/file", "copy".into()),
        ("app/run", "copy".into()),
        // Through symbolic links, which the library follows itself.
        ("env/near/file", "copy".into()),
        ("env/near/../sub/file", "copy".into()),
        ("env/dir/sub/../../data", "copy".into()),
        // Files that are not staged. After an unknown directory nothing more is known, even if `..` leads back.
        ("outside/../env/data", "original".into()),
        ("env/out/../env/data", "original".into()),
        ("env/left", "original".into()),
        ("app/data", "original".into()),
        ("outside/secret", "original".into()),
        ("env/out/secret", "original".into()),
        ("env/absolute/secret", "original".into()),
        ("env/out/../outside/secret", "original".into()),
        // A path longer than the library resolves.
        (long.as_str(), "original".into()),
        ("env/loop", number(libc::ELOOP)),
        ("env/data/../data", number(libc::ENOTDIR)),
        ("env/data/", number(libc::ENOTDIR)),
    ] {
        let found = by_all(&shown.at(name));
        assert!(found.iter().all(|found| *found == expected), "{name}: {found:?}");
    }
    for name in ["env/none", "env/none/../data", "app/none", "none/none"] {
        assert_eq!(opened(open_plain(&shown.at(name), libc::O_RDONLY)), number(libc::ENOENT), "{name}");
    }
    assert_eq!(opened(open_plain(&shown.env("near"), libc::O_RDONLY | libc::O_NOFOLLOW)), number(libc::ELOOP));
    // SAFETY: null is a pointer that the kernel refuses.
    fails(unsafe { open(null(), libc::O_RDONLY, 0) }, libc::EFAULT);
    fails(open_plain(c"", libc::O_RDONLY), libc::ENOENT);
}

#[test]
fn relative_names_begin_at_the_working_folder_or_an_open_one() {
    let shown = shown();
    alone();
    let (copies, plain) = (shown.open_env(), Fd::new(open_plain(&shown.at("outside"), libc::O_RDONLY)));
    assert!(copies.path().starts_with(shown.tree_folder()), "{:?}", copies.path());
    let from = |folder: &Fd, name: &CStr| {
        // SAFETY: the name ends with a zero.
        opened(unsafe { openat(folder.number(), name.as_ptr(), libc::O_RDONLY, 0) })
    };
    let names = [(c"data", "copy"), (c"near/file", "copy"), (c"out/secret", "original"), (c"left", "original")];
    for (name, expected) in names {
        assert_eq!(from(&copies, name), expected, "{name:?}");
    }
    assert_eq!((from(&plain, c"secret"), from(&plain, c"../env/data")), ("original".into(), "original".into()));
    assert_eq!(from(&copies, &shown.at("outside/secret")), "original", "an absolute name has no folder");
    let gone = libc::EBADF.to_string();
    // SAFETY: the name ends with a zero.
    assert_eq!(opened(unsafe { openat(-5, c"data".as_ptr(), libc::O_RDONLY, 0) }), gone);
    // The working directory is always an original.
    let working = || std::env::current_dir().expect("a working folder");
    // SAFETY: the paths end with a zero.
    unsafe {
        assert_eq!(chdir(shown.env("").as_ptr()), 0);
        assert_eq!(working(), shown.root().join("env"));
        assert_eq!(opened(open_plain(c"data", libc::O_RDONLY)), "copy");
        assert_eq!(opened(open_plain(c"./dir/sub/file", libc::O_RDONLY)), "copy");
        assert_eq!(opened(open_plain(c"../outside/secret", libc::O_RDONLY)), "original");
        let folder = Fd::new(openat(copies.number(), c"dir".as_ptr(), libc::O_RDONLY | libc::O_DIRECTORY, 0));
        assert_eq!((fchdir(folder.number()), working()), (0, shown.root().join("env/dir")));
        assert_eq!(opened(open_plain(c"sub/file", libc::O_RDONLY)), "copy");
        assert_eq!((fchdir(plain.number()), working()), (0, shown.root().join("outside")));
        fails(chdir(shown.at("app/none").as_ptr()), libc::ENOENT);
        fails(chdir(shown.env("data").as_ptr()), libc::ENOTDIR);
        fails(fchdir(-5), libc::EBADF);
    }
}

#[test]
fn a_copy_is_opened_to_be_read_only() {
    let shown = shown();
    let new = libc::O_CREAT | libc::O_EXCL;
    for (name, flags, number) in [
        ("env/data", libc::O_WRONLY, libc::EROFS),
        ("env/data", libc::O_RDWR, libc::EROFS),
        ("env/near/file", libc::O_RDWR, libc::EROFS),
        ("app/run", libc::O_RDWR, libc::EROFS),
        ("env/data", libc::O_RDONLY | libc::O_TRUNC, libc::EROFS),
        ("env/new", libc::O_CREAT | libc::O_WRONLY, libc::EROFS),
        ("app/new", libc::O_CREAT | libc::O_WRONLY, libc::EROFS),
        ("env/data", new | libc::O_RDWR, libc::EEXIST),
        ("env/none", libc::O_RDWR, libc::ENOENT),
        ("app/none", libc::O_RDWR, libc::ENOENT),
    ] {
        fails(open_plain(&shown.at(name), flags), number);
        // SAFETY: the path ends with a zero.
        fails(unsafe { openat(HERE, shown.at(name).as_ptr(), flags, 0o600) }, number);
    }
    let folder = shown.open_env();
    let from = |name: &CStr, flags: c_int| {
        // SAFETY: the name ends with a zero.
        unsafe { openat(folder.number(), name.as_ptr(), flags, 0o600) }
    };
    fails(from(c"data", libc::O_WRONLY), libc::EROFS);
    fails(from(c"new", libc::O_CREAT | libc::O_WRONLY), libc::EROFS);
    fails(from(c".", libc::O_TMPFILE | libc::O_RDWR), libc::EROFS);
    // With the kernel's name for an open copy, and with the copy's own path.
    let file = Fd::new(open_plain(&shown.env("data"), libc::O_RDONLY));
    let name = CString::new(format!("/proc/self/fd/{}", file.number())).expect("no zeros");
    for name in [&name, &c(&shown.tree().join("env/data"))] {
        fails(open_plain(name, libc::O_RDWR), libc::EROFS);
        fails(open_plain(name, libc::O_RDONLY | libc::O_TRUNC), libc::EROFS);
        assert_eq!(opened(open_plain(name, libc::O_RDONLY)), "copy");
    }
    // SAFETY: all texts end with a zero; `freopen` closes the stream that it is passed.
    unsafe {
        fails(creat(shown.env("data").as_ptr(), 0o600), libc::EROFS);
        fails(creat64(shown.env("data").as_ptr(), 0o600), libc::EROFS);
        for (name, mode, number) in [
            ("data", c"w", libc::EROFS),
            ("data", c"r+", libc::EROFS),
            ("new", c"a", libc::EROFS),
            ("data", c"wx", libc::EEXIST),
            ("none", c"r", libc::ENOENT),
        ] {
            let path = shown.env(name);
            assert!(fopen(path.as_ptr(), mode.as_ptr()).is_null() && last_error() == number, "{name} {mode:?}");
            assert!(
                freopen(path.as_ptr(), mode.as_ptr(), null_stream()).is_null() && last_error() == number,
                "{name} {mode:?}"
            );
        }
    }
    assert_eq!(opened(open_plain(&shown.env("data"), libc::O_RDONLY)), "copy");
}

#[test]
fn other_files_are_opened_to_be_written() {
    let shown = shown();
    let path = shown.at("outside/written");
    // SAFETY: the paths end with a zero.
    unsafe {
        drop(Fd::new(creat(path.as_ptr(), 0o600)));
        drop(Fd::new(open(shown.at("env/out/written").as_ptr(), libc::O_RDWR | libc::O_TRUNC, 0)));
        drop(Fd::new(open(shown.env("left").as_ptr(), libc::O_RDWR, 0)));
        drop(Fd::new(open(shown.at("outside").as_ptr(), libc::O_TMPFILE | libc::O_RDWR, 0o600)));
    }
    assert!(shown.root().join("outside/written").is_file());
}

#[test]
fn what_is_permitted_is_what_can_be_done_with_the_copy() {
    let shown = shown();
    for (name, mode, expected) in [
        ("env/data", libc::F_OK, 0),
        ("env/data", libc::R_OK, 0),
        ("env/data", libc::W_OK, libc::EROFS),
        ("env/data", libc::R_OK | libc::W_OK, libc::EROFS),
        ("env/near/file", libc::R_OK, 0),
        ("env/none", libc::F_OK, libc::ENOENT),
        ("app/none", libc::W_OK, libc::ENOENT),
        ("none/none", libc::F_OK, libc::ENOENT),
        ("env/data/", libc::F_OK, libc::ENOTDIR),
        ("env/left", libc::W_OK, 0),
        ("env/out/secret", libc::W_OK, 0),
        ("outside/secret", libc::R_OK | libc::W_OK, 0),
    ] {
        let path = shown.at(name);
        // SAFETY: the path ends with a zero.
        let results = unsafe {
            [
                (access(path.as_ptr(), mode), last_error()),
                (eaccess(path.as_ptr(), mode), last_error()),
                (euidaccess(path.as_ptr(), mode), last_error()),
                (faccessat(HERE, path.as_ptr(), mode, 0), last_error()),
            ]
        };
        let is_expected = |&(result, number): &(c_int, c_int)| match expected {
            0 => result == 0,
            expected => (result, number) == (-1, expected),
        };
        assert!(results.iter().all(is_expected), "{name} {mode}: {results:?}");
    }
}

#[test]
fn a_folder_that_is_listed_is_the_copy() {
    let shown = shown();
    for (name, expected) in [
        ("env/dir", Ok(true)),
        ("env/dir/", Ok(true)),
        ("env/near", Ok(true)),
        ("outside", Ok(false)),
        ("env/out", Ok(false)),
        ("env/data/", Err(libc::ENOTDIR)),
        ("env/none", Err(libc::ENOENT)),
        ("app/none", Err(libc::ENOENT)),
    ] {
        // SAFETY: the path ends with a zero; the folder is closed once.
        unsafe {
            let folder = opendir(shown.at(name).as_ptr());
            let found = if folder.is_null() {
                Err(last_error())
            } else {
                let fd = Fd::new(libc::dup(libc::dirfd(folder.cast())));
                libc::closedir(folder.cast());
                Ok(fd.path().starts_with(shown.tree_folder()))
            };
            assert_eq!(found, expected, "{name}");
        }
    }
}
