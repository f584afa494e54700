//! What a run inherits from where it is started (variables, limits, cpus, terminal), read once.

use crate::hosts;
use rustix::fs::Mode;
use rustix::process::Resource as Rlimit;
use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::net::IpAddr;
use std::path::PathBuf;
use wireup_os::bind::Machine;
use wireup_os::{process, pty, random};
use wireup_wire::job::{Limit, Resource};

/// The limits that are passed on to ranks, with their names in the system call.
const LIMITS: [(Resource, Rlimit); 8] = [
    (Resource::Nofile, Rlimit::Nofile),
    (Resource::Core, Rlimit::Core),
    (Resource::Stack, Rlimit::Stack),
    (Resource::Memlock, Rlimit::Memlock),
    (Resource::Data, Rlimit::Data),
    (Resource::As, Rlimit::As),
    (Resource::Fsize, Rlimit::Fsize),
    (Resource::Cpu, Rlimit::Cpu),
];

/// The program that nodes look for if this program does not know its own path.
const PROGRAM: &str = "wireup";

/// The launcher's surroundings. Tests make their own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Surroundings {
    pub host: String,
    pub pid: u32,
    /// 32 random bits, so that two runs with the same pid differ in a shared log.
    pub tag: u32,
    /// 128 random bits, in the names of jobs. They must be in no name that other users can list.
    pub secret: u128,
    /// The cpus that this process may use.
    pub machine: Machine,
    pub cwd: Result<PathBuf, String>,
    pub env: Vec<(OsString, OsString)>,
    pub umask: u32,
    pub limits: Vec<Limit>,
    pub program: String,
    /// Addresses of this machine, if they are needed.
    pub addresses: Vec<IpAddr>,
    pub stdin_is_terminal: bool,
    /// Size of the terminal, if there is one: (rows, columns).
    pub terminal: Option<(u16, u16)>,
}

impl Surroundings {
    /// Reads the surroundings from the kernel. Addresses are read only if hosts may be named, which `with_addresses`
    /// decides from the environment.
    pub fn read(with_addresses: impl FnOnce(&[(OsString, OsString)]) -> bool) -> io::Result<Surroundings> {
        let env: Vec<_> = std::env::vars_os().collect();
        let program = std::env::current_exe().ok().and_then(|path| path.into_os_string().into_string().ok());
        Ok(Surroundings {
            host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            pid: process::own_pid(),
            tag: u32::from_le_bytes(random::bytes()?),
            secret: u128::from_le_bytes(random::bytes()?),
            machine: Machine::this()?,
            cwd: std::env::current_dir().map_err(|error| error.to_string()),
            umask: read_umask(),
            // A sandbox may refuse `prlimit64`.
            limits: LIMITS.into_iter().filter_map(read_limit).collect(),
            program: program.unwrap_or_else(|| PROGRAM.to_owned()),
            addresses: if with_addresses(&env) { hosts::addresses() } else { Vec::new() },
            env,
            stdin_is_terminal: io::stdin().is_terminal(),
            terminal: terminal_size(),
        })
    }

    /// An absolute path for agents, which may run in another directory.
    pub fn absolute(&self, path: String) -> String {
        match self.cwd.as_ref().ok().and_then(|cwd| cwd.join(&path).into_os_string().into_string().ok()) {
            Some(absolute) => absolute,
            None => path,
        }
    }
}

fn read_limit((resource, rlimit): (Resource, Rlimit)) -> Option<Limit> {
    Some(Limit { resource, soft: process::limit(rlimit).ok()?.current.unwrap_or(u64::MAX) })
}

/// The umask, read by setting and restoring it: `umask(2)` returns the mask only when it sets one.
fn read_umask() -> u32 {
    let mask = rustix::process::umask(Mode::empty());
    rustix::process::umask(mask);
    mask.bits()
}

/// The size of the terminal on standard output, else on standard input.
fn terminal_size() -> Option<(u16, u16)> {
    pty::size(io::stdout()).or_else(|_| pty::size(io::stdin())).ok().filter(|&(rows, columns)| rows > 0 && columns > 0)
}

#[cfg(test)]
impl Surroundings {
    /// A machine for tests.
    pub fn example() -> Surroundings {
        Surroundings {
            host: "cn17".into(),
            pid: 42,
            tag: 0xbeef,
            secret: 0x5ec7e7,
            machine: Machine::of_cores(6),
            cwd: Ok("/".into()),
            env: vec![("HOME".into(), "/h".into()), ("PMI_RANK".into(), "7".into())],
            umask: 0o27,
            limits: vec![Limit { resource: Resource::Nofile, soft: 1024 }],
            program: "/opt/bin/wireup".into(),
            addresses: vec!["10.0.0.17".parse().expect("an address")],
            stdin_is_terminal: false,
            terminal: Some((50, 132)),
        }
    }
}
