//! The terminal of the launcher, and the signals that a user or a batch system sends to it.

use super::RunError;
use crate::agent::token::Token;
use wireup_os::process::{SignalFd, deliver, is_ignored};
use wireup_os::pty::SavedTerminal;
use wireup_os::reactor::{Interest, Reactor};
use wireup_wire::job::JobSpec;
use wireup_wire::signal::{SIGALRM, SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGUSR1, SIGUSR2, SIGWINCH};

/// Switches the user's terminal to raw mode, and gives its size to the rank that gets a pseudo-terminal. Does nothing
/// if no rank gets a pseudo-terminal or the user has no terminal.
pub fn prepare_terminal(job: &mut JobSpec) -> Option<RawTerminal> {
    let pty = job.options.stdio.pty.as_mut()?;
    let stdin = rustix::stdio::stdin();
    if let Ok((rows, columns)) = wireup_os::pty::size(stdin) {
        (pty.rows, pty.columns) = (rows, columns);
    }
    let saved = SavedTerminal::save(stdin).ok()?;
    saved.remember();
    saved.set_raw(stdin).ok()?;
    Some(RawTerminal(saved))
}

/// The user's terminal in raw mode; dropping it restores the modes.
pub struct RawTerminal(SavedTerminal);

impl RawTerminal {
    pub fn set_raw(&self) {
        // Failure means that the terminal is gone, which does not matter.
        let _ = self.0.set_raw(rustix::stdio::stdin());
    }

    pub fn restore(&self) {
        let _ = self.0.restore(rustix::stdio::stdin());
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        self.restore();
    }
}

/// Signals that the launcher passes on to the job as soon as it reads them.
const PASSED_ON: [i32; 9] = [SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2, SIGALRM, SIGTERM, SIGCONT, SIGWINCH];

pub struct Signals {
    pub passed_on: SignalFd,
    /// Readable while a `SIGTSTP` is pending. The descriptor is never read, because the kernel discards a pending
    /// `SIGTSTP` when a `SIGCONT` follows: so the order of the two signals is preserved.
    pub stop: SignalFd,
}

impl Signals {
    /// Blocks the signals and watches for them. Signals that this process ignores, as under `nohup`, are still ignored
    /// and not watched: once blocked, even an ignored signal would be delivered to a signal descriptor.
    pub fn new(reactor: &Reactor, passed_on: Token, stop: Token) -> Result<Signals, RunError> {
        let watch = |signals: &[i32], token: Token| {
            let heeded: Vec<i32> = signals.iter().copied().filter(|&signal| !is_ignored(signal)).collect();
            let signals = SignalFd::new(&heeded)?;
            reactor.add(&signals, token.pack(), Interest::READABLE)?;
            Ok(signals)
        };
        let failed = |error| RunError::System { what: "making a signal descriptor", error };
        let watch = |signals: &[i32], token| watch(signals, token).map_err(failed);
        Ok(Signals { passed_on: watch(&PASSED_ON, passed_on)?, stop: watch(&[SIGTSTP], stop)? })
    }

    /// Lets the pending `SIGTSTP` stop this process, unless a `SIGCONT` has discarded it. Returns after a `SIGCONT`;
    /// `false`: this process did not stop, since the kernel does not stop a process group that no shell could continue.
    pub fn stop(&self) -> bool {
        deliver(SIGTSTP);
        self.passed_on.is_pending(SIGCONT)
    }
}
