//! Functions of the C library that look at files by name, or open them.

use crate::kernel;
use crate::means::{Use, opening, reading};
use crate::real::{self, real};
use crate::staged::staged;
use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use core::ptr;
use wireup_redirect::map::WRITE;
use wireup_redirect::{Text, Walk};

type Mode = libc::mode_t;

/// The name of a function as the C library wants it.
macro_rules! name {
    ($name:ident) => {
        match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
            Ok(name) => name,
            Err(_) => panic!("a name without zeros"),
        }
    };
}
pub(crate) use name;

const HERE: c_int = libc::AT_FDCWD;
const NO_FOLLOW: c_int = libc::AT_SYMLINK_NOFOLLOW;

/// Replaces a function that reads. `[path, …]`: its path, the folder where that begins, and whether a link is followed.
macro_rules! reads {
    ($(fn $name:ident($($before:ident: $before_type:ty,)* [$path:ident, $folder:expr, $follows:expr] $(, $after:ident: $after_type:ty)*) -> $result:ty, $fail:path;)*) => {$(
        /// # Safety
        /// As for the C library's function of this name.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($before: $before_type,)* $path: *const c_char $(, $after: $after_type)*) -> $result {
            let mut walk = Walk::new();
            // SAFETY: guaranteed by the caller.
            let path = match unsafe { reading(&mut walk, $folder, $path, $follows) } {
                Use::Path(path) => path,
                Use::Error(number) => return $fail(number),
            };
            let real = real!(name!($name)).get();
            if real.is_null() {
                return $fail(libc::ENOSYS);
            }
            // SAFETY: the C library's function of this name has these parameters.
            let real: unsafe extern "C" fn($($before_type,)* *const c_char $(, $after_type)*) -> $result = unsafe { core::mem::transmute(real) };
            // SAFETY: guaranteed by the caller.
            unsafe { real($($before,)* path $(, $after)*) }
        }
    )*};
}

/// Null, with the number of the error in `errno`.
fn null(number: c_int) -> *mut c_void {
    real::fail(number);
    ptr::null_mut()
}

/// Replaces a function that looks at a file: of a copy it tells the original's write bits.
macro_rules! looks {
    ($(fn $name:ident($($before:ident: $before_type:ty,)* [$path:ident, $folder:expr, $follows:expr] $(, $after:ident: $after_type:ty)*), $form:ident($into:ident);)*) => {$(
        /// # Safety
        /// As for the C library's function of this name.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($before: $before_type,)* $path: *const c_char $(, $after: $after_type)*) -> c_int {
            let mut walk = Walk::new();
            // SAFETY: guaranteed by the caller.
            let used = match unsafe { reading(&mut walk, $folder, $path, $follows) } {
                Use::Path(path) => path,
                Use::Error(number) => return real::fail(number),
            };
            let real = real!(name!($name)).get();
            if real.is_null() {
                return real::fail(libc::ENOSYS);
            }
            // SAFETY: the C library's function of this name has these parameters.
            let real: unsafe extern "C" fn($($before_type,)* *const c_char $(, $after_type)*) -> c_int = unsafe { core::mem::transmute(real) };
            // SAFETY: guaranteed by the caller.
            let result = unsafe { real($($before,)* used $(, $after)*) };
            // SAFETY: the C library has just written there; the path is as the caller guarantees.
            unsafe {
                if result == 0 && used == walk.copy().as_ptr() {
                    with_bits(walk.original().to_bytes(), Form::$form, $into);
                } else if result == 0 && (used.is_null() || *used == 0) {
                    with_bits_of_open($folder, Form::$form, $into);
                }
            }
            result
        }
    )*};
}

/// Replaces a function that looks at an open file.
macro_rules! looks_open {
    ($(fn $name:ident($($before:ident: $before_type:ty,)* [$fd:ident]);)*) => {$(
        /// # Safety
        /// As for the C library's function of this name.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($before: $before_type,)* $fd: c_int, into: *mut c_void) -> c_int {
            let real = real!(name!($name)).get();
            if real.is_null() {
                return real::fail(libc::ENOSYS);
            }
            // SAFETY: the C library's function of this name has these parameters.
            let real: unsafe extern "C" fn($($before_type,)* c_int, *mut c_void) -> c_int = unsafe { core::mem::transmute(real) };
            // SAFETY: guaranteed by the caller.
            let result = unsafe { real($($before,)* $fd, into) };
            if result == 0 {
                // SAFETY: the C library has just written there.
                unsafe { with_bits_of_open($fd, Form::Plain, into) };
            }
            result
        }
    )*};
}

/// Where a structure has the permission bits.
#[derive(Clone, Copy)]
enum Form {
    /// `struct stat`.
    Plain,
    /// `struct statx`.
    Extended,
}

const MODE: usize = core::mem::offset_of!(libc::stat, st_mode);
const MODE_EXTENDED: usize = 28;

/// The same for an open file, if it is a copy: no copy has write bits.
///
/// # Safety
/// As for `with_bits`.
#[inline(never)]
unsafe fn with_bits_of_open(fd: c_int, form: Form, into: *mut c_void) {
    let Some(staged) = staged() else { return };
    // SAFETY: guaranteed by the caller.
    let mode = unsafe {
        match form {
            Form::Plain => into.byte_add(MODE).cast::<u32>().read(),
            Form::Extended => into.byte_add(MODE_EXTENDED).cast::<u16>().read().into(),
        }
    };
    let mut path = Text::new();
    if mode & WRITE == 0
        && path.fill(|into| kernel::path_of(fd, into)).is_some()
        && let Some(original) = staged.map.original(path.as_bytes())
    {
        // SAFETY: as above.
        unsafe { with_bits(original, form, into) };
    }
}

/// Puts the original's write bits into what was told about a copy.
///
/// # Safety
/// `into` is a structure of this form.
unsafe fn with_bits(path: &[u8], form: Form, into: *mut c_void) {
    let Some(staged) = staged() else { return };
    let path = path.strip_suffix(b"/").unwrap_or(path);
    let bits = |mode: u32| match mode & libc::S_IFMT {
        libc::S_IFREG | libc::S_IFDIR => staged.map.mode(path, mode),
        _ => mode,
    };
    // SAFETY: guaranteed by the caller.
    unsafe {
        match form {
            Form::Plain => {
                let mode = into.byte_add(MODE).cast::<u32>();
                mode.write(bits(mode.read()));
            }
            Form::Extended => {
                let mode = into.byte_add(MODE_EXTENDED).cast::<u16>();
                mode.write(bits(mode.read().into()) as u16);
            }
        }
    }
}

reads! {
    fn opendir([path, HERE, true]) -> *mut c_void, null;
}

looks! {
    fn stat([path, HERE, true], into: *mut c_void), Plain(into);
    fn stat64([path, HERE, true], into: *mut c_void), Plain(into);
    fn lstat([path, HERE, false], into: *mut c_void), Plain(into);
    fn lstat64([path, HERE, false], into: *mut c_void), Plain(into);
    fn __xstat(version: c_int, [path, HERE, true], into: *mut c_void), Plain(into);
    fn __xstat64(version: c_int, [path, HERE, true], into: *mut c_void), Plain(into);
    fn __lxstat(version: c_int, [path, HERE, false], into: *mut c_void), Plain(into);
    fn __lxstat64(version: c_int, [path, HERE, false], into: *mut c_void), Plain(into);
    fn fstatat(folder: c_int, [path, folder, flags & NO_FOLLOW == 0], into: *mut c_void, flags: c_int), Plain(into);
    fn fstatat64(folder: c_int, [path, folder, flags & NO_FOLLOW == 0], into: *mut c_void, flags: c_int), Plain(into);
    fn __fxstatat(version: c_int, folder: c_int, [path, folder, flags & NO_FOLLOW == 0], into: *mut c_void, flags: c_int), Plain(into);
    fn __fxstatat64(version: c_int, folder: c_int, [path, folder, flags & NO_FOLLOW == 0], into: *mut c_void, flags: c_int), Plain(into);
    fn statx(folder: c_int, [path, folder, flags & NO_FOLLOW == 0], flags: c_int, mask: c_uint, into: *mut c_void), Extended(into);
}

looks_open! {
    fn fstat([fd]);
    fn fstat64([fd]);
    fn __fxstat(version: c_int, [fd]);
    fn __fxstat64(version: c_int, [fd]);
}

/// Replaces a function that asks what is permitted. A copy may not be written, whatever its bits say.
macro_rules! asks {
    ($(fn $name:ident($($folder:ident: c_int,)? [$path:ident, $place:expr, $follows:expr], $mode:ident: c_int $(, $flags:ident: c_int)?);)*) => {$(
        /// # Safety
        /// As for the C library's function of this name.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($folder: c_int,)? $path: *const c_char, $mode: c_int $(, $flags: c_int)?) -> c_int {
            let mut walk = Walk::new();
            // SAFETY: guaranteed by the caller.
            let used = match unsafe { reading(&mut walk, $place, $path, $follows) } {
                Use::Path(path) => path,
                Use::Error(number) => return real::fail(number),
            };
            let real = real!(name!($name)).get();
            if real.is_null() {
                return real::fail(libc::ENOSYS);
            }
            let is_copy = used == walk.copy().as_ptr();
            let asked = if is_copy { $mode & !libc::W_OK } else { $mode };
            // SAFETY: the C library's function of this name has these parameters.
            let real: unsafe extern "C" fn($($crate::files::only!($folder, c_int),)? *const c_char, c_int $(, $crate::files::only!($flags, c_int))?) -> c_int = unsafe { core::mem::transmute(real) };
            // SAFETY: guaranteed by the caller.
            match unsafe { real($($folder,)? used, asked $(, $flags)?) } {
                0 if asked != $mode => real::fail(libc::EROFS),
                result => result,
            }
        }
    )*};
}

/// A type for a parameter that may be missing.
macro_rules! only {
    ($name:ident, $type:ty) => {
        $type
    };
}
pub(crate) use only;

asks! {
    fn access([path, HERE, true], mode: c_int);
    fn eaccess([path, HERE, true], mode: c_int);
    fn euidaccess([path, HERE, true], mode: c_int);
    fn faccessat(folder: c_int, [path, folder, flags & NO_FOLLOW == 0], mode: c_int, flags: c_int);
}

/// Replaces a function that opens a file.
macro_rules! opens {
    ($(fn $name:ident($($folder:ident: c_int,)? [$path:ident, $place:expr], $flags:ident: c_int $(, $mode:ident: Mode)?);)*) => {$(
        /// # Safety
        /// As for the C library's function of this name.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($folder: c_int,)? $path: *const c_char, $flags: c_int $(, $mode: Mode)?) -> c_int {
            let mut walk = Walk::new();
            let mut flags = $flags;
            // SAFETY: guaranteed by the caller.
            let path = match unsafe { opening(&mut walk, $place, $path, &mut flags) } {
                Use::Path(path) => path,
                Use::Error(number) => return real::fail(number),
            };
            #[allow(unused_mut, unused_assignments, reason = "not all have a mode")]
            let mut mode: Mode = 0;
            $(mode = $mode;)?
            let Some(real) = real!(name!($name)).known() else {
                // SAFETY: guaranteed by the caller.
                return unsafe { kernel::open($place, path, flags, mode) };
            };
            // SAFETY: the C library's function of this name has these parameters.
            let real: unsafe extern "C" fn($($crate::files::only!($folder, c_int),)? *const c_char, c_int $(, $crate::files::only!($mode, Mode))?) -> c_int = unsafe { core::mem::transmute(real) };
            // SAFETY: guaranteed by the caller.
            unsafe { real($($folder,)? path, flags $(, $mode)?) }
        }
    )*};
}

opens! {
    fn open([path, HERE], flags: c_int, mode: Mode);
    fn open64([path, HERE], flags: c_int, mode: Mode);
    fn __open_2([path, HERE], flags: c_int);
    fn __open64_2([path, HERE], flags: c_int);
    fn openat(folder: c_int, [path, folder], flags: c_int, mode: Mode);
    fn openat64(folder: c_int, [path, folder], flags: c_int, mode: Mode);
    fn __openat_2(folder: c_int, [path, folder], flags: c_int);
    fn __openat64_2(folder: c_int, [path, folder], flags: c_int);
}

/// What `fopen` opens in a mode.
///
/// # Safety
/// `mode` ends with a zero.
unsafe fn flags_of(mode: *const c_char) -> c_int {
    // SAFETY: guaranteed by the caller.
    let mode = unsafe { CStr::from_ptr(mode) }.to_bytes();
    let access = if mode.contains(&b'+') { libc::O_RDWR } else { libc::O_WRONLY };
    let new = if mode.contains(&b'x') { libc::O_EXCL } else { 0 };
    match mode.first() {
        Some(b'r') if access == libc::O_RDWR => access,
        Some(b'w' | b'a') => access | libc::O_CREAT | new,
        _ => libc::O_RDONLY,
    }
}

/// Replaces a function that opens a stream.
macro_rules! streams {
    ($(fn $name:ident([$path:ident], $mode:ident: *const c_char);)*) => {$(
        /// # Safety
        /// As for the C library's function of this name.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($path: *const c_char, $mode: *const c_char) -> *mut c_void {
            let mut walk = Walk::new();
            // SAFETY: guaranteed by the caller.
            let mut flags = unsafe { flags_of($mode) };
            // SAFETY: as above.
            let path = match unsafe { opening(&mut walk, HERE, $path, &mut flags) } {
                Use::Path(path) => path,
                Use::Error(number) => return null(number),
            };
            let real = real!(name!($name)).get();
            if real.is_null() {
                return null(libc::ENOSYS);
            }
            // SAFETY: the C library's function of this name has these parameters.
            let real: unsafe extern "C" fn(*const c_char, *const c_char) -> *mut c_void = unsafe { core::mem::transmute(real) };
            // SAFETY: guaranteed by the caller.
            unsafe { real(path, $mode) }
        }
    )*};
}

streams! {
    fn fopen([path], mode: *const c_char);
    fn fopen64([path], mode: *const c_char);
}

/// # Safety
/// As for the C library's function of this name.
#[unsafe(no_mangle)]
unsafe extern "C" fn creat(path: *const c_char, mode: Mode) -> c_int {
    // SAFETY: guaranteed by the caller.
    unsafe { open(path, libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC, mode) }
}

/// # Safety
/// As for the C library's function of this name.
#[unsafe(no_mangle)]
unsafe extern "C" fn creat64(path: *const c_char, mode: Mode) -> c_int {
    // SAFETY: guaranteed by the caller.
    unsafe { open64(path, libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC, mode) }
}

/// Replaces a function that opens another file for a stream.
macro_rules! streams_again {
    ($(fn $name:ident;)*) => {$(
        /// # Safety
        /// As for the C library's function of this name.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(path: *const c_char, mode: *const c_char, stream: *mut c_void) -> *mut c_void {
            let mut walk = Walk::new();
            // SAFETY: guaranteed by the caller.
            let mut flags = unsafe { flags_of(mode) };
            // SAFETY: as above.
            let (path, error) = match unsafe { opening(&mut walk, HERE, path, &mut flags) } {
                Use::Path(path) => (path, None),
                // The stream is closed nevertheless: nothing can be opened by this path.
                Use::Error(number) => (c"".as_ptr(), Some(number)),
            };
            let real = real!(name!($name)).get();
            if real.is_null() {
                return null(libc::ENOSYS);
            }
            // SAFETY: the C library's function of this name has these parameters.
            let real: unsafe extern "C" fn(*const c_char, *const c_char, *mut c_void) -> *mut c_void = unsafe { core::mem::transmute(real) };
            // SAFETY: guaranteed by the caller.
            let stream = unsafe { real(path, mode, stream) };
            error.map_or(stream, null)
        }
    )*};
}

streams_again! {
    fn freopen;
    fn freopen64;
}
