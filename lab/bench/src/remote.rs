//! Helper processes of a benchmark on other hosts: the remote shell starts a helper process before anything is timed;
//! the process receives orders as lines on its standard input, answers by lines, and ends when its standard input ends.
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use crate::bench::Bench;
use crate::command::{self, Failure, await_ready, wrong};

/// Longest time for an answer of a process (chosen).
const ANSWER_MAX: Duration = Duration::from_secs(60);
/// Longest time for a process to end by itself (chosen).
const END_MAX: Duration = Duration::from_secs(10);

/// Helper processes on hosts of the benchmark; all end when this value is dropped.
pub struct Remotes<'a> {
    pub all: Vec<Remote>,
    bench: &'a Bench,
    /// File that receives the standard error of the remote shells.
    errors: PathBuf,
}

pub struct Remote {
    pub host: String,
    pub address: Ipv4Addr,
    /// The first line that the process has written.
    pub hello: String,
    shell: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl<'a> Remotes<'a> {
    /// A value without processes yet. Their standard error goes to the file `errors` of the scratch folder.
    pub fn none(bench: &'a Bench, errors: &str) -> Result<Remotes<'a>, Failure> {
        Ok(Remotes { all: Vec::new(), bench, errors: bench.scratch.empty_file(errors)? })
    }

    /// Starts this program with the arguments `words` on each host of the benchmark.
    pub fn start(bench: &'a Bench, words: &str) -> Result<Remotes<'a>, Failure> {
        let mut remotes = Remotes::none(bench, "remote-stderr")?;
        // One host after the other: sshd refuses many connections at the same time.
        for (index, host) in bench.hosts.iter().enumerate() {
            remotes.add(host, words)?;
            remotes.all[index].hello = remotes.answer(index)?;
        }
        Ok(remotes)
    }

    /// Starts this program with the arguments `words` on a host.
    pub fn add(&mut self, host: &str, words: &str) -> Result<(), Failure> {
        let (program, remote_shell) = (self.bench.own_program()?, self.bench.remote_shell()?);
        let start = || {
            let mut shell = Command::new(&remote_shell);
            shell.arg(host).arg(format!("{} {words}", program.display())).process_group(0);
            let complaints = File::options().append(true).open(&self.errors)?;
            shell.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(complaints);
            let address = address_of(host)?;
            let mut shell =
                shell.spawn().map_err(|error| io::Error::new(error.kind(), format!("{remote_shell}: {error}")))?;
            let output = shell.stdout.take().ok_or_else(|| io::Error::other("no pipe"))?;
            let (input, output, hello) = (shell.stdin.take(), BufReader::new(output), String::new());
            Ok(Remote { host: host.to_owned(), address, hello, shell, input, output })
        };
        self.all.push(start().map_err(|error: io::Error| wrong(format!("host {host}: {error}")))?);
        Ok(())
    }

    /// The end status of the remote shell that was started last (`None`: the shell runs), and the text that the shells
    /// have written to standard error.
    pub fn last_has_ended(&mut self) -> Result<Option<String>, Failure> {
        if self.bench.interrupt.is_set() {
            return Err(Failure::Interrupted);
        }
        let ended = self.all.last_mut().and_then(|last| last.shell.try_wait().ok().flatten());
        Ok(ended.map(|status| format!("{status}: {}", self.complaints())))
    }

    fn complaints(&self) -> String {
        fs::read_to_string(&self.errors).unwrap_or_default().trim().to_owned()
    }

    pub fn ask(&mut self, index: usize, line: &str) -> Result<String, Failure> {
        self.tell(index, line)?;
        self.answer(index)
    }

    pub fn tell(&mut self, index: usize, line: &str) -> Result<(), Failure> {
        let Remote { host, input, .. } = &mut self.all[index];
        let written = input.as_mut().map_or(Ok(()), |input| writeln!(input, "{line}"));
        written.map_err(|error| wrong(format!("host {host}: {error}")))
    }

    /// Waits for a whole line of the process with this index.
    pub fn answer(&mut self, index: usize) -> Result<String, Failure> {
        let remote = &mut self.all[index];
        if !await_ready(remote.output.get_ref(), Instant::now() + ANSWER_MAX, &self.bench.interrupt)? {
            return Err(wrong(format!("host {}: it does not answer", remote.host)));
        }
        let mut line = String::new();
        let problem = match remote.output.read_line(&mut line) {
            Ok(1..) => return Ok(line.trim_end().to_owned()),
            Ok(0) => "it has ended".to_owned(),
            Err(error) => error.to_string(),
        };
        let host = remote.host.clone();
        Err(wrong(format!("host {host}: {problem} {}", self.complaints()).trim_end()))
    }
}

impl Drop for Remotes<'_> {
    fn drop(&mut self) {
        self.all.iter_mut().for_each(|remote| drop(remote.input.take()));
        let until = Instant::now() + END_MAX;
        for Remote { shell, .. } in &mut self.all {
            while matches!(shell.try_wait(), Ok(None)) && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(5));
            }
            command::end(shell);
        }
    }
}

/// The IPv4 address of a host.
pub fn address_of(host: &str) -> io::Result<Ipv4Addr> {
    // A user's name before `@` is only for the remote shell.
    let name = host.rsplit('@').next().unwrap_or(host);
    let found =
        (name, 0).to_socket_addrs().map_err(|error| io::Error::new(error.kind(), format!("{name}: {error}")))?;
    let ipv4 = |address: SocketAddr| if let SocketAddr::V4(address) = address { Some(*address.ip()) } else { None };
    found.filter_map(ipv4).next().ok_or_else(|| io::Error::other(format!("{name} has no IPv4 address")))
}
