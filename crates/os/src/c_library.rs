//! Asks for the version of the C library that this program runs with, makes it keep freed memory, and matches names by
//! its patterns.

use std::ffi::CStr;

/// The version of glibc, such as `2.34`; `None`: the program is not linked to it.
pub fn glibc() -> Option<String> {
    #[cfg(target_env = "gnu")]
    {
        // SAFETY: it returns a text that ends with a zero and is never freed.
        let version = unsafe { CStr::from_ptr(libc::gnu_get_libc_version()) };
        Some(version.to_string_lossy().into_owned())
    }
    #[cfg(not(target_env = "gnu"))]
    None
}

/// Bytes of freed memory that are kept at the end of the heap. Chosen: several parts of a stream.
#[cfg(target_env = "gnu")]
const KEPT: i32 = 4 << 20;

/// Makes the allocator keep some freed memory. A process that forwards a stream would otherwise return the same pages
/// to the kernel and get new ones for each part of the stream.
pub fn keep_freed_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it changes two numbers in the allocator.
    unsafe {
        libc::mallopt(libc::M_TRIM_THRESHOLD, KEPT);
        libc::mallopt(libc::M_MMAP_THRESHOLD, KEPT / 2);
    }
}

/// Whether a shell's pattern for one file name matches it: byte by byte, since no program of ours sets a locale. A
/// leading dot is matched by a dot only.
pub fn matches(pattern: &CStr, name: &CStr) -> bool {
    // SAFETY: both are texts that end with a zero, which the function reads only.
    unsafe { libc::fnmatch(pattern.as_ptr(), name.as_ptr(), libc::FNM_PERIOD) == 0 }
}
