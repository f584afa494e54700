//! The few system calls of the testbed that need `unsafe`. All of them are for processes with a single thread.
use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use rustix::process::Pid;
use rustix::thread::{LinkNameSpaceType, ThreadNameSpaceType, UnshareFlags};

/// Forks; returns `None` in the child. Only for a process with a single thread, so that the child may allocate.
pub fn fork() -> io::Result<Option<Pid>> {
    // SAFETY: the serving process never starts a thread, so no other thread holds a lock at the time of the copy.
    let pid = unsafe { libc::fork() };
    if pid < 0 { Err(io::Error::last_os_error()) } else { Ok(Pid::from_raw(pid)) }
}

/// Exits without unwinding, destructors or flushing of buffers copied from the parent.
pub fn leave(code: i32) -> ! {
    // SAFETY: `_exit` has no preconditions.
    unsafe { libc::_exit(code) }
}

/// Restores the default action of the signals that a shell ignores in background commands (such as the whole test run).
/// May be called between fork and exec.
pub fn heed_interrupts() {
    for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT] {
        // SAFETY: taking a signal's default installs no handler.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

/// From now on the kernel refuses, with `errno`, system calls with this number or a higher one, in the calling process,
/// which needs `CAP_SYS_ADMIN`, and in those that it starts. `clone3` fails with ENOSYS, as with the filters of
/// containers: with another error the C library would make no threads. May be called between fork and exec.
pub fn refuse_calls_from(number: u32, errno: i32) -> io::Result<()> {
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let number_of_call = step((libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16, 0, 0, 0);
    let is_clone3 = step((libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16, 0, 1, libc::SYS_clone3 as u32);
    let is_refused = step((libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K) as u16, 0, 1, number);
    let answer = |answer| step((libc::BPF_RET | libc::BPF_K) as u16, 0, 0, answer);
    let mut filter = [
        number_of_call,
        is_clone3,
        answer(libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32),
        is_refused,
        answer(libc::SECCOMP_RET_ERRNO | errno as u32),
        answer(libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the kernel copies the filter, which `program` describes.
    match unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// From now on a supervisor is asked about each system call of the calling process, which needs `CAP_SYS_ADMIN`, and of
/// those that it starts. Before that, the process writes its pid and the number of the listener's descriptor to
/// `tells`. May be called between fork and exec.
pub fn ask_about_calls(tells: RawFd) -> io::Result<()> {
    // The kernel gives the listener the lowest free descriptor, so its number is known beforehand.
    // SAFETY: the descriptor that is opened here is closed here.
    let listener = unsafe { libc::open(c"/dev/null".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) };
    if listener < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was opened above, and nothing else uses it.
    unsafe { libc::close(listener) };
    let mut words = [0; 8];
    // SAFETY: `getpid` has no preconditions.
    words[..4].copy_from_slice(&unsafe { libc::getpid() }.to_ne_bytes());
    words[4..].copy_from_slice(&listener.to_ne_bytes());
    // SAFETY: the buffer has the stated length; the caller keeps `tells` open.
    if unsafe { libc::write(tells, words.as_ptr().cast(), words.len()) } != words.len() as isize {
        return Err(io::Error::last_os_error());
    }
    let ask =
        libc::sock_filter { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k: libc::SECCOMP_RET_USER_NOTIF };
    let mut filter = [ask];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    let flags = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER;
    // SAFETY: the kernel copies the filter, which `program` describes.
    match unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const program) } {
        0.. => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A system call that blocks until the supervisor has answered.
pub struct AskedCall {
    pub id: u64,
    /// Id of the thread that makes the call.
    pub pid: u32,
    pub number: i64,
    /// The first argument of the call.
    pub first: u64,
}

/// Receives the next system call that waits for an answer. `None`: the thread that made it was killed.
pub fn next_call(listener: BorrowedFd<'_>) -> io::Result<Option<AskedCall>> {
    // SAFETY: zero is a valid value, and the kernel requires a zeroed structure.
    let mut call: libc::seccomp_notif = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel fills the structure.
    match unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_RECV, &raw mut call) } {
        0 => {
            let (number, first) = (call.data.nr.into(), call.data.args[0]);
            Ok(Some(AskedCall { id: call.id, pid: call.pid, number, first }))
        }
        _ => gone(io::Error::last_os_error()).map(|()| None),
    }
}

/// Answers a waiting system call: it is carried out, or fails with `errno`.
pub fn answer_call(listener: BorrowedFd<'_>, id: u64, errno: Option<i32>) -> io::Result<()> {
    let flags = if errno.is_some() { 0 } else { libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32 };
    let answer = libc::seccomp_notif_resp { id, val: 0, error: -errno.unwrap_or(0), flags };
    // SAFETY: the kernel reads the structure.
    match unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SEND, &raw const answer) } {
        0 => Ok(()),
        _ => gone(io::Error::last_os_error()),
    }
}

/// Ignores the errors of a call that has ended because its thread was killed or a signal interrupted it.
fn gone(error: io::Error) -> io::Result<()> {
    if [Some(libc::ENOENT), Some(libc::EINTR)].contains(&error.raw_os_error()) { Ok(()) } else { Err(error) }
}

/// Moves the calling process into new name spaces.
pub fn unshare(flags: UnshareFlags) -> io::Result<()> {
    // SAFETY: none of the flags passed here unshares the table of descriptors, the only unsound one.
    unsafe { rustix::thread::unshare_unsafe(flags) }.map_err(Into::into)
}

/// Forks a child that is the first process of a new pid name space.
pub fn fork_init() -> io::Result<Option<Pid>> {
    let own = File::open("/proc/self/ns/pid")?;
    unshare(UnshareFlags::NEWPID)?;
    let forked = fork()?;
    if forked.is_some() {
        // This process can create another pid name space only after its next children belong to its own name space
        // again.
        rustix::thread::move_into_link_name_space(own.as_fd(), Some(LinkNameSpaceType::ProcessID))?;
    }
    Ok(forked)
}

/// Enters the name spaces of another process, then the same folder as before if it exists there. Allocates nothing.
pub fn enter_from_same_folder(process: &impl AsFd, spaces: ThreadNameSpaceType) -> io::Result<()> {
    let mut folder = [0_u8; libc::PATH_MAX as usize];
    // SAFETY: the kernel writes at most the given length, including the terminating NUL.
    let known = unsafe { !libc::getcwd(folder.as_mut_ptr().cast(), folder.len()).is_null() };
    rustix::thread::move_into_thread_name_spaces(process.as_fd(), spaces)?;
    if known && let Ok(folder) = CStr::from_bytes_until_nul(&folder) {
        let _ = rustix::process::chdir(folder);
    }
    Ok(())
}

/// Closes every descriptor from 3 on, except `kept`.
pub fn close_all_but(kept: &impl AsRawFd) {
    let kept = kept.as_raw_fd() as libc::c_uint;
    let close = |first: libc::c_uint, last: libc::c_uint| {
        if first <= last {
            // SAFETY: only called by a new child that uses no descriptor but `kept`; the values that own the inherited
            // descriptors are never dropped.
            unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
        }
    };
    close(3, kept.max(3) - 1);
    close(kept.max(2) + 1, libc::c_uint::MAX);
}

/// Duplicates `fd` as the standard stream `target` (0, 1 or 2).
pub fn become_stream(fd: &impl AsRawFd, target: RawFd) -> io::Result<()> {
    // SAFETY: replaces a standard stream, which is owned by no value in this process.
    if unsafe { libc::dup2(fd.as_raw_fd(), target) } < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Lets the kernel reap every child, including adopted ones, and sleeps until this process is killed.
pub fn reap_forever() -> ! {
    // SAFETY: no handler is installed, and this process does not wait for children by itself from now on.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
    while let Ok(Some(_)) = rustix::process::wait(rustix::process::WaitOptions::NOHANG) {}
    loop {
        // SAFETY: `pause` has no preconditions.
        unsafe { libc::pause() };
    }
}

/// Ignores interrupts from a terminal (SIGINT, SIGQUIT), or restores their default action.
pub fn ignore_interrupts(ignore: bool) {
    let action = if ignore { libc::SIG_IGN } else { libc::SIG_DFL };
    for signal in [libc::SIGINT, libc::SIGQUIT] {
        // SAFETY: no handler is installed.
        unsafe { libc::signal(signal, action) };
    }
}
