//! Every system call of a run, of a session and of a PMIx server fails once: all trials of
//! `dev/e2e/tests/e2e/failing_calls.rs`.

use super::faults;
use crate::layout;
use crate::step::{Result, output, step};
use std::process::Command;

const TESTS: [&str; 3] = [
    "every_call_of_a_run_may_fail", "every_call_of_a_session_may_fail",
    "every_call_of_a_run_with_a_pmix_server_may_fail",
];
const HEAD: &str = "\
# System calls that were made to fail, each in a run of its own: the test, how many of the failures that were counted \
before were reached,
# and the commit. No run hung, left something behind or kept silent, but for the exceptions that \
dev/e2e/tests/e2e/failing_calls.rs
# lists with their reasons. `cargo xtask night calls` does it.
";

/// Tries all failures and records their number.
///
/// # Errors
/// A program cannot be built, or a run hangs, leaves something behind or reports nothing after a failure.
pub fn run() -> Result {
    let commit = super::commit()?;
    let trials = step("build the trials", faults::build)?;
    let mut text = String::new();
    for test in TESTS {
        let said = step(test, || {
            let mut trial = Command::new(&trials);
            trial.args(["--exact", &format!("failing_calls::{test}"), "--nocapture"]).env("WIREUP_CALLS", "all");
            output(trial.env("WIREUP_BIN", layout::debug_wireup()))
        })?;
        let tried = said.lines().find_map(|line| line.split_once(" failures tried")).map(|(count, _)| count);
        let tried = tried
            .ok_or_else(|| format!("{test}: no trial ran: root and the peers of `cargo xtask setup` are required"))?;
        text += &format!("{test}: {tried}, {commit}\n");
    }
    super::prove("calls.txt", HEAD, &text)
}
