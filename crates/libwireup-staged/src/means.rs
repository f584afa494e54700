//! Decides what a call with a path does: read the copy, use the original, or fail as on a read-only file system.

use crate::arguments::CText;
use crate::kernel;
use crate::staged::{look, names_open_copy, staged};
use core::ffi::{c_char, c_int};
use wireup_redirect::{Found, Walk};

/// The path that the C library's function is called with, or the error that is returned without a call.
pub enum Use {
    Path(*const c_char),
    Error(c_int),
}

/// Decides for a call that only reads.
pub fn reading(walk: &mut Walk, folder: c_int, path: CText<'_>, follows: bool) -> Use {
    match look(walk, folder, path, follows) {
        Found::Unknown => Use::Path(path.as_ptr()),
        Found::Copy => Use::Path(walk.copy().as_ptr()),
        Found::Original | Found::Folder => Use::Path(walk.original().as_ptr()),
        Found::Absent => Use::Error(libc::ENOENT),
    }
}

/// Decides for a call that changes the file at `path`, or creates it (`makes`).
pub fn changing(walk: &mut Walk, folder: c_int, path: CText<'_>, follows: bool, makes: bool) -> Use {
    match look(walk, folder, path, follows) {
        Found::Unknown if leads_to_copy(folder, path) => Use::Error(libc::EROFS),
        Found::Unknown => Use::Path(path.as_ptr()),
        Found::Original => Use::Path(walk.original().as_ptr()),
        Found::Folder if makes => Use::Error(libc::EEXIST),
        Found::Folder => Use::Path(walk.original().as_ptr()),
        Found::Absent => Use::Error(if makes { libc::EROFS } else { libc::ENOENT }),
        Found::Copy => Use::Error(match kernel::exists(walk.copy()) {
            Ok(()) if makes => libc::EEXIST,
            Ok(()) => libc::EROFS,
            Err(libc::ENOENT) if makes => libc::EROFS,
            Err(number) => number,
        }),
    }
}

/// Decides for `open`; may change the `flags` that the C library's `open` gets.
pub fn opening(walk: &mut Walk, folder: c_int, path: CText<'_>, flags: &mut c_int) -> Use {
    const NEW: c_int = libc::O_CREAT | libc::O_EXCL;
    let changes = *flags & libc::O_ACCMODE != libc::O_RDONLY || *flags & libc::O_TRUNC != 0;
    let makes = *flags & libc::O_CREAT != 0;
    let follows = *flags & libc::O_NOFOLLOW == 0 && *flags & NEW != NEW;
    if *flags & libc::O_PATH != 0 || !(changes || makes) {
        return reading(walk, folder, path, follows);
    }
    match look(walk, folder, path, follows) {
        Found::Unknown if changes && leads_to_copy(folder, path) => Use::Error(libc::EROFS),
        Found::Unknown => Use::Path(path.as_ptr()),
        Found::Original | Found::Folder => Use::Path(walk.original().as_ptr()),
        Found::Absent => Use::Error(if makes { libc::EROFS } else { libc::ENOENT }),
        Found::Copy => match kernel::exists(walk.copy()) {
            Ok(()) if *flags & NEW == NEW => Use::Error(libc::EEXIST),
            Ok(()) if changes => Use::Error(libc::EROFS),
            Ok(()) => {
                *flags &= !libc::O_CREAT;
                Use::Path(walk.copy().as_ptr())
            }
            Err(libc::ENOENT) if makes => Use::Error(libc::EROFS),
            Err(number) => Use::Error(number),
        },
    }
}

/// Whether a path that `look` could not resolve leads to a copy after all: through an open directory or file, or
/// because the path is too long for `look`.
fn leads_to_copy(folder: c_int, path: CText<'_>) -> bool {
    let Some(staged) = staged() else { return false };
    let Some(text) = path.bytes() else { return staged.has(folder) };
    staged.map.original(text).is_some() || names_open_copy(path) || (!text.starts_with(b"/") && staged.has(folder))
}
