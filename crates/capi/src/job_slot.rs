//! The one static of a library: the job that this process has joined, or none yet.
//!
//! ```text
//!            init                     leave
//!   none ───────────► Job { server } ───────────► none      (PMI_FD or PMI_PORT)
//!     └─────────────► Job { alone }  ───────────► none      (no launcher: rank 0 of 1)
//! ```
//!
//! A second `init` returns the result of the first one. The descriptor of `PMI_FD` is taken once and closed by `leave`.
//! A later `init` that finds the variable fails, since the descriptor number may now belong to the program.
//!
//! The connection belongs to the process that joined the job. In a forked child every call fails at once, whatever
//! another thread of the parent was doing at the time of the fork.

use crate::codes::{Code, Result};
use crate::server::Server;
use crate::socket::{Gone, Socket};
use core::cell::UnsafeCell;
use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use wireup_client::local::Local;
use wireup_wire::pmi::Request;

/// What answers the requests of this process: a server, or the process itself.
#[allow(clippy::large_enum_variant)] // There is one in a process.
pub enum With {
    Server(Server),
    /// There is no server: this process is rank 0 of 1.
    Singleton(Local),
}

impl With {
    /// The server; an error without one.
    pub fn server(&mut self) -> Result<&mut Server> {
        match self {
            With::Server(server) => Ok(server),
            With::Singleton(_) => Err(Code::FAIL),
        }
    }
}

/// `J` is the library's data about the job.
pub struct JobSlot<J> {
    job: Lock<Option<J>>,
    /// The server's descriptor while there is one, so that an abort need not take the lock.
    fd: AtomicI32,
    /// Whether the descriptor of `PMI_FD` was taken.
    taken: AtomicBool,
    /// Whether there is a job, or one is being joined. Changed only while the lock is held, and read without it: only a
    /// process that uses the job, or joins, takes the lock.
    is_used: AtomicBool,
    /// Whether this process was forked from the one that joined.
    is_child: AtomicBool,
    /// Whether `on_fork` has been registered with the C library.
    hears_of_forks: AtomicBool,
}

impl<J> JobSlot<J> {
    #[allow(clippy::new_without_default)] // A static needs a constant.
    pub const fn new() -> Self {
        JobSlot {
            job: Lock::new(None),
            fd: AtomicI32::new(-1),
            taken: AtomicBool::new(false),
            is_used: AtomicBool::new(false),
            is_child: AtomicBool::new(false),
            hears_of_forks: AtomicBool::new(false),
        }
    }

    /// Runs `work` on the job, which must be initialised. Must not be nested.
    pub fn with<R>(&self, work: impl FnOnce(&mut J) -> Result<R>) -> Result<R> {
        self.with_job(|job| job.as_mut().ok_or(Code::INIT).and_then(work))
    }

    pub fn is_initialised(&self) -> bool {
        self.with(|_| Ok(())).is_ok()
    }

    /// Runs `work` with the lock if there may be a job.
    fn with_job<R>(&self, work: impl FnOnce(&mut Option<J>) -> Result<R>) -> Result<R> {
        if self.is_child() || !self.is_used.load(Ordering::Relaxed) {
            return Err(Code::INIT);
        }
        self.job.with(work)
    }

    /// Joins the job unless it has joined already. `on_fork` must call [`JobSlot::on_fork`] of this slot.
    pub fn init(&self, join: impl FnOnce() -> Result<J>, on_fork: extern "C" fn()) -> Result {
        if self.is_child() {
            return Err(Code::FAIL);
        }
        // Before the lock: a thread that holds it has registered. Two threads may both register, which does no harm.
        if !self.hears_of_forks.load(Ordering::Acquire) {
            on_forked_child(on_fork);
            self.hears_of_forks.store(true, Ordering::Release);
        }
        self.job.with(|job| {
            if job.is_some() {
                return Ok(());
            }
            self.is_used.store(true, Ordering::Relaxed);
            let joined = join();
            if joined.is_err() {
                self.is_used.store(false, Ordering::Relaxed);
                self.fd.store(-1, Ordering::Relaxed);
            }
            *job = Some(joined?);
            Ok(())
        })
    }

    /// Called in the child of a fork. The lock may be held by a thread that exists only in the parent. If there is a
    /// job, the child never takes the lock; otherwise the child may join, so the lock is made anew.
    pub fn on_fork(&self) {
        self.fd.store(-1, Ordering::Relaxed);
        if self.is_used.load(Ordering::Relaxed) {
            self.is_child.store(true, Ordering::Relaxed);
        } else if !self.is_child() {
            // SAFETY: this is the only thread. The value is `None` whenever `is_used` is false, so no change of it was
            // interrupted.
            unsafe { self.job.renew() };
        }
    }

    fn is_child(&self) -> bool {
        self.is_child.load(Ordering::Relaxed)
    }

    /// The server's socket named by the environment. Succeeds once in a process, also if it has several copies of these
    /// libraries.
    pub fn take_inherited(&self, fd: c_int) -> core::result::Result<Socket, Gone> {
        let socket = Socket::named(fd)?;
        if self.taken.swap(true, Ordering::Relaxed) || !socket.claim() { Err(Gone) } else { Ok(socket) }
    }

    /// From now on an abort reaches the server.
    pub fn announce(&self, server: &Server) {
        self.fd.store(server.socket().fd(), Ordering::Relaxed);
    }

    /// The server's socket, for an abort.
    pub fn socket(&self) -> Option<Socket> {
        let fd = self.fd.load(Ordering::Relaxed);
        (fd >= 0).then(|| Socket::inherited(fd))
    }

    /// Takes the job out of the slot, which is then no longer initialised.
    pub fn take(&self) -> Result<J> {
        self.with_job(|job| {
            let taken = job.take().ok_or(Code::INIT);
            self.is_used.store(false, Ordering::Relaxed);
            taken
        })
    }

    /// Finalizes with the server of a job that [`JobSlot::take`] has taken out.
    pub fn leave(&self, with: With) -> Result {
        let With::Server(mut server) = with else {
            return Ok(());
        };
        let told = server.tell(&Request::Finalize);
        // Another thread may have joined again meanwhile, by a connection of its own.
        let _ = self.fd.compare_exchange(server.socket().fd(), -1, Ordering::Relaxed, Ordering::Relaxed);
        server.socket().close();
        Ok(told?)
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
    use std::os::fd::{AsRawFd, IntoRawFd};
    use std::os::unix::net::UnixStream;
    use wireup_wire::pmi::Dialect;

    #[test]
    fn calls_in_a_forked_child_fail_at_once() {
        extern "C" fn nothing() {}
        let slot = JobSlot::<u32>::new();
        slot.on_fork();
        assert_eq!(slot.take(), Err(Code::INIT));
        assert_eq!(slot.init(|| Ok(7), nothing), Ok(()), "a child of a process that has not joined may join");
        assert_eq!(slot.init(|| Err(Code::FAIL), nothing), Ok(()), "a second init does nothing");
        assert_eq!((slot.with(|job| Ok(*job)), slot.is_initialised()), (Ok(7), true));
        slot.job.with(|_| {
            // The child of a fork does not have the thread that holds the lock.
            slot.on_fork();
            assert_eq!(slot.with(|job| Ok(*job)), Err(Code::INIT));
            assert_eq!((slot.init(|| Ok(8), nothing), slot.take()), (Err(Code::FAIL), Err(Code::INIT)));
            assert!(!slot.is_initialised() && slot.socket().is_none());
        });
    }

    #[test]
    fn a_child_forked_during_init_does_not_wait() {
        extern "C" fn nothing() {}
        let slot = JobSlot::<u32>::new();
        let joined = slot.init(
            || {
                slot.on_fork();
                assert_eq!(slot.with(|job| Ok(*job)), Err(Code::INIT));
                assert!(!slot.is_initialised());
                Ok(7)
            },
            nothing,
        );
        assert_eq!(joined, Ok(()));
    }

    #[test]
    fn a_child_does_not_wait_for_a_thread_that_was_about_to_join() {
        extern "C" fn nothing() {}
        let slot: &JobSlot<u32> = std::boxed::Box::leak(std::boxed::Box::new(JobSlot::new()));
        let (locked, is_locked) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            slot.job.with(|_| {
                locked.send(()).unwrap();
                loop {
                    std::thread::park();
                }
            })
        });
        is_locked.recv().unwrap();
        assert!(!slot.is_initialised());
        assert_eq!((slot.with(|job| Ok(*job)), slot.take()), (Err(Code::INIT), Err(Code::INIT)));
        slot.on_fork();
        assert_eq!(slot.init(|| Ok(7), nothing), Ok(()));
        assert_eq!(slot.with(|job| Ok(*job)), Ok(7));
    }

    #[test]
    fn an_inherited_descriptor_is_taken_once() {
        let slot = JobSlot::<()>::new();
        let file = std::fs::File::open("/dev/null").unwrap();
        assert_eq!(slot.take_inherited(file.as_raw_fd()), Err(Gone));
        let (here, there) = UnixStream::pair().unwrap();
        let fd = here.into_raw_fd();
        // SAFETY: no memory is passed. The call clears `FD_CLOEXEC`, which an inherited descriptor never has.
        unsafe { libc::fcntl(fd, libc::F_SETFD, 0) };
        let socket = slot.take_inherited(fd).unwrap();
        assert_eq!(JobSlot::<()>::new().take_inherited(fd), Err(Gone), "another copy of the library");
        drop(there);
        assert_eq!(slot.leave(With::Server(Server::new(socket, Dialect::Pmi1))), Err(Code::FAIL));
        // A connection that the program has made itself is not taken, whatever its number is.
        let (other, _) = UnixStream::pair().unwrap();
        assert_eq!(slot.take_inherited(other.as_raw_fd()), Err(Gone));
    }
}
