//! Replaces C functions that make a file or folder with a unique name (`mkstemp` and the like), so that none is made
//! among the copies.

use crate::arguments::{CText, interposed};
use crate::means::{Use, changing};
use crate::real::{call_real, fail, null};
use core::ffi::{c_char, c_int};
use wireup_redirect::Walk;

/// The error, if a name made from this one would be that of a copy, or lie in a folder in which nothing can be made.
#[inline(never)]
fn refused(path: CText<'_>) -> Option<c_int> {
    let mut walk = Walk::new();
    // An existing file of this name does not matter, since the name will change: the folder decides.
    match changing(&mut walk, libc::AT_FDCWD, path, false, true) {
        Use::Error(libc::EEXIST) => Some(libc::EROFS),
        Use::Error(number) => Some(number),
        // The caller's memory is changed, so it is this path: the kernel, too, follows the links in it.
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
