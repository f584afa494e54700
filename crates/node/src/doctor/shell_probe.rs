//! A probe of the remote shell: whether it reaches a host and runs commands there, without starting anything.
//!
//! The command is that of an agent, with an empty bootstrap message. A host without wireup answers too.

use crate::agent::remote::{self, OwnProgram};
use crate::agent::start_methods;
use std::ffi::{OsStr, OsString};
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use wireup_os::files;
use wireup_proto::io::{ExitStatus, How};
use wireup_proto::probe_result;
use wireup_wire::peer::{self, RemoteShell};

/// Longest end of the remote shell's standard error that is kept for a message (bytes).
const ERROR_BYTES_MAX: usize = 2048;
/// Pause between two checks of the remote shell. Chosen: short compared with a login.
const LOOK: Duration = Duration::from_millis(5);

/// Runs the remote shell for `host`, with `env` as its environment. `program` is the path at which the host looks for
/// wireup. Takes hardly longer than `limit`.
///
/// # Errors
/// Why the host cannot be reached, in words.
pub fn probe(
    shell: &RemoteShell,
    program: &str,
    host: &str,
    env: &[(OsString, OsString)],
    limit: Duration,
) -> Result<(), String> {
    let until = Instant::now() + limit;
    let command = OwnProgram::default().command(How::Look, program, &[&remote::version()]);
    let called = command.map(|command| start_methods::program_for(shell, host, command));
    let argv = called.map_err(|error| format!("wireup's own program cannot be read: {error}"))?.argv;
    let words: Vec<&OsStr> = argv.iter().map(|word| OsStr::from_bytes(word)).collect();
    let (name, arguments) = words.split_first().ok_or("no remote shell is named")?;
    let mut command = Command::new(name);
    command.args(arguments).env_clear().envs(env.iter().cloned()).current_dir("/");
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| format!("{}: {error} (finding the program)", name.display()))?;
    if let Some(mut stdin) = child.stdin.take() {
        // The message is short enough to fit into the pipe. A remote shell that has closed the pipe reports why it
        // ends.
        let _ = stdin.write_all(&peer::probe());
    }
    let (status, said) = await_end(&mut child, until);
    let Some(status) = status else {
        let separator = if said.trim().is_empty() { "" } else { ": " };
        return Err(format!("it did not answer within {} s{separator}{}", limit.as_secs_f64(), said.trim()));
    };
    probe_result(status, &said, std::env::consts::ARCH).map_err(|problem| problem.words)
}

/// The exit status, and what the remote shell has written to its standard error; `None`: it had to be killed.
fn await_end(child: &mut Child, until: Instant) -> (Option<ExitStatus>, String) {
    let mut said = Vec::new();
    let mut stderr = child.stderr.take();
    if stderr.as_ref().is_some_and(|stderr| files::set_nonblocking(stderr, true).is_err()) {
        stderr = None;
    }
    loop {
        let status = child.try_wait().ok().flatten();
        let is_late = Instant::now() >= until;
        let mut buffer = [0; ERROR_BYTES_MAX];
        while let Some(length) =
            stderr.as_mut().and_then(|stderr| stderr.read(&mut buffer).ok()).filter(|length| *length > 0)
        {
            said.extend_from_slice(&buffer[..length]);
            said.drain(..said.len().saturating_sub(ERROR_BYTES_MAX));
            if Instant::now() >= until {
                break;
            }
        }
        if status.is_none() && !is_late {
            std::thread::sleep(LOOK);
            continue;
        }
        // If the process cannot be killed now, it ends with this node's agent.
        let _ = child.kill();
        let status = status.map(|status| match (status.code(), status.signal()) {
            (Some(code), _) => ExitStatus::Exited(code as u8),
            (None, signal) => {
                ExitStatus::Signalled { signal: signal.unwrap_or_default(), core_dumped: status.core_dumped() }
            }
        });
        return (status, String::from_utf8_lossy(&said).into_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A remote shell that ignores the host and the command.
    fn probe_by(script: &str, limit: Duration) -> Result<(), String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rsh");
        std::fs::write(&path, script).unwrap();
        let shell = RemoteShell::Command(vec!["/bin/sh".into(), path.to_str().unwrap().into()]);
        probe(&shell, "/nowhere/wireup", "n1", &[], limit)
    }

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn a_host_that_answers_is_reached_with_and_without_wireup() {
        assert_eq!(probe_by("exit 0\n", LONG), Ok(()));
        let needed = format!("echo {} $(uname -m) >&2; exit {}\n", wireup_proto::NEEDED_WORDS, wireup_proto::NEEDED);
        assert_eq!(probe_by(&needed, LONG), Ok(()));
    }

    #[test]
    fn a_remote_shell_that_fails_is_quoted() {
        let long = "i=0; while [ $i -lt 30000 ]; do echo line $i >&2; i=$((i+1)); done; echo forbidden >&2; exit 255\n";
        for script in ["echo forbidden >&2; exit 255\n", long] {
            let problem = probe_by(script, LONG).unwrap_err();
            assert!(problem.ends_with("forbidden") && problem.len() <= 2 * ERROR_BYTES_MAX, "{problem}");
        }
        assert!(probe_by("kill -9 $$\n", LONG).unwrap_err().contains("killed by signal 9"));
        let missing = probe(&RemoteShell::Command(vec!["/no/such/rsh".into()]), "wireup", "n1", &[], LONG);
        assert!(missing.unwrap_err().contains("/no/such/rsh: No such file"));
    }

    #[test]
    fn a_host_that_does_not_answer_is_given_up() {
        let problem = probe_by("echo waiting >&2; exec sleep 1000\n", Duration::from_millis(500)).unwrap_err();
        assert_eq!(problem, "it did not answer within 0.5 s: waiting");
    }
}
