//! The standing agents of a benchmark: started by the remote shell before anything is timed, ended after it.
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::net::SocketAddrV4;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};

use super::daemon::{self, READY, Seat};
use super::message::wrong;
use super::secret::Secret;
use wireup_bench::command;
use wireup_bench::net::{address_of, await_any};

/// The time for an agent to start, and for all to be linked (chosen).
const START_MAX: Duration = Duration::from_secs(60);
/// The time for an agent to end by itself (chosen).
const END_MAX: Duration = Duration::from_secs(5);

pub struct Standing {
    agents: Vec<One>,
    /// Where agent 0 is, and the secret.
    pub file: PathBuf,
}

struct One {
    shell: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Standing {
    /// `file` is made in a folder that only its owner can read; `errors` gets what the agents complain about.
    pub fn start(
        remote_shell: &str,
        hosts: &[String],
        program: &Path,
        file: PathBuf,
        errors: &Path,
    ) -> io::Result<Standing> {
        let (secret, errors) = (Secret::new()?, File::create(errors)?);
        let mut standing = Standing { agents: Vec::new(), file };
        let mut all = Vec::new();
        // One after the other: sshd refuses many at the same time.
        for host in hosts {
            let mut agent = One::start(remote_shell, host, program, &errors)?;
            let line = agent.line().map_err(|error| wrong(format!("agent on {host}: {error}")))?;
            standing.agents.push(agent);
            let port = line.parse().map_err(|_| wrong(format!("agent on {host}: {line}")))?;
            all.push(SocketAddrV4::new(address_of(host)?, port));
        }
        for (index, agent) in standing.agents.iter_mut().enumerate() {
            let line = Seat { index, secret, all: &all }.line();
            agent.input.as_mut().map_or(Ok(()), |input| input.write_all(line.as_bytes()))?;
        }
        for (agent, host) in standing.agents.iter_mut().zip(hosts) {
            match agent.line() {
                Ok(line) if line == READY => {}
                other => return Err(wrong(format!("agent on {host}: {other:?}"))),
            }
        }
        std::fs::write(&standing.file, format!("{} {}\n", all[0], secret.text()))?;
        Ok(standing)
    }
}

impl One {
    fn start(remote_shell: &str, host: &str, program: &Path, errors: &File) -> io::Result<One> {
        let mut shell = Command::new(remote_shell);
        shell.arg(host).arg(format!("{} {}", program.display(), daemon::WORD));
        shell.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(errors.try_clone()?).process_group(0);
        let mut shell =
            shell.spawn().map_err(|error| io::Error::new(error.kind(), format!("{remote_shell}: {error}")))?;
        let (Some(input), Some(output)) = (shell.stdin.take(), shell.stdout.take()) else {
            return Err(wrong("no pipes".into()));
        };
        Ok(One { shell, input: Some(input), output: BufReader::new(output) })
    }

    /// An agent writes whole lines.
    fn line(&mut self) -> io::Result<String> {
        if !await_any(&mut [PollFd::new(self.output.get_ref(), PollFlags::IN)], Instant::now() + START_MAX)? {
            return Err(wrong("it does not answer".into()));
        }
        let mut line = String::new();
        match self.output.read_line(&mut line)? {
            0 => Err(wrong("it has ended".into())),
            _ => Ok(line.trim_end().to_owned()),
        }
    }
}

impl Drop for Standing {
    fn drop(&mut self) {
        self.agents.iter_mut().for_each(|agent| drop(agent.input.take()));
        let until = Instant::now() + END_MAX;
        for agent in &mut self.agents {
            while matches!(agent.shell.try_wait(), Ok(None)) && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(5));
            }
            command::end(&mut agent.shell);
        }
    }
}
