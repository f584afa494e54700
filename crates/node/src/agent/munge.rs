//! Seals the run's secret for the tasks of a step, whose standard input a batch system carries in the clear: with munge, which signs and
//! encrypts for processes of the same user on hosts that have the cluster's key.
//!
//! The programs of munge are called rather than its library, which a static build could not open.

use rustix::process::geteuid;
use std::io::{self, Read, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use wireup_os::socket;
use wireup_wire::peer::Secret;

/// How long a call may take: a hundred times what it takes on an idle machine.
const PATIENCE: Duration = Duration::from_secs(5);
/// More than munge makes of a secret, or says about an error.
const ANSWER_LEN_MAX: u64 = 64 << 10;

/// The secret for this user's processes on all hosts with the same key; `None`: munge cannot be used here.
pub fn seal(secret: &Secret) -> Option<Vec<u8>> {
    let user = format!("--restrict-uid={}", geteuid().as_raw());
    call(Command::new("munge").arg(user), &secret.0).ok()
}

/// What [`seal`] has made, once on each host.
///
/// # Errors
/// Why not, for the user.
pub fn open(sealed: &[u8]) -> Result<Secret, String> {
    let plain = call(Command::new("unmunge").arg("--metadata=/dev/null"), sealed)?;
    plain.try_into().map(Secret).map_err(|_| "unmunge has returned something else than the secret".into())
}

fn call(command: &mut Command, input: &[u8]) -> Result<Vec<u8>, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let started = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = started.map_err(|error| format!("{name}: {error}"))?;
    let answer = converse(&mut child, input);
    if answer.is_err() {
        let _ = child.kill();
    }
    let status = child.wait().map_err(|error| format!("{name}: {error}"))?;
    match answer {
        Ok((output, _)) if status.success() => Ok(output),
        Ok((_, said)) => Err(format!("{name}: {}", said.trim().lines().next().unwrap_or("no reason given"))),
        Err(error) => Err(format!("{name}: {error}; is munged running?")),
    }
}

/// What the program writes, and what it says on standard error.
fn converse(child: &mut Child, input: &[u8]) -> io::Result<(Vec<u8>, String)> {
    let (mut output, mut said) = (Vec::new(), String::new());
    if let Some(mut stdin) = child.stdin.take() {
        // Shorter than a pipe. A program that has ended says why.
        let _ = stdin.write_all(input);
    }
    let until = Instant::now() + PATIENCE;
    if let Some(mut stdout) = child.stdout.take() {
        let mut part = [0; 4096];
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if !socket::wait(&stdout, true, false, Some(left))? {
                return Err(io::ErrorKind::TimedOut.into());
            }
            match stdout.read(&mut part)? {
                0 => break,
                read => output.extend_from_slice(&part[..read]),
            }
            if output.len() as u64 > ANSWER_LEN_MAX {
                return Err(io::ErrorKind::InvalidData.into());
            }
        }
    }
    if let Some(stderr) = child.stderr.take() {
        stderr.take(ANSWER_LEN_MAX).read_to_string(&mut said)?;
    }
    Ok((output, said))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_fails_or_is_missing_is_named() {
        let script = |text: &str| call(Command::new("sh").args(["-c", text]), b"input");
        assert_eq!(script("cat"), Ok(b"input".to_vec()));
        assert_eq!(script("echo why >&2; exit 3"), Err("sh: why".into()));
        let missing = call(&mut Command::new("no-such-munge"), b"");
        assert!(missing.is_err_and(|problem| problem.starts_with("no-such-munge: ")));
    }
}
