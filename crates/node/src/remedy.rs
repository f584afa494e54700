//! Errors for the user: advice in messages of agents and launchers, and a [`SpawnError`] from a system error.

use std::fmt;
use std::io;
use wireup_os::interfaces;
use wireup_wire::peer::{SpawnError, SpawnStep, remedy};

/// An error, with advice if a resource has run out.
pub struct Advised<'e>(pub &'e io::Error);

impl fmt::Display for Advised<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)?;
        match self.0.raw_os_error().and_then(remedy) {
            Some(remedy) => write!(f, "; {remedy}"),
            None => Ok(()),
        }
    }
}

/// Advice about an agent that cannot connect to its parent. `same_machine`: the parent is on this machine, and is
/// reached through the loopback interface.
pub fn of_dialling(same_machine: bool) -> &'static str {
    let has_loopback =
        || interfaces::addresses().is_ok_and(|all| all.iter().any(|address| address.loopback && address.up));
    match () {
        () if !same_machine => "check for a firewall between it and its parent; --interface chooses another network",
        () if !has_loopback() => "the loopback interface of this machine is down; bring it up: ip link set lo up",
        () => {
            "is its parent stopped or short of open files (raise ulimit -n), or does a firewall forbid connections to \
             127.0.0.1?"
        }
    }
}

/// The error that `what` failed at this step. An `io::Error` without an errno is kept as text, with errno 0.
pub fn spawn_error(step: SpawnStep, what: impl Into<String>, error: &io::Error) -> SpawnError {
    let what = what.into();
    match error.raw_os_error() {
        Some(errno) => SpawnError { step, what, errno },
        None => SpawnError { step, what: format!("{what}: {error}"), errno: 0 },
    }
}

/// The error that the ranks cannot be bound to CPUs as requested.
pub fn unbound(error: &io::Error) -> SpawnError {
    SpawnError { step: SpawnStep::Bind, what: error.to_string(), errno: 0 }
}

/// Text that says what has failed, and why.
pub fn in_words(error: &SpawnError) -> String {
    let SpawnError { what, errno, step } = error;
    match errno {
        0 => format!("{what} ({})", step.words()),
        _ => format!("{what}: {} ({})", io::Error::from_raw_os_error(*errno), step.words()),
    }
}
