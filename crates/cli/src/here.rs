//! What a run takes over from the place it is started at, read once.

use crate::hosts;
use rustix::fs::Mode;
use rustix::process::Resource as Rlimit;
use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::net::IpAddr;
use std::path::PathBuf;
use wireup_os::{bind, process, pty};
use wireup_wire::job::{Limit, Resource};

/// The limits that travel with a job, and how the system call names them.
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

/// Where a node looks for wireup if this program does not know its own path.
const PROGRAM: &str = "wireup";

/// The launcher's surroundings. Tests make their own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Here {
    pub host: String,
    pub pid: u32,
    /// 32 random bits: two runs with one pid in a shared log differ.
    pub tag: u32,
    /// Cpus that this process may use.
    pub cpus: u32,
    pub cwd: Result<PathBuf, String>,
    pub env: Vec<(OsString, OsString)>,
    pub umask: u32,
    /// Soft limits, as inherited.
    pub limits: Vec<Limit>,
    /// The path of this program.
    pub program: String,
    /// Addresses of this machine, if they were asked for.
    pub addresses: Vec<IpAddr>,
    pub stdin_is_terminal: bool,
    /// Size of the terminal, if there is one: (rows, columns).
    pub terminal: Option<(u16, u16)>,
}

impl Here {
    /// Reads it from the kernel. Addresses matter only where hosts were named, which `with_addresses` knows from the
    /// environment.
    pub fn read(with_addresses: impl FnOnce(&[(OsString, OsString)]) -> bool) -> io::Result<Here> {
        let env: Vec<_> = std::env::vars_os().collect();
        let program = std::env::current_exe().ok().and_then(|path| path.into_os_string().into_string().ok());
        Ok(Here {
            host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            pid: process::own_pid(),
            tag: random_tag()?,
            cpus: bind::allowed()?.len() as u32,
            cwd: std::env::current_dir().map_err(|error| error.to_string()),
            umask: read_umask(),
            limits: LIMITS.map(read_limit).to_vec(),
            program: program.unwrap_or_else(|| PROGRAM.to_owned()),
            addresses: if with_addresses(&env) { hosts::addresses() } else { Vec::new() },
            env,
            stdin_is_terminal: io::stdin().is_terminal(),
            terminal: terminal_size(),
        })
    }

    /// A path for agents, which need not work in the launcher's directory.
    pub fn absolute(&self, path: String) -> String {
        match self.cwd.as_ref().ok().and_then(|cwd| cwd.join(&path).into_os_string().into_string().ok()) {
            Some(absolute) => absolute,
            None => path,
        }
    }
}

fn read_limit((resource, rlimit): (Resource, Rlimit)) -> Limit {
    Limit { resource, soft: rustix::process::getrlimit(rlimit).current.unwrap_or(u64::MAX) }
}

/// The kernel tells the mask only to whoever sets it.
fn read_umask() -> u32 {
    let mask = rustix::process::umask(Mode::empty());
    rustix::process::umask(mask);
    mask.bits()
}

fn random_tag() -> io::Result<u32> {
    let mut bytes = [0; 4];
    rustix::rand::getrandom(&mut bytes[..], rustix::rand::GetRandomFlags::empty())?;
    Ok(u32::from_le_bytes(bytes))
}

/// Of whichever standard stream is one.
fn terminal_size() -> Option<(u16, u16)> {
    pty::size(io::stdout()).or_else(|_| pty::size(io::stdin())).ok().filter(|&(rows, columns)| rows > 0 && columns > 0)
}

#[cfg(test)]
impl Here {
    /// A machine for tests.
    pub fn example() -> Here {
        Here {
            host: "cn17".into(),
            pid: 42,
            tag: 0xbeef,
            cpus: 6,
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
