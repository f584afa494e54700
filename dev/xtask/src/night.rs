//! Checks that take longer than a test may. The folder `proof/`, which is committed, records which checks were run.
//!
//! `cargo xtask night seeds|faults|fuzz|suites --hours H`: simulated sessions, faults on real hosts, mutated bytes for
//! every decoder, test suites of other projects. Each runs for as long as requested, and the next run continues where
//! the last one ended.
//!
//! `cargo xtask night calls`: every system call of a run fails once.
//!
//! `cargo xtask night model`: every order of events in sessions of four and five agents.
//!
//! `cargo xtask night sanitizers`: the C libraries and programs that call them, compiled with sanitizers that find
//! wrong memory accesses.
//!
//! `cargo xtask night torch`: the versions of PyTorch that later Debians have.

pub mod faults;
pub mod fuzz;
mod ledger;
pub mod sanitizers;
pub mod seeds;
pub mod suites;

use crate::step::{Result, output, run, step};
use crate::{debian, fresh, layout};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;
use std::{env, fs};

const MODEL_HEAD: &str = "\
# Sessions of which every order of events was run, without a broken rule: their states, and the commit. `cargo xtask \
night model` does it.
";

/// Explores the model of a session's membership and records the number of its states.
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
    prove("model.txt", MODEL_HEAD, &text)
}

/// Runs all checks: model, sanitizers, failing calls, large sizes and PyTorch once, then seeds, faults, fuzz targets
/// and suites for a quarter of the time each. A failure does not keep the rest from running.
///
/// # Errors
/// A check has failed; the message names all failed checks.
pub fn all(hours: &str) -> Result {
    let quarter = (length(hours)?.as_secs_f64() / 3600.0 / 4.0).to_string();
    let done = [
        ("model", model()),
        ("sanitizers", sanitizers::run()),
        ("calls", calls()),
        ("large", large()),
        ("torch", torch()),
        ("seeds", seeds::run(&quarter)),
        ("faults", faults::run_for(&quarter)),
        ("fuzz", fuzz::run_for(&quarter)),
        ("suites", suites::run_for(&quarter, None)),
    ];
    let failed: Vec<String> =
        done.into_iter().filter_map(|(name, done)| Some(format!("{name}: {}", done.err()?))).collect();
    none_of(&failed)
}

const LARGE_HEAD: &str = "\
# Tests with sizes too large for a test run, and the commit. `cargo xtask night large` does it.
";

/// Runs the simulator's large worlds, and the end-to-end tests with `WIREUP_LARGE` and `WIREUP_NIGHT`. A part that
/// fails does not keep the rest from running.
///
/// # Errors
/// A program cannot be built, or a test fails, also because software that it needs is not installed.
pub fn large() -> Result {
    let commit = commit()?;
    // Chromium is the browser in which a test opens reports.
    debian::ensure(&["chromium"])?;
    let worlds = step("build the simulator", || build(&["--package", "wireup-sim", "--test", "worlds"]))?;
    let networks = step("build its unit tests", || build(&["--package", "wireup-sim", "--lib"]))?;
    let trials = step("build the end-to-end tests", faults::build)?;
    let end_to_end = |words: &[&str]| {
        let mut tests = Command::new(&trials);
        tests.args(words).env("WIREUP_LARGE", "1").env("WIREUP_NIGHT", "1").env("WIREUP_BIN", layout::debug_wireup());
        // A test without what it needs would count as done.
        tests.env("WIREUP_REQUIRE_PEERS", "1").env("RUST_BACKTRACE", "0");
        tests
    };
    let mut digests = Command::new(&worlds);
    digests.arg("digests::").env("WIREUP_SIM_DIGESTS", "check");
    let [large_worlds, large_networks] = [worlds, networks].map(|program| {
        let mut tests = Command::new(program);
        tests.arg("--ignored");
        tests
    });
    let parts = [
        ("digests of all recorded sessions", digests),
        ("simulated worlds at large sizes", large_worlds),
        ("simulated networks of ranks at large sizes", large_networks),
        // Two jobs of 4,096 ranks at a time would need more memory than small machines have.
        ("real jobs of up to 4,096 ranks send what is simulated", end_to_end(&["traffic::", "--test-threads=1"])),
        ("end-to-end tests at large sizes", end_to_end(&["--skip", "traffic::"])),
    ];
    // Each part is recorded as soon as it is done.
    let (mut text, mut failed) = (String::new(), Vec::new());
    for (name, mut tests) in parts {
        match step(name, || run(&mut tests)) {
            Ok(()) => text += &format!("{name}: {commit}\n"),
            Err(problem) => failed.push(format!("{name}: {problem}")),
        }
        prove("large.txt", LARGE_HEAD, &text)?;
    }
    none_of(&failed)
}

/// # Errors
/// Something has failed.
fn none_of(failed: &[String]) -> Result {
    if failed.is_empty() { Ok(()) } else { Err(failed.join("\n")) }
}

const CALLS: [&str; 3] = [
    "every_call_of_a_run_may_fail", "every_call_of_a_session_may_fail",
    "every_call_of_a_run_with_a_pmix_server_may_fail",
];
const CALLS_HEAD: &str = "\
# System calls that were made to fail, each in a run of its own: the test, how many of the failures that were counted \
before were reached,
# and the commit. No run hung, left something behind or kept silent, but for the exceptions that \
dev/e2e/tests/e2e/failing_calls.rs
# lists with their reasons. `cargo xtask night calls` does it.
";

/// Lets every system call of a run, of a session and of a PMIx server fail once, by all trials of
/// `dev/e2e/tests/e2e/failing_calls.rs`, and records their number.
///
/// # Errors
/// A program cannot be built, or a run hangs, leaves something behind or reports nothing after a failure.
pub fn calls() -> Result {
    let commit = commit()?;
    let trials = step("build the trials", faults::build)?;
    let mut text = String::new();
    for test in CALLS {
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
    prove("calls.txt", CALLS_HEAD, &text)
}

const TORCH_HEAD: &str = "\
# Versions of PyTorch, the jobs of `wireup run` that ended well with each, and the commit. `cargo xtask night torch` \
does it.
";

/// Runs programs that use PyTorch under `wireup run`, with the versions of PyTorch in Debian 13 and in Debian unstable,
/// and records the jobs. Each Debian is kept in the target directory for the next time. The launcher is the release
/// build, or the program that `WIREUP_BIN` names. Debian's builds have neither libuv nor GPUs; without libuv, PyTorch's
/// store client refuses queues.
///
/// # Errors
/// A Debian system cannot be created, or a job fails.
pub fn torch() -> Result {
    let (wireup, commit) = (launcher()?, commit()?);
    let programs = ["torch_ddp", "torch_store", "torch_restart", "store_client"];
    let program = |name| layout::sources().join(format!("python/{name}.py"));
    let modules =
        ["__init__.py", "torch.py", "torchrun.py"].map(|name| layout::root().join("python/wireup_launcher").join(name));
    let others = [layout::root().join("pyproject.toml"), wireup];
    let files: Vec<PathBuf> = programs.into_iter().map(program).chain(modules).chain(others).collect();
    let mut text = String::new();
    for suite in ["trixie", "sid"] {
        let folder = layout::target().join("torch").join(suite);
        fresh::in_kept_debian(&folder, suite, files.clone(), ("PyTorch", include_str!("night/torch.sh")))?;
        let path = folder.join("root/root/wireup/jobs");
        let jobs = fs::read_to_string(&path).map_err(|e| format!("read {}: {e}", path.display()))?;
        text += &format!("{}: {commit}\n", jobs.trim_end().replace('\n', ", "));
    }
    prove("torch.txt", TORCH_HEAD, &text)
}

/// Writes a file in the folder `proof/`: `head`, then `text`.
fn prove(name: &str, head: &str, text: &str) -> Result {
    let path = layout::root().join("proof").join(name);
    fs::write(&path, format!("{head}{text}")).map_err(|error| format!("write {}: {error}", path.display()))
}

/// Builds a test program and returns its path. Built only once per run, so that edits made during the run do not affect
/// what the ledger records.
fn build(which: &[&str]) -> Result<PathBuf> {
    let mut cargo = Command::new("cargo");
    cargo.current_dir(layout::root()).args(["test", "--profile", "proof"]).args(which);
    let said = output(cargo.args(["--no-run", "--message-format", "json"]))?;
    executable(&said)
}

/// Path of the last program that cargo has reported (`said`) as built.
fn executable(said: &str) -> Result<PathBuf> {
    let built = said.rsplit_once("\"executable\":\"").and_then(|(_, rest)| rest.split_once('"'));
    built.map(|(path, _)| path.into()).ok_or_else(|| "cargo does not say what it has built".into())
}

/// Path of the release build of `wireup`, or the program that `WIREUP_BIN` names.
fn launcher() -> Result<PathBuf> {
    match env::var_os("WIREUP_BIN") {
        Some(path) => Ok(path.into()),
        None => crate::build::programs().map(|()| layout::wireup()),
    }
}

/// The time for which to run, from the argument `hours`.
fn length(hours: &str) -> Result<Duration> {
    let number: f64 = hours.parse().map_err(|_| format!("--hours {hours}: not a number"))?;
    Duration::try_from_secs_f64(number * 3600.0).map_err(|e| format!("--hours {hours}: {e}"))
}

/// The commit that is checked out, with a mark if there are uncommitted changes.
fn commit() -> Result<String> {
    let git = |args: &[&str]| output(Command::new("git").current_dir(layout::root()).args(args));
    let commit = git(&["rev-parse", "--short=7", "HEAD"])?;
    let is_changed = !git(&["status", "--porcelain", "--untracked-files=no", "--", ".", ":!proof"])?.is_empty();
    Ok(if is_changed { commit + "+changes" } else { commit })
}
