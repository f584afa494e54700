//! Tests what is reported about files: their modes, the targets of symbolic links, and their names.

use super::*;
use crate::audit::{la_objsearch, la_version};
use crate::files::{
    __fxstat, __fxstat64, __fxstatat, __fxstatat64, __lxstat, __lxstat64, __xstat, __xstat64, fstat, fstat64, fstatat,
    fstatat64, lstat, lstat64, stat, stat64, statx,
};
use crate::names::{
    __readlink_chk, __readlinkat_chk, __realpath_chk, canonicalize_file_name, readlink, readlinkat, realpath,
};
use crate::search::{Folders, Has, first};
use core::mem::MaybeUninit;
use std::ptr::null_mut;

/// The file's type and permissions (`st_mode`), or the error number.
fn mode(call: impl FnOnce(*mut core::ffi::c_void) -> c_int) -> Result<u32, c_int> {
    let mut into = MaybeUninit::<libc::stat>::zeroed();
    match call(into.as_mut_ptr().cast()) {
        // SAFETY: the structure contains only numbers, so any bytes are valid.
        0 => Ok(unsafe { into.assume_init() }.st_mode),
        _ => Err(last_error()),
    }
}

fn extended_mode(call: impl FnOnce(*mut core::ffi::c_void) -> c_int) -> Result<u32, c_int> {
    let mut into = MaybeUninit::<libc::statx>::zeroed();
    match call(into.as_mut_ptr().cast()) {
        // SAFETY: the structure contains only numbers, so any bytes are valid.
        0 => Ok(unsafe { into.assume_init() }.stx_mode.into()),
        _ => Err(last_error()),
    }
}

/// The version argument of `__xstat`, which recent glibc offers only at run time, not to the linker.
const VERSION: c_int = if cfg!(target_arch = "x86_64") { 1 } else { 0 };

#[test]
fn the_bits_of_a_copy_are_those_of_the_original() {
    let shown = shown();
    let (file, folder) = (libc::S_IFREG, libc::S_IFDIR);
    for (name, expected) in [
        ("env/data", Ok(file | 0o644)),
        ("env/open", Ok(file | 0o666)),
        ("env/near/file", Ok(file | 0o644)),
        ("env/dir", Ok(folder | 0o755)),
        ("env/dir/", Ok(folder | 0o755)),
        ("env/near", Ok(folder | 0o755)),
        ("app/run", Ok(file | 0o755)),
        ("outside/secret", Ok(file | 0o644)),
        ("env/out/secret", Ok(file | 0o644)),
        ("env/none", Err(libc::ENOENT)),
        ("app/none", Err(libc::ENOENT)),
        ("env/data/", Err(libc::ENOTDIR)),
        ("env/loop", Err(libc::ELOOP)),
    ] {
        let path = shown.at(name);
        let path = path.as_ptr();
        // SAFETY: the path ends with a zero, and each structure is large enough.
        let told = unsafe {
            [
                mode(|into| stat(path, into)),
                mode(|into| stat64(path, into)),
                mode(|into| fstatat(HERE, path, into, 0)),
                mode(|into| fstatat64(HERE, path, into, 0)),
                mode(|into| __xstat(VERSION, path, into)),
                mode(|into| __xstat64(VERSION, path, into)),
                mode(|into| __fxstatat(VERSION, HERE, path, into, 0)),
                mode(|into| __fxstatat64(VERSION, HERE, path, into, 0)),
                extended_mode(|into| statx(HERE, path, 0, libc::STATX_BASIC_STATS, into)),
            ]
        };
        assert!(told.iter().all(|told| *told == expected), "{name}: {told:?} {expected:?}");
    }
}

#[test]
fn a_link_is_told_of_where_it_is_not_followed() {
    let shown = shown();
    for (name, expected) in [("near", libc::S_IFLNK), ("loop", libc::S_IFLNK), ("near/", libc::S_IFDIR)] {
        let path = shown.env(name);
        // SAFETY: the path ends with a zero.
        unsafe {
            for told in [
                mode(|into| lstat(path.as_ptr(), into)),
                mode(|into| lstat64(path.as_ptr(), into)),
                mode(|into| __lxstat(VERSION, path.as_ptr(), into)),
                mode(|into| __lxstat64(VERSION, path.as_ptr(), into)),
                mode(|into| fstatat(HERE, path.as_ptr(), into, libc::AT_SYMLINK_NOFOLLOW)),
            ] {
                assert_eq!(told.map(|mode| mode & libc::S_IFMT), Ok(expected), "{name}");
            }
        }
    }
}

#[test]
fn an_open_copy_has_the_bits_of_the_original_too() {
    let shown = shown();
    // SAFETY: the paths end with a zero, and each structure is large enough.
    unsafe {
        for (name, expected) in [("env/open", 0o666), ("env/dir", 0o755), ("outside/secret", 0o644)] {
            let fd = Fd::new(crate::files::open(shown.at(name).as_ptr(), libc::O_RDONLY, 0));
            let fd = fd.number();
            let told = [
                mode(|into| fstat(fd, into)),
                mode(|into| fstat64(fd, into)),
                mode(|into| __fxstat(VERSION, fd, into)),
                mode(|into| __fxstat64(VERSION, fd, into)),
                mode(|into| fstatat(fd, c"".as_ptr(), into, libc::AT_EMPTY_PATH)),
                extended_mode(|into| statx(fd, c"".as_ptr(), libc::AT_EMPTY_PATH, libc::STATX_MODE, into)),
            ];
            assert!(told.iter().all(|told| told.map(|mode| mode & 0o7777) == Ok(expected)), "{name}: {told:?}");
        }
        let folder = shown.open_env();
        assert_eq!(mode(|into| fstatat(folder.number(), c"near/file".as_ptr(), into, 0)), Ok(libc::S_IFREG | 0o644));
        assert_eq!(mode(|into| fstat(-5, into)), Err(libc::EBADF));
    }
}

/// What a function writes into the memory that it is given, or its error number.
fn written(call: impl FnOnce(*mut c_char, usize) -> isize) -> Result<String, c_int> {
    let mut into = [0u8; 4096];
    match usize::try_from(call(into.as_mut_ptr().cast(), into.len())) {
        Ok(len) => {
            assert_eq!(text(&into).len(), len);
            Ok(text(&into))
        }
        Err(_) => Err(last_error()),
    }
}

#[test]
fn links_lead_where_the_originals_lead() {
    let shown = shown();
    let outside = shown.root().join("outside").display().to_string();
    for (name, expected) in [
        ("env/near", Ok("dir/sub".into())),
        ("env/out", Ok("../outside".into())),
        ("env/absolute", Ok(outside)),
        ("env/data", Err(libc::EINVAL)),
        ("env/dir", Err(libc::EINVAL)),
        ("env/none", Err(libc::ENOENT)),
        ("app/none", Err(libc::ENOENT)),
        // A directory above what is staged, and a file that is not staged.
        ("app", Err(libc::EINVAL)),
        ("outside/secret", Err(libc::EINVAL)),
    ] {
        let path = shown.at(name);
        let path = path.as_ptr();
        // SAFETY: the path ends with a zero, and the memory has this length.
        let told = unsafe {
            [
                written(|into, len| readlink(path, into, len)),
                written(|into, len| readlinkat(HERE, path, into, len)),
                written(|into, len| __readlink_chk(path, into, len, len)),
                written(|into, len| __readlinkat_chk(HERE, path, into, len, len)),
            ]
        };
        assert!(told.iter().all(|told| *told == expected), "{name}: {told:?}");
    }
    let folder = shown.open_env();
    // SAFETY: the name ends with a zero, and no more than the memory's length is asked for.
    unsafe {
        let told = written(|into, len| readlinkat(folder.number(), c"near".as_ptr(), into, len));
        assert_eq!(told, Ok("dir/sub".into()));
        assert_eq!(written(|into, _| readlink(shown.env("near").as_ptr(), into, 3)), Ok("dir".into()));
    }
}

#[test]
fn the_kernels_name_of_an_open_copy_is_told_as_the_original() {
    let shown = shown();
    // SAFETY: the paths end with a zero, and the memory has this length.
    unsafe {
        for name in ["env/near/file", "outside/secret"] {
            let fd = Fd::new(crate::files::open(shown.at(name).as_ptr(), libc::O_RDONLY, 0));
            let of_kernel = CString::new(format!("/proc/self/fd/{}", fd.number())).expect("no zeros");
            let expected = shown.root().join(name.replace("near", "dir/sub")).display().to_string();
            assert_eq!(written(|into, len| readlink(of_kernel.as_ptr(), into, len)), Ok(expected.clone()));
            let short = written(|into, _| readlink(of_kernel.as_ptr(), into, 4));
            assert_eq!(short, Ok(expected[..4].into()), "no more than there is room for");
            assert_eq!(resolved(&of_kernel), Ok(expected));
        }
    }
}

/// The path without symbolic links, from each function that resolves them; or the error number.
#[track_caller]
fn resolved(path: &CStr) -> Result<String, c_int> {
    let mut into = [0u8; libc::PATH_MAX as usize];
    let told = |found: *mut c_char| if found.is_null() { Err(last_error()) } else { Ok(()) };
    // SAFETY: the path ends with a zero, the memory has room for the longest path, and what was allocated is freed.
    unsafe {
        let first = told(realpath(path.as_ptr(), into.as_mut_ptr().cast())).map(|()| text(&into));
        let checked = told(__realpath_chk(path.as_ptr(), into.as_mut_ptr().cast(), into.len())).map(|()| text(&into));
        assert_eq!(checked, first);
        for found in [realpath(path.as_ptr(), null_mut()), canonicalize_file_name(path.as_ptr())] {
            assert_eq!(told(found).map(|()| text_at(found)), first);
            libc::free(found.cast());
        }
        first
    }
}

#[test]
fn a_resolved_path_is_that_of_the_original() {
    let shown = shown();
    for (name, expected) in [
        ("env/near/./file", Ok("env/dir/sub/file")),
        ("env/dir/", Ok("env/dir")),
        ("env/out/secret", Ok("outside/secret")),
        ("outside/../env/data", Ok("env/data")),
        ("app", Ok("app")),
        ("env/none", Err(libc::ENOENT)),
        ("app/none", Err(libc::ENOENT)),
        ("env/data/", Err(libc::ENOTDIR)),
        ("env/loop", Err(libc::ELOOP)),
    ] {
        let expected = expected.map(|path| shown.root().join(path).display().to_string());
        assert_eq!(resolved(&shown.at(name)), expected, "{name}");
    }
    assert_eq!(resolved(c"/"), Ok("/".into()));
    assert_eq!(resolved(&c(&shown.tree().join("env/data"))), Ok(shown.root().join("env/data").display().to_string()));
}

#[test]
fn the_loader_is_led_to_copies() {
    let shown = shown();
    // SAFETY: the names end with a zero; there is no object.
    unsafe {
        assert_eq!(la_version(2), 2);
        let asked = |name: &CStr| {
            let answer = la_objsearch(name.as_ptr(), null_mut(), 1);
            (answer == name.as_ptr(), text_at(answer))
        };
        let copy = shown.tree().join("env/dir/sub/file").display().to_string();
        assert_eq!(asked(&shown.env("near/file")), (false, copy));
        let secret = shown.root().join("outside/secret").display().to_string();
        assert_eq!(asked(&shown.env("out/secret")), (false, secret));
        // Paths that are left to the loader: not staged, with `$ORIGIN` that is not expanded yet, or without a
        // directory.
        for name in [&*shown.at("outside/secret"), c"$ORIGIN/data", c"libc.so.6"] {
            assert!(asked(name).0, "{name:?}");
        }
    }
}

#[test]
fn a_library_is_searched_where_the_loader_would_find_it() {
    const OBJECT: usize = 1;
    let shown = shown();
    let (with, without) = (shown.root().join("env/bin"), shown.root().join("env/dir"));
    let [with, without] = [&with, &without].map(|folder| folder.as_os_str().as_bytes());
    let mut staged = shown.staged(&[]);
    // Each directory with the number of the object that lists it, whether that is the program, and whether it is a
    // `RUNPATH`.
    let mut searched = |search: &[u8], listed: &[(usize, bool, bool, &[u8])]| {
        staged.search = search.to_vec().leak();
        let mut folders = Folders::new();
        for (object, is_main, is_own, folder) in listed {
            folders.add(*object, *is_main, *is_own, folder, b"/none");
        }
        first(&folders, &staged, &mut wireup_redirect::Walk::new(), OBJECT, b"where")
    };
    assert!(searched(b"", &[]) == Has::Nothing);
    assert!(searched(b"", &[(OBJECT, false, false, without)]) == Has::Nothing);
    assert!(searched(b"", &[(OBJECT, false, false, without), (OBJECT, false, false, with)]) == Has::Copy);
    assert!(searched(b"", &[(0, true, false, with)]) == Has::Copy, "the program's `RPATH`");
    assert!(searched(b"", &[(2, false, false, with)]) == Has::Unknown, "whether object 2 led to this one is not known");
    assert!(searched(&[without, b":", with].concat(), &[]) == Has::Copy);
    assert!(searched(b"relative", &[]) == Has::Unknown);
    assert!(searched(b"", &[(OBJECT, false, true, with)]) == Has::Copy);
    assert!(searched(b"", &[(2, false, true, with)]) == Has::Nothing, "a `RUNPATH` is for its own object");
    let runpath = (OBJECT, false, true, without);
    for rpath in [(0, true, false, with), (2, false, false, with)] {
        assert!(searched(b"", &[runpath, rpath]) == Has::Nothing, "a `RUNPATH` disables all `RPATH`s");
    }
    assert!(searched(b"", &[(OBJECT, false, false, b"relative")]) == Has::Unknown);
}

/// If the loader's object for a library is a copy, the object's name becomes that of the original.
#[test]
fn an_object_of_the_loader_gets_the_name_of_the_original() {
    #[repr(C)]
    struct Object(usize, *mut c_char, *const [i64; 2]);
    let shown = shown();
    let end = [0i64; 2];
    for (path, expected) in [
        (shown.tree().join("env/data"), shown.root().join("env/data")),
        (shown.root().join("outside/secret"), shown.root().join("outside/secret")),
    ] {
        let mut name = c(&path).into_bytes_with_nul();
        let (mut object, mut number) = (Object(0, name.as_mut_ptr().cast(), &end), 0);
        // SAFETY: the object's name ends with a zero, and its dynamic section with a null.
        unsafe { crate::audit::la_objopen((&raw mut object).cast(), 0, &mut number) };
        assert_eq!(text(&name), expected.display().to_string());
    }
}
