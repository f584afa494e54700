//! A thread of the C library.

use crate::net::Errno;
use alloc::boxed::Box;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job_slot::Lock;
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
