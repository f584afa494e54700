//! Checks that take longer than a test may. What was run is recorded in `proof/`, which is committed.
//!
//! `cargo xtask proof seeds|faults|fuzz|suites --hours H`: simulated sessions, faults on real hosts, mutated bytes for
//! every decoder, test suites of others: for as long as requested, and the next run continues after the last one.
//!
//! `cargo xtask proof calls`: every system call of a run fails once.
//!
//! `cargo xtask proof model`: every order of events in sessions of four and five agents.
//!
//! `cargo xtask proof sanitizers`: the C libraries and programs that call them, with instructions that find wrong
//! accesses.

pub mod calls;
pub mod faults;
pub mod fuzz;
mod ledger;
pub mod sanitizers;
pub mod seeds;
pub mod suites;

use crate::layout;
use crate::step::{Result, output, step};
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

const MODEL_HEAD: &str = "\
# Sessions of which every order of events was run, without a broken rule: their states, and the commit. `cargo xtask proof model` does it.
";

/// Explores the model and records its size.
///
/// # Errors
/// The model cannot be built, or a rule is broken.
pub fn model() -> Result {
    let commit = commit()?;
    let model = step("build the model", || build(&["--package", "wireup-proto", "--lib"]))?;
    let test = "session::membership::model::larger_sessions_keep_the_rules_whatever_happens";
    let said = step("explore it", || output(Command::new(model).args(["--ignored", "--exact", test, "--nocapture"])))?;
    let lines: Vec<&str> = said.lines().filter_map(|line| line.strip_prefix("explored ")).collect();
    if lines.is_empty() {
        return Err(format!("there is no test {test}"));
    }
    let text: String = lines.iter().map(|line| format!("{line}, {commit}\n")).collect();
    eprint!("{text}");
    let path = layout::root().join("proof/model.txt");
    fs::write(&path, format!("{MODEL_HEAD}{text}")).map_err(|e| format!("write {}: {e}", path.display()))
}

/// Builds a test program once, so that edits made during a run do not affect what the ledger records.
fn build(which: &[&str]) -> Result<PathBuf> {
    let mut cargo = Command::new("cargo");
    cargo.current_dir(layout::root()).args(["test", "--profile", "proof"]).args(which);
    let said = output(cargo.args(["--no-run", "--message-format", "json"]))?;
    executable(&said)
}

/// The last program that cargo says it has built.
fn executable(said: &str) -> Result<PathBuf> {
    let built = said.rsplit_once("\"executable\":\"").and_then(|(_, rest)| rest.split_once('"'));
    built.map(|(path, _)| path.into()).ok_or_else(|| "cargo does not say what it has built".into())
}

/// For how long to run.
fn length(hours: &str) -> Result<Duration> {
    let number: f64 = hours.parse().map_err(|_| format!("--hours {hours}: not a number"))?;
    Duration::try_from_secs_f64(number * 3600.0).map_err(|e| format!("--hours {hours}: {e}"))
}

/// The commit that is run, with a mark if there are uncommitted changes.
fn commit() -> Result<String> {
    let git = |args: &[&str]| output(Command::new("git").current_dir(layout::root()).args(args));
    let commit = git(&["rev-parse", "--short=7", "HEAD"])?;
    let is_changed = !git(&["status", "--porcelain", "--untracked-files=no", "--", ".", ":!proof"])?.is_empty();
    Ok(if is_changed { commit + "+changes" } else { commit })
}
