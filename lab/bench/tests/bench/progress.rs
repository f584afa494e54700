//! The progress line: shown only on a terminal, and erased at the end.

use super::BENCH;
use std::process::{Command, Output, Stdio};

/// Arguments of a benchmark that takes longer than the time before which no progress is shown. `true` writes no profile
/// of the start, so the contestant with the tap fails.
const WORDS: &str = "tap --wireup /bin/true --rounds 1 --launcher env sleep 1.5";

fn run(command: &mut Command) -> Output {
    command.env("TERM", "xterm").stdin(Stdio::null()).output().expect("it starts")
}

#[test]
fn a_terminal_shows_case_and_round() {
    let Some(script) = wireup_e2e::peers::tool("/usr/bin/script") else { return };
    let shown = run(Command::new(script).args(["-qec", &format!("{BENCH} {WORDS}"), "/dev/null"])).stdout;
    let shown = String::from_utf8_lossy(&shown);
    let (before, after) = shown.rsplit_once("\r\u{1b}[K").expect("a line is erased");
    assert!(before.contains("\r\u{1b}[Kwireup: program sleep, warm-up"), "{shown:?}");
    assert!(before.contains("\r\u{1b}[Kwireup: program sleep, round 1 of 1"), "{shown:?}");
    assert!(after.starts_with("\r\nprogram sleep\r\n"), "the table follows: {shown:?}");
}

#[test]
fn a_pipe_gets_no_progress() {
    let Output { stdout, stderr, .. } = run(Command::new(BENCH).args(WORDS.split_whitespace()));
    let [stdout, stderr] = [stdout, stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    assert!(stdout.contains("\nprogram sleep\n"), "{stdout} {stderr}");
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
