//! Replaces C functions that examine files by name, or open them.

use crate::arguments::{CText, interposed};
use crate::kernel;
use crate::means::{Use, opening, reading};
use crate::real::{call_real, fail, null, real};
use crate::staged::staged;
use core::ffi::{c_char, c_int, c_uint, c_void};
use wireup_redirect::map::WRITE;
use wireup_redirect::{Text, Walk};

type Mode = libc::mode_t;

const HERE: c_int = libc::AT_FDCWD;
const NO_FOLLOW: c_int = libc::AT_SYMLINK_NOFOLLOW;

interposed! {
    fn opendir(path: CText<'_>) -> *mut c_void {
        let mut walk = Walk::new();
        match reading(&mut walk, HERE, path, true) {
            Use::Path(path) => call_real!(opendir(path => *const c_char) -> *mut c_void, null),
            Use::Error(number) => null(number),
        }
    }
}

/// The file mode in a structure that the C library has filled for `stat` or `statx`.
enum Bits<'a> {
    Plain(&'a mut u32),
    Extended(&'a mut u16),
}

impl Bits<'_> {
    /// # Safety
    /// `into` is a `struct stat` that the C library has filled.
    unsafe fn plain(into: *mut c_void) -> Self {
        // SAFETY: guaranteed by the caller.
        Bits::Plain(unsafe { &mut (*into.cast::<libc::stat>()).st_mode })
    }

    /// # Safety
    /// `into` is a `struct statx` that the C library has filled.
    unsafe fn extended(into: *mut c_void) -> Self {
        // SAFETY: guaranteed by the caller.
        Bits::Extended(unsafe { &mut (*into.cast::<libc::statx>()).stx_mode })
    }

    fn get(&self) -> u32 {
        match self {
            Bits::Plain(bits) => **bits,
            Bits::Extended(bits) => u32::from(**bits),
        }
    }

    fn set(&mut self, mode: u32) {
        match self {
            Bits::Plain(bits) => **bits = mode,
            Bits::Extended(bits) => **bits = mode as u16,
        }
    }

    /// Replaces the write bits of a copy in the structure by those of the original at `path`.
    #[inline(never)]
    fn show_original(&mut self, path: &[u8]) {
        let Some(staged) = staged() else { return };
        let path = path.strip_suffix(b"/").unwrap_or(path);
        let mode = self.get();
        if matches!(mode & libc::S_IFMT, libc::S_IFREG | libc::S_IFDIR) {
            self.set(staged.map.mode(path, mode));
        }
    }

    /// Does the same as [`Bits::show_original`] for an open file, if the file is a copy: copies have no write bits.
    #[inline(never)]
    fn show_original_of_open(&mut self, fd: c_int) {
        let Some(staged) = staged() else { return };
        let mut path = Text::new();
        if self.get() & WRITE == 0
            && path.fill(|into| kernel::path_of(fd, into)).is_some()
            && let Some(original) = staged.map.original(path.as_bytes())
        {
            self.show_original(original);
        }
    }
}

/// Replaces a function of the `stat` family: for a copy it reports the original's write bits. `[path, …]`: the path,
/// the directory to which it is relative, and whether a symbolic link is followed.
macro_rules! looks {
    ($(fn $name:ident(
        $($before:ident: $before_type:ty,)*
        [$path:ident, $folder:expr, $follows:expr]
        $(, $after:ident: $after_type:ty)*
    ), $form:ident($into:ident);)*) => {$(
        interposed! {
            fn $name($($before: $before_type,)* $path: CText<'_> $(, $after: $after_type)*) -> c_int {
                let mut walk = Walk::new();
                let used = match reading(&mut walk, $folder, $path, $follows) {
                    Use::Path(path) => path,
                    Use::Error(number) => return fail(number),
                };
                let result = call_real!($name(
                    $($before => $before_type,)* used => *const c_char $(, $after => $after_type)*
                ) -> c_int, fail);
                if result == 0 {
                    // SAFETY: the C library has just filled the caller's structure.
                    let mut bits = unsafe { Bits::$form($into) };
                    if used == walk.copy().as_ptr() {
                        bits.show_original(walk.original().to_bytes());
                    } else if $path.is_empty() {
                        bits.show_original_of_open($folder);
                    }
                }
                result
            }
        }
    )*};
}

/// Replaces a function of the `stat` family that takes a file descriptor.
macro_rules! looks_open {
    ($(fn $name:ident($($before:ident: $before_type:ty,)* [$fd:ident]);)*) => {$(
        interposed! {
            fn $name($($before: $before_type,)* $fd: c_int, into: *mut c_void) -> c_int {
                let result = call_real!($name(
                    $($before => $before_type,)* $fd => c_int, into => *mut c_void
                ) -> c_int, fail);
                if result == 0 {
                    // SAFETY: the C library has just filled the caller's structure.
                    unsafe { Bits::plain(into) }.show_original_of_open($fd);
                }
                result
            }
        }
    )*};
}

looks! {
    fn stat([path, HERE, true], into: *mut c_void), plain(into);
    fn stat64([path, HERE, true], into: *mut c_void), plain(into);
    fn lstat([path, HERE, false], into: *mut c_void), plain(into);
    fn lstat64([path, HERE, false], into: *mut c_void), plain(into);
    fn __xstat(version: c_int, [path, HERE, true], into: *mut c_void), plain(into);
    fn __xstat64(version: c_int, [path, HERE, true], into: *mut c_void), plain(into);
    fn __lxstat(version: c_int, [path, HERE, false], into: *mut c_void), plain(into);
    fn __lxstat64(version: c_int, [path, HERE, false], into: *mut c_void), plain(into);
    fn fstatat(folder: c_int, [path, folder, flags & NO_FOLLOW == 0], into: *mut c_void, flags: c_int), plain(into);
    fn fstatat64(folder: c_int, [path, folder, flags & NO_FOLLOW == 0], into: *mut c_void, flags: c_int), plain(into);
    fn __fxstatat(
        version: c_int, folder: c_int, [path, folder, flags & NO_FOLLOW == 0], into: *mut c_void, flags: c_int
    ), plain(into);
    fn __fxstatat64(
        version: c_int, folder: c_int, [path, folder, flags & NO_FOLLOW == 0], into: *mut c_void, flags: c_int
    ), plain(into);
    fn statx(
        folder: c_int, [path, folder, flags & NO_FOLLOW == 0], flags: c_int, mask: c_uint, into: *mut c_void
    ), extended(into);
}

looks_open! {
    fn fstat([fd]);
    fn fstat64([fd]);
    fn __fxstat(version: c_int, [fd]);
    fn __fxstat64(version: c_int, [fd]);
}

/// Replaces a function of the `access` family. Write access to a copy is denied, whatever its mode.
macro_rules! asks {
    ($(fn $name:ident(
        $($folder:ident: c_int,)? [$path:ident, $begins:expr, $follows:expr],
        $mode:ident: c_int $(, $flags:ident: c_int)?
    );)*) => {$(
        interposed! {
            fn $name($($folder: c_int,)? $path: CText<'_>, $mode: c_int $(, $flags: c_int)?) -> c_int {
                let mut walk = Walk::new();
                let used = match reading(&mut walk, $begins, $path, $follows) {
                    Use::Path(path) => path,
                    Use::Error(number) => return fail(number),
                };
                let is_copy = used == walk.copy().as_ptr();
                let asked = if is_copy { $mode & !libc::W_OK } else { $mode };
                let result = call_real!($name(
                    $($folder => c_int,)? used => *const c_char, asked => c_int $(, $flags => c_int)?
                ) -> c_int, fail);
                if result == 0 && asked != $mode { fail(libc::EROFS) } else { result }
            }
        }
    )*};
}

asks! {
    fn access([path, HERE, true], mode: c_int);
    fn eaccess([path, HERE, true], mode: c_int);
    fn euidaccess([path, HERE, true], mode: c_int);
    fn faccessat(folder: c_int, [path, folder, flags & NO_FOLLOW == 0], mode: c_int, flags: c_int);
}

/// The type of a parameter that not every function has: the name only tells the macro that the function has it.
macro_rules! only {
    ($name:ident, $type:ty) => {
        $type
    };
}

/// Replaces a function that opens a file.
macro_rules! opens {
    ($(fn $name:ident(
        $($folder:ident: c_int,)? [$path:ident, $begins:expr], $flags:ident: c_int $(, $mode:ident: Mode)?
    );)*) => {$(
        interposed! {
            fn $name($($folder: c_int,)? $path: CText<'_>, $flags: c_int $(, $mode: Mode)?) -> c_int {
                let mut walk = Walk::new();
                let mut flags = $flags;
                let path = match opening(&mut walk, $begins, $path, &mut flags) {
                    Use::Path(path) => path,
                    Use::Error(number) => return fail(number),
                };
                #[allow(unused_mut, unused_assignments, reason = "not all have a mode")]
                let mut mode: Mode = 0;
                $(mode = $mode;)?
                let real = real!($name: unsafe extern "C" fn(
                    $(only!($folder, c_int),)? *const c_char, c_int $(, only!($mode, Mode))?
                ) -> c_int);
                match real.known() {
                    // SAFETY: as in [`call_real`].
                    Some(real) => unsafe { real($($folder,)? path, flags $(, $mode)?) },
                    // The loader is still running, and may hold a lock that looking up the function would need.
                    None => kernel::open($begins, path, flags, mode),
                }
            }
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

interposed! {
    fn creat(path: CText<'_>, mode: Mode) -> c_int {
        created(path, mode)
    }

    fn creat64(path: CText<'_>, mode: Mode) -> c_int {
        created(path, mode)
    }
}

fn created(path: CText<'_>, mode: Mode) -> c_int {
    // SAFETY: a `CText` is what the C library's function demands.
    unsafe { open(path.as_ptr(), libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC, mode) }
}

/// The flags with which `fopen` opens a file for this mode string.
fn flags_of(mode: CText<'_>) -> c_int {
    let mode = mode.bytes().unwrap_or_default();
    let access = if mode.contains(&b'+') { libc::O_RDWR } else { libc::O_WRONLY };
    let new = if mode.contains(&b'x') { libc::O_EXCL } else { 0 };
    match mode.first() {
        Some(b'r') if access == libc::O_RDWR => access,
        Some(b'w' | b'a') => access | libc::O_CREAT | new,
        _ => libc::O_RDONLY,
    }
}

/// Replaces a function that opens a stream (`fopen`).
macro_rules! streams {
    ($(fn $name:ident;)*) => {$(
        interposed! {
            fn $name(path: CText<'_>, mode: CText<'_>) -> *mut c_void {
                let mut walk = Walk::new();
                match opening(&mut walk, HERE, path, &mut flags_of(mode)) {
                    Use::Path(path) => call_real!($name(
                        path => *const c_char, mode.as_ptr() => *const c_char
                    ) -> *mut c_void, null),
                    Use::Error(number) => null(number),
                }
            }
        }
    )*};
}

streams! {
    fn fopen;
    fn fopen64;
}

/// Replaces a function that opens another file for an existing stream (`freopen`).
macro_rules! streams_again {
    ($(fn $name:ident;)*) => {$(
        interposed! {
            fn $name(path: CText<'_>, mode: CText<'_>, stream: *mut c_void) -> *mut c_void {
                let mut walk = Walk::new();
                let (path, error) = match opening(&mut walk, HERE, path, &mut flags_of(mode)) {
                    Use::Path(path) => (path, None),
                    // As in C, the old stream is closed even on failure: the empty path cannot be opened.
                    Use::Error(number) => (c"".as_ptr(), Some(number)),
                };
                let stream = call_real!($name(
                    path => *const c_char, mode.as_ptr() => *const c_char, stream => *mut c_void
                ) -> *mut c_void, null);
                error.map_or(stream, null)
            }
        }
    )*};
}

streams_again! {
    fn freopen;
    fn freopen64;
}
