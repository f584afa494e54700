//! What the loader of programs asks (`LD_AUDIT`, rtld-audit(7)): which file it opens for a library.
//!
//! A name without a folder would be searched in all folders of `RPATH`, `LD_LIBRARY_PATH` and `RUNPATH`, most of them on the file server and
//! most in vain. If one file of this name was staged by itself, it is what that search has found where the job was started.

use crate::paths::{self, PathBuffer};
use crate::{kernel, staged};
use core::ffi::{CStr, c_char, c_uint};

/// Flag of a question about the name that the program has used; later ones are about places where it may be.
const ORIGINAL: c_uint = 1;

/// The C library's own libraries: a program that runs has those of the system.
const OF_SYSTEM: [&[u8]; 6] =
    [b"libc.so.6", b"libm.so.6", b"libdl.so.2", b"libpthread.so.0", b"librt.so.1", b"libutil.so.1"];

#[cfg(target_arch = "x86_64")]
const FOLDERS: [&[u8]; 3] = [b"/lib/x86_64-linux-gnu/", b"/lib64/", b"/usr/lib64/"];
#[cfg(target_arch = "aarch64")]
const FOLDERS: [&[u8]; 3] = [b"/lib/aarch64-linux-gnu/", b"/lib64/", b"/usr/lib64/"];

#[unsafe(no_mangle)]
extern "C" fn la_version(offered: c_uint) -> c_uint {
    // 0: the loader goes on without this library. What is used here is the same in all versions of its interface.
    if staged::staged().is_some() { offered } else { 0 }
}

/// # Safety
/// `name` ends with a zero.
#[unsafe(no_mangle)]
unsafe extern "C" fn la_objsearch(name: *const c_char, _cookie: *mut usize, flag: c_uint) -> *const c_char {
    if name.is_null() {
        return name;
    }
    // SAFETY: guaranteed by the caller.
    let path = match unsafe { CStr::from_ptr(name) }.to_bytes() {
        // SAFETY: as above.
        text if text.contains(&b'/') => unsafe { staged::instead(name, true) },
        text if flag == ORIGINAL => library(text),
        _ => None,
    };
    let Some(path) = path else { return name };
    // The loader keeps it.
    let path = path.with_zero();
    let Some(kept) = kernel::memory(path.len()) else { return name };
    kept.copy_from_slice(path);
    kept.as_ptr().cast()
}

/// Where a library is, by its name.
fn library(name: &[u8]) -> Option<PathBuffer> {
    let staged = staged::staged()?;
    let path = match paths::named(staged.roots(), name) {
        Some(original) => staged.copy(original),
        None if OF_SYSTEM.contains(&name) => FOLDERS
            .iter()
            .filter_map(|folder| PathBuffer::of(&[folder, name]))
            .find(|path| kernel::permits(path.as_ptr(), libc::R_OK)),
        None => None,
    }?;
    kernel::permits(path.as_ptr(), libc::R_OK).then_some(path)
}
