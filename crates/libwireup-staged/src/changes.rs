//! Replaces C functions that change the file at a path, so that they never change a copy.

use crate::arguments::{Argument, CText, interposed};
use crate::means::{Use, changing};
use crate::real::{call_real, fail, null};
use crate::staged::{look, names_open_copy, staged};
use core::ffi::{c_char, c_int, c_long, c_uint, c_void};
use wireup_redirect::{Found, Walk};

type Mode = libc::mode_t;

const HERE: c_int = libc::AT_FDCWD;
const NO_FOLLOW: c_int = libc::AT_SYMLINK_NOFOLLOW;

/// Replaces a function that changes one file. `[path, …]`: the path, the directory to which it is relative, whether a
/// final symbolic link is followed, and whether the call creates a file.
macro_rules! changes {
    ($(fn $name:ident(
        $($before:ident: $before_type:ty,)*
        [$path:ident, $folder:expr, $follows:expr, $makes:expr]
        $(, $after:ident: $after_type:ty)*
    );)*) => {$(
        interposed! {
            fn $name($($before: $before_type,)* $path: CText<'_> $(, $after: $after_type)*) -> c_int {
                let mut walk = Walk::new();
                match changing(&mut walk, $folder, $path, $follows, $makes) {
                    Use::Path(path) => call_real!($name(
                        $($before.to_c() => <$before_type as Argument>::C,)*
                        path => *const c_char
                        $(, $after.to_c() => <$after_type as Argument>::C)*
                    ) -> c_int, fail),
                    Use::Error(number) => fail(number),
                }
            }
        }
    )*};
}

changes! {
    fn unlink([path, HERE, false, false]);
    fn rmdir([path, HERE, false, false]);
    fn remove([path, HERE, false, false]);
    fn unlinkat(folder: c_int, [path, folder, false, false], flags: c_int);
    fn mkdir([path, HERE, false, true], mode: Mode);
    fn mkdirat(folder: c_int, [path, folder, false, true], mode: Mode);
    fn mkfifo([path, HERE, false, true], mode: Mode);
    fn mkfifoat(folder: c_int, [path, folder, false, true], mode: Mode);
    fn mknod([path, HERE, false, true], mode: Mode, device: u64);
    fn mknodat(folder: c_int, [path, folder, false, true], mode: Mode, device: u64);
    fn __xmknod(version: c_int, [path, HERE, false, true], mode: Mode, device: *mut u64);
    fn __xmknodat(version: c_int, folder: c_int, [path, folder, false, true], mode: Mode, device: *mut u64);
    fn symlink(target: CText<'_>, [path, HERE, false, true]);
    fn symlinkat(target: CText<'_>, folder: c_int, [path, folder, false, true]);
    fn chmod([path, HERE, true, false], mode: Mode);
    fn lchmod([path, HERE, false, false], mode: Mode);
    fn fchmodat(folder: c_int, [path, folder, flags & NO_FOLLOW == 0, false], mode: Mode, flags: c_int);
    fn chown([path, HERE, true, false], user: c_uint, group: c_uint);
    fn lchown([path, HERE, false, false], user: c_uint, group: c_uint);
    fn fchownat(
        folder: c_int, [path, folder, flags & NO_FOLLOW == 0, false], user: c_uint, group: c_uint, flags: c_int
    );
    fn truncate([path, HERE, true, false], len: c_long);
    fn truncate64([path, HERE, true, false], len: i64);
    fn utime([path, HERE, true, false], times: *const c_void);
    fn utimes([path, HERE, true, false], times: *const c_void);
    fn lutimes([path, HERE, false, false], times: *const c_void);
    fn futimesat(folder: c_int, [path, folder, true, false], times: *const c_void);
    fn utimensat(folder: c_int, [path, folder, flags & NO_FOLLOW == 0, false], times: *const c_void, flags: c_int);
    fn setxattr([path, HERE, true, false], key: CText<'_>, value: *const c_void, len: usize, flags: c_int);
    fn lsetxattr([path, HERE, false, false], key: CText<'_>, value: *const c_void, len: usize, flags: c_int);
    fn removexattr([path, HERE, true, false], key: CText<'_>);
    fn lremovexattr([path, HERE, false, false], key: CText<'_>);
}

/// Replaces a function that changes the metadata of an open file, which works even if the file is open read-only.
macro_rules! changes_open {
    ($(fn $name:ident(fd: c_int $(, $after:ident: $after_type:ty)*);)*) => {$(
        interposed! {
            fn $name(fd: c_int $(, $after: $after_type)*) -> c_int {
                if staged().is_some_and(|staged| staged.has(fd)) {
                    return fail(libc::EROFS);
                }
                call_real!($name(fd => c_int $(, $after.to_c() => <$after_type as Argument>::C)*) -> c_int, fail)
            }
        }
    )*};
}

changes_open! {
    fn fchmod(fd: c_int, mode: Mode);
    fn fchown(fd: c_int, user: c_uint, group: c_uint);
    fn futimes(fd: c_int, times: *const c_void);
    fn futimens(fd: c_int, times: *const c_void);
    fn fsetxattr(fd: c_int, key: CText<'_>, value: *const c_void, len: usize, flags: c_int);
    fn fremovexattr(fd: c_int, key: CText<'_>);
}

/// What a call with two paths, such as `rename` or `link`, does with one of them.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    /// The file at this path is moved away.
    Moved,
    /// The file at this path gets a second name. `follows`: a symbolic link at the path is followed.
    Linked { follows: bool },
    /// The path becomes a new name for the file at the other path.
    Name,
}

/// Whether a call with two paths may use this path in this role; otherwise the error number.
#[inline(never)]
fn permitted(folder: c_int, path: CText<'_>, role: Role) -> Result<(), c_int> {
    let mut walk = Walk::new();
    let follows = role == Role::Linked { follows: true };
    let found = look(&mut walk, folder, path, follows);
    let Some(staged) = staged() else { return Ok(()) };
    let is_within = || !path.is_absolute() && staged.has(folder);
    match (found, role) {
        (Found::Copy, Role::Linked { .. }) => Err(libc::EXDEV),
        (Found::Copy | Found::Absent, Role::Moved | Role::Linked { .. }) => {
            Err(if found == Found::Absent { libc::ENOENT } else { libc::EROFS })
        }
        (Found::Copy | Found::Absent, Role::Name) => Err(libc::EROFS),
        // A file outside the copies was reached by a path relative to a directory of copies: the call cannot use it.
        (Found::Unknown | Found::Original | Found::Folder, _) if is_within() => Err(libc::EXDEV),
        (Found::Unknown, _) if names_open_copy(path) => Err(libc::EXDEV),
        (Found::Unknown | Found::Original | Found::Folder, _) => Ok(()),
    }
}

/// Replaces a function that changes two files.
macro_rules! changes_two {
    ($(fn $name:ident(
        $($from_folder:ident: c_int,)? [$from:ident, $from_begins:expr, $role:expr],
        $($to_folder:ident: c_int,)? [$to:ident, $to_begins:expr] $(, $flags:ident: $flags_type:ty)?
    );)*) => {$(
        interposed! {
            fn $name(
                $($from_folder: c_int,)? $from: CText<'_>,
                $($to_folder: c_int,)? $to: CText<'_> $(, $flags: $flags_type)?
            ) -> c_int {
                let permitted = permitted($from_begins, $from, $role)
                    .and_then(|()| permitted($to_begins, $to, Role::Name));
                match permitted {
                    Ok(()) => call_real!($name(
                        $($from_folder => c_int,)? $from.as_ptr() => *const c_char,
                        $($to_folder => c_int,)? $to.as_ptr() => *const c_char $(, $flags => $flags_type)?
                    ) -> c_int, fail),
                    Err(number) => fail(number),
                }
            }
        }
    )*};
}

changes_two! {
    fn rename([from, HERE, Role::Moved], [to, HERE]);
    fn renameat(from_folder: c_int, [from, from_folder, Role::Moved], to_folder: c_int, [to, to_folder]);
    fn renameat2(
        from_folder: c_int, [from, from_folder, Role::Moved], to_folder: c_int, [to, to_folder], flags: c_uint
    );
    fn link([from, HERE, Role::Linked { follows: false }], [to, HERE]);
    fn linkat(
        from_folder: c_int,
        [from, from_folder, Role::Linked { follows: flags & libc::AT_SYMLINK_FOLLOW != 0 }],
        to_folder: c_int, [to, to_folder], flags: c_int
    );
}

/// The error, if a file named after this template would be a copy, or would lie in a directory of copies.
#[inline(never)]
fn refused(path: CText<'_>) -> Option<c_int> {
    let mut walk = Walk::new();
    // An existing file with the template's name does not matter, since the name will change: the directory decides.
    match changing(&mut walk, libc::AT_FDCWD, path, false, true) {
        Use::Error(libc::EEXIST) => Some(libc::EROFS),
        Use::Error(number) => Some(number),
        // The C library must fill in the caller's template, so the path cannot be replaced; the kernel follows its
        // links.
        Use::Path(_) => None,
    }
}

/// Replaces a function that creates a file or directory with a unique name.
macro_rules! makes {
    ($(fn $name:ident(path $(, $after:ident)*) -> $result:ty, $fail:path;)*) => {$(
        interposed! {
            fn $name(path: CText<'_> $(, $after: c_int)*) -> $result {
                match refused(path) {
                    Some(number) => $fail(number),
                    None => call_real!($name(
                        path.as_ptr().cast_mut() => *mut c_char $(, $after => c_int)*
                    ) -> $result, $fail),
                }
            }
        }
    )*};
}

makes! {
    fn mkstemp(path) -> c_int, fail;
    fn mkstemp64(path) -> c_int, fail;
    fn mkostemp(path, flags) -> c_int, fail;
    fn mkostemp64(path, flags) -> c_int, fail;
    fn mkstemps(path, suffix) -> c_int, fail;
    fn mkstemps64(path, suffix) -> c_int, fail;
    fn mkostemps(path, suffix, flags) -> c_int, fail;
    fn mkostemps64(path, suffix, flags) -> c_int, fail;
    fn mkdtemp(path) -> *mut c_char, null;
}
