//! From an error of the system to the error of a start.

use std::io;
use wireup_wire::peer::{SpawnError, SpawnStep};

/// `what` could not be had. An error with words of its own, which the kernel has given no number, stays in words.
pub fn spawn_error(step: SpawnStep, what: impl Into<String>, error: &io::Error) -> SpawnError {
    let what = what.into();
    match error.raw_os_error() {
        Some(errno) => SpawnError { step, what, errno },
        None => SpawnError { step, what: format!("{what}: {error}"), errno: 0 },
    }
}

/// What has failed, and why.
pub fn in_words(error: &SpawnError) -> String {
    let SpawnError { what, errno, step } = error;
    match errno {
        0 => format!("{what} ({})", step.words()),
        _ => format!("{what}: {} ({})", io::Error::from_raw_os_error(*errno), step.words()),
    }
}
