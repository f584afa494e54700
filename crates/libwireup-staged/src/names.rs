//! Replaces C functions that return a path, so that they return the original's and not its copy's. The working
//! directory is always an original folder.

use crate::arguments::{CText, interposed};
use crate::kernel::{self, Harmless, harmless};
use crate::means::{Use, reading};
use crate::real::{self, call_real, fail, null};
use crate::staged::{forget, look, original, staged};
use core::ffi::{CStr, c_char, c_int};
use core::ptr;
use wireup_redirect::{Found, Text, Walk};

interposed! {
    fn readlink(path: CText<'_>, into: *mut c_char, len: usize) -> isize {
        // SAFETY: the caller's memory has `len` bytes.
        unsafe { read_link(libc::AT_FDCWD, path, into, len) }
    }

    fn __readlink_chk(path: CText<'_>, into: *mut c_char, len: usize, room: usize) -> isize {
        // SAFETY: the caller's memory has `room` bytes.
        unsafe { read_link(libc::AT_FDCWD, path, into, len.min(room)) }
    }

    fn __readlinkat_chk(folder: c_int, path: CText<'_>, into: *mut c_char, len: usize, room: usize) -> isize {
        // SAFETY: the caller's memory has `room` bytes.
        unsafe { read_link(folder, path, into, len.min(room)) }
    }

    fn readlinkat(folder: c_int, path: CText<'_>, into: *mut c_char, len: usize) -> isize {
        // SAFETY: the caller's memory has `len` bytes.
        unsafe { read_link(folder, path, into, len) }
    }
}

/// # Safety
/// `into` is memory of `len` bytes.
unsafe fn read_link(folder: c_int, path: CText<'_>, into: *mut c_char, len: usize) -> isize {
    let mut walk = Walk::new();
    let used = match look(&mut walk, folder, path, false) {
        Found::Unknown => {
            let mut target = Text::new();
            if let Some(target) = target_told_by_kernel(path, &mut target) {
                let fits = target.len().min(len);
                // SAFETY: guaranteed by the caller; `target` does not overlap the caller's memory.
                unsafe { ptr::copy_nonoverlapping(target.as_ptr(), into.cast(), fits) };
                return fits as isize;
            }
            path.as_ptr()
        }
        Found::Copy => walk.copy().as_ptr(),
        Found::Original => walk.original().as_ptr(),
        Found::Folder => return fail(libc::EINVAL) as isize,
        Found::Absent => return fail(libc::ENOENT) as isize,
    };
    // SAFETY: guaranteed by the caller.
    real::returned(unsafe { kernel::read_link_for_c(folder, used, into, len) })
}

/// The original's path for a `/proc` link that leads to a copy, such as `/proc/self/exe`. `None`: it leads to no copy.
#[inline(never)]
fn target_told_by_kernel<'t>(path: CText<'_>, target: &'t mut Text) -> Option<&'t [u8]> {
    let path = path.text().filter(|path| path.to_bytes().starts_with(b"/proc/"))?;
    target.fill(|into| kernel::read_link(path, into))?;
    original(target.as_bytes())
}

interposed! {
    fn realpath(path: CText<'_>, into: *mut c_char) -> *mut c_char {
        // SAFETY: the caller's memory has room for `PATH_MAX` bytes, or `into` is null.
        unsafe { real_path(path, into) }
    }

    fn __realpath_chk(path: CText<'_>, into: *mut c_char, _room: usize) -> *mut c_char {
        // SAFETY: the caller's memory has room for `PATH_MAX` bytes, or `into` is null.
        unsafe { real_path(path, into) }
    }

    fn canonicalize_file_name(path: CText<'_>) -> *mut c_char {
        // SAFETY: `into` is null, so no memory of the caller is written.
        unsafe { real_path(path, ptr::null_mut()) }
    }
}

/// # Safety
/// `into` is null, or memory for the longest path.
unsafe fn real_path(path: CText<'_>, into: *mut c_char) -> *mut c_char {
    let mut walk = Walk::new();
    let found = look(&mut walk, libc::AT_FDCWD, path, true);
    let used = match found {
        Found::Unknown => path.as_ptr(),
        Found::Original => walk.original().as_ptr(),
        Found::Absent => return null(libc::ENOENT),
        Found::Folder | Found::Copy => {
            if found == Found::Copy
                && let Err(number) = kernel::exists(walk.copy())
            {
                return null(number);
            }
            let text = walk.original().to_bytes();
            let text = text.strip_suffix(b"/").filter(|text| !text.is_empty()).unwrap_or(text);
            // SAFETY: guaranteed by the caller.
            return unsafe { put(text, into) };
        }
    };
    let found = call_real!(realpath(used => *const c_char, into => *mut c_char) -> *mut c_char, null);
    if !found.is_null() {
        // SAFETY: `realpath` has written a text there that ends with a zero; its tail, the original's path, moves to
        // the front.
        unsafe {
            if let Some(text) = original(CStr::from_ptr(found).to_bytes()) {
                ptr::copy(text.as_ptr(), found.cast(), text.len() + 1);
            }
        }
    }
    found
}

/// # Safety
/// `into` is null, or memory for the longest path.
unsafe fn put(text: &[u8], into: *mut c_char) -> *mut c_char {
    let into = if into.is_null() { real::allocate(text.len() + 1) } else { into };
    if into.is_null() {
        return null(libc::ENOMEM);
    }
    // SAFETY: guaranteed by the caller, or just allocated with this length.
    unsafe {
        ptr::copy_nonoverlapping(text.as_ptr(), into.cast(), text.len());
        into.add(text.len()).write(0);
    }
    into
}

interposed! {
    /// Changes to the original directory instead of its copy: static programs started there use the working directory
    /// without this library, and could write to the copies.
    fn chdir(path: CText<'_>) -> c_int {
        let mut walk = Walk::new();
        let used = match reading(&mut walk, libc::AT_FDCWD, path, true) {
            Use::Error(number) => return fail(number),
            Use::Path(used) if used == walk.copy().as_ptr() => walk.original().as_ptr(),
            Use::Path(used) => used,
        };
        real::returned(harmless(Harmless::ChangeFolder, [used as usize, 0, 0, 0])) as c_int
    }

    fn chroot(path: CText<'_>) -> c_int {
        let result = harmless(Harmless::ChangeRoot, [path.as_ptr() as usize, 0, 0, 0]);
        if result == 0 {
            forget();
        }
        real::returned(result) as c_int
    }

    fn fchdir(fd: c_int) -> c_int {
        let mut path = Text::new();
        if let Some(original) = staged().and_then(|staged| staged.original_of(fd, &mut path)) {
            return real::returned(harmless(Harmless::ChangeFolder, [original.as_ptr() as usize, 0, 0, 0])) as c_int;
        }
        real::returned(harmless(Harmless::ChangeFolderToOpen, [fd as usize, 0, 0, 0])) as c_int
    }
}
