//! The helper thread that a program may request: it makes progress while the program is outside the library.
//!
//! ```text
//!   program ── a call ──► lock ──► context    (while a call waits, the program has the lock and makes the progress)
//!   thread ── readable, or due ──► lock ──► context.worker.progress()
//! ```
//!
//! The thread waits without the lock. `wu_close` ends it.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ffi::c_int;
use wireup_bootstrap::Context;
use wireup_capi::net::{Epoll, Errno, Timer};
use wireup_capi::thread::Lock;
use wireup_capi::thread::Thread;

/// The tokens of the descriptors that the thread waits for.
const NETWORK: u64 = 0;
const WAKE: u64 = 1;

pub struct Helper {
    shared: Arc<Lock<Shared>>,
    thread: Thread,
}

struct Shared {
    context: Context,
    /// Readable when the thread should check the fields below.
    wake: Timer,
    /// The network's descriptor, once the thread waits for it.
    watched: Option<c_int>,
    is_over: bool,
}

// SAFETY: nothing in a context depends on the thread: its memory is from the C library, its descriptors belong to the
// process. Its reference counts and borrows do not leave it, and it is accessed only under the lock.
unsafe impl Send for Shared {}

impl Helper {
    /// # Errors
    /// A thread cannot be started, or no descriptor is free.
    pub fn start(context: Context) -> Result<Helper, Errno> {
        let (wake, epoll) = (Timer::new()?, Epoll::new()?);
        epoll.watch(wake.fd(), WAKE, false, true)?;
        let shared = Arc::new(Lock::new(Shared { context, wake, watched: None, is_over: false }));
        let of_thread = shared.clone();
        let thread = Thread::start(move || serve(&of_thread, &epoll))?;
        let helper = Helper { shared, thread };
        helper.with(|_| ());
        Ok(helper)
    }

    /// Runs `work` on the context, which the thread does not use meanwhile.
    pub fn with<T>(&self, work: impl FnOnce(&mut Context) -> T) -> T {
        self.shared.with(|shared| {
            let result = work(&mut shared.context);
            if shared.watched.is_none() && shared.context.worker.watched().is_some() {
                shared.wake.set(Some(0));
            }
            result
        })
    }

    /// Ends the thread, and returns the context.
    pub fn stop(self) -> Option<Context> {
        self.shared.with(|shared| {
            shared.is_over = true;
            shared.wake.set(Some(0));
        });
        self.thread.join();
        Arc::into_inner(self.shared).map(|shared| shared.into_inner().context)
    }
}

fn serve(shared: &Lock<Shared>, epoll: &Epoll) {
    let mut events = Vec::new();
    while let Some(limit) = shared.with(|shared| shared.turn(epoll)) {
        epoll.wait(limit, &mut events);
    }
}

impl Shared {
    /// Makes progress; returns how long to wait afterwards (ms; negative: without limit). `None`: the thread must end.
    fn turn(&mut self, epoll: &Epoll) -> Option<c_int> {
        self.wake.clear();
        if self.is_over {
            return None;
        }
        let Some((fd, _)) = self.context.worker.watched() else { return Some(-1) };
        // If the kernel has no memory for this, the thread tries again soon.
        if self.watched.is_none() && epoll.watch(fd, NETWORK, false, true).is_err() {
            return Some(RETRY_MS);
        }
        self.watched = Some(fd);
        self.context.worker.progress();
        self.context.worker.watched().map(|(_, limit)| limit)
    }
}

/// Time to the next attempt after a failed system call (ms). Chosen: unnoticed by a person, and cheap for a processor.
const RETRY_MS: c_int = 100;
