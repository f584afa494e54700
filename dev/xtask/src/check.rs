//! `cargo xtask test`: format, structure, lints, fuzz targets, the programs of the demo, all tests.

use crate::build::cargo;
use crate::step::{self, Result};
use crate::structure;
use crate::{build, demo, layout, peers};
use std::io::{self, BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

/// Number of lines at the end of a failed test run that are shown again.
const LAST_LINES: usize = 60;

/// Checks everything; the last output is cargo's own report on the tests, and the output of failed tests. The
/// end-to-end tests run the release binary.
///
/// # Errors
/// A check or a test fails.
pub fn run() -> Result {
    if has("fmt") {
        step::step("cargo fmt --check", || step::run(cargo().args(["fmt", "--all", "--check"])))?;
    }
    step::step("cargo xtask check", structure::run)?;
    if has("clippy") {
        let args = ["clippy", "--quiet", "--workspace", "--all-targets", "--", "-D", "warnings"];
        step::step("cargo clippy", || step::run(cargo().args(args).env("CARGO_INCREMENTAL", "0")))?;
    }
    step::step("the report of the benchmarks, in lab/", report)?;
    build::programs()?;
    demo::programs()?;
    tests()
}

/// Compiles all tests, then runs the end-to-end tests and the other tests at the same time: end-to-end tests wait for
/// processes more than they compute.
fn tests() -> Result {
    let mut compile = cargo();
    prepare(compile.args(["test", "--workspace", "--quiet", "--no-run"]))?;
    step::step("cargo test --no-run", || step::run_quietly(&mut compile))?;
    let threads = thread::available_parallelism().map_or(2, usize::from) + 1;
    // With `--package` instead, dependencies would have other features, and be compiled again.
    let mut end_to_end = cargo();
    end_to_end.args(["test", "--workspace", "--test", "e2e"]).env("RUST_TEST_THREADS", threads.to_string());
    let mut suites = cargo();
    suites.args(["test", "--workspace", "--test", "suites"]);
    let mut others = cargo();
    others.args(["test", "--workspace", "--exclude", "wireup-e2e", "--no-fail-fast"]);
    let first = vec![("end-to-end tests", end_to_end)];
    let second = vec![
        ("the fuzz targets compile", fuzz_targets()),
        ("suites of others", suites),
        ("tests of all other crates", others),
    ];
    let failed: Vec<String> = thread::scope(|scope| {
        let rows = [first, second].map(|row| scope.spawn(|| row.into_iter().filter_map(failure).collect::<Vec<_>>()));
        rows.into_iter().flat_map(|row| row.join().expect("a row of tests does not panic")).collect()
    });
    if failed.is_empty() { Ok(()) } else { Err(failed.join("\n")) }
}

/// The command that checks the fuzz targets, a workspace of their own that no other command compiles. All of its
/// programs are one file, so one program is enough. Without the path of a fuzzer that is already compiled, which need
/// not exist, cargo would compile the fuzzer, a C++ library. It takes 50 s of one CPU if nothing was compiled before.
fn fuzz_targets() -> Command {
    let mut check = cargo();
    check.current_dir(layout::root().join("dev/fuzz")).args(["check", "--quiet", "--locked", "--bin", "frame"]);
    check.arg("--target-dir").arg(layout::target().join("fuzz-check"));
    check.env("RUSTFLAGS", "--cfg fuzzing").env("CUSTOM_LIBFUZZER_PATH", "./libfuzzer.a");
    check
}

/// Runs tests and prints how long they took; returns the error if a test failed.
fn failure((name, mut tests): (&str, Command)) -> Option<String> {
    eprintln!("==> {name}");
    let start = Instant::now();
    let done = prepare(&mut tests).and_then(|()| show_failures_last(&mut tests));
    eprintln!("==> {name}: {:.1} s", start.elapsed().as_secs_f64());
    done.err()
}

/// The tests of the report, and a check that pages and figures are those that the data give.
fn report() -> Result {
    for words in ["-m unittest discover -q -t . -s report/tests", "-m report page --check"] {
        let mut python = Command::new(peers::python(&layout::peer("report")));
        python.args(words.split(' ')).current_dir(layout::root().join("lab")).env("PYTHONDONTWRITEBYTECODE", "1");
        step::run_quietly(&mut python)?;
    }
    Ok(())
}

/// Builds the product, then runs the end-to-end tests whose names contain one of `names`.
///
/// # Errors
/// The product does not compile, or a test fails.
pub fn end_to_end(names: &[&str]) -> Result {
    build::programs()?;
    let mut tests = cargo();
    tests.args(["test", "--quiet", "--package", "wireup-e2e", "--no-fail-fast", "--"]).args(names);
    prepare(&mut tests)?;
    step::run(&mut tests)
}

/// Sets the environment of tests that run the release build.
fn prepare(tests: &mut Command) -> Result {
    // Incremental data would be used only by a second build, and take more disk space than the tests themselves.
    tests.env("CARGO_INCREMENTAL", "0").env("RUST_BACKTRACE", "0");
    tests.env("WIREUP_REQUIRE_PEERS", "1").env(build::BUILD_ID, build::build_id(&layout::wireup())?);
    Ok(())
}

/// Shows the output of failed tests again at the end, since the output of many test programs may follow it.
fn show_failures_last(tests: &mut Command) -> Result {
    let shown = step::show(tests);
    let failed = |error: io::Error| format!("{shown}: {error}");
    let mut child = tests.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().map_err(failed)?;
    let mut failures = Failures::default();
    let output = BufReader::new(child.stdout.take().expect("a pipe"));
    let (sender, lines) = mpsc::channel();
    thread::spawn(move || output.split(b'\n').map_while(io::Result::ok).all(|line| sender.send(line).is_ok()));
    loop {
        match lines.recv_timeout(Duration::from_secs(1)) {
            Ok(mut line) => {
                failures.line(&String::from_utf8_lossy(&line));
                line.push(b'\n');
                io::stdout().write_all(&line).map_err(failed)?;
            }
            // A process that a test has left behind may keep the pipe open, so the exit of `tests` counts too.
            Err(RecvTimeoutError::Timeout) if child.try_wait().map_err(failed)?.is_none() => {}
            Err(_) => break,
        }
    }
    let status = child.wait().map_err(failed)?;
    if status.success() {
        return Ok(());
    }
    Err(format!("{shown}: {status}{}", failures.text()))
}

/// The output of failed tests, taken from the output of their test programs.
#[derive(Default)]
struct Failures {
    of_tests: Vec<Vec<String>>,
    is_inside: bool,
}

impl Failures {
    fn line(&mut self, line: &str) {
        if line.starts_with("---- ") && line.ends_with(" ----") {
            self.of_tests.push(Vec::new());
            self.is_inside = true;
        } else if line == "failures:" {
            self.is_inside = false;
        }
        if let Some(last) = self.of_tests.last_mut().filter(|_| self.is_inside) {
            last.push(line.to_owned());
        }
    }

    fn text(&self) -> String {
        let mut text = String::new();
        for lines in &self.of_tests {
            let last = lines.len().saturating_sub(LAST_LINES).max(1);
            let mark = (last > 1).then(|| format!("[{} lines above]", last - 1));
            for line in lines[..1].iter().chain(&mark).chain(&lines[last..]) {
                text = text + "\n" + line;
            }
        }
        text
    }
}

/// Whether this Rust toolchain has a component.
fn has(component: &str) -> bool {
    let found = cargo().args([component, "--version"]).output().is_ok_and(|output| output.status.success());
    if !found {
        eprintln!("==> cargo {component}: not in this toolchain, left out");
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_failed_tests_printed_is_shown_last_and_in_short() {
        let mut failures = Failures::default();
        let many = (0..100).map(|number| format!("line {number}"));
        let head = ["test a ... ok", "test b ... FAILED", "failures:", "", "---- b stdout ----"].map(str::to_owned);
        let tail = ["---- c stdout ----", "why", "failures:", "    b", "    c"].map(str::to_owned);
        head.into_iter().chain(many).chain(tail).for_each(|line| failures.line(&line));
        let text = failures.text();
        assert!(text.starts_with("\n---- b stdout ----\n[40 lines above]\nline 40\n"), "{text}");
        assert!(text.ends_with("\nline 99\n---- c stdout ----\nwhy"), "{text}");
    }
}
