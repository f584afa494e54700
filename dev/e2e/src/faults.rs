//! A testbed with the product on it, a job across its nodes, and what is left of that job.

use super::capture::Capture;
use super::run_processes::Mark;
use super::{heed_interrupts, programs, wireup};
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsString;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use wireup_testbed::{Process, Spec, Testbed};

/// Maximum number of characters of standard output that messages show.
const SHOWN_MAX: usize = 16 << 10;
const LOOK_STEP: Duration = Duration::from_millis(5);

/// A testbed with the product on its nodes, for trials with faults.
pub struct FaultSite {
    pub testbed: Testbed,
    /// Names that exist in the nodes' private `/tmp` and `/dev/shm` before the first trial: mount points of `shares`.
    given: Vec<OsString>,
}

impl FaultSite {
    /// Starts a testbed. Returns `None`, after printing a message, if this machine cannot run one. The nodes see the
    /// folders `shares` wherever these are.
    pub fn start(nodes: u16, shares: &[PathBuf]) -> Option<FaultSite> {
        let spec = Spec { shares: shares.to_vec(), ..Spec::new(programs::testbed(), nodes) };
        let mut site = FaultSite { testbed: Testbed::start_or_skip(&spec)?, given: Vec::new() };
        site.given = site.files_left(&[0]).into_iter().filter_map(|path| Some(path.file_name()?.to_owned())).collect();
        Some(site)
    }

    /// The folder of the product, which all nodes must see.
    pub fn share() -> PathBuf {
        wireup().parent().map(Path::to_owned).expect("a program lies in a folder")
    }

    /// `wireup run` with the words of `line`, then `words`, on the hub.
    pub fn job(&self, line: &str, words: &[&str]) -> Command {
        self.job_of(&wireup(), line, words)
    }

    pub fn job_of(&self, program: &Path, line: &str, words: &[&str]) -> Command {
        let mut command = Command::new(program);
        self.testbed.enter(command.args(self.words(line, words)).current_dir("/"));
        command
    }

    /// `wireup run` with the words of `line`, then `words`, on node `i`.
    pub fn job_from(&self, i: u16, line: &str, words: &[&str]) -> Command {
        let mut command = self.testbed.in_node(i, wireup());
        command.args(self.words(line, words)).current_dir("/");
        command
    }

    fn words<'a>(&self, line: &'a str, words: &[&'a str]) -> Vec<&'a str> {
        ["run"].into_iter().chain(line.split_whitespace()).chain(words.iter().copied()).collect()
    }

    /// Processes on the nodes `on` that are not part of the testbed itself, each with its node.
    pub fn left(&self, on: &[u16]) -> Vec<(u16, Process)> {
        let all = self.testbed.all_processes();
        on.iter().flat_map(|&i| all[usize::from(i)].iter().map(move |process| (i, process.clone()))).collect()
    }

    /// Files that were left on the nodes `on`.
    pub fn files_left(&self, on: &[u16]) -> Vec<PathBuf> {
        let folders = on.iter().flat_map(|&i| ["/tmp", "/dev/shm"].map(|folder| self.testbed.path_in_node(i, folder)));
        let files = folders.flat_map(|folder| fs::read_dir(folder).into_iter().flatten().flatten());
        files.filter(|file| !self.given.contains(&file.file_name())).map(|file| file.path()).collect()
    }

    /// Kills everything that a failed trial has left, so that later trials are not affected.
    pub fn clear(&self, on: &[u16]) {
        for (_, process) in self.left(on) {
            kill(process.pid, Signal::KILL);
        }
    }
}

/// Whether a process belongs to sshd; its process for one connection may last until the network times out.
pub fn is_sshd(process: &Process) -> bool {
    process.command.starts_with("sshd") || process.command.contains("/sshd")
}

/// Whether a process is an agent, not an agent's keeper.
pub fn is_agent(process: &Process) -> bool {
    process.command.contains("wireup agent ") && short_name(process.pid) == "wireup"
}

/// Sends a signal; returns whether the process existed.
pub fn kill(pid: u32, signal: Signal) -> bool {
    Pid::from_raw(pid.cast_signed()).is_some_and(|pid| kill_process(pid, signal).is_ok())
}

/// Sends a signal to a process that must exist.
pub fn send(pid: u32, signal: Signal) {
    assert!(kill(pid, signal), "process {pid} has ended");
}

/// The name that a process has set for itself (`comm`).
pub fn short_name(pid: u32) -> String {
    fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim_end().to_owned()
}

pub fn parent_of(pid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()
}

/// A running job.
pub struct Started {
    child: Child,
    mark: Mark,
    stdout: Capture,
    stderr: Capture,
    pub begun: Instant,
    pub shown: String,
}

/// The result of a job.
#[derive(Debug)]
pub struct Ended {
    /// The exit code; 128 + signal if a signal ended the launcher.
    pub code: i32,
    pub stdout_bytes: usize,
    pub stdout: String,
    pub stderr: String,
    pub at: Instant,
    /// Processes of the job that were left on the hub.
    pub left_on_hub: Vec<super::run_processes::Process>,
}

impl Started {
    pub fn of(mut command: Command) -> Started {
        let mark = Mark::new();
        command.env(Mark::VARIABLE, mark.text()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        heed_interrupts(&mut command);
        let shown = format!("{command:?}").split(" run ").last().unwrap_or_default().to_owned();
        let begun = Instant::now();
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{shown}: {error}"));
        let stdout = Capture::reading(child.stdout.take().expect("piped"));
        let stderr = Capture::reading(child.stderr.take().expect("piped"));
        Started { child, mark, stdout, stderr, begun, shown }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("wait for the child").is_some()
    }

    /// Waits until stdout contains `text` at least `count` times.
    pub fn await_out(&mut self, text: &str, count: usize) {
        let there = until(Duration::from_secs(20), || self.stdout.text().matches(text).count() >= count);
        assert!(there.is_some(), "{}: gave up waiting for: {count} x {text:?}\n{}", self.shown, self.stderr.text());
    }

    /// Processes of the job on the hub, including the launcher. Processes of nodes start and exit during the search. So
    /// a process counts only if it was found both before and after the nodes were listed: a process of a node that is
    /// found both times is in that node's list.
    pub fn on_hub(&self, site: &FaultSite) -> Vec<super::run_processes::Process> {
        let before = self.mark.processes();
        let elsewhere: Vec<u32> =
            site.testbed.all_processes().into_iter().flatten().map(|process| process.pid).collect();
        let mut all = self.mark.processes();
        all.retain(|found| before.iter().any(|one| one.pid == found.pid));
        all.into_iter().filter(|found| !elsewhere.contains(&found.pid.as_raw_nonzero().get().cast_unsigned())).collect()
    }

    /// Waits for the end of the job; `None` if the job did not end in time and was killed.
    pub fn finish(mut self, site: &FaultSite, limit: Duration) -> Option<Ended> {
        let end = Instant::now() + limit;
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("wait for the child") {
                break status;
            }
            if Instant::now() > end {
                self.mark.kill_all();
                println!("{}: {}", self.shown, self.stderr.text());
                return None;
            }
            thread::sleep(Duration::from_millis(1));
        };
        let at = Instant::now();
        let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
        // The pipes of a killed launcher are closed when its keepers exit.
        while !(self.stdout.has_ended() && self.stderr.has_ended()) && at.elapsed() < limit {
            thread::sleep(Duration::from_millis(1));
        }
        until(limit, || self.on_hub(site).is_empty());
        let left_on_hub = self.on_hub(site);
        let (stdout, stderr) = (self.stdout.text(), self.stderr.text());
        let (stdout_bytes, stdout) = (stdout.len(), stdout.chars().take(SHOWN_MAX).collect());
        Some(Ended { code, stdout_bytes, stdout, stderr, at, left_on_hub })
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(self.mark.folder());
    }
}

/// Waits until `holds` returns true; returns the time that this took, or `None` after `limit`.
pub fn until(limit: Duration, mut holds: impl FnMut() -> bool) -> Option<Duration> {
    let begun = Instant::now();
    while !holds() {
        if begun.elapsed() > limit {
            return None;
        }
        thread::sleep(LOOK_STEP);
    }
    Some(begun.elapsed())
}
