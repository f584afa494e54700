//! The rank of the doctor's job on a node: the internal command `wireup doctor-rank`.

use super::facts::{self, Facts};
use super::shell_probe;
use crate::transport::addresses::SshConnection;
use serde::{Deserialize, Serialize};
use std::ffi::{OsStr, OsString};
use std::io::{self, Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::time::Duration;
use wireup_proto::exit_code::OURS;
use wireup_wire::peer::RemoteShell;

/// Maximum length of the question on standard input (bytes): it has room for the names of about 100,000 nodes.
const QUESTION_BYTES_MAX: u64 = 16 << 20;
/// Most missing files in one line. Chosen: with paths of the longest length the line is still short enough to be read
/// (`LINE_BYTES_MAX` of the command).
const FILES_IN_LINE: usize = 16;

/// What the doctor asks of all ranks.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Question {
    /// `--interface`, as the user wrote it.
    pub interface: Option<String>,
    /// The working directory that ranks of a job would have.
    pub cwd: Vec<u8>,
    /// Files that ranks need.
    pub files: Vec<Vec<u8>>,
    /// The path at which the other hosts look for wireup.
    pub program: String,
    pub remote_shell: RemoteShell,
    /// By rank: the host that the rank must reach with the remote shell; empty: no host is probed.
    pub neighbours: Vec<String>,
    /// Time limit for reaching the neighbour (ns).
    pub probe_ns: u64,
}

/// One line of a rank's standard output.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum DoctorReport {
    Facts(Box<Facts>),
    /// Some of the files that ranks need and that are not there.
    Missing(Vec<String>),
    /// Whether the remote shell reaches the neighbour, or why not.
    Neighbour(Result<(), String>),
}

/// The environment of the login by which this node's agent was started, which ranks do not inherit.
struct LogIn(Vec<(OsString, OsString)>);

impl LogIn {
    /// Reads the environment of this rank's parent: a keeper, which has the agent's environment because it is a fork of
    /// it.
    fn of_agent() -> LogIn {
        let parent = rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get());
        let text = std::fs::read(format!("/proc/{parent}/environ")).unwrap_or_default();
        LogIn(parse_environment(&text))
    }

    fn get(&self, name: &str) -> Option<OsString> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone())
    }
}

fn parse_environment(text: &[u8]) -> Vec<(OsString, OsString)> {
    let pair = |variable: &[u8]| {
        let equals = variable.iter().position(|byte| *byte == b'=')?;
        let text = |bytes: &[u8]| OsStr::from_bytes(bytes).to_owned();
        Some((text(&variable[..equals]), text(&variable[equals + 1..])))
    };
    text.split(|byte| *byte == 0).filter_map(pair).collect()
}

/// Answers the question on standard input. Returns the exit code.
pub fn main() -> u8 {
    match answer() {
        Ok(()) => 0,
        Err(error) => {
            // The exit code reports the failure, too.
            let _ = writeln!(io::stderr(), "wireup doctor-rank: {error}");
            OURS
        }
    }
}

fn answer() -> io::Result<()> {
    let mut text = Vec::new();
    io::stdin().take(QUESTION_BYTES_MAX).read_to_end(&mut text)?;
    let question: Question = serde_json::from_slice(&text)?;
    let log_in = LogIn::of_agent();
    let ssh = log_in.get("SSH_CONNECTION").and_then(|text| SshConnection::parse(text.to_str()?));
    let cwd = PathBuf::from(OsString::from_vec(question.cwd));
    let facts = facts::read(question.interface.as_deref(), ssh, &cwd, &|name| log_in.get(name));
    say(&DoctorReport::Facts(Box::new(facts)))?;
    let files = question.files.into_iter().map(|file| PathBuf::from(OsString::from_vec(file)));
    let missing: Vec<String> = files.filter(|file| !file.exists()).map(|file| file.display().to_string()).collect();
    missing.chunks(FILES_IN_LINE).try_for_each(|files| say(&DoctorReport::Missing(files.to_vec())))?;
    let own = std::env::var("WIREUP_RANK").ok().and_then(|rank| rank.parse::<usize>().ok());
    if let Some(host) = own.and_then(|rank| question.neighbours.get(rank)) {
        let limit = Duration::from_nanos(question.probe_ns);
        let result = shell_probe::probe(&question.remote_shell, &question.program, host, &log_in.0, limit);
        say(&DoctorReport::Neighbour(result))?;
    }
    Ok(())
}

fn say(report: &DoctorReport) -> io::Result<()> {
    let mut line = serde_json::to_vec(report)?;
    line.push(b'\n');
    let mut out = io::stdout().lock();
    out.write_all(&line)?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_of_the_log_in_are_read_as_the_kernel_shows_them() {
        let log_in = LogIn(parse_environment(b"HOME=/root\0EMPTY=\0A=b=c\0odd\0"));
        let text = |name| log_in.get(name).and_then(|value| value.into_string().ok());
        assert_eq!((text("HOME").as_deref(), text("EMPTY").as_deref()), (Some("/root"), Some("")));
        assert_eq!((text("A").as_deref(), text("odd")), (Some("b=c"), None));
    }

    #[test]
    fn questions_and_reports_are_json_on_one_line() {
        let question = Question {
            interface: Some("ib0".into()),
            cwd: b"/a\nb\xff".to_vec(),
            files: vec![b"/app".to_vec()],
            program: "/bin/wireup".into(),
            remote_shell: RemoteShell::Ssh(vec!["ssh".into()]),
            neighbours: vec!["n1".into()],
            probe_ns: 5,
        };
        let text = serde_json::to_vec(&question).unwrap();
        assert_eq!(serde_json::from_slice::<Question>(&text).unwrap(), question);
        let report = DoctorReport::Neighbour(Err("a\nb".into()));
        let line = serde_json::to_string(&report).unwrap();
        assert!(!line.contains('\n'), "{line}");
        assert_eq!(serde_json::from_str::<DoctorReport>(&line).unwrap(), report);
    }
}
