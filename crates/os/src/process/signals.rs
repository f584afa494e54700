//! Reads signals from descriptors: the signals are blocked for the whole process, and read like bytes.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};

/// Largest signal number of Linux.
const SIGNAL_MAX: i32 = 64;

/// A descriptor that becomes readable when one of its signals is pending.
pub struct SignalFd {
    fd: OwnedFd,
}

impl SignalFd {
    /// Blocks `signals` for the calling thread (and for the threads that it starts later) and opens the
    /// descriptor, non-blocking.
    pub fn new(signals: &[i32]) -> io::Result<SignalFd> {
        let set = set_of(signals);
        // SAFETY: `set` is initialised and outlives the calls; a null old mask is allowed; the descriptor is new
        // and has no other owner.
        unsafe {
            libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
            match libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) {
                -1 => Err(io::Error::last_os_error()),
                fd => Ok(SignalFd { fd: OwnedFd::from_raw_fd(fd) }),
            }
        }
    }

    /// Whether this signal is blocked and pending, so that it can be read.
    pub fn is_pending(&self, signal: i32) -> bool {
        let mut pending = std::mem::MaybeUninit::uninit();
        // SAFETY: the kernel fills the set, unless the call fails, and then it is not read.
        unsafe { libc::sigpending(pending.as_mut_ptr()) == 0 && libc::sigismember(pending.as_ptr(), signal) == 1 }
    }

    /// The number of the next pending signal. Several pending signals of the same number may be reported as one.
    pub fn read(&self) -> Option<i32> {
        self.read_from().map(|(signal, _)| signal)
    }

    /// The number of the next pending signal, and the pid of its sender; `None`: the kernel has sent it, or a process
    /// that is not visible in this PID namespace.
    pub fn read_from(&self) -> Option<(i32, Option<u32>)> {
        const INFO_BYTES: usize = size_of::<libc::signalfd_siginfo>();
        let mut info = [0u8; INFO_BYTES];
        match rustix::io::retry_on_intr(|| rustix::io::read(&self.fd, &mut info[..])) {
            // Fields of four bytes: the signal's number, errno, the code, the sender's pid. Codes above 0 come from the
            // kernel.
            Ok(INFO_BYTES) => {
                let word = |at: usize| u32::from_ne_bytes([info[at], info[at + 1], info[at + 2], info[at + 3]]);
                let sender = Some(word(12)).filter(|&pid| pid > 0 && word(8) as i32 <= 0);
                Some((word(0) as i32, sender))
            }
            Ok(_) | Err(_) => None,
        }
    }
}

impl AsFd for SignalFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The signals that were blocked before a change of the mask.
#[must_use = "or say that the mask stays with `let _ =`"]
#[derive(Clone)]
pub struct SavedMask {
    pub(super) before: libc::sigset_t,
}

impl SavedMask {
    /// Restores this mask.
    pub fn restore(self) {
        // SAFETY: the set was filled by the kernel; a null old mask is allowed.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, std::ptr::null_mut()) };
    }
}

/// Blocks every signal that can be blocked, for the calling thread.
pub fn block_all_signals() -> SavedMask {
    let mut set = MaybeUninit::uninit();
    let mut before = MaybeUninit::uninit();
    // SAFETY: `sigfillset` initialises `set` before it is read; `pthread_sigmask`, which cannot fail with these
    // arguments, initialises `before`.
    unsafe {
        libc::sigfillset(set.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, set.as_ptr(), before.as_mut_ptr());
        SavedMask { before: before.assume_init() }
    }
}

/// Unblocks these signals for the calling thread: pending ones take effect at once.
pub fn unblock(signals: &[i32]) {
    let set = set_of(signals);
    // SAFETY: `set` is initialised and outlives the call; a null old mask is allowed.
    unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, &set, std::ptr::null_mut()) };
}

/// Lets this blocked signal take effect on the calling thread if it is pending, and blocks it again.
pub fn deliver(signal: i32) {
    unblock(&[signal]);
    let set = set_of(&[signal]);
    // SAFETY: `set` is initialised and outlives the call; a null old mask is allowed.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut()) };
}

/// Undoes [`ignore_write_errors`], which had returned `ignored`.
pub fn restore_write_errors(ignored: &[i32]) {
    for signal in [libc::SIGPIPE, libc::SIGXFSZ].into_iter().filter(|signal| !ignored.contains(signal)) {
        // SAFETY: the default disposition runs no code of this process.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

/// Whether this process ignores `signal`. `nohup` and the background jobs of scripts start programs with such
/// signals ignored.
pub fn is_ignored(signal: i32) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: a null new action changes nothing; `action` is read only if the call has succeeded and so has filled it.
    unsafe {
        libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) == 0
            && action.assume_init().sa_sigaction == libc::SIG_IGN
    }
}

/// Ends this process by `signal`, without a core dump; returns if the signal's default action does not end processes.
pub fn end_by(signal: i32) {
    use rustix::process::{Resource, Rlimit, setrlimit};
    // The core limit is set to 0, since a second core dump would only waste space.
    let _ = super::limit(Resource::Core)
        .map(|limit| setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: limit.maximum }));
    // SAFETY: the default disposition runs no code of this process.
    unsafe {
        libc::signal(signal, libc::SIG_DFL);
        libc::raise(signal);
    }
    unblock(&[signal]);
}

/// Ignores these signals, in this process and in descendants that do not reset them.
pub fn ignore(signals: &[i32]) {
    for &signal in signals {
        // SAFETY: ignoring a signal installs no handler.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}

/// Resets every signal except those in `but` to its default disposition. (This program ignores `SIGPIPE` and `SIGXFSZ`;
/// others may have been inherited as ignored.)
pub fn reset_dispositions(but: &[i32]) {
    // The kernel's `struct sigaction` has four words on every architecture. All zero means: default action, no flags.
    let default = [0u64; 4];
    for signal in (1..=SIGNAL_MAX).filter(|signal| !but.contains(signal)) {
        // SAFETY: the kernel only reads the structure; the default disposition runs no code of this process. The C
        // library's function would refuse the two signals that the C library uses itself. The kernel refuses KILL and
        // STOP, without effect.
        unsafe { libc::syscall(libc::SYS_rt_sigaction, signal, default.as_ptr(), std::ptr::null_mut::<u8>(), 8) };
    }
}

fn set_of(signals: &[i32]) -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: `sigemptyset` initialises the set; `sigaddset` refuses invalid signal numbers.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for &signal in signals {
            libc::sigaddset(set.as_mut_ptr(), signal);
        }
        set.assume_init()
    }
}

/// Makes writes to a closed pipe, or beyond the file size limit, fail instead of ending this process. A spawned program
/// gets the default disposition only if [`reset_dispositions`] is called. Returns which of `SIGPIPE` and `SIGXFSZ` were
/// ignored before.
pub fn ignore_write_errors() -> Vec<i32> {
    let mut ignored = Vec::new();
    for signal in [libc::SIGPIPE, libc::SIGXFSZ] {
        // SAFETY: ignoring a signal installs no handler.
        if unsafe { libc::signal(signal, libc::SIG_IGN) } == libc::SIG_IGN {
            ignored.push(signal);
        }
    }
    ignored
}
