//! The resources of a session's agents while nothing runs in it.
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Pid;
use serde::Serialize;

use crate::leftovers;
use crate::machine::field;
use crate::memory::{self, MemoryError};
use crate::programs::sessions_beside;

/// Pause between two snapshots that must be equal; in it the agents' wake-ups are counted. Longer than any agent keeps
/// what it may soon need again (chosen).
const IDLE: Duration = Duration::from_secs(3);
/// If two consecutive snapshots never are equal, the last one counts (chosen).
const PATIENCE: Duration = Duration::from_secs(30);
/// Folders in which files may be left.
const FOLDERS: [&str; 2] = ["/tmp", "/dev/shm"];

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Snapshot {
    /// The session's root first, parents before children.
    pub agents: Vec<Agent>,
    /// All processes of the session: agents, keepers, remote shells.
    pub processes: usize,
    /// Ranks and processes that they have left behind, wherever they are.
    pub ranks: usize,
    pub files: BTreeSet<PathBuf>,
    /// How often all agents together woke up without work before this snapshot.
    pub wake_ups: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Agent {
    pub pid: i32,
    /// `Pss_Anon` + `Pss_Shmem`.
    pub memory_bytes: u64,
    pub descriptors: usize,
    pub threads: usize,
    pub children: usize,
}

#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    #[error("no agent is left of the session")]
    NoAgent,
    #[error(transparent)]
    Memory(#[from] MemoryError),
    #[error("{0}: {1}")]
    Unreadable(String, io::Error),
}

impl Snapshot {
    /// A snapshot of the session below `roots`, whose agents run `program` and whose ranks run programs of `folder`. It
    /// is taken when two consecutive snapshots are equal and no agent woke up in between, so that everything that is
    /// ending has ended.
    pub fn when_quiet(roots: &[Pid], program: &Path, folder: &Path) -> Result<Snapshot, SnapshotError> {
        let begin = Instant::now();
        let mut last = Snapshot::look(roots, program, folder)?;
        loop {
            let before = last.woken();
            thread::sleep(IDLE);
            let next = Snapshot::look(roots, program, folder)?;
            let wake_ups = next.woken().saturating_sub(before);
            let is_quiet = wake_ups == 0 && next.agents == last.agents && next.processes == last.processes;
            if is_quiet || begin.elapsed() > PATIENCE {
                return Ok(Snapshot { wake_ups, ..next });
            }
            last = next;
        }
    }

    fn look(roots: &[Pid], program: &Path, folder: &Path) -> Result<Snapshot, SnapshotError> {
        let ours = fs::canonicalize(program).unwrap_or_else(|_| program.to_owned());
        let mut all: Vec<Pid> = roots.to_vec();
        all.extend(roots.iter().flat_map(|root| leftovers::descendants_of(*root)));
        all.retain(|pid| !is_zombie(*pid));
        let agents = all.iter().filter(|pid| exe(**pid).as_ref() == Some(&ours) && !memory::is_keeper(**pid));
        let agents: Vec<Agent> = agents.map(|pid| Agent::look(*pid)).collect::<Result<_, _>>()?;
        if agents.is_empty() {
            return Err(SnapshotError::NoAgent);
        }
        let ranks = processes().filter(|pid| exe(*pid).is_some_and(|path| path.starts_with(folder))).count();
        Ok(Snapshot { agents, processes: all.len(), ranks, files: files(folder), wake_ups: 0 })
    }

    /// How often its agents have gone to sleep so far.
    fn woken(&self) -> u64 {
        self.agents.iter().map(|agent| switches(agent.pid)).sum()
    }
}

impl Agent {
    fn look(pid: Pid) -> Result<Agent, SnapshotError> {
        let number = pid.as_raw_nonzero().get();
        let count = |folder: &str| {
            let path = format!("/proc/{number}/{folder}");
            fs::read_dir(&path).map(Iterator::count).map_err(|error| SnapshotError::Unreadable(path, error))
        };
        Ok(Agent {
            pid: number,
            memory_bytes: memory::private_bytes(pid)?,
            descriptors: count("fd")?,
            threads: count("task")?,
            children: leftovers::children_of(pid).len(),
        })
    }
}

fn exe(pid: Pid) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{}/exe", pid.as_raw_nonzero())).ok()
}

fn is_zombie(pid: Pid) -> bool {
    let status = fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero())).unwrap_or_default();
    field(&status, "State").is_none_or(|state| state.starts_with('Z'))
}

fn switches(pid: i32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    field(&status, "voluntary_ctxt_switches").and_then(|count| count.parse().ok()).unwrap_or(0)
}

/// All processes of this machine.
fn processes() -> impl Iterator<Item = Pid> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?))
}

/// The files in the folders for temporary files, without our own, and all files of the sessions.
fn files(ours: &Path) -> BTreeSet<PathBuf> {
    let entries = |folder: &Path| fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut found: BTreeSet<PathBuf> = FOLDERS.iter().flat_map(|folder| entries(Path::new(folder))).collect();
    found.retain(|path| !ours.starts_with(path));
    let mut inner = vec![sessions_beside(&ours.join("stderr"))];
    while let Some(folder) = inner.pop() {
        for path in entries(&folder) {
            if path.is_dir() && !path.is_symlink() {
                inner.push(path.clone());
            }
            found.insert(path);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_of_this_process_has_plausible_counts() {
        let own = std::env::current_exe().unwrap();
        let folder = Path::new("/nowhere");
        let snapshot = Snapshot::look(&[rustix::process::getpid()], &own, folder).unwrap();
        let agent = &snapshot.agents[0];
        assert!(agent.memory_bytes > 0 && agent.descriptors > 2 && agent.threads > 0);
        assert_eq!(snapshot.ranks, 0);
        let none = Snapshot::look(&[rustix::process::getpid()], Path::new("/bin/other"), folder);
        assert!(matches!(none, Err(SnapshotError::NoAgent)));
    }

    #[test]
    fn new_files_are_listed_except_our_own() {
        let folder = tempfile_name();
        let before = files(Path::new("/nowhere"));
        fs::write(&folder, "").unwrap();
        let after = files(Path::new("/nowhere"));
        let after_ours = files(&folder);
        fs::remove_file(&folder).unwrap();
        assert!(!before.contains(&folder) && after.contains(&folder) && !after_ours.contains(&folder));
    }

    fn tempfile_name() -> PathBuf {
        PathBuf::from(format!("/tmp/wireup-bench-soak-test-{}", std::process::id()))
    }
}
