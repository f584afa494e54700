//! The launcher's signals, which it reads from descriptors.

use super::RunError;
use crate::agent::token::Token;
use wireup_os::process::{SignalFd, deliver, is_ignored};
use wireup_os::reactor::{Interest, Reactor};
use wireup_wire::signal::{SIGALRM, SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGUSR1, SIGUSR2, SIGWINCH};

/// Signals that are passed on to the job as they are read.
const PASSED_ON: [i32; 9] = [SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2, SIGALRM, SIGTERM, SIGCONT, SIGWINCH];

pub struct Signals {
    passed_on: SignalFd,
    /// Readable while a `SIGTSTP` is pending. It is never read, because the kernel removes it when a `SIGCONT` follows:
    /// so the order of the two is never lost.
    stop: SignalFd,
}

impl Signals {
    /// Blocks the signals and watches for them. Those that our caller has made us ignore, as under `nohup`, stay
    /// ignored: a blocked signal would be delivered to a descriptor even so.
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

    /// The next signal that is passed on, and the process that has sent it.
    pub fn read(&self) -> Option<(i32, Option<u32>)> {
        self.passed_on.read_from()
    }

    /// Whether this process is to stop, and has not been continued since.
    pub fn is_stop_pending(&self) -> bool {
        self.stop.is_pending(SIGTSTP)
    }

    /// Lets the pending `SIGTSTP` stop this process, unless a `SIGCONT` has removed it. Returns after a `SIGCONT`, or
    /// at once and false, since the kernel does not stop a process group that no shell could continue.
    pub fn stop(&self) -> bool {
        deliver(SIGTSTP);
        self.passed_on.is_pending(SIGCONT)
    }
}
