//! A daemon of another project: starts it as a child, and waits until it serves.
use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Longest time until a started daemon must serve. Chosen: six times the longest time that was observed among 128
/// daemons.
const SERVE_LIMIT: Duration = Duration::from_secs(60);
const LOOK_STEP: Duration = Duration::from_millis(5);
/// Number of lines that messages show from the end of a log.
const LOG_LINES_MAX: usize = 12;

/// Starts `command`, which stays in the foreground, waits until it serves, and returns its pid. Its output is appended
/// to `log`, to which it may also write by itself.
pub fn start(command: &mut Command, log: &Path, serves: impl FnMut() -> io::Result<bool>) -> io::Result<u32> {
    let name = command.get_program().to_string_lossy().into_owned();
    let said = || File::options().create(true).append(true).open(log);
    let mut daemon = command.stdin(Stdio::null()).stdout(said()?).stderr(said()?).spawn()?;
    let why = match await_that(serves, || Ok(daemon.try_wait()?.is_none())) {
        Ok(true) => return Ok(daemon.id()),
        Ok(false) => ended(&mut daemon),
        Err(error) => error.to_string(),
    };
    Err(io::Error::other(format!("{name} {why}: {}", log_end(log))))
}

fn ended(daemon: &mut Child) -> String {
    match daemon.try_wait() {
        Ok(Some(status)) => format!("has ended, {status}"),
        _ => "does not serve".into(),
    }
}

/// Waits until `holds` returns true, while `may_go_on` returns true and at most [`SERVE_LIMIT`]; returns whether
/// `holds` did.
pub fn await_that(
    mut holds: impl FnMut() -> io::Result<bool>,
    mut may_go_on: impl FnMut() -> io::Result<bool>,
) -> io::Result<bool> {
    let end = Instant::now() + SERVE_LIMIT;
    while !holds()? {
        if !may_go_on()? || Instant::now() > end {
            return Ok(false);
        }
        std::thread::sleep(LOOK_STEP);
    }
    Ok(true)
}

/// The last lines of a log.
pub fn log_end(path: &Path) -> String {
    let text = fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LOG_LINES_MAX)..].join("\n")
}

/// Whether a socket of this node listens on `port`, according to `/proc`: a test by connecting would disturb the
/// daemon.
pub fn listens(port: u16) -> io::Result<bool> {
    let (port, listening) = (format!(":{port:04X}"), "0A");
    let table = fs::read_to_string("/proc/net/tcp")?;
    let mut rows = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    Ok(rows.any(|row| row.get(1).is_some_and(|local| local.ends_with(&port)) && row.get(3) == Some(&listening)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_that_ends_at_once_is_reported_with_the_end_of_its_log() {
        let log = std::env::temp_dir().join(format!("wireup-testbed-daemon-{}", std::process::id()));
        let script = "for i in $(seq 30); do echo line $i; done; echo no such key >&2; exit 3";
        let failed = start(Command::new("/bin/sh").args(["-c", script]), &log, || Ok(false)).expect_err("it has ended");
        let text = failed.to_string();
        assert!(text.starts_with("/bin/sh has ended, exit status: 3: line 20\n"), "{text}");
        assert!(text.ends_with("\nline 30\nno such key"), "{text}");
        fs::remove_file(log).expect("its log");
    }
}
