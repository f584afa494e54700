//! Functions of the C library that answer with a path: it is that of the original. The working folder is always an
//! original.

use crate::kernel;
use crate::means::{Use, reading};
use crate::real::{self, real};
use crate::staged::{forget, look, original, staged};
use core::ffi::{CStr, c_char, c_int};
use core::ptr;
use wireup_redirect::{Found, Text, Walk};

/// # Safety
/// As for the C library's function of this name.
#[unsafe(no_mangle)]
unsafe extern "C" fn readlink(path: *const c_char, into: *mut c_char, len: usize) -> isize {
    // SAFETY: guaranteed by the caller.
    unsafe { readlinkat(libc::AT_FDCWD, path, into, len) }
}

/// # Safety
/// As for the C library's function of this name.
#[unsafe(no_mangle)]
unsafe extern "C" fn __readlink_chk(path: *const c_char, into: *mut c_char, len: usize, room: usize) -> isize {
    // SAFETY: guaranteed by the caller: no more than the memory that it has.
    unsafe { readlinkat(libc::AT_FDCWD, path, into, len.min(room)) }
}

/// # Safety
/// As for the C library's function of this name.
#[unsafe(no_mangle)]
unsafe extern "C" fn __readlinkat_chk(
    folder: c_int,
    path: *const c_char,
    into: *mut c_char,
    len: usize,
    room: usize,
) -> isize {
    // SAFETY: as above.
    unsafe { readlinkat(folder, path, into, len.min(room)) }
}

/// # Safety
/// As for the C library's function of this name.
#[unsafe(no_mangle)]
unsafe extern "C" fn readlinkat(folder: c_int, path: *const c_char, into: *mut c_char, len: usize) -> isize {
    let mut walk = Walk::new();
    // SAFETY: guaranteed by the caller.
    let used = match unsafe { look(&mut walk, folder, path, false) } {
        // SAFETY: as above.
        Found::Unknown if unsafe { is_of_kernel(path) } => {
            // SAFETY: as above.
            if let Some(len) = unsafe { read_link_of_kernel(path, into, len) } {
                return len;
            }
            path
        }
        Found::Unknown => path,
        Found::Copy => walk.copy().as_ptr(),
        Found::Original => walk.original().as_ptr(),
        Found::Folder => return real::fail(libc::EINVAL) as isize,
        Found::Absent => return real::fail(libc::ENOENT) as isize,
    };
    // SAFETY: guaranteed by the caller.
    real::returned(unsafe { kernel::call(libc::SYS_readlinkat, [folder as usize, used as usize, into as usize, len]) })
}

/// # Safety
/// `path` is null, or ends with a zero.
unsafe fn is_of_kernel(path: *const c_char) -> bool {
    // SAFETY: guaranteed by the caller.
    !path.is_null() && unsafe { CStr::from_ptr(path) }.to_bytes().starts_with(b"/proc/")
}

/// The original of what the kernel says about a copy: the program that runs, a file that is open. `None`: it is no
/// copy.
///
/// # Safety
/// As for `readlink`.
#[inline(never)]
unsafe fn read_link_of_kernel(path: *const c_char, into: *mut c_char, len: usize) -> Option<isize> {
    let mut target = Text::new();
    // SAFETY: guaranteed by the caller.
    let path = unsafe { CStr::from_ptr(path) };
    target.fill(|into| usize::try_from(kernel::read_link(path, into)).ok())?;
    let target = original(target.as_bytes())?;
    let fits = target.len().min(len);
    // SAFETY: the caller's memory has `len` bytes.
    unsafe { ptr::copy_nonoverlapping(target.as_ptr(), into.cast(), fits) };
    Some(fits as isize)
}

/// # Safety
/// As for the C library's function of this name.
#[unsafe(no_mangle)]
unsafe extern "C" fn realpath(path: *const c_char, into: *mut c_char) -> *mut c_char {
    let mut walk = Walk::new();
    // SAFETY: guaranteed by the caller.
    let found = unsafe { look(&mut walk, libc::AT_FDCWD, path, true) };
    let used = match found {
        Found::Unknown => path,
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
            // SAFETY: the caller's memory has the length of the longest path; our own is freed by the caller.
            return unsafe { put(text, into) };
        }
    };
    let real = real!(c"realpath").get();
    if real.is_null() {
        return null(libc::ENOSYS);
    }
    // SAFETY: the C library's function of this name has these parameters.
    let real: unsafe extern "C" fn(*const c_char, *mut c_char) -> *mut c_char = unsafe { core::mem::transmute(real) };
    // SAFETY: guaranteed by the caller.
    let found = unsafe { real(used, into) };
    if !found.is_null() {
        // SAFETY: the C library has written it, with a zero at its end.
        let text = unsafe { CStr::from_ptr(found) }.to_bytes();
        if let Some(text) = original(text) {
            let len = text.len();
            // SAFETY: it is the end of the same memory, with the zero.
            unsafe { ptr::copy(text.as_ptr(), found.cast(), len + 1) };
        }
    }
    found
}

/// # Safety
/// `into` is null, or memory for a path of any length.
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

fn null(number: c_int) -> *mut c_char {
    real::fail(number);
    ptr::null_mut()
}

/// # Safety
/// As for the C library's function of this name.
#[unsafe(no_mangle)]
unsafe extern "C" fn __realpath_chk(path: *const c_char, into: *mut c_char, _room: usize) -> *mut c_char {
    // SAFETY: guaranteed by the caller, whose memory has the length of the longest path.
    unsafe { realpath(path, into) }
}

/// # Safety
/// As for the C library's function of this name.
#[unsafe(no_mangle)]
unsafe extern "C" fn canonicalize_file_name(path: *const c_char) -> *mut c_char {
    // SAFETY: guaranteed by the caller.
    unsafe { realpath(path, ptr::null_mut()) }
}

/// A working folder among the copies would be one for static programs too, which may write there: it is the original.
///
/// # Safety
/// As for the C library's function of this name.
#[unsafe(no_mangle)]
unsafe extern "C" fn chdir(path: *const c_char) -> c_int {
    let mut walk = Walk::new();
    // SAFETY: guaranteed by the caller.
    let used = match unsafe { reading(&mut walk, libc::AT_FDCWD, path, true) } {
        Use::Error(number) => return real::fail(number),
        Use::Path(used) if used == walk.copy().as_ptr() => walk.original().as_ptr(),
        Use::Path(used) => used,
    };
    // SAFETY: the kernel checks the path.
    real::returned(unsafe { kernel::call(libc::SYS_chdir, [used as usize, 0, 0, 0]) }) as c_int
}

/// # Safety
/// As for the C library's function of this name.
#[unsafe(no_mangle)]
unsafe extern "C" fn chroot(path: *const c_char) -> c_int {
    // SAFETY: the kernel checks the path.
    let result = unsafe { kernel::call(libc::SYS_chroot, [path as usize, 0, 0, 0]) };
    if result == 0 {
        forget();
    }
    real::returned(result) as c_int
}

/// # Safety
/// As for the C library's function of this name.
#[unsafe(no_mangle)]
unsafe extern "C" fn fchdir(fd: c_int) -> c_int {
    let mut path = Text::new();
    if let Some(staged) = staged()
        && path.fill(|into| kernel::path_of(fd, into)).is_some()
        && staged.map.original(path.as_bytes()).is_some_and(|original| !original.is_empty())
    {
        let original = path.from(staged.map.tree().len()).as_ptr();
        // SAFETY: it ends with a zero.
        return real::returned(unsafe { kernel::call(libc::SYS_chdir, [original as usize, 0, 0, 0]) }) as c_int;
    }
    // SAFETY: the kernel checks the descriptor.
    real::returned(unsafe { kernel::call(libc::SYS_fchdir, [fd as usize, 0, 0, 0]) }) as c_int
}
