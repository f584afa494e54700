//! Finds all descendants of this process through `/proc`, and kills them.
//!
//! A subreaper keeps its descendants in its tree however they were forked: neither `setsid` nor a double fork removes
//! them. A listing is a snapshot: the next one finds what was forked in the meantime, so killing means repeating until
//! nothing is left. Cost: one file per thread of each descendant (`children`), or one per process of the machine where
//! the kernel has no such files; and one or two more for each process that is killed.

use super::{kill, open_pid, own_pid};
use rustix::process::Signal;
use std::collections::{HashMap, HashSet};
use std::{fs, io};

/// The pids of all descendants of this process, zombies included, parents before children.
pub fn descendants() -> Vec<u32> {
    descendants_of(own_pid(), |_| false)
}

/// The descendants of a process, without those that are spared and the descendants of the spared ones.
fn descendants_of(root: u32, is_spared: impl FnMut(u32) -> bool) -> Vec<u32> {
    let own = own_pid();
    if fs::exists(format!("/proc/{own}/task/{own}/children")).unwrap_or(false) {
        closure(root, is_spared, children_files)
    } else {
        let by_parent = children_by_scan();
        closure(root, is_spared, |pid| by_parent.get(&pid).cloned().unwrap_or_default())
    }
}

/// The result of one round of [`kill_descendants`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Killed {
    /// Number of descendants that got `SIGKILL` (including zombies not yet reaped).
    pub killed: usize,
    /// Number of descendants that belong to another user and cannot be killed.
    pub denied: usize,
}

/// Sends `SIGKILL` to every descendant, or only to those started at `born_from` or later (see [`start_ticks`]).
/// Processes for which `is_spared` returns true, and their descendants, are spared. `is_spared` is called for every
/// process that is found: an orphan may become a descendant at any moment, so a list made earlier may lack one.
pub fn kill_descendants(born_from: Option<u64>, is_spared: impl FnMut(u32) -> bool) -> Killed {
    let mut round = Killed::default();
    let listed = descendants_of(own_pid(), is_spared);
    let ours: HashSet<u32> = listed.iter().copied().chain([own_pid()]).collect();
    for pid in listed {
        match kill_one(pid, &ours, born_from) {
            Ok(true) => round.killed += 1,
            Err(error) if error.raw_os_error() == Some(libc::EPERM) => round.denied += 1,
            // The process has ended since it was listed, or is not one to kill.
            Ok(false) | Err(_) => {}
        }
    }
    round
}

/// Kills a process whose parent is this process or one of its descendants. The pid may have been reused since it was
/// listed, so a pidfd is opened before the process's parent and start are checked.
fn kill_one(pid: u32, ours: &HashSet<u32>, born_from: Option<u64>) -> io::Result<bool> {
    let held = open_pid(pid);
    let is_ours = parent(pid).is_some_and(|parent| ours.contains(&parent));
    if !is_ours || born_from.is_some_and(|from| start_ticks(pid).is_none_or(|born| born < from)) {
        return Ok(false);
    }
    match held {
        Ok(held) => rustix::process::pidfd_send_signal(held, Signal::KILL)?,
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return Ok(false),
        // No pidfd could be opened: Linux before 5.3, or no descriptor is left.
        Err(_) => kill(pid, libc::SIGKILL)?,
    }
    Ok(true)
}

/// Start time of a process, in clock ticks since boot. `None`: no such process.
pub fn start_ticks(pid: u32) -> Option<u64> {
    stat_field(pid, 22)
}

fn closure(root: u32, mut is_spared: impl FnMut(u32) -> bool, children_of: impl Fn(u32) -> Vec<u32>) -> Vec<u32> {
    let mut seen = HashSet::from([root]);
    let mut found = Vec::new();
    let mut next = root;
    let mut visited = 0;
    loop {
        found.extend(children_of(next).into_iter().filter(|&child| seen.insert(child) && !is_spared(child)));
        match found.get(visited) {
            Some(&pid) => next = pid,
            None => return found,
        }
        visited += 1;
    }
}

/// Reads the children of every thread: the kernel lists a child under the thread that forked it.
fn children_files(pid: u32) -> Vec<u32> {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let lists = threads.flatten().filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    lists.flat_map(|list| list.split_ascii_whitespace().filter_map(|n| n.parse().ok()).collect::<Vec<_>>()).collect()
}

fn children_by_scan() -> HashMap<u32, Vec<u32>> {
    let mut by_parent: HashMap<u32, Vec<u32>> = HashMap::new();
    let Ok(processes) = fs::read_dir("/proc") else { return by_parent };
    for process in processes.flatten() {
        let Some(pid) = process.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        if let Some(parent) = parent(pid) {
            by_parent.entry(parent).or_default().push(pid);
        }
    }
    by_parent
}

/// The parent of a process: the one that started it, or the reaper that adopted it.
pub(super) fn parent(pid: u32) -> Option<u32> {
    stat_field(pid, 4).map(|parent| parent as u32)
}

/// The session of a process, as its leader's pid; 0 if the leader is outside this PID namespace.
pub(super) fn session(pid: u32) -> Option<u64> {
    stat_field(pid, 6)
}

/// Whether a process has been stopped by a signal or a debugger.
pub fn is_stopped(pid: u32) -> bool {
    stat_word(pid, 3).is_some_and(|state| matches!(state.as_str(), "T" | "t"))
}

/// A process, identified so that another one with the same pid is not mistaken for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Identity {
    pub pid: u32,
    born: u64,
}

impl Identity {
    /// Whether the process has not ended.
    pub fn is_running(self) -> bool {
        start_ticks(self.pid) == Some(self.born)
            && stat_word(self.pid, 3).is_some_and(|state| state != "Z" && state != "X")
    }
}

/// A process and all of its descendants, parents before children.
pub fn tree(root: u32) -> Vec<Identity> {
    let all = [root].into_iter().chain(descendants_of(root, |_| false));
    all.filter_map(|pid| Some(Identity { pid, born: start_ticks(pid)? })).collect()
}

fn stat_field(pid: u32, number: usize) -> Option<u64> {
    stat_word(pid, number)?.parse().ok()
}

/// Field `number` of `/proc/PID/stat`, counted from 1 as in proc(5), at least 3.
fn stat_word(pid: u32, number: usize) -> Option<String> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    // The name (field 2) may hold anything, also parentheses and blanks: count from the last closing parenthesis.
    let name_end = stat.iter().rposition(|&byte| byte == b')')?;
    std::str::from_utf8(&stat[name_end + 1..]).ok()?.split_ascii_whitespace().nth(number - 3).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn children_and_grandchildren_are_listed_by_both_methods() {
        let script = "sleep 60 & sleep 60 & echo $!; wait";
        let mut shell = Command::new("sh").args(["-c", script]).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(shell.stdout.take().unwrap()), &mut line).unwrap();
        let grandchild: u32 = line.trim().parse().unwrap();
        let by_parent = children_by_scan();
        let scanned = closure(own_pid(), |_| false, |pid| by_parent.get(&pid).cloned().unwrap_or_default());
        for list in [descendants(), scanned] {
            assert!(list.contains(&shell.id()) && list.contains(&grandchild), "{list:?}");
        }
        assert!(start_ticks(grandchild) >= start_ticks(shell.id()));
        for pid in
            descendants().into_iter().filter(|&pid| pid == shell.id() || children_files(shell.id()).contains(&pid))
        {
            kill(pid, libc::SIGKILL).unwrap();
        }
        shell.wait().unwrap();
        assert_eq!(start_ticks(shell.id()), None);
    }

    #[test]
    fn a_process_with_a_reused_number_is_not_killed() {
        let mut sleeper = Command::new("sleep").arg("60").spawn().unwrap();
        let (pid, own) = (sleeper.id(), HashSet::from([own_pid()]));
        assert!(!kill_one(pid, &HashSet::from([pid]), None).unwrap(), "its parent is not in the set");
        assert!(!kill_one(pid, &own, start_ticks(pid).map(|born| born + 1)).unwrap(), "it started before the limit");
        assert!(kill_one(pid, &own, start_ticks(pid)).unwrap());
        assert!(!sleeper.wait().unwrap().success());
        assert!(kill_one(pid, &own, None).is_ok_and(|killed| !killed), "it has ended");
    }
}
