//! A thread and a lock of the C library, and what it calls in the children of a fork.

use crate::net::Errno;
use alloc::boxed::Box;
use core::cell::UnsafeCell;
use core::ffi::c_void;
use core::mem::MaybeUninit;
use core::ptr::null_mut;

pub struct Thread(libc::pthread_t);

type Work = Box<dyn FnOnce() + Send>;

extern "C" fn run(work: *mut c_void) -> *mut c_void {
    // SAFETY: it came from `Box::into_raw` in `start`, which leaves it to this thread.
    let work = unsafe { Box::from_raw(work.cast::<Work>()) };
    work();
    null_mut()
}

impl Thread {
    /// Runs `work` in a new thread, to which no signal is delivered.
    ///
    /// # Errors
    /// The system has no room for it.
    pub fn start(work: impl FnOnce() + Send + 'static) -> Result<Thread, Errno> {
        let work: *mut Work = Box::into_raw(Box::new(Box::new(work)));
        let (mut thread, mut all) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        let mut before = MaybeUninit::uninit();
        // SAFETY: the places may be written; the set is filled before it is read, and so is the former mask, unless the
        // first call fails, which only a wrong argument causes. A new thread has the mask of the one that starts it.
        let result = unsafe {
            libc::sigfillset(all.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
            let result = libc::pthread_create(thread.as_mut_ptr(), core::ptr::null(), run, work.cast());
            libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), null_mut());
            result
        };
        if result != 0 {
            // SAFETY: no thread has taken it.
            drop(unsafe { Box::from_raw(work) });
            return Err(Errno(result));
        }
        // SAFETY: the call has succeeded, and has written it.
        Ok(Thread(unsafe { thread.assume_init() }))
    }

    /// Waits until the thread has ended.
    pub fn join(self) {
        // SAFETY: the thread exists until it is joined, which happens once.
        unsafe { libc::pthread_join(self.0, null_mut()) };
    }
}

/// A value behind a mutex of the C library.
pub struct Lock<T> {
    mutex: UnsafeCell<libc::pthread_mutex_t>,
    value: UnsafeCell<T>,
}

// SAFETY: the value is accessed in `with` only, while the mutex is locked, and any thread may lock the mutex.
unsafe impl<T: Send> Sync for Lock<T> {}

impl<T> Lock<T> {
    pub const fn new(value: T) -> Self {
        Lock { mutex: UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER), value: UnsafeCell::new(value) }
    }

    /// Runs `work` on the value with exclusive access. Must not be nested.
    pub fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: the mutex is initialised as the C library prescribes, does not move while it is in use (it is
        // borrowed), and is unlocked by the thread that locked it; a panic aborts. While it is locked, this is the only
        // reference to the value.
        unsafe {
            libc::pthread_mutex_lock(self.mutex.get());
            let result = work(&mut *self.value.get());
            libc::pthread_mutex_unlock(self.mutex.get());
            result
        }
    }

    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }

    /// Unlocks, whichever thread holds the mutex.
    ///
    /// # Safety
    /// No other thread exists that uses the lock, and the value is not half changed.
    pub unsafe fn renew(&self) {
        // SAFETY: guaranteed by the caller; a mutex of the C library may be initialised by assignment.
        unsafe { self.mutex.get().write(libc::PTHREAD_MUTEX_INITIALIZER) };
    }
}

/// Registers a function that is called in each child that this process forks. It may only do what a signal handler may
/// do. If there is no memory for the registration, the process continues without it.
#[cfg(target_env = "gnu")]
pub fn on_forked_child(handler: extern "C" fn()) {
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
pub fn on_forked_child(handler: extern "C" fn()) {
    // SAFETY: the handler stays valid, since the libraries are linked so that they are never unloaded.
    unsafe { libc::pthread_atfork(None, None, Some(handler)) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::sync::Arc;

    #[test]
    fn its_work_is_done_when_it_is_joined() {
        let value = Arc::new(Lock::new(1));
        let shared = value.clone();
        let thread = Thread::start(move || shared.with(|value| *value += 1)).unwrap();
        thread.join();
        assert_eq!(Arc::into_inner(value).map(Lock::into_inner), Some(2));
    }
}
