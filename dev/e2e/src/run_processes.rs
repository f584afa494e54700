//! Finds the processes of one run by a variable that all of them inherit.

use rustix::process::{Pid, Signal, kill_process};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::{fs, process};

/// A text unique to one run, in the environment of all of its processes, and the run's temporary folder.
#[derive(Clone)]
pub struct Mark {
    text: String,
}

/// A process of a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Process {
    pub pid: Pid,
    pub parent: i32,
    /// State of the process: one letter, as `ps` shows it.
    pub state: char,
    pub name: String,
    pub command: String,
}

impl Mark {
    pub const VARIABLE: &str = "END_TO_END_MARK";

    #[expect(clippy::new_without_default, reason = "each mark is another one")]
    pub fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let mark = Self { text: format!("{}-{}.", process::id(), COUNT.fetch_add(1, Ordering::Relaxed)) };
        fs::create_dir_all(mark.folder()).expect("create a temporary folder");
        mark
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    /// The run's `TMPDIR`.
    pub fn folder(&self) -> PathBuf {
        std::env::temp_dir().join(format!("end-to-end-{}", self.text))
    }

    /// The files in the run's temporary folder.
    pub fn files(&self) -> Vec<PathBuf> {
        fs::read_dir(self.folder()).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
    }

    /// Every process that carries the mark, without zombies, by their numbers.
    pub fn processes(&self) -> Vec<Process> {
        // A PMIx server inherits only a few variables; the temporary folder is one of them.
        let needles = [format!("{}={}", Self::VARIABLE, self.text), format!("TMPDIR={}", self.folder().display())];
        let entries = fs::read_dir("/proc").expect("read /proc").flatten();
        let mut pids: Vec<i32> = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
        pids.sort_unstable();
        pids.into_iter().filter(|pid| carries(*pid, &needles)).filter_map(process).collect()
    }

    pub fn kill_all(&self) {
        for _ in 0..100 {
            let all = self.processes();
            if all.is_empty() {
                return;
            }
            for process in all {
                // The process may have exited meanwhile.
                let _ = kill_process(process.pid, Signal::KILL);
            }
        }
    }
}

/// A text for a message: one process per line.
pub fn list(processes: &[Process]) -> String {
    let lines = processes.iter().map(|p| format!("\n  {} (of {}) {} {}", p.pid, p.parent, p.state, p.command));
    lines.collect()
}

fn carries(pid: i32, needles: &[String]) -> bool {
    let environ = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    environ.split(|byte| *byte == 0).any(|variable| needles.iter().any(|needle| needle.as_bytes() == variable))
}

/// The description of a process; `None`: it has exited or is a zombie.
fn process(pid: i32) -> Option<Process> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (head, tail) = stat.rsplit_once(')')?;
    let mut fields = tail.split_whitespace();
    let (state, parent) = (fields.next()?.chars().next()?, fields.next()?.parse().ok()?);
    let command = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let command = String::from_utf8_lossy(&command).replace('\0', " ");
    let name = head.split_once('(')?.1.to_owned();
    (state != 'Z').then_some(Process { pid: Pid::from_raw(pid)?, parent, state, name, command })
}
