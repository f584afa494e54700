//! Tells of forks.

/// Has a function called in each child that this process forks. It may only do what a signal handler may do. Without memory for the
/// registration the process goes on without it.
#[cfg(target_env = "gnu")]
pub fn on_child(handler: extern "C" fn()) {
    use core::ffi::{c_int, c_void};
    type Handler = Option<extern "C" fn()>;
    unsafe extern "C" {
        // What `pthread_atfork` of the GNU C library calls. That function is in no shared library, and needs a symbol of the compiler's
        // start files, which the libraries are linked without.
        fn __register_atfork(prepare: Handler, parent: Handler, child: Handler, dso: *mut c_void) -> c_int;
    }
    // SAFETY: the handler stays: the libraries are linked so that they are never unloaded.
    unsafe { __register_atfork(None, None, Some(handler), core::ptr::null_mut()) };
}

#[cfg(not(target_env = "gnu"))]
pub fn on_child(handler: extern "C" fn()) {
    // SAFETY: the handler stays: the libraries are linked so that they are never unloaded.
    unsafe { libc::pthread_atfork(None, None, Some(handler)) };
}
