//! Runs commands as announced steps, one after another.

use std::fmt::Display;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

/// Parts of the output of failed commands, each with a remedy. The first row that occurs in the output is used: causes
/// stand before their consequences.
const REMEDIES: [(&str, &str); 14] = [
    ("No space left on device", "free some room on the disk"),
    ("Python.h: No such file", "apt-get install python3-dev"),
    ("ensurepip is not available", "apt-get install python3-venv"),
    ("No module named venv", "apt-get install python3-venv"),
    (
        ".h: No such file or directory",
        "a C header is missing: apt-get install the package that `apt-file search HEADER` prints",
    ),
    ("cannot find -l", "a C library is missing: apt-get install its -dev package"),
    ("Temporary failure in name resolution", OFFLINE),
    ("Temporary failure resolving", OFFLINE),
    ("Could not resolve", OFFLINE),
    ("Failed to establish a new connection", OFFLINE),
    ("Unable to locate package", "the set-up knows the packages of Debian 12: install what this system calls them"),
    ("Could not get lock", "another apt or dpkg is at work: wait until it has ended"),
    ("sudo: a password is required", "run this as root, or `sudo -v` first"),
    (
        "No matching distribution found",
        "the index that pip uses does not have it: `pip config list` prints which index that is",
    ),
];

const OFFLINE: &str =
    "the server cannot be reached: set https_proxy, or apt's mirror, pip's index-url, cargo's registry";

/// Programs that may be missing, and the Debian package of each.
const PROGRAMS: [(&str, &str); 8] = [
    ("cc", "gcc"),
    ("git", "git"),
    ("make", "make"),
    ("objcopy", "binutils"),
    ("python3", "python3-venv"),
    ("setpriv", "util-linux"),
    ("sudo", "sudo"),
    ("tar", "tar"),
];

/// An error is one line of text for the user.
pub type Result<T = ()> = std::result::Result<T, String>;

/// Announces `what`, does `work`, and prints how long it took.
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
/// The command cannot be started, or it fails; the message contains the command.
pub fn run(command: &mut Command) -> Result {
    let shown = show(command);
    let status = command.stdin(Stdio::null()).status().map_err(|error| not_started(command, &error))?;
    if status.success() { Ok(()) } else { Err(format!("{shown}: {status}")) }
}

/// Runs a command quietly; its output is shown only if it fails, below a line that says what to do.
///
/// # Errors
/// The errors of [`run`]; the message also says what to install, if the output shows it.
pub fn run_quietly(command: &mut Command) -> Result {
    output(command).map(drop)
}

/// Like [`run_quietly`]; returns the command's output without the final newline.
///
/// # Errors
/// The errors of [`run_quietly`].
pub fn output(command: &mut Command) -> Result<String> {
    let shown = show(command);
    let output = command.stdin(Stdio::null()).output().map_err(|error| not_started(command, &error))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_string());
    }
    let printed = [output.stdout, output.stderr].concat();
    let printed = String::from_utf8_lossy(&printed);
    let why = match remedy(&printed) {
        Some(remedy) => format!("{shown}: {}: {remedy}", output.status),
        None => format!("{shown}: {}", output.status),
    };
    eprint!("FAILED {why}; it printed:\n{printed}");
    Err(why)
}

/// The remedy for a command that failed with this output, if one is known.
fn remedy(printed: &str) -> Option<&'static str> {
    REMEDIES.iter().find(|(cause, _)| printed.contains(cause)).map(|(_, remedy)| *remedy)
}

fn not_started(command: &Command, error: &io::Error) -> String {
    let shown = show(command);
    let program = Path::new(command.get_program()).file_name().unwrap_or_default();
    match PROGRAMS.iter().find(|(name, _)| program == *name) {
        Some((_, package)) if error.kind() == io::ErrorKind::NotFound => {
            format!("{shown}: there is no such program: apt-get install {package}")
        }
        _ => format!("{shown}: {error}"),
    }
}

/// The command as a user would type it.
pub fn show(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(script: &str) -> String {
        output(Command::new("sh").args(["-c", script])).expect_err("it fails")
    }

    #[test]
    fn a_failed_step_says_in_one_line_what_to_install() {
        // As with pip, which prints the compiler's message somewhere within its own output.
        let many = "seq 150; echo 'x.c:12: fatal error: Python.h: No such file or directory' >&2; seq 150; exit 1";
        let why = failed(many);
        assert!(why.ends_with("exit status: 1: apt-get install python3-dev"), "{why}");
        assert!(failed("echo 'fatal error: mpi.h: No such file or directory' >&2; exit 1").contains("apt-file search"));
        assert!(failed("echo what else; exit 3").ends_with("exit status: 3"));
    }

    #[test]
    fn a_missing_program_is_named_with_its_package() {
        let why = output(&mut Command::new("/none/python3")).expect_err("there is none");
        assert_eq!(why, "/none/python3: there is no such program: apt-get install python3-venv");
        let why = run(&mut Command::new("/none/other")).expect_err("there is none");
        assert!(why.contains("No such file or directory"), "{why}");
    }
}
