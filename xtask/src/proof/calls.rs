//! Every system call of a run, of a session and of a PMIx server fails once: all trials of `crates/cli/tests/e2e/failing_calls.rs`.

use super::faults;
use crate::layout;
use crate::step::{Result, output, step};
use std::fs;
use std::process::Command;

const TESTS: [&str; 3] = [
    "every_call_of_a_run_may_fail",
    "every_call_of_a_session_may_fail",
    "every_call_of_a_run_with_a_pmix_server_may_fail",
];
const HEAD: &str = "\
# System calls that were let fail, each in a run of its own, and no run hung, left something behind, or kept silent: the test, the number of
# failures, and the commit. `cargo xtask proof calls` does it.
";

/// Tries all failures and records how many they were.
///
/// # Errors
/// A program cannot be built, or a run does not stand a failure.
pub fn run() -> Result {
    let commit = super::commit()?;
    let trials = step("build the trials", faults::build)?;
    let mut text = HEAD.to_owned();
    for test in TESTS {
        let said = step(test, || {
            let mut trial = Command::new(&trials);
            trial.args(["--exact", &format!("failing_calls::{test}"), "--nocapture"]);
            output(trial.env("WIREUP_CALLS", "all"))
        })?;
        let tried = said.lines().find_map(|line| line.split_once(" failures tried")).map(|(count, _)| count);
        let tried = tried.ok_or_else(|| format!("{test} has tried nothing: it takes root"))?;
        text += &format!("{test}: {tried}, {commit}\n");
    }
    let path = layout::root().join("proof/calls.txt");
    fs::write(&path, text).map_err(|error| format!("write {}: {error}", path.display()))
}
