//! What a call by name is to do: read a copy, use an original, or fail as on a read-only file system.

use crate::kernel;
use crate::staged::{look, names_open_copy, staged};
use core::ffi::{CStr, c_char, c_int};
use wireup_redirect::{Found, Walk};

/// The path to be given to the function that was called, or the error to be returned.
pub enum Use {
    Path(*const c_char),
    Error(c_int),
}

/// For a call that only reads.
///
/// # Safety
/// `path` is null, or ends with a zero.
pub unsafe fn reading(walk: &mut Walk, folder: c_int, path: *const c_char, follows: bool) -> Use {
    // SAFETY: guaranteed by the caller.
    match unsafe { look(walk, folder, path, follows) } {
        Found::Unknown => Use::Path(path),
        Found::Copy => Use::Path(walk.copy().as_ptr()),
        Found::Original | Found::Folder => Use::Path(walk.original().as_ptr()),
        Found::Absent => Use::Error(libc::ENOENT),
    }
}

/// For a call that changes what it names, or makes it (`makes`).
///
/// # Safety
/// As for [`reading`].
pub unsafe fn changing(walk: &mut Walk, folder: c_int, path: *const c_char, follows: bool, makes: bool) -> Use {
    // SAFETY: guaranteed by the caller.
    match unsafe { look(walk, folder, path, follows) } {
        // SAFETY: as above.
        Found::Unknown if unsafe { leads_to_copy(folder, path) } => Use::Error(libc::EROFS),
        Found::Unknown => Use::Path(path),
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

/// For `open`, with the flags to be given to it.
///
/// # Safety
/// As for [`reading`].
pub unsafe fn opening(walk: &mut Walk, folder: c_int, path: *const c_char, flags: &mut c_int) -> Use {
    const NEW: c_int = libc::O_CREAT | libc::O_EXCL;
    let changes = *flags & libc::O_ACCMODE != libc::O_RDONLY || *flags & libc::O_TRUNC != 0;
    let makes = *flags & libc::O_CREAT != 0;
    let follows = *flags & libc::O_NOFOLLOW == 0 && *flags & NEW != NEW;
    if *flags & libc::O_PATH != 0 || !(changes || makes) {
        // SAFETY: guaranteed by the caller.
        return unsafe { reading(walk, folder, path, follows) };
    }
    // SAFETY: as above.
    match unsafe { look(walk, folder, path, follows) } {
        // SAFETY: as above.
        Found::Unknown if changes && unsafe { leads_to_copy(folder, path) } => Use::Error(libc::EROFS),
        Found::Unknown => Use::Path(path),
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

/// Whether a name of which nothing is known leads to a copy after all: through an open folder or file, or because it is
/// too long to be walked.
///
/// # Safety
/// As for [`reading`].
unsafe fn leads_to_copy(folder: c_int, path: *const c_char) -> bool {
    let Some(staged) = staged() else { return false };
    if path.is_null() {
        return staged.has(folder);
    }
    // SAFETY: guaranteed by the caller.
    let text = unsafe { CStr::from_ptr(path) }.to_bytes();
    // SAFETY: as above.
    staged.map.original(text).is_some()
        || unsafe { names_open_copy(path) }
        || (!text.starts_with(b"/") && staged.has(folder))
}
