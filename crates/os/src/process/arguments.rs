//! Reads the arguments passed to C's `main`.
//!
//! Rust's standard library knows the arguments only if the C library passes them to initialisers, as glibc does, or if
//! Rust's own `main` runs. This program defines C's `main`, so with musl the standard library would see no arguments.

use std::ffi::{CStr, OsStr, OsString, c_char};
use std::os::unix::ffi::OsStrExt;

/// The parameter `argv` of C's `main`, declared with this type. No other code can construct one.
#[repr(transparent)]
pub struct Argv(*const *const c_char);

impl Argv {
    /// The arguments, the program's own name first.
    pub fn arguments(self) -> impl Iterator<Item = OsString> {
        let mut next = self.0;
        std::iter::from_fn(move || {
            // SAFETY: outside of the tests only the C library makes this type: an array of pointers to strings,
            // followed by a null pointer, all of which live as long as the process. `next` never goes past the null
            // pointer.
            unsafe {
                if (*next).is_null() {
                    return None;
                }
                let argument = CStr::from_ptr(*next);
                next = next.add(1);
                Some(OsStr::from_bytes(argument.to_bytes()).to_os_string())
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr::null;

    #[test]
    fn arguments_end_at_the_null_pointer() {
        let argv = [c"wireup".as_ptr(), c"".as_ptr(), c"\xff".as_ptr(), null()];
        let mut arguments = Argv(argv.as_ptr()).arguments();
        assert_eq!(arguments.next().unwrap(), "wireup");
        assert_eq!(arguments.next().unwrap(), "");
        assert_eq!(arguments.next().unwrap().as_bytes(), b"\xff");
        assert_eq!((arguments.next(), arguments.next()), (None, None));
        assert_eq!(Argv([null()].as_ptr()).arguments().next(), None);
    }
}
