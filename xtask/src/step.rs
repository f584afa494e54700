//! Runs commands as announced steps, one after another.

use std::fmt::Display;
use std::process::{Command, Stdio};
use std::time::Instant;

/// An error is one line of text for the user.
pub type Result<T = ()> = std::result::Result<T, String>;

/// Announces `what`, does it, and prints how long it took.
pub fn step<T>(what: impl Display, work: impl FnOnce() -> Result<T>) -> Result<T> {
    eprintln!("==> {what}");
    let start = Instant::now();
    let done = work()?;
    eprintln!("    {:.1} s", start.elapsed().as_secs_f64());
    Ok(done)
}

/// Runs a command with its output shown.
///
/// # Errors
/// It cannot be started, or it fails; the message says which command.
pub fn run(command: &mut Command) -> Result {
    let shown = show(command);
    let status = command.stdin(Stdio::null()).status().map_err(|e| format!("{shown}: {e}"))?;
    if status.success() { Ok(()) } else { Err(format!("{shown}: {status}")) }
}

/// Runs a command quietly; its output is shown only if it fails.
///
/// # Errors
/// As for [`run`].
pub fn run_quietly(command: &mut Command) -> Result {
    output(command).map(drop)
}

/// Like [`run_quietly`]; returns the command's output without the final newline.
///
/// # Errors
/// As for [`run`].
pub fn output(command: &mut Command) -> Result<String> {
    let shown = show(command);
    let output = command.stdin(Stdio::null()).output().map_err(|e| format!("{shown}: {e}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_string());
    }
    eprint!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    Err(format!("{shown}: {}", output.status))
}

/// The command as a user would type it.
pub fn show(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}
