//! Starts a program that is killed when this process ends, and that otherwise runs as if this process's caller had
//! started it.

use super::SavedMask;
use std::io;
use std::os::fd::{BorrowedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

/// Settings that a program inherits and that this process has changed for itself; the program gets the old ones.
pub struct Inherited {
    /// The signal mask before the change.
    pub mask: SavedMask,
    /// SIGPIPE, SIGXFSZ, both or neither: the signals that this process ignored before it called
    /// [`super::ignore_write_errors`].
    pub ignored: Vec<i32>,
}

/// Starts `command` in this process's group; it is killed when the calling thread ends. `fd`: a descriptor, and its
/// number in the new process.
pub fn start_bound(
    command: &mut Command,
    fd: Option<(BorrowedFd<'_>, RawFd)>,
    inherited: Inherited,
) -> io::Result<Child> {
    use std::os::fd::AsRawFd;
    let parent = super::own_pid();
    let fd = fd.map(|(from, to)| (from.as_raw_fd(), to));
    let Inherited { mask, ignored } = inherited;
    // If this process ignored SIGCHLD, it would not be notified of its children's exits, nor get their exit status.
    // SAFETY: the default disposition runs no code of this process.
    let of_children = unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
    let ignores_children = of_children == libc::SIG_IGN;
    // Between fork and exec only these system calls are made.
    let prepare = move || {
        // SAFETY: these calls touch no memory but the saved mask; the descriptor is open in the parent, and so here.
        unsafe {
            if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0 {
                return Err(io::Error::last_os_error());
            }
            // The parent may have ended before `prctl` has bound this process to it.
            if u32::try_from(libc::getppid()) != Ok(parent) {
                libc::_exit(1);
            }
            if let Some((from, to)) = fd {
                let moved = if from == to { libc::fcntl(from, libc::F_SETFD, 0) } else { libc::dup2(from, to) };
                if moved < 0 {
                    return Err(io::Error::last_os_error());
                }
            }
            for signal in [libc::SIGPIPE, libc::SIGXFSZ] {
                let disposition = if ignored.contains(&signal) { libc::SIG_IGN } else { libc::SIG_DFL };
                libc::signal(signal, disposition);
            }
            if ignores_children {
                libc::signal(libc::SIGCHLD, libc::SIG_IGN);
            }
            libc::pthread_sigmask(libc::SIG_SETMASK, &mask.before, std::ptr::null_mut());
        }
        Ok(())
    };
    // SAFETY: `prepare` makes only the system calls that are allowed between fork and exec.
    unsafe { command.pre_exec(prepare) };
    command.spawn().inspect_err(|_| {
        if ignores_children {
            // SAFETY: ignoring a signal runs no code of this process.
            unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
        }
    })
}
