//! The progress line: shown only on a terminal, and erased at the end.

use super::BENCH;
use crate::results::Results;
use std::process::{Command, Output, Stdio};

/// Arguments of a benchmark that takes longer than the time before which no progress is shown. Only wireup has virtual
/// nodes; here it is a script, which starts no ranks.
fn words(results: &Results) -> String {
    let wireup = results.shell("test $1 = --version || sleep 1.5");
    format!("launch --wireup {wireup} --rounds 1 --case true-2x1 --case true-3x1")
}

fn run(command: &mut Command) -> Output {
    command.env("TERM", "xterm").stdin(Stdio::null()).output().expect("it starts")
}

#[test]
fn a_terminal_shows_case_and_round() {
    let Some(script) = wireup_e2e::peers::tool("/usr/bin/script") else { return };
    let results = Results::of("terminal");
    let line = format!("{BENCH} {}", words(&results));
    let shown = run(Command::new(script).args(["-qec", &line, "/dev/null"])).stdout;
    let shown = String::from_utf8_lossy(&shown);
    let (before, after) = shown.rsplit_once("\r\u{1b}[K").expect("a line is erased");
    assert!(before.contains("\r\u{1b}[Kwireup: true-2x1, 1 of 2 cases, warm-up"), "{shown:?}");
    assert!(before.contains("\r\u{1b}[Kwireup: true-3x1, 2 of 2 cases, round 1 of 1"), "{shown:?}");
    assert!(after.starts_with("\r\n") && after.contains("  1 rounds\r\n"), "the table follows: {shown:?}");
}

#[test]
fn a_pipe_gets_no_progress() {
    let results = Results::of("pipe");
    let Output { stdout, stderr, .. } = run(Command::new(BENCH).args(words(&results).split_whitespace()));
    let [stdout, stderr] = [stdout, stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    assert!(stdout.contains("  1 rounds\n"), "{stdout} {stderr}");
    assert!(!format!("{stdout}{stderr}").contains("round 1 of"), "{stdout} {stderr}");
}

/// A reader that has gone, as `head` does, does not end a measurement.
#[test]
fn a_measurement_goes_on_without_a_reader() {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let mut command = std::process::Command::new(super::BENCH);
    command.args(["exchange", "--ranks", "2", "--dry-run", "--wireup"]).arg(wireup_e2e::wireup());
    let ran = command.stdout(writer).stderr(std::process::Stdio::piped()).output().expect("the program runs");
    let err = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success() && !err.contains("panicked"), "{err}");
}
