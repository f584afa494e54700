//! A value behind a mutex of the C library, for the one static that a library's interface forces on it.

use core::cell::UnsafeCell;

pub struct Lock<T> {
    mutex: UnsafeCell<libc::pthread_mutex_t>,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached only through `with`, under the mutex, which may be used by any thread.
unsafe impl<T: Send> Sync for Lock<T> {}

impl<T> Lock<T> {
    pub const fn new(value: T) -> Self {
        Lock { mutex: UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER), value: UnsafeCell::new(value) }
    }

    /// Works on the value, which no other thread does meanwhile. Must not be nested.
    pub fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: the mutex was initialised as the C library prescribes, never moves while it is used (it is a static's), and
        // is unlocked by the thread that locked it; a panic aborts. Under it this is the only reference to the value.
        unsafe {
            libc::pthread_mutex_lock(self.mutex.get());
            let result = work(&mut *self.value.get());
            libc::pthread_mutex_unlock(self.mutex.get());
            result
        }
    }
}
