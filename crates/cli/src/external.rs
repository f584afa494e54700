//! Commands that are programs of their own, found as `git` finds them: `wireup NAME` runs `wireup-NAME`, from the
//! folder of this program or from `PATH`.

use crate::out;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use wireup_os::spawn::is_program;

/// Replaces this process by the program of that command; returns only if there is none, or if it cannot be executed.
pub fn run(command: &str, args: impl Iterator<Item = OsString>) -> Option<u8> {
    let program = find(command)?;
    let error = Command::new(&program).args(args).exec();
    Some(out::fail(&format!("cannot execute {}: {error}", program.display())))
}

/// As [`run`], for a command whose program must be built separately; if it is missing, says how to build it.
pub fn run_of_sources(command: &str, args: impl Iterator<Item = OsString>) -> u8 {
    run(command, args).unwrap_or_else(|| out::fail(&missing(&format!("wireup {command}"), command)))
}

/// The program of a command that must be built separately. `user`: the command or flag that needs it.
pub fn of_sources(command: &str, user: &str) -> Result<PathBuf, String> {
    find(command).ok_or_else(|| missing(user, command))
}

/// Runs a program; returns its standard output.
///
/// # Errors
/// It cannot be executed, or it failed; it has then said why on standard error.
pub fn output(program: &Path, args: &[String]) -> Result<Vec<u8>, String> {
    let output = Command::new(program).args(args).stderr(Stdio::inherit()).output();
    let output = output.map_err(|error| format!("cannot execute {}: {error}", program.display()))?;
    match output.status.success() {
        true => Ok(output.stdout),
        false => Err(format!("{} failed: {}", program.display(), output.status)),
    }
}

fn missing(user: &str, command: &str) -> String {
    format!(
        "{user} needs the program wireup-{command}, which is neither next to wireup nor on PATH; build it in wireup's \
         sources: cargo build --release -p wireup-{command}"
    )
}

fn find(command: &str) -> Option<PathBuf> {
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    if command.is_empty() || command.starts_with('-') || !command.bytes().all(is_name) {
        return None;
    }
    let name = format!("wireup-{command}");
    let beside = std::env::current_exe().ok().and_then(|program| program.parent().map(|folder| folder.join(&name)));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).map(|folder| folder.join(&name));
    beside.into_iter().chain(folders).find(|program| is_program(program))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_is_named_with_what_needs_it() {
        let problem = of_sources("nobody-has-written-this", "--expect").expect_err("there is none");
        assert!(problem.starts_with("--expect needs the program wireup-nobody-has-written-this, "), "{problem}");
    }

    #[test]
    fn only_plain_command_names_are_looked_up() {
        for command in ["", "-n", "./app", "a/b", "..", "nobody-has-written-this"] {
            assert_eq!(find(command), None, "{command}");
        }
    }
}
