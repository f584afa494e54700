//! Makes single system calls of a program fail, to see what the program does then.
//!
//! The program and everything that it starts get a seccomp filter that asks a supervisor, a thread of this process,
//! about each system call. The supervisor counts the call and allows it, or answers with an error in its place.
//!
//! ```text
//!   child, between fork and exec                          supervisor
//!     sends its pid, and the number that the listener
//!     will have ── pipe ─────────────────────────────────►  copies the listener (pidfd_getfd)
//!     seccomp(SET_MODE_FILTER, NEW_LISTENER)
//!     execve ── blocks until it is answered ◄────────────►  RECV, decide, SEND; until no process has the filter
//! ```

use crate::sys;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::retry_on_intr;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Pause between two attempts to copy the listener; `LOOKS_MAX`: number of attempts. The child needs microseconds to
/// make it.
const LOOK: Duration = Duration::from_micros(200);
const LOOKS_MAX: u32 = 50_000;

/// A kind of system call: its number, and the role of the process that makes it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Call {
    /// The name of the thread, as in `/proc/PID/comm`, and the first argument of its program.
    pub role: String,
    pub number: i64,
    /// For a `write`: whether it writes to a file that has a name.
    pub on_file: bool,
}

/// The system call to fail: the `occurrence`-th call of this kind, counted from 1, fails with `errno`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failing {
    pub call: Call,
    pub occurrence: u32,
    pub errno: i32,
}

/// A supervisor that has not started yet: the pipe through which the child, between fork and exec, reports its filter.
pub struct Supervision {
    told: OwnedFd,
    tells: OwnedFd,
}

/// The number of system calls of each kind that were made.
pub type Counts = BTreeMap<Call, u32>;

/// The supervisor of a running program.
pub struct Supervisor(JoinHandle<io::Result<(Counts, bool)>>);

impl Supervision {
    /// # Errors
    /// The process has too many open descriptors.
    pub fn new() -> io::Result<Supervision> {
        let (told, tells) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        Ok(Supervision { told, tells })
    }

    /// The function that the child must call between fork and exec; it needs the right to set filters
    /// (`CAP_SYS_ADMIN`).
    pub fn in_child(&self) -> impl Fn() -> io::Result<()> + Send + Sync + use<> {
        let tells = self.tells.as_raw_fd();
        move || sys::ask_about_calls(tells)
    }

    /// Supervises the system calls of all processes that run `program`. Must be called before the child is started.
    ///
    /// # Errors
    /// No thread can be created.
    pub fn start(self, program: PathBuf, failing: Option<Failing>) -> io::Result<Supervisor> {
        let Supervision { told, tells } = self;
        let supervise = move || {
            // The child has its own copy of `tells`.
            let listener = listener(told, tells)?;
            Deciding { program, failing, counts: Counts::new(), has_failed: false }.until_all_have_ended(&listener)
        };
        Ok(Supervisor(thread::Builder::new().spawn(supervise)?))
    }
}

impl Supervisor {
    /// Waits until all processes have ended. Returns the counts of the program's system calls, and whether the call
    /// that should fail was reached.
    ///
    /// # Errors
    /// The kernel lacks a feature that supervision needs.
    pub fn finish(self) -> io::Result<(Counts, bool)> {
        self.0.join().unwrap_or_else(|_| Err(io::Error::other("the supervisor has panicked")))
    }
}

/// Waits for the child's message, then until the child has its filter; returns the filter's listener.
fn listener(told: OwnedFd, tells: OwnedFd) -> io::Result<OwnedFd> {
    let mut words = [0; 8];
    fs::File::from(told).read_exact(&mut words)?;
    drop(tells);
    let [pid, fd] = [0, 4].map(|at| i32::from_ne_bytes([words[at], words[at + 1], words[at + 2], words[at + 3]]));
    let child = Pid::from_raw(pid).ok_or_else(|| io::Error::other("the child has no number here"))?;
    let child = pidfd_open(child, PidfdFlags::empty())?;
    for _ in 0..LOOKS_MAX {
        match pidfd_getfd(&child, fd as RawFd, PidfdGetfdFlags::empty()) {
            Ok(listener) => return Ok(listener),
            Err(rustix::io::Errno::BADF) => thread::sleep(LOOK),
            Err(error) => return Err(error.into()),
        }
    }
    Err(io::Error::other("the child has set no filter"))
}

struct Deciding {
    program: PathBuf,
    failing: Option<Failing>,
    counts: Counts,
    has_failed: bool,
}

impl Deciding {
    fn until_all_have_ended(mut self, listener: &OwnedFd) -> io::Result<(Counts, bool)> {
        loop {
            let mut fds = [PollFd::new(listener, PollFlags::IN)];
            retry_on_intr(|| poll(&mut fds, None))?;
            if !fds[0].revents().contains(PollFlags::IN) {
                return Ok((self.counts, self.has_failed));
            }
            // `None`: the process that asked was killed and needs no answer.
            if let Some(asked) = sys::next_call(listener.as_fd())? {
                let errno = self.errno(&asked);
                sys::answer_call(listener.as_fd(), asked.id, errno)?;
            }
        }
    }

    /// The error with which the call fails; `None`: the call is carried out.
    fn errno(&mut self, asked: &sys::AskedCall) -> Option<i32> {
        let proc = Path::new("/proc").join(asked.pid.to_string());
        if fs::read_link(proc.join("exe")).ok()? != self.program {
            return None;
        }
        let role = fs::read_to_string(proc.join("comm")).ok()?.trim().to_owned();
        let argument = fs::read(proc.join("cmdline")).ok()?;
        let argument = argument.split(|byte| *byte == 0).nth(1).unwrap_or_default();
        let role = format!("{role} {}", String::from_utf8_lossy(argument));
        let on_file = asked.number == libc::SYS_write
            && fs::read_link(proc.join("fd").join(asked.first.to_string())).is_ok_and(|file| {
                file.is_absolute() && !file.starts_with("/dev/null") && !file.starts_with("/dev/pts")
            });
        let call = Call { role, number: asked.number, on_file };
        let failing = self.failing.as_ref().filter(|failing| failing.call == call);
        let count = self.counts.entry(call.clone()).or_insert(0);
        *count += 1;
        let errno = failing.filter(|failing| failing.occurrence == *count).map(|failing| failing.errno);
        self.has_failed |= errno.is_some();
        errno
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    fn run_with(failing: Option<Failing>) -> (std::process::Output, Counts, bool) {
        let supervision = Supervision::new().unwrap();
        let mut command = Command::new("/usr/bin/mkdir");
        command.args(["/", "/tmp"]);
        // SAFETY: the function that the child calls is async-signal-safe.
        unsafe { command.pre_exec(supervision.in_child()) };
        let supervisor = supervision.start("/usr/bin/mkdir".into(), failing).unwrap();
        let output = command.output().unwrap();
        let (counts, has_failed) = supervisor.finish().unwrap();
        (output, counts, has_failed)
    }

    #[test]
    fn the_chosen_call_fails_and_no_other() {
        if !rustix::process::geteuid().is_root() {
            return println!("SKIPPED: it needs root");
        }
        let (output, counts, has_failed) = run_with(None);
        assert!(!has_failed && String::from_utf8_lossy(&output.stderr).matches("File exists").count() == 2);
        let mkdir = counts.keys().find(|call| call.number == libc::SYS_mkdir).unwrap().clone();
        assert_eq!(counts[&mkdir], 2);
        let (output, _, has_failed) = run_with(Some(Failing { call: mkdir, occurrence: 2, errno: libc::ENOSPC }));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(has_failed && said.contains("File exists") && said.contains("No space left"), "{said}");
    }
}
