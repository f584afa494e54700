//! Functions of the C library that look at files by name.

use crate::kernel;
use crate::paths::LEN_MAX;
use crate::real::{self, Real};
use crate::staged::{instead, instead_at, original};
use core::ffi::{CStr, c_char, c_int, c_uint, c_void};

type Mode = libc::mode_t;

/// What writes, or makes a file, gets the original.
fn writes(flags: c_int) -> bool {
    flags & (libc::O_ACCMODE | libc::O_CREAT | libc::O_TRUNC) != libc::O_RDONLY
}

/// Replaces a function whose path is relative to the working folder. `$path`: the parameter; `$follows`: whether a link is followed, and
/// `$reads`: whether it only reads.
macro_rules! by_path {
    ($(fn $name:ident($($before:ident: $before_type:ty,)* [$path:ident, follows $follows:expr, reads $reads:expr] $(, $after:ident: $after_type:ty)*) -> $result:ty, else $missing:expr;)*) => {$(
        /// # Safety
        /// As for the C library's function of this name.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($before: $before_type,)* $path: *const c_char $(, $after: $after_type)*) -> $result {
            const NAME: &CStr = match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => panic!("a name without zeros"),
            };
            static REAL: Real = Real::named(NAME);
            // SAFETY: guaranteed by the caller.
            let other = if $reads { unsafe { instead($path, $follows) } } else { None };
            let path = other.as_ref().map_or($path, |other| other.as_ptr());
            let real = REAL.get();
            if real.is_null() {
                return $missing;
            }
            // SAFETY: the C library's function of this name has these parameters.
            let real: unsafe extern "C" fn($($before_type,)* *const c_char $(, $after_type)*) -> $result = unsafe { core::mem::transmute(real) };
            // SAFETY: guaranteed by the caller.
            unsafe { real($($before,)* path $(, $after)*) }
        }
    )*};
}

/// The same for paths that begin at an open folder.
macro_rules! at_folder {
    ($(fn $name:ident([$path:ident, follows $follows:expr, reads $reads:expr] $(, $after:ident: $after_type:ty)*);)*) => {$(
        /// # Safety
        /// As for the C library's function of this name.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(folder: c_int, $path: *const c_char $(, $after: $after_type)*) -> c_int {
            const NAME: &CStr = match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => panic!("a name without zeros"),
            };
            static REAL: Real = Real::named(NAME);
            // SAFETY: guaranteed by the caller.
            let other = if $reads { unsafe { instead_at(folder, $path, $follows) } } else { None };
            let path = other.as_ref().map_or($path, |other| other.as_ptr());
            let real = REAL.get();
            if real.is_null() {
                return real::fail(libc::ENOSYS);
            }
            // SAFETY: the C library's function of this name has these parameters.
            let real: unsafe extern "C" fn(c_int, *const c_char $(, $after_type)*) -> c_int = unsafe { core::mem::transmute(real) };
            // SAFETY: guaranteed by the caller.
            unsafe { real(folder, path $(, $after)*) }
        }
    )*};
}

const NO_FOLLOW: c_int = libc::AT_SYMLINK_NOFOLLOW;

by_path! {
    fn open([path, follows flags & libc::O_NOFOLLOW == 0, reads !writes(flags)], flags: c_int, mode: Mode) -> c_int, else real::fail(libc::ENOSYS);
    fn open64([path, follows flags & libc::O_NOFOLLOW == 0, reads !writes(flags)], flags: c_int, mode: Mode) -> c_int, else real::fail(libc::ENOSYS);
    fn __open_2([path, follows flags & libc::O_NOFOLLOW == 0, reads !writes(flags)], flags: c_int) -> c_int, else real::fail(libc::ENOSYS);
    fn __open64_2([path, follows flags & libc::O_NOFOLLOW == 0, reads !writes(flags)], flags: c_int) -> c_int, else real::fail(libc::ENOSYS);
    fn fopen([path, follows true, reads reads(mode)], mode: *const c_char) -> *mut c_void, else core::ptr::null_mut();
    fn fopen64([path, follows true, reads reads(mode)], mode: *const c_char) -> *mut c_void, else core::ptr::null_mut();
    fn opendir([path, follows true, reads true]) -> *mut c_void, else core::ptr::null_mut();
    fn stat([path, follows true, reads true], into: *mut c_void) -> c_int, else real::fail(libc::ENOSYS);
    fn stat64([path, follows true, reads true], into: *mut c_void) -> c_int, else real::fail(libc::ENOSYS);
    fn lstat([path, follows false, reads true], into: *mut c_void) -> c_int, else real::fail(libc::ENOSYS);
    fn lstat64([path, follows false, reads true], into: *mut c_void) -> c_int, else real::fail(libc::ENOSYS);
    fn __xstat(version: c_int, [path, follows true, reads true], into: *mut c_void) -> c_int, else real::fail(libc::ENOSYS);
    fn __xstat64(version: c_int, [path, follows true, reads true], into: *mut c_void) -> c_int, else real::fail(libc::ENOSYS);
    fn __lxstat(version: c_int, [path, follows false, reads true], into: *mut c_void) -> c_int, else real::fail(libc::ENOSYS);
    fn __lxstat64(version: c_int, [path, follows false, reads true], into: *mut c_void) -> c_int, else real::fail(libc::ENOSYS);
    fn access([path, follows true, reads mode & libc::W_OK == 0], mode: c_int) -> c_int, else real::fail(libc::ENOSYS);
    fn eaccess([path, follows true, reads mode & libc::W_OK == 0], mode: c_int) -> c_int, else real::fail(libc::ENOSYS);
    fn euidaccess([path, follows true, reads mode & libc::W_OK == 0], mode: c_int) -> c_int, else real::fail(libc::ENOSYS);
}

at_folder! {
    fn openat([path, follows flags & libc::O_NOFOLLOW == 0, reads !writes(flags)], flags: c_int, mode: Mode);
    fn openat64([path, follows flags & libc::O_NOFOLLOW == 0, reads !writes(flags)], flags: c_int, mode: Mode);
    fn __openat_2([path, follows flags & libc::O_NOFOLLOW == 0, reads !writes(flags)], flags: c_int);
    fn __openat64_2([path, follows flags & libc::O_NOFOLLOW == 0, reads !writes(flags)], flags: c_int);
    fn fstatat([path, follows flags & NO_FOLLOW == 0, reads true], into: *mut c_void, flags: c_int);
    fn fstatat64([path, follows flags & NO_FOLLOW == 0, reads true], into: *mut c_void, flags: c_int);
    fn statx([path, follows flags & NO_FOLLOW == 0, reads true], flags: c_int, mask: c_uint, into: *mut c_void);
    fn faccessat([path, follows flags & NO_FOLLOW == 0, reads mode & libc::W_OK == 0], mode: c_int, flags: c_int);
}

/// Whether `fopen` in this mode only reads.
fn reads(mode: *const c_char) -> bool {
    // SAFETY: a mode is never null, and ends with a zero.
    let mode = unsafe { CStr::from_ptr(mode) }.to_bytes();
    mode.starts_with(b"r") && !mode.contains(&b'+')
}

/// # Safety
/// As for the C library's function of this name.
#[unsafe(no_mangle)]
unsafe extern "C" fn __fxstatat(
    version: c_int,
    folder: c_int,
    path: *const c_char,
    into: *mut c_void,
    flags: c_int,
) -> c_int {
    static REAL: Real = Real::named(c"__fxstatat");
    // SAFETY: guaranteed by the caller.
    let other = unsafe { instead_at(folder, path, flags & NO_FOLLOW == 0) };
    let real = REAL.get();
    if real.is_null() {
        return real::fail(libc::ENOSYS);
    }
    // SAFETY: the C library's function of this name has these parameters.
    let real: unsafe extern "C" fn(c_int, c_int, *const c_char, *mut c_void, c_int) -> c_int =
        unsafe { core::mem::transmute(real) };
    // SAFETY: guaranteed by the caller.
    unsafe { real(version, folder, other.as_ref().map_or(path, |other| other.as_ptr()), into, flags) }
}

/// A link leads where it led: the program's own file is that which the user has named.
///
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
unsafe extern "C" fn readlinkat(folder: c_int, path: *const c_char, into: *mut c_char, len: usize) -> isize {
    // SAFETY: guaranteed by the caller.
    let other = unsafe { instead_at(folder, path, false) };
    let path = other.as_ref().map_or(path, |other| other.as_ptr());
    let mut target = [0u8; LEN_MAX];
    let Ok(read) = usize::try_from(real::returned(kernel::read_link(folder, path, &mut target))) else { return -1 };
    let target = original(&target[..read]).unwrap_or(&target[..read]);
    let fits = target.len().min(len);
    // SAFETY: the caller's memory has `len` bytes.
    unsafe { core::ptr::copy_nonoverlapping(target.as_ptr(), into.cast(), fits) };
    fits as isize
}

/// # Safety
/// As for the C library's function of this name.
#[unsafe(no_mangle)]
unsafe extern "C" fn realpath(path: *const c_char, into: *mut c_char) -> *mut c_char {
    static REAL: Real = Real::named(c"realpath");
    // SAFETY: guaranteed by the caller.
    let other = unsafe { instead(path, false) };
    // SAFETY: the C library's function of this name has these parameters.
    let real: unsafe extern "C" fn(*const c_char, *mut c_char) -> *mut c_char =
        unsafe { core::mem::transmute(REAL.get()) };
    // SAFETY: guaranteed by the caller.
    let found = unsafe { real(other.as_ref().map_or(path, |other| other.as_ptr()), into) };
    if !found.is_null() {
        // SAFETY: the C library has written it, with a zero at its end.
        let text = unsafe { CStr::from_ptr(found) }.to_bytes_with_nul();
        if let Some(text) = original(text) {
            // SAFETY: it is the end of the same memory.
            unsafe { core::ptr::copy(text.as_ptr(), found.cast(), text.len()) };
        }
    }
    found
}

/// # Safety
/// As for the C library's function of this name.
#[unsafe(no_mangle)]
unsafe extern "C" fn __realpath_chk(path: *const c_char, into: *mut c_char, _len: usize) -> *mut c_char {
    // SAFETY: guaranteed by the caller, whose memory has the length of the longest path.
    unsafe { realpath(path, into) }
}
