//! Faults at random moments, by seed, on hosts with a remote shell and in other places: the trials of
//! `dev/e2e/tests/e2e/faults.rs`.

use super::ledger::{Ledger, Line, Range};
use crate::build::{self, cargo};
use crate::layout;
use crate::step::{Result, output, run, step};
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

/// Number of trials that are run with each seed.
const TRIALS: u64 = 72;
/// Kinds of trials, as the ledger names them, each with the end-to-end test that runs them.
const KINDS: [(&str, &str); 2] = [
    ("hosts", "faults::faults_at_random_moments_end_the_job_cleanly"),
    ("places", "faults::places::faults_in_every_place_end_the_job_cleanly"),
];
const HEAD: &str = "\
# Faults that were tried, on hosts with a remote shell and in other places (virtual nodes, sessions, Slurm): kind, \
seeds (the first, and
# the one behind the last; 72 trials each), commit, and which of them failed. `cargo xtask night faults --hours H` \
goes on;
# `WIREUP_FAULT_SEED=S WIREUP_FAULT_TRIALS=72` (dev/e2e/tests/e2e/faults.rs) repeats one.
";

/// Runs seeds that were not run yet, for this many hours.
///
/// # Errors
/// A program cannot be built or run, or a trial fails.
pub fn run_for(hours: &str) -> Result {
    let (length, commit) = (super::length(hours)?, super::commit()?);
    let mut ledger = Ledger::read("faults.txt", HEAD)?;
    let trials = step("build the trials", build)?;
    let start = Instant::now();
    let mut broken = Vec::new();
    while start.elapsed() < length {
        // The kinds take turns: the next turn is that of the kind with the lowest unused seed.
        let kinds = KINDS.map(|(kind, test)| (ledger.next(kind), kind, test));
        let (first, kind, test) = *kinds.iter().min().expect("there are kinds");
        let range = Range { kind: kind.into(), first, end: first + 1 };
        let said = step(format!("{kind}, seed {first}"), || {
            let mut trial = Command::new(&trials);
            trial.args(["--exact", test, "--nocapture"]).env("WIREUP_BIN", layout::debug_wireup());
            trial.env("WIREUP_FAULT_SEED", first.to_string());
            Ok(output(trial.env("WIREUP_FAULT_TRIALS", TRIALS.to_string())))
        })?;
        // A test run also succeeds if the test does not exist or has found no hosts to run on, so the trials are
        // counted.
        let is_bad = match said {
            Ok(said) if said.matches(" s]").count() as u64 >= TRIALS => false,
            Ok(_) => return Err(format!("{test} has not run its {TRIALS} trials: are there hosts to test with?")),
            Err(problem) => {
                eprintln!("    {problem}");
                true
            }
        };
        broken.extend(is_bad.then_some(first));
        ledger.add(Line { range, commit: commit.clone(), broken: is_bad.then_some(first).into_iter().collect() });
        ledger.write()?;
    }
    if broken.is_empty() { Ok(()) } else { Err(format!("trials of these seeds failed: {broken:?}")) }
}

/// Builds the end-to-end tests and the programs that they run; returns the tests' path. The product is the debug build,
/// which checks its own assertions.
pub(super) fn build() -> Result<PathBuf> {
    build::programs()?;
    run(cargo().args(["build", "--quiet", "--package", "wireup"]))?;
    let mut cargo = cargo();
    cargo.args(["test", "--package", "wireup-e2e", "--test", "e2e", "--no-run"]);
    super::executable(&output(cargo.args(["--message-format", "json"]))?)
}
