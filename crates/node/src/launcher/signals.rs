//! The signals of the launcher, read from signal descriptors.

use super::RunError;
use crate::agent::token::Token;
use wireup_os::process::{SignalFd, deliver, is_ignored};
use wireup_os::reactor::{Interest, Reactor};
use wireup_wire::signal::{SIGALRM, SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGUSR1, SIGUSR2, SIGWINCH};

/// Signals that the launcher passes on to the job as soon as it reads them.
const PASSED_ON: [i32; 9] = [SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2, SIGALRM, SIGTERM, SIGCONT, SIGWINCH];

pub struct Signals {
    passed_on: SignalFd,
    /// Readable while a `SIGTSTP` is pending. The descriptor is never read, because the kernel discards a pending
    /// `SIGTSTP` when a `SIGCONT` follows: so the order of the two signals is preserved.
    stop: SignalFd,
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

    /// The next signal to pass on to the job, and the pid of its sender.
    pub fn read(&self) -> Option<(i32, Option<u32>)> {
        self.passed_on.read_from()
    }

    /// Whether a `SIGTSTP` is pending and no `SIGCONT` has followed.
    pub fn is_stop_pending(&self) -> bool {
        self.stop.is_pending(SIGTSTP)
    }

    /// Lets the pending `SIGTSTP` stop this process, unless a `SIGCONT` has discarded it. Returns after a `SIGCONT`;
    /// `false`: this process did not stop, since the kernel does not stop a process group that no shell could continue.
    pub fn stop(&self) -> bool {
        deliver(SIGTSTP);
        self.passed_on.is_pending(SIGCONT)
    }
}
