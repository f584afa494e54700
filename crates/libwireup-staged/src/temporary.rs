//! Functions of the C library that make a file or a folder of a new name, which they write into the caller's memory:
//! none is made among copies.

use crate::files::name;
use crate::means::{Use, changing};
use crate::real::{self, real};
use core::ffi::{CStr, c_char, c_int};
use core::ptr;
use wireup_redirect::Walk;

/// The error, if a name made from this one would be that of a copy, or lie in a folder in which nothing can be made.
///
/// # Safety
/// `path` is null, or ends with a zero.
#[inline(never)]
unsafe fn refused(path: *const c_char) -> Option<c_int> {
    let mut walk = Walk::new();
    // A file of the name before its change says nothing.
    // SAFETY: guaranteed by the caller.
    match unsafe { changing(&mut walk, libc::AT_FDCWD, path, false, true) } {
        Use::Error(libc::EEXIST) => Some(libc::EROFS),
        Use::Error(number) => Some(number),
        // The caller's memory is changed, so it is this path: the kernel, too, follows the links in it.
        Use::Path(_) => None,
    }
}

macro_rules! makes {
    ($(fn $name:ident(path: *mut c_char $(, $after:ident)*) -> $result:ty, $fail:path;)*) => {$(
        /// # Safety
        /// As for the C library's function of this name.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(path: *mut c_char $(, $after: c_int)*) -> $result {
            // SAFETY: guaranteed by the caller.
            if let Some(number) = unsafe { refused(path) } {
                return $fail(number);
            }
            let real = real!(name!($name)).get();
            if real.is_null() {
                return $fail(libc::ENOSYS);
            }
            // SAFETY: the C library's function of this name has these parameters.
            let real: unsafe extern "C" fn(*mut c_char $(, $crate::files::only!($after, c_int))*) -> $result = unsafe { core::mem::transmute(real) };
            // SAFETY: guaranteed by the caller.
            unsafe { real(path $(, $after)*) }
        }
    )*};
}

fn null(number: c_int) -> *mut c_char {
    real::fail(number);
    ptr::null_mut()
}

makes! {
    fn mkstemp(path: *mut c_char) -> c_int, real::fail;
    fn mkstemp64(path: *mut c_char) -> c_int, real::fail;
    fn mkostemp(path: *mut c_char, flags) -> c_int, real::fail;
    fn mkostemp64(path: *mut c_char, flags) -> c_int, real::fail;
    fn mkstemps(path: *mut c_char, suffix) -> c_int, real::fail;
    fn mkstemps64(path: *mut c_char, suffix) -> c_int, real::fail;
    fn mkostemps(path: *mut c_char, suffix, flags) -> c_int, real::fail;
    fn mkostemps64(path: *mut c_char, suffix, flags) -> c_int, real::fail;
    fn mkdtemp(path: *mut c_char) -> *mut c_char, null;
}
