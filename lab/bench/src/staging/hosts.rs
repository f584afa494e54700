//! The benchmark's processes on the hosts: started by the remote shell before anything is timed, ended after it.
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Write};
use std::net::Ipv4Addr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};

use super::host::{self, AgentMemory, Order, Reply};
use crate::bench::Bench;
use crate::command::{self, Failure, wrong};
use crate::leftovers::Interrupt;
use crate::net::{address_of, await_any, secret};

/// The time for a host's answer (chosen).
const ANSWER_MAX: Duration = Duration::from_secs(60);
/// The time for a process to end by itself, with its folder (chosen).
const END_MAX: Duration = Duration::from_secs(10);
/// How often a wait checks for an interrupt (chosen).
const GLANCE: Duration = Duration::from_millis(100);

pub struct Hosts {
    all: Vec<One>,
    /// On each host.
    pub folder: PathBuf,
    interrupt: Interrupt,
}

struct One {
    name: String,
    address: Ipv4Addr,
    machine: String,
    shell: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

/// An agent: the host that sees it, none for the benchmark's own; its number there.
pub type Agent = (Option<usize>, i32);

impl Hosts {
    /// # Errors
    /// A host does not answer, or has no memory of its own.
    pub fn start(bench: &Bench, remote_shell: &str, program: &Path) -> Result<Hosts, Failure> {
        let name = format!("wireup-bench-{}", secret().map_err(wrong)?);
        let errors = bench.scratch.file("hosts-stderr");
        let folder = Path::new(host::MEMORY).join(&name);
        let mut hosts = Hosts { all: Vec::new(), folder, interrupt: bench.interrupt.clone() };
        let complaints = File::create(&errors).map_err(wrong)?;
        // One after the other: sshd refuses many at the same time.
        for host in &bench.hosts {
            let started = One::start(remote_shell, host, program, &name, &complaints);
            hosts.all.push(started.map_err(|error| wrong(format!("host {host}: {error}")))?);
            let last = hosts.all.len() - 1;
            match hosts.answer(last) {
                Ok(Reply::Ready(machine)) => hosts.all[last].machine = machine,
                Ok(other) => return Err(wrong(format!("host {host}: {other:?}"))),
                Err(failure) => {
                    let said = fs::read_to_string(&errors).unwrap_or_default();
                    return Err(wrong(format!("{failure} {}", said.trim()).trim()));
                }
            }
        }
        Ok(hosts)
    }

    pub fn count(&self) -> usize {
        self.all.len()
    }

    /// How many of them are this machine.
    pub fn here(&self) -> usize {
        let own = host::machine();
        self.all.iter().filter(|host| host.machine == own).count()
    }

    pub fn name(&self, index: usize) -> &str {
        &self.all[index].name
    }

    /// Starts a relay; returns where it can be called.
    pub fn relay(&mut self, index: usize, program: &Path, secret: &str, below: Vec<String>) -> Result<String, Failure> {
        let order = Order::Relay { program: program.to_owned(), secret: secret.to_owned(), below };
        match self.ask(index, &order)? {
            Reply::Port(port) => Ok(format!("{}:{port}", self.all[index].address)),
            other => Err(self.unexpected(index, &other)),
        }
    }

    pub fn end_relays(&mut self) -> Result<(), Failure> {
        (0..self.count()).try_for_each(|index| match self.ask(index, &Order::End)? {
            Reply::Ended => Ok(()),
            other => Err(self.unexpected(index, &other)),
        })
    }

    /// Agents on all hosts and here, with their memory.
    pub fn agents(&mut self) -> Result<Vec<(Agent, u64)>, Failure> {
        let mut all: Vec<(Agent, u64)> = own(host::agents()).collect();
        for index in 0..self.count() {
            all.extend(self.memory(index, &Order::Agents)?);
        }
        Ok(all)
    }

    pub fn peaks(&mut self, agents: &[Agent]) -> Result<Vec<(Agent, u64)>, Failure> {
        let on = |host: Option<usize>| agents.iter().filter(move |(at, _)| *at == host).map(|(_, pid)| *pid).collect();
        let here: Vec<i32> = on(None);
        let mut all: Vec<(Agent, u64)> = own(host::peaks(&here)).collect();
        for index in 0..self.count() {
            all.extend(self.memory(index, &Order::Peaks(on(Some(index))))?);
        }
        Ok(all)
    }

    /// The least that a host has in its store.
    pub fn stored_min(&mut self) -> Result<(u64, usize), Failure> {
        let mut least = (u64::MAX, 0);
        for index in 0..self.count() {
            match self.ask(index, &Order::Stored)? {
                Reply::Bytes(bytes) => least = least.min((bytes, index)),
                other => return Err(self.unexpected(index, &other)),
            }
        }
        Ok(least)
    }

    fn memory(&mut self, index: usize, order: &Order) -> Result<impl Iterator<Item = (Agent, u64)> + use<>, Failure> {
        match self.ask(index, order)? {
            Reply::Memory(agents) => Ok(agents.into_iter().map(move |(pid, bytes)| ((Some(index), pid), bytes))),
            other => Err(self.unexpected(index, &other)),
        }
    }

    fn unexpected(&self, index: usize, reply: &Reply) -> Failure {
        wrong(format!("host {}: {reply:?}", self.name(index)))
    }

    fn ask(&mut self, index: usize, order: &Order) -> Result<Reply, Failure> {
        let line = serde_json::to_string(order).map_err(wrong)? + "\n";
        let host = &mut self.all[index];
        let written = host.input.as_mut().map_or(Ok(()), |input| input.write_all(line.as_bytes()));
        written.map_err(|error| wrong(format!("host {}: {error}", host.name)))?;
        self.answer(index)
    }

    /// A host writes whole lines.
    fn answer(&mut self, index: usize) -> Result<Reply, Failure> {
        let host = &mut self.all[index];
        let fail = |what: String| wrong(format!("host {}: {what}", host.name));
        let until = Instant::now() + ANSWER_MAX;
        loop {
            if self.interrupt.is_set() {
                return Err(Failure::Interrupted);
            }
            let ready = await_any(&mut [PollFd::new(host.output.get_ref(), PollFlags::IN)], Instant::now() + GLANCE);
            // An error is EINTR.
            if ready.unwrap_or(false) {
                break;
            }
            if Instant::now() > until {
                return Err(fail("it does not answer".into()));
            }
        }
        let mut line = String::new();
        match host.output.read_line(&mut line) {
            Ok(0) => Err(fail("it has ended".into())),
            Ok(_) => match serde_json::from_str(&line) {
                Ok(Reply::Failed(why)) => Err(fail(why)),
                Ok(reply) => Ok(reply),
                Err(_) => Err(fail(line.trim_end().to_owned())),
            },
            Err(error) => Err(fail(error.to_string())),
        }
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        self.all.iter_mut().for_each(|host| drop(host.input.take()));
        let until = Instant::now() + END_MAX;
        for host in &mut self.all {
            while matches!(host.shell.try_wait(), Ok(None)) && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(5));
            }
            command::end(&mut host.shell);
        }
    }
}

impl One {
    fn start(remote_shell: &str, host: &str, program: &Path, name: &str, errors: &File) -> io::Result<One> {
        let mut shell = Command::new(remote_shell);
        shell.arg(host).arg(format!("{} {} {name}", program.display(), host::WORD));
        shell.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(errors.try_clone()?).process_group(0);
        let address = address_of(host)?;
        let mut shell =
            shell.spawn().map_err(|error| io::Error::new(error.kind(), format!("{remote_shell}: {error}")))?;
        let (Some(input), Some(output)) = (shell.stdin.take(), shell.stdout.take()) else {
            return Err(io::Error::other("no pipes"));
        };
        let output = BufReader::new(output);
        Ok(One { name: host.to_owned(), address, machine: String::new(), shell, input: Some(input), output })
    }
}

fn own(agents: Vec<AgentMemory>) -> impl Iterator<Item = (Agent, u64)> {
    agents.into_iter().map(|(pid, bytes)| ((None, pid), bytes))
}
