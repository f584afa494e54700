//! The thread that a program may ask for: it makes progress while the program is outside the library.
//!
//! ```text
//!   program ── a call ──► lock ──► context    (while a call waits, the program has the lock and makes the progress)
//!   thread ── readable, or due ──► lock ──► context.worker.progress()
//! ```
//!
//! The thread waits without the lock. It ends in `wu_close`.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ffi::c_int;
use wireup_bootstrap::Context;
use wireup_capi::job_slot::Lock;
use wireup_capi::net::{Epoll, Errno, Timer};
use wireup_capi::thread::Thread;

/// The tokens of the thread's descriptors.
const NETWORK: u64 = 0;
const WAKE: u64 = 1;

pub struct Helper {
    shared: Arc<Lock<Shared>>,
    thread: Thread,
}

struct Shared {
    context: Context,
    /// Readable when the thread is to look at the fields below.
    wake: Timer,
    /// The network's descriptor that the thread waits for.
    watched: Option<c_int>,
    is_over: bool,
}

// SAFETY: nothing in a context belongs to a thread: its memory is that of the C library, and its descriptors those of
// the process. What is counted or borrowed in it is so only within it, and it is accessed only under the lock.
unsafe impl Send for Shared {}

impl Helper {
    /// # Errors
    /// The system has no room for a thread, or no descriptor.
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

    /// Runs `work` while the thread stands back.
    pub fn with<T>(&self, work: impl FnOnce(&mut Context) -> T) -> T {
        self.shared.with(|shared| {
            let result = work(&mut shared.context);
            if shared.watched.is_none() && shared.context.worker.watched().is_some() {
                shared.wake.set(Some(0));
            }
            result
        })
    }

    /// Ends the thread.
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
    /// Does what is possible; how long to wait then (ms; negative: without limit). `None`: the thread is to end.
    fn turn(&mut self, epoll: &Epoll) -> Option<c_int> {
        self.wake.clear();
        if self.is_over {
            return None;
        }
        let Some((fd, _)) = self.context.worker.watched() else { return Some(-1) };
        // If the kernel has no memory for that, the thread looks again soon.
        if self.watched.is_none() && epoll.watch(fd, NETWORK, false, true).is_err() {
            return Some(RETRY_MS);
        }
        self.watched = Some(fd);
        self.context.worker.progress();
        self.context.worker.watched().map(|(_, limit)| limit)
    }
}

/// After a failed system call. Chosen: soon for a person, and seldom for a processor.
const RETRY_MS: c_int = 100;
