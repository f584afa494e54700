//! Slurm's daemons, each in the foreground as a child of its node's first process.
//!
//! Every node and the hub have their own munged; each slurmd starts after slurmctld listens, so that it need not retry.
//! Munge's socket has the same path everywhere, so each node covers the socket's folder with a folder of its own.
use std::fs;
use std::io;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;

use super::{MUNGED, SLURMCTLD, SLURMD, all_idle, ask_states, forget_others};
use crate::daemon::{self, await_that, listens, log_end};
use crate::mounts;

pub const KEY: &str = "/run/wireup-testbed/slurm/munge.key";
pub const MUNGE_FOLDER: &str = "/run/wireup-testbed/munge";
pub const SOCKET: &str = "/run/wireup-testbed/munge/socket";
const MUNGE_FOLDER_BYTES: u64 = 1 << 20;
/// The file that exists once slurmctld listens.
const IS_UP: &str = "/run/wireup-testbed/slurm/up";
pub const CTLD_PORT: u16 = 6817;
pub const SLURMD_PORT: u16 = 6818;
pub const CTLD_LOG: &str = "/run/slurmctld.log";
pub const SLURMD_LOG: &str = "/run/slurmd.log";
/// The file for slurmctld's standard error: the lines of its log without times, and the only output before it opens a
/// log.
const CTLD_SAID: &str = "/run/slurmctld.stderr";
const SLURMD_SAID: &str = "/run/slurmd.stderr";
const STATE_FOLDERS: [&str; 2] = ["/run/slurmctld", "/run/slurmd"];

/// Starts munged on the hub, which Slurm's commands there need.
pub fn start_on_hub() -> io::Result<()> {
    let die_with_us = || rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).map_err(Into::into);
    let mut munged = munged();
    // SAFETY: between fork and exec a single system call is made, nothing is allocated.
    unsafe { munged.pre_exec(die_with_us) };
    start_munged(&mut munged).map(drop)
}

/// Starts the daemons of node `i`; returns their pids.
pub fn start_on_node(i: u16) -> io::Result<Vec<u32>> {
    mounts::small_disk(Path::new(MUNGE_FOLDER), MUNGE_FOLDER_BYTES)?;
    STATE_FOLDERS.iter().try_for_each(fs::create_dir_all)?;
    let mut pids = vec![start_munged(&mut munged())?];
    if i == 0 {
        let ctld = daemon::start(&mut foreground(SLURMCTLD), Path::new(CTLD_SAID), || listens(CTLD_PORT))?;
        pids.push(ctld);
        pids.extend(children(ctld)?);
        fs::write(IS_UP, "")?;
    } else if !await_that(|| Ok(Path::new(IS_UP).exists()), || Ok(true))? {
        return Err(io::Error::other("slurmctld is not up"));
    }
    pids.push(daemon::start(&mut foreground(SLURMD), Path::new(SLURMD_SAID), || listens(SLURMD_PORT))?);
    Ok(pids)
}

fn munged() -> Command {
    let mut command = Command::new(MUNGED);
    command.arg("--foreground").args([("--key-file", KEY.into()), ("--socket", SOCKET.into())].map(option));
    command.args([("--pid-file", "pid"), ("--seed-file", "seed")].map(|(name, file)| option((name, own(file)))));
    command
}

fn start_munged(command: &mut Command) -> io::Result<u32> {
    daemon::start(command, Path::new(&own("log")), || Ok(UnixStream::connect(SOCKET).is_ok()))
}

fn own(file: &str) -> String {
    format!("{MUNGE_FOLDER}/{file}")
}

fn option((name, value): (&str, String)) -> String {
    format!("{name}={value}")
}

fn foreground(program: &str) -> Command {
    let mut command = Command::new(program);
    forget_others(command.arg("-D"));
    command
}

/// The child processes of a process: slurmctld has one that runs scripts.
fn children(pid: u32) -> io::Result<Vec<u32>> {
    let threads = fs::read_dir(format!("/proc/{pid}/task"))?;
    let mut all = Vec::new();
    for thread in threads {
        let list = fs::read_to_string(thread?.path().join("children"))?;
        all.extend(list.split_whitespace().filter_map(|word| word.parse::<u32>().ok()));
    }
    Ok(all)
}

/// Waits, on the hub, until all nodes are idle; `roots` are the paths at which the hub sees each node's files.
pub fn await_nodes(roots: &[PathBuf]) -> io::Result<()> {
    let mut said = String::new();
    let all_there = || {
        let output = ask_states().output()?;
        said = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes)).concat();
        Ok(all_idle(&output.stdout, roots.len() as u16))
    };
    if await_that(all_there, || Ok(true))? {
        return Ok(());
    }
    let log = |root: Option<&PathBuf>, log: &str| {
        root.map(|root| log_end(&root.join(log.trim_start_matches('/')))).unwrap_or_default()
    };
    let (ctld, slurmd) = (log(roots.first(), CTLD_LOG), log(roots.last(), SLURMD_LOG));
    Err(io::Error::other(format!("not all are idle: {said}\nslurmctld of n0: {ctld}\nslurmd of the last: {slurmd}")))
}
