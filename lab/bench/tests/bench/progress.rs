//! The progress line: shown only on a terminal, and erased at the end.

use super::BENCH;
use crate::results::Results;
use std::process::{Command, Stdio};

#[test]
fn a_terminal_shows_case_and_round() {
    let Some(script) = wireup_e2e::peers::tool("/usr/bin/script") else { return };
    let results = Results::of("terminal");
    // Only wireup has virtual nodes; here it is a script, which starts no ranks.
    let wireup = results.shell("exit 0");
    let line = format!("{BENCH} launch --wireup {wireup} --rounds 1 --case true-2x1 --case true-3x1");
    let mut command = Command::new(script);
    command.args(["-qec", &line, "/dev/null"]).env("TERM", "xterm").stdin(Stdio::null());
    let shown = String::from_utf8_lossy(&command.output().expect("it starts").stdout).into_owned();
    let (before, after) = shown.rsplit_once("\r\u{1b}[K").expect("a line is erased");
    assert!(before.contains("\r\u{1b}[Kwireup: true-2x1, 1 of 2 cases, warm-up"), "{shown:?}");
    assert!(before.contains("\r\u{1b}[Kwireup: true-3x1, 2 of 2 cases, round 1 of 1"), "{shown:?}");
    assert!(after.starts_with("\r\n") && after.contains("  1 rounds\r\n"), "the table follows: {shown:?}");
}

/// A reader that has gone, as `head` does, does not end a measurement.
#[test]
fn a_measurement_goes_on_without_a_reader() {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let mut command = Command::new(BENCH);
    command.args(["exchange", "--ranks", "2", "--dry-run", "--wireup"]).arg(wireup_e2e::wireup());
    let ran = command.stdout(writer).stderr(Stdio::piped()).output().expect("the program runs");
    let err = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success() && !err.contains("panicked"), "{err}");
}
