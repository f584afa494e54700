//! Replaces C functions that create a file or directory with a unique name (`mkstemp` and the like), so that they
//! create none among the copies.

use crate::arguments::{CText, interposed};
use crate::means::{Use, changing};
use crate::real::{call_real, fail, null};
use core::ffi::{c_char, c_int};
use wireup_redirect::Walk;

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
