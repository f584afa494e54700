//! The version of the C library that this program runs with.

/// The version of glibc, such as `2.34`; `None`: the program is not linked to it.
pub fn glibc() -> Option<String> {
    #[cfg(target_env = "gnu")]
    {
        // SAFETY: it returns a text that ends with a zero and is never freed.
        let version = unsafe { std::ffi::CStr::from_ptr(libc::gnu_get_libc_version()) };
        Some(version.to_string_lossy().into_owned())
    }
    #[cfg(not(target_env = "gnu"))]
    None
}
