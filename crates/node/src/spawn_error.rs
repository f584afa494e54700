//! Makes a [`SpawnError`], the report of a process that could not be started, from a system error.

use std::io;
use wireup_wire::peer::{SpawnError, SpawnStep};

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
