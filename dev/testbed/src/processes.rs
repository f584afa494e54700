//! Processes and their name spaces, from the machine's `/proc`.
use std::fs;
use std::path::{Path, PathBuf};

use rustix::process::{Pid, Signal};

/// A process of a node, as seen from outside the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Pid of the process on this machine, outside of the node.
    pub pid: u32,
    /// Pid of the process within the node.
    pub node_pid: u32,
    /// Command line of the process, its words joined by spaces.
    pub command: String,
}

/// All processes of this machine, each with its name space of kind `space`. Processes that have ended but were not
/// reaped yet have no name space any more and are left out.
pub fn all_with(space: &str) -> Vec<(u32, PathBuf)> {
    let numbers = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = numbers.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter_map(|pid| Some((pid, space_of(pid, space)?))).collect()
}

/// The name space of kind `space` of a process.
pub fn space_of(pid: u32, space: &str) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{pid}/ns/{space}")).ok()
}

/// The description of a process, unless it has just ended.
pub fn describe(pid: u32) -> Option<Process> {
    let folder = Path::new("/proc").join(pid.to_string());
    let status = fs::read_to_string(folder.join("status")).ok()?;
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    if field("State:")?.starts_with(['Z', 'X']) {
        return None;
    }
    // The first number is the pid on this machine, the second one the pid within the node; further ones are of name
    // spaces within the node.
    let node_pid = field("NSpid:")?.split_whitespace().nth(1)?.parse().ok()?;
    let words = fs::read(folder.join("cmdline")).ok()?;
    let command = String::from_utf8_lossy(&words).trim_end_matches('\0').replace('\0', " ");
    Some(Process { pid, node_pid, command })
}

/// Kills all other processes in the caller's network name space.
pub fn kill_others_in_network() {
    let own = std::process::id();
    let Some(network) = space_of(own, "net") else { return };
    for (pid, other) in all_with("net") {
        if pid != own
            && other == network
            && let Some(pid) = Pid::from_raw(pid.cast_signed())
        {
            let _ = rustix::process::kill_process(pid, Signal::KILL);
        }
    }
}
