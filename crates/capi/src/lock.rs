//! A value behind a mutex of the C library.

use core::cell::UnsafeCell;

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
