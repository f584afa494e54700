//! Tests calls that would change a copy, or create something among the copies.

use super::*;
use crate::changes::{
    __xmknod, __xmknodat, chmod, chown, fchmod, fchmodat, fchown, fchownat, fremovexattr, fsetxattr, futimens, futimes,
    futimesat, lchmod, lchown, link, linkat, lremovexattr, lsetxattr, lutimes, mkdir, mkdirat, mkdtemp, mkfifo,
    mkfifoat, mknod, mknodat, mkostemp, mkostemp64, mkostemps, mkostemps64, mkstemp, mkstemp64, mkstemps, mkstemps64,
    remove, removexattr, rename, renameat, renameat2, rmdir, setxattr, symlink, symlinkat, truncate, truncate64,
    unlink, unlinkat, utime, utimensat, utimes,
};
use std::boxed::Box;
use std::ptr::null;
use std::vec;

/// A call with a path, and its name for messages.
type Call = (&'static str, Box<dyn Fn(*const c_char) -> c_int>);

macro_rules! calls {
    ($($name:ident(|$path:ident| $call:expr)),* $(,)?) => {
        // SAFETY: the path and all texts end with a zero, and no other memory is given.
        vec![$((stringify!($name), Box::new(|$path: *const c_char| unsafe { $call }) as Box<dyn Fn(_) -> _>)),*]
    };
}

const USER: u32 = 1;

/// Calls that change an existing file.
fn changing() -> Vec<Call> {
    calls![
        unlink(|path| unlink(path)),
        remove(|path| remove(path)),
        unlinkat(|path| unlinkat(HERE, path, 0)),
        chmod(|path| chmod(path, 0)),
        lchmod(|path| lchmod(path, 0)),
        fchmodat(|path| fchmodat(HERE, path, 0, 0)),
        chown(|path| chown(path, USER, USER)),
        lchown(|path| lchown(path, USER, USER)),
        fchownat(|path| fchownat(HERE, path, USER, USER, 0)),
        truncate(|path| truncate(path, 0)),
        truncate64(|path| truncate64(path, 0)),
        utime(|path| utime(path, null())),
        utimes(|path| utimes(path, null())),
        lutimes(|path| lutimes(path, null())),
        futimesat(|path| futimesat(HERE, path, null())),
        utimensat(|path| utimensat(HERE, path, null(), 0)),
        setxattr(|path| setxattr(path, c"user.key".as_ptr(), null(), 0, 0)),
        lsetxattr(|path| lsetxattr(path, c"user.key".as_ptr(), null(), 0, 0)),
        removexattr(|path| removexattr(path, c"user.key".as_ptr())),
        lremovexattr(|path| lremovexattr(path, c"user.key".as_ptr())),
    ]
}

/// Calls that create a file.
fn making() -> Vec<Call> {
    calls![
        mkdir(|path| mkdir(path, 0o700)),
        mkdirat(|path| mkdirat(HERE, path, 0o700)),
        mkfifo(|path| mkfifo(path, 0o700)),
        mkfifoat(|path| mkfifoat(HERE, path, 0o700)),
        mknod(|path| mknod(path, libc::S_IFREG | 0o600, 0)),
        mknodat(|path| mknodat(HERE, path, libc::S_IFREG | 0o600, 0)),
        xmknod(|path| __xmknod(0, path, libc::S_IFREG | 0o600, &mut 0)),
        xmknodat(|path| __xmknodat(0, HERE, path, libc::S_IFREG | 0o600, &mut 0)),
        symlink(|path| symlink(c"data".as_ptr(), path)),
        symlinkat(|path| symlinkat(c"data".as_ptr(), HERE, path)),
    ]
}

#[test]
fn no_call_changes_a_copy_and_each_reaches_another_file() {
    let shown = shown();
    let before = listing(&shown.tree());
    for (name, call) in changing() {
        for (path, number) in [
            ("env/data", libc::EROFS),
            ("app/run", libc::EROFS),
            ("env/none", libc::ENOENT),
            ("app/none", libc::ENOENT),
            ("env/data/none", libc::ENOTDIR),
            ("none/none", libc::ENOENT),
        ] {
            assert_eq!((call(shown.at(path).as_ptr()), last_error()), (-1, number), "{name} {path}");
        }
        // With the copy's own path, and with the path of a file that is not staged.
        assert_eq!((call(c(&shown.tree().join("env/data")).as_ptr()), last_error()), (-1, libc::EROFS), "{name}");
        let other = shown.root().join("outside").join(name);
        shown.write(&other, "other", 0o600);
        let result = call(shown.env(&format!("out/{name}")).as_ptr());
        let is_refused_by_the_system = [libc::EPERM, libc::ENOTSUP, libc::ENODATA].contains(&last_error())
            && (name.contains("xattr") || name.contains("own"));
        assert!(result == 0 || is_refused_by_the_system, "{name}: {}", last_error());
    }
    assert_eq!(listing(&shown.tree()), before);
}

#[test]
fn nothing_is_made_among_copies() {
    let shown = shown();
    let before = listing(&shown.tree());
    for (name, call) in making() {
        for (path, number) in [
            ("env/new", libc::EROFS),
            ("env/near/new", libc::EROFS),
            ("app/new", libc::EROFS),
            ("env/data", libc::EEXIST),
            ("env/dir", libc::EEXIST),
            ("app", libc::EEXIST),
            ("env/data/new", libc::ENOTDIR),
        ] {
            assert_eq!((call(shown.at(path).as_ptr()), last_error()), (-1, number), "{name} {path}");
        }
        assert_eq!(call(shown.env(&format!("out/made-by-{name}")).as_ptr()), 0, "{name}: {}", last_error());
        assert!(shown.root().join("outside").join(format!("made-by-{name}")).symlink_metadata().is_ok(), "{name}");
    }
    // SAFETY: the paths end with a zero.
    unsafe {
        fails(rmdir(shown.env("dir").as_ptr()), libc::EROFS);
        fails(rmdir(shown.env("none").as_ptr()), libc::ENOENT);
    }
    assert_eq!(listing(&shown.tree()), before);
}

#[test]
fn open_copies_are_not_changed_either() {
    let shown = shown();
    let folder = shown.open_env();
    let folder = folder.number();
    // SAFETY: the names end with a zero, and no memory is given.
    unsafe {
        let file = Fd::new(crate::files::open(shown.env("data").as_ptr(), libc::O_RDONLY, 0));
        let of_kernel = CString::new(format!("/proc/self/fd/{}", file.number())).expect("no zeros");
        let name = of_kernel.as_ptr();
        fails(unlinkat(folder, c"data".as_ptr(), 0), libc::EROFS);
        fails(unlinkat(folder, c"dir/sub".as_ptr(), libc::AT_REMOVEDIR), libc::EROFS);
        fails(mkdirat(folder, c"new".as_ptr(), 0o700), libc::EROFS);
        fails(symlinkat(c"data".as_ptr(), folder, c"new".as_ptr()), libc::EROFS);
        fails(fchmodat(folder, c"data".as_ptr(), 0, 0), libc::EROFS);
        fails(fchownat(folder, c"data".as_ptr(), USER, USER, 0), libc::EROFS);
        fails(fchownat(folder, c"".as_ptr(), USER, USER, libc::AT_EMPTY_PATH), libc::EROFS);
        fails(utimensat(folder, c"data".as_ptr(), null(), 0), libc::EROFS);
        fails(utimensat(file.number(), null(), null(), 0), libc::EROFS);
        fails(truncate(name, 0), libc::EROFS);
        fails(chmod(name, 0), libc::EROFS);
        fails(fchmod(file.number(), 0), libc::EROFS);
        fails(fchmod(folder, 0), libc::EROFS);
        fails(fchown(file.number(), USER, USER), libc::EROFS);
        fails(futimens(file.number(), null()), libc::EROFS);
        fails(futimes(file.number(), null()), libc::EROFS);
        fails(fsetxattr(file.number(), c"user.key".as_ptr(), null(), 0, 0), libc::EROFS);
        fails(fremovexattr(file.number(), c"user.key".as_ptr()), libc::EROFS);
        let other = Fd::new(crate::files::open(shown.env("left").as_ptr(), libc::O_RDONLY, 0));
        assert_eq!((fchmod(other.number(), 0o640), futimens(other.number(), null())), (0, 0));
        fails(fchmod(-5, 0), libc::EBADF);
    }
}

#[test]
fn no_copy_gets_another_name_and_no_file_the_name_of_a_copy() {
    let shown = shown();
    let before = listing(&shown.tree());
    let (data, new, none) = (shown.env("data"), shown.env("new"), shown.env("none"));
    let elsewhere = shown.at("outside/linked");
    let (folder, plain) = (shown.open_env(), shown.at("outside"));
    let other = shown.at("outside/secret");
    let part = c"data".as_ptr();
    // SAFETY: all names end with a zero.
    unsafe {
        let file = Fd::new(crate::files::open(data.as_ptr(), libc::O_RDONLY, 0));
        let of_kernel = CString::new(format!("/proc/self/fd/{}", file.number())).expect("no zeros");
        let follows = libc::AT_SYMLINK_FOLLOW;
        let folder = folder.number();
        fails(link(data.as_ptr(), new.as_ptr()), libc::EXDEV);
        fails(link(data.as_ptr(), elsewhere.as_ptr()), libc::EXDEV);
        fails(linkat(folder, part, folder, c"new".as_ptr(), 0), libc::EXDEV);
        fails(linkat(folder, part, HERE, elsewhere.as_ptr(), 0), libc::EXDEV);
        fails(linkat(HERE, of_kernel.as_ptr(), HERE, elsewhere.as_ptr(), follows), libc::EXDEV);
        fails(link(other.as_ptr(), new.as_ptr()), libc::EROFS);
        fails(link(none.as_ptr(), elsewhere.as_ptr()), libc::EXDEV);
        fails(rename(data.as_ptr(), new.as_ptr()), libc::EROFS);
        fails(rename(data.as_ptr(), elsewhere.as_ptr()), libc::EROFS);
        fails(rename(other.as_ptr(), new.as_ptr()), libc::EROFS);
        fails(rename(other.as_ptr(), shown.at("app/new").as_ptr()), libc::EROFS);
        fails(rename(shown.at("app/none").as_ptr(), elsewhere.as_ptr()), libc::ENOENT);
        fails(renameat(folder, part, folder, c"new".as_ptr()), libc::EROFS);
        fails(renameat(HERE, other.as_ptr(), folder, c"new".as_ptr()), libc::EROFS);
        fails(renameat2(folder, part, HERE, elsewhere.as_ptr(), 0), libc::EROFS);
        // A file outside, reached through a directory of copies: the call cannot use that path.
        fails(renameat(folder, c"out/secret".as_ptr(), HERE, elsewhere.as_ptr()), libc::EXDEV);
        assert_eq!(link(other.as_ptr(), elsewhere.as_ptr()), 0);
        assert_eq!(rename(elsewhere.as_ptr(), shown.at("outside/moved").as_ptr()), 0);
        fails(rename(elsewhere.as_ptr(), plain.as_ptr()), libc::ENOENT);
    }
    assert_eq!(listing(&shown.tree()), before);
}

#[test]
fn no_temporary_file_is_made_among_copies() {
    let shown = shown();
    let suffix = |name: &str| shown.env(name).into_raw();
    // SAFETY: the templates end with a zero, may be written to, and are freed.
    unsafe {
        let made = |template: *mut c_char, make: unsafe fn(*mut c_char) -> c_int| {
            let result = (make(template), last_error());
            drop(CString::from_raw(template));
            result
        };
        for result in [
            made(suffix("newXXXXXX"), |template| mkstemp(template)),
            made(suffix("newXXXXXX"), |template| mkstemp64(template)),
            made(suffix("dir/newXXXXXX"), |template| mkostemp(template, libc::O_CLOEXEC)),
            made(suffix("dir/newXXXXXX"), |template| mkostemp64(template, libc::O_CLOEXEC)),
            made(suffix("newXXXXXX.c"), |template| mkstemps(template, 2)),
            made(suffix("newXXXXXX.c"), |template| mkstemps64(template, 2)),
            made(suffix("near/newXXXXXX.c"), |template| mkostemps(template, 2, libc::O_CLOEXEC)),
            made(suffix("near/newXXXXXX.c"), |template| mkostemps64(template, 2, libc::O_CLOEXEC)),
            made(suffix("newXXXXXX"), |template| if mkdtemp(template).is_null() { -1 } else { 0 }),
        ] {
            assert_eq!(result, (-1, libc::EROFS));
        }
        let template = shown.at("outside/newXXXXXX").into_raw();
        drop(Fd::new(mkstemp(template)));
        let name = CString::from_raw(template);
        assert!(Path::new(name.to_str().expect("text")).is_file() && !name.as_bytes().ends_with(b"XXXXXX"));
    }
}

/// Names, modes and contents of the entries of a folder.
fn listing(folder: &Path) -> Vec<String> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder").flatten() {
        let (path, meta) = (entry.path(), entry.metadata().expect("its state"));
        let bits = meta.permissions().mode();
        if meta.is_dir() {
            all.extend(listing(&path));
        }
        let content = if meta.is_file() { fs::read(&path).expect("a copy").len() } else { 0 };
        all.push(format!("{} {bits:o} {content}", path.display()));
    }
    all.sort_unstable();
    all
}
