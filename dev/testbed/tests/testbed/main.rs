//! Tests of the testbed itself, with real name spaces. They need root; otherwise every test prints SKIPPED and passes.
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use wireup_testbed::{Spec, Testbed};

mod ends;
mod faults;
mod network;
mod slowfs;
mod slurm;

/// Longest wait for something that must happen: far longer than anything in these tests takes.
const LIMIT: Duration = Duration::from_secs(20);
/// Time for which a test waits to see that something does not happen.
const SILENCE: Duration = Duration::from_millis(300);

fn spec(nodes: u16) -> Spec {
    Spec::new(env!("CARGO_BIN_EXE_wireup-testbed"), nodes)
}

/// A command that runs a program on the hub.
fn on_hub(testbed: &Testbed, program: &str, words: &[&str]) -> Command {
    let mut command = Command::new(program);
    testbed.enter(command.args(words).stdin(Stdio::null()));
    command
}

fn output(command: &mut Command) -> Output {
    command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

/// The output of a command that must succeed and write nothing to its standard error, without the final newline.
fn text(command: &mut Command) -> String {
    let output = output(command);
    let text = String::from_utf8_lossy(&output.stdout).trim_end().to_owned();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && errors.is_empty(), "{command:?}: {}: {text} {errors}", output.status);
    text
}

fn eventually(what: &str, condition: impl Fn() -> bool) {
    let end = Instant::now() + LIMIT;
    while !condition() {
        assert!(Instant::now() < end, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whether the nodes run nothing but their daemons.
fn is_idle(testbed: &Testbed) -> bool {
    testbed.all_processes().iter().all(Vec::is_empty)
}

fn exists(pid: u32) -> bool {
    std::path::Path::new("/proc").join(pid.to_string()).exists()
}
