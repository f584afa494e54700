//! The forker: a process with one thread that forks keepers for a process that has several threads.
//!
//! A process starts its forker before its first other thread (a thread that writes a job's output, or one of a foreign
//! library), and from then on requests each keeper from it. Keepers must be children of the requesting process, which
//! is a subreaper: so an intermediate process forks the keeper and exits.
//!
//! ```text
//!   agent ── namespace ──► forker ── forks ──► between ── forks ──► keeper
//!     ◄──────── pid, socket of the keeper ─────────┘ ends            (now a child of the agent)
//!     ◄── how that ended ────┘
//! ```
//!
//! The forker ends when the agent's end of the socket is closed. Cost of a keeper: two forks and four messages in place
//! of one fork.

use super::leaving::{self, Leaving};
use super::serve;
use rustix::io::Errno;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use wireup_os::process::{self, Ended, Fork, PidNamespace};
use wireup_os::pty::SavedTerminal;
use wireup_os::{files, socket};

/// Longest wait until a keeper has set up its PID namespace, which usually takes 0.2 ms.
pub(super) const ENTER_MAX: Duration = Duration::from_secs(3);
/// Longest wait until the forker has forked a keeper, which usually takes less than a millisecond.
const FORK_MAX: Duration = ENTER_MAX;

/// The forker of this process, or the error by which it was lost; all threads share it. `None`: there is no forker.
static FORKER: Mutex<Option<Result<Forker, String>>> = Mutex::new(None);

struct Forker {
    pid: u32,
    socket: OwnedFd,
}

/// Starts the forker. Call it before this process gets another thread: from now on [`super::Keeper::fork`] and
/// [`super::Keeper::fork_isolated`] need not be called with one thread. Only the first call has an effect.
///
/// # Errors
/// This process has several threads, or no process can be created.
pub fn before_threads() -> io::Result<()> {
    if pid().is_none() {
        // The lock must not be held during the fork, since the forker gets a copy of it.
        let forker = Forker::fork()?;
        *own() = Some(Ok(forker));
    }
    Ok(())
}

fn own() -> MutexGuard<'static, Option<Result<Forker, String>>> {
    FORKER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The forker's pid.
pub fn pid() -> Option<u32> {
    own().as_ref()?.as_ref().ok().map(|forker| forker.pid)
}

/// Ends the forker, when this process needs no more keepers. Does not wait for the forker's exit: [`leaving`] reaps it.
pub fn end() {
    if let Some(Ok(Forker { pid, socket })) = own().take() {
        drop(socket);
        leaving::add(Leaving::of(pid));
    }
}

/// Makes the forker fork a keeper; returns the keeper's pid and socket. `None`: this process has no forker.
pub(super) fn ask(namespace: Option<&PidNamespace>) -> Option<io::Result<(u32, OwnedFd)>> {
    let mut forker = own();
    let asked = match forker.as_ref()? {
        Ok(forker) => forker.ask(namespace),
        Err(lost) => return Some(Err(io::Error::other(lost.clone()))),
    };
    Some(asked.unwrap_or_else(|error| {
        // The forker cannot be used any more: bytes that it still sends would be taken for its next answer.
        if let Some(Ok(Forker { pid, .. })) = forker.replace(Err(error.to_string())) {
            leaving::add(Leaving::of(pid));
        }
        Err(error)
    }))
}

impl Forker {
    fn fork() -> io::Result<Forker> {
        let (socket, far) = socket::packet_pair()?;
        match process::fork_with_signals_blocked()? {
            Fork::Child => {
                // A panic must not unwind into stack frames of which this process has a copy.
                let served = std::panic::catch_unwind(|| serve(far));
                process::leave(if matches!(served, Ok(Ok(()))) { 0 } else { 1 })
            }
            Fork::Parent { child } => Ok(Forker { pid: child, socket }),
        }
    }

    /// Requests a keeper. The outer error: requests and answers are out of step. The inner error: no keeper was forked.
    fn ask(&self, namespace: Option<&PidNamespace>) -> io::Result<io::Result<(u32, OwnedFd)>> {
        let gone = || {
            io::Error::other(
                "wireup-forker, which creates processes for this one, was killed; run again, and see dmesg for an \
                 out-of-memory kill",
            )
        };
        let (kind, fds) = describe(namespace);
        match socket::send(&self.socket, &[kind], &fds) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Err(gone()),
            // Nothing was sent, so the messages are still in step.
            Err(error) => return Ok(Err(error)),
        }
        let mut keeper = None;
        loop {
            if !socket::wait(&self.socket, true, false, Some(FORK_MAX))? {
                return Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    "wireup-forker, which creates processes for this one, does not answer; is it stopped (kill -CONT)?",
                ));
            }
            let (mut bytes, mut fds) = ([0; 4], VecDeque::new());
            let length = socket::receive(&self.socket, &mut bytes, &mut fds).or_else(|error| match error.kind() {
                // The forker was killed before it read the request.
                io::ErrorKind::ConnectionReset => Ok(0),
                _ => Err(error),
            })?;
            match (length, fds.pop_front()) {
                (4, Some(fd)) => keeper = Some((u32::from_ne_bytes(bytes), fd)),
                (0, _) => return Err(gone()),
                (1, None) => return Ok(keeper.ok_or_else(|| io::Error::from_raw_os_error(bytes[0].into()))),
                _ => {
                    return Err(io::Error::other(
                        "wireup-forker, which creates processes for this one, gave a wrong answer; run again",
                    ));
                }
            }
        }
    }
}

const SHARED: u8 = 0;
const NEW: u8 = 1;
const NEW_BY_USER: u8 = 2;
const OF: u8 = 3;

/// A namespace in a message: the byte for its kind, and the descriptors of an existing namespace.
fn describe(namespace: Option<&PidNamespace>) -> (u8, Vec<BorrowedFd<'_>>) {
    match namespace {
        None => (SHARED, Vec::new()),
        Some(PidNamespace::New { by_user: false }) => (NEW, Vec::new()),
        Some(PidNamespace::New { by_user: true }) => (NEW_BY_USER, Vec::new()),
        Some(PidNamespace::Of { user, numbers, mounts }) => {
            (OF, [numbers, mounts].into_iter().chain(user).map(AsFd::as_fd).collect())
        }
    }
}

fn described(kind: u8, mut fds: VecDeque<OwnedFd>) -> Option<PidNamespace> {
    match kind {
        NEW | NEW_BY_USER => Some(PidNamespace::New { by_user: kind == NEW_BY_USER }),
        OF => {
            let [numbers, mounts] = [fds.pop_front()?, fds.pop_front()?];
            Some(PidNamespace::Of { user: fds.pop_front(), numbers, mounts })
        }
        _ => None,
    }
}

/// The main loop of the forker process, with all signals blocked. Returns when the agent has closed its socket.
fn serve(socket: OwnedFd) -> io::Result<()> {
    process::set_name(c"wireup-forker");
    let standard = [rustix::stdio::stdin(), rustix::stdio::stdout(), rustix::stdio::stderr()];
    files::close_all_but(&standard.into_iter().chain([socket.as_fd()]).collect::<Vec<_>>());
    loop {
        // No time limit: the forker waits until the agent requests a keeper or ends.
        socket::wait(&socket, true, false, None)?;
        let (mut kind, mut fds) = ([0], VecDeque::new());
        if socket::receive(&socket, &mut kind, &mut fds)? == 0 {
            return Ok(());
        }
        let namespace = described(kind[0], fds);
        let error = match process::fork_with_signals_blocked() {
            Ok(Fork::Child) => process::leave(between(&socket, namespace.as_ref())),
            Ok(Fork::Parent { child }) => match process::wait_for(child)? {
                Ended::Exited(error) => error,
                Ended::Signalled { .. } => code(Errno::INTR),
            },
            Err(error) => code_of(&error),
        };
        socket::send(&socket, &[error], &[])?;
    }
}

/// Forks a keeper and sends its pid and socket to the agent. Returns the exit code: 0, or the number of an error.
fn between(socket: &OwnedFd, namespace: Option<&PidNamespace>) -> i32 {
    let reported =
        fork_here(namespace).and_then(|(pid, keeper)| socket::send(socket, &pid.to_ne_bytes(), &[keeper.as_fd()]));
    reported.map_or_else(|error| code_of(&error).into(), |_| 0)
}

/// The number of an error, which is below 256 on Linux.
fn code_of(error: &io::Error) -> u8 {
    code(Errno::from_io_error(error).unwrap_or(Errno::IO))
}

fn code(errno: Errno) -> u8 {
    errno.raw_os_error() as u8
}

/// Forks a keeper from this process. Returns its pid, and the agent's end of its socket.
pub(super) fn fork_here(namespace: Option<&PidNamespace>) -> io::Result<(u32, OwnedFd)> {
    let (socket, far) = socket::pair()?;
    // The terminal's modes are read before the fork: later the agent might change them before the keeper reads them.
    // Usually standard input is no terminal.
    let terminal = SavedTerminal::remembered().or_else(|| SavedTerminal::save(rustix::stdio::stdin()).ok());
    let (forked, outer) = match namespace {
        None => (process::fork_with_signals_blocked()?, None),
        Some(namespace) => process::fork_isolated(namespace).map(|(forked, outer)| (forked, Some(outer)))?,
    };
    match forked {
        Fork::Child => serve::main(far, terminal, outer.zip(namespace)),
        Fork::Parent { child } => Ok((child, socket)),
    }
}
