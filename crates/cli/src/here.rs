//! What a run takes over from the place it is started at, read once.

use rustix::fs::Mode;
use rustix::process::Resource as Kernels;
use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::path::PathBuf;
use wireup_os::{bind, process, pty};
use wireup_wire::job::{Limit, Resource};

/// The launcher's surroundings. Tests make their own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Here {
    pub host: String,
    /// The file of this program.
    pub program: String,
    pub pid: u32,
    /// 32 random bits: two runs with one pid in a shared log differ.
    pub tag: u32,
    /// Cpus that this process may use.
    pub cpus: u32,
    pub cwd: Result<PathBuf, String>,
    pub env: Vec<(OsString, OsString)>,
    pub umask: u32,
    /// Soft resource limits, as inherited.
    pub limits: Vec<Limit>,
    pub stdin_is_terminal: bool,
    /// Size of the terminal, if there is one: (rows, columns).
    pub terminal: Option<(u16, u16)>,
}

impl Here {
    /// Reads it from the kernel.
    pub fn read() -> io::Result<Here> {
        Ok(Here {
            host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            program: std::env::current_exe().map(|path| path.to_string_lossy().into_owned()).unwrap_or_default(),
            pid: process::own_pid(),
            tag: random_tag()?,
            cpus: bind::allowed()?.len() as u32,
            cwd: std::env::current_dir().map_err(|error| error.to_string()),
            env: std::env::vars_os().collect(),
            umask: read_umask(),
            limits: limits(),
            stdin_is_terminal: io::stdin().is_terminal(),
            terminal: terminal_size(),
        })
    }
}

fn limits() -> Vec<Limit> {
    let all = [
        (Resource::Nofile, Kernels::Nofile),
        (Resource::Core, Kernels::Core),
        (Resource::Stack, Kernels::Stack),
        (Resource::Memlock, Kernels::Memlock),
        (Resource::Data, Kernels::Data),
        (Resource::As, Kernels::As),
        (Resource::Fsize, Kernels::Fsize),
        (Resource::Cpu, Kernels::Cpu),
    ];
    let soft = |kernels| rustix::process::getrlimit(kernels).current.unwrap_or(u64::MAX);
    all.into_iter().map(|(resource, kernels)| Limit { resource, soft: soft(kernels) }).collect()
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
