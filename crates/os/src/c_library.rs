//! Functions of the C library: its version, its handling of freed memory, and its matching of file name patterns.

use std::ffi::CStr;

/// The version of glibc, such as `2.34`; `None`: the program is not linked to glibc.
pub fn glibc() -> Option<String> {
    #[cfg(target_env = "gnu")]
    {
        // SAFETY: the function returns a text that ends with a zero and is never freed.
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
    // SAFETY: `mallopt` only changes two numbers in the allocator.
    unsafe {
        libc::mallopt(libc::M_TRIM_THRESHOLD, KEPT);
        libc::mallopt(libc::M_MMAP_THRESHOLD, KEPT / 2);
    }
}

/// Whether a file name matches a shell pattern. Bytes are compared, since wireup's programs set no locale. A leading
/// dot is matched only by a dot.
pub fn matches(pattern: &CStr, name: &CStr) -> bool {
    // SAFETY: both are texts that end with a zero, which the function reads only.
    unsafe { libc::fnmatch(pattern.as_ptr(), name.as_ptr(), libc::FNM_PERIOD) == 0 }
}
