//! Detection of forks.

/// Registers a function that is called in each child that this process forks. It may only do what a signal handler may
/// do. If there is no memory for the registration, the process continues without it.
#[cfg(target_env = "gnu")]
pub fn on_child(handler: extern "C" fn()) {
    use core::ffi::{c_int, c_void};
    type Handler = Option<extern "C" fn()>;
    unsafe extern "C" {
        // The function that `pthread_atfork` of the GNU C library calls. `pthread_atfork` itself is in no shared
        // library, and it needs a symbol of the compiler's start files, without which these libraries are linked.
        fn __register_atfork(prepare: Handler, parent: Handler, child: Handler, dso: *mut c_void) -> c_int;
    }
    // SAFETY: the handler stays valid, since the libraries are linked so that they are never unloaded.
    unsafe { __register_atfork(None, None, Some(handler), core::ptr::null_mut()) };
}

#[cfg(not(target_env = "gnu"))]
pub fn on_child(handler: extern "C" fn()) {
    // SAFETY: the handler stays valid, since the libraries are linked so that they are never unloaded.
    unsafe { libc::pthread_atfork(None, None, Some(handler)) };
}
