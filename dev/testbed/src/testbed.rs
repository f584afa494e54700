//! The handle of a testbed: starts the testbed, runs programs in it, breaks parts of it.
//!
//! Every request is one line to the testbed's process and one line back; information that is in `/proc` is read there.
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags};
use rustix::thread::ThreadNameSpaceType;

use crate::mounts::PROGRAMS;
use crate::processes::{self, Process};
use crate::served::{Served, or_skip};
use crate::spec::{Spec, name};
use crate::ssh::SYSTEM_PATH;
use crate::{slurm, sys};

const LOOK_STEP: Duration = Duration::from_millis(10);
/// The environment variable that lists all nodes for programs on the hub.
pub const HOSTS_VARIABLE: &str = "WIREUP_TESTBED_HOSTS";

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// This machine does not allow a testbed, or lacks a program: a reason to skip a test.
    #[error("{0}")]
    Unavailable(String),
    /// The start failed unexpectedly: a reason to fail a test.
    #[error("testbed: {0}")]
    Failed(String),
}

pub struct Testbed {
    served: Served,
    pidfd: Arc<OwnedFd>,
    program: PathBuf,
    nodes: Vec<Node>,
}

struct Node {
    init: u32,
    daemons: Vec<u32>,
    network: PathBuf,
}

impl Testbed {
    /// Starts a testbed and waits until all of its daemons listen.
    pub fn start(spec: &Spec) -> Result<Testbed, StartError> {
        let failed = |what: &str, error: &dyn std::fmt::Display| StartError::Failed(format!("{what}: {error}"));
        let mut command = Command::new(&spec.program);
        command.arg("serve").args(spec.arguments());
        let served = Served::spawn(&mut command, "testbed")?;
        let pidfd = rustix::process::pidfd_open(Pid::from_child(served.child()), PidfdFlags::empty());
        let pidfd = pidfd.map_err(|error| failed("pidfd", &error))?;
        let (pidfd, program) = (Arc::new(pidfd), spec.program.clone());
        let mut testbed = Testbed { served, pidfd, program, nodes: Vec::new() };
        loop {
            let line = testbed.served.line().map_err(|error| failed("set-up", &error))?;
            match line.split_once(' ').unwrap_or((&line, "")) {
                ("ready", _) => return Ok(testbed),
                ("node", rest) => testbed.nodes.push(parse_node(rest).ok_or_else(|| failed("set-up", &line))?),
                ("unavailable", reason) => return Err(StartError::Unavailable(reason.to_owned())),
                (_, reason) => return Err(StartError::Failed(reason.to_owned())),
            }
        }
    }

    /// Starts a testbed. If the machine does not allow it, prints a message and returns `None`.
    ///
    /// # Panics
    /// If the start fails for any other reason.
    pub fn start_or_skip(spec: &Spec) -> Option<Testbed> {
        or_skip(Testbed::start(spec), "testbed")
    }

    pub fn node_count(&self) -> u16 {
        self.nodes.len() as u16
    }

    /// The names of all nodes: `n0,n1,...`
    pub fn hosts(&self) -> String {
        (0..self.node_count()).map(name).collect::<Vec<_>>().join(",")
    }

    /// Pid of the process that owns the testbed; killing this process also ends the whole testbed.
    pub fn pid(&self) -> u32 {
        self.served.child().id()
    }

    /// Makes `command` run on the hub, with the testbed's `ssh` first on its PATH.
    pub fn enter<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        let own = ThreadNameSpaceType::NETWORK
            | ThreadNameSpaceType::MOUNT
            | ThreadNameSpaceType::HOST_NAME_AND_NIS_DOMAIN_NAME;
        let pidfd = Arc::clone(&self.pidfd);
        let set =
            command.get_envs().find(|(name, _)| *name == "PATH").and_then(|(_, value)| value.map(OsStr::to_owned));
        command.env("PATH", with_programs(set.or_else(|| std::env::var_os("PATH")))).env(HOSTS_VARIABLE, self.hosts());
        slurm::forget_others(command);
        // SAFETY: between fork and exec only system calls are made, nothing is allocated.
        unsafe { command.pre_exec(move || sys::enter_from_same_folder(&*pidfd, own)) }
    }

    /// A command that runs `program` on node `i`, in all of the node's name spaces, with the caller's environment.
    /// Killing the command kills the program; the command's exit code is the program's.
    pub fn in_node(&self, i: u16, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(&self.program);
        command.arg("inside").arg(self.node(i).init.to_string()).arg(program);
        command.env("PATH", with_programs(std::env::var_os("PATH")));
        slurm::forget_others(&mut command);
        command
    }

    /// Cuts node `i` off from the network silently: packets are dropped in both directions, its interface stays up.
    pub fn cut(&self, i: u16) -> io::Result<()> {
        self.ask(&["cut", &i.to_string()])
    }

    /// Reconnects a node after [`Testbed::cut`].
    pub fn heal(&self, i: u16) -> io::Result<()> {
        self.ask(&["heal", &i.to_string()])
    }

    /// Cuts node `i` off from the network, then kills all of its processes; returns when none is left. This cannot be
    /// undone.
    pub fn power_off(&self, i: u16) -> io::Result<()> {
        self.ask(&["power-off", &i.to_string()])
    }

    /// Replaces the existing file `path` on node `i` only.
    pub fn shadow(&self, i: u16, path: &str, content: impl AsRef<[u8]>, mode: u32) -> io::Result<()> {
        let unique = path.replace('/', "%");
        let inside = format!("/run/shadow{unique}");
        let outside = self.path_in_node(i, &inside);
        fs::write(&outside, content)?;
        fs::set_permissions(&outside, fs::Permissions::from_mode(mode))?;
        self.ask(&["cover", &i.to_string(), path, &inside])
    }

    /// Mounts an empty file system of `bytes` bytes at `path` on node `i` only; it hides the previous contents of
    /// `path`.
    pub fn small_disk(&self, i: u16, path: &str, bytes: u64) -> io::Result<()> {
        self.ask(&["small-disk", &i.to_string(), path, &bytes.to_string()])
    }

    /// The path through which `path` of node `i` can be reached from outside the node.
    pub fn path_in_node(&self, i: u16, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        Path::new("/proc").join(self.node(i).init.to_string()).join("root").join(path.strip_prefix("/").unwrap_or(path))
    }

    /// The processes on node `i`, without the node's first process and its daemons.
    pub fn processes(&self, i: u16) -> Vec<Process> {
        self.all_processes().swap_remove(usize::from(i))
    }

    /// The processes on each node, without the node's first process and its daemons; `/proc` is read only once.
    pub fn all_processes(&self) -> Vec<Vec<Process>> {
        let all = processes::all_with("net");
        let of = |node: &Node| {
            let own = all.iter().filter(|(pid, space)| *space == node.network && *pid != node.init);
            own.filter_map(|(pid, _)| processes::describe(*pid))
                .filter(|process| !node.daemons.contains(&process.node_pid))
                .collect()
        };
        self.nodes.iter().map(of).collect()
    }

    /// Pids, as numbered on this machine, of node `i`'s daemons: sshd, then Slurm's.
    pub fn daemons(&self, i: u16) -> Vec<u32> {
        let node = self.node(i);
        let own = processes::all_with("net").into_iter().filter(|(_, space)| *space == node.network);
        let described: Vec<Process> = own.filter_map(|(pid, _)| processes::describe(pid)).collect();
        let pid_of = |daemon: &u32| described.iter().find(|process| process.node_pid == *daemon).map(|found| found.pid);
        node.daemons.iter().filter_map(pid_of).collect()
    }

    /// Waits until Slurm reports all nodes as idle; returns whether that happened within `limit`.
    pub fn await_slurm(&self, limit: Duration) -> bool {
        let is_idle = || {
            let output = self.enter(&mut slurm::ask_states()).output();
            output.is_ok_and(|output| slurm::all_idle(&output.stdout, self.node_count()))
        };
        await_that(limit, is_idle)
    }

    fn node(&self, i: u16) -> &Node {
        self.nodes.get(usize::from(i)).unwrap_or_else(|| panic!("there is no {}", name(i)))
    }

    fn ask(&self, words: &[&str]) -> io::Result<()> {
        let line = words.join("\t");
        assert!(!line.contains('\n'), "a request is one line: {line:?}");
        match self.served.ask(&line)?.strip_prefix("error ") {
            None => Ok(()),
            Some(error) => Err(io::Error::other(error.to_owned())),
        }
    }
}

fn await_that(limit: Duration, holds: impl Fn() -> bool) -> bool {
    let end = Instant::now() + limit;
    while !holds() {
        if Instant::now() >= end {
            return false;
        }
        std::thread::sleep(LOOK_STEP);
    }
    true
}

fn parse_node(rest: &str) -> Option<Node> {
    let words: Vec<&str> = rest.split(' ').collect();
    let [_, init, daemons] = words[..] else { return None };
    let init = init.parse().ok()?;
    let daemons = daemons.split(',').map(|pid| pid.parse().ok()).collect::<Option<_>>()?;
    Some(Node { init, daemons, network: processes::space_of(init, "net")? })
}

fn with_programs(path: Option<OsString>) -> OsString {
    let mut all = OsString::from(PROGRAMS);
    all.push(":");
    all.push(path.unwrap_or_else(|| SYSTEM_PATH.into()));
    all
}
