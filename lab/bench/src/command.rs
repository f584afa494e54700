//! One command: started, limited in time, waited for and cleaned up after.
use std::ffi::OsString;
use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, kill_process_group, pidfd_open};

use crate::leftovers::{self, Interrupt};
use crate::programs::sessions_beside;
use crate::samples::{Measures, seconds};

/// How often a wait checks for an interrupt; the command's end is noticed at once (chosen).
const GLANCE: Duration = Duration::from_millis(100);
/// Time between SIGTERM and SIGKILL for a command that ran too long (chosen).
const TERM_GRACE: Duration = Duration::from_secs(2);
/// How much of a failed command's stderr is shown (bytes).
const STDERR_TAIL: usize = 300;
/// Variables that would make a rank of one launcher look like a rank of another.
const FOREIGN_PREFIXES: [&str; 4] = ["PMI_", "PMIX_", "HYDI_", "OMPI_"];
/// Where wireup looks for sessions: a folder of the benchmark, so that the user's sessions are not used.
const SESSIONS: &str = "WIREUP_RUNTIME_DIR";

#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Failure {
    #[error("cannot start {argv0}: {what}")]
    NotStarted { argv0: String, what: String },
    #[error("not finished after {0:.0} s, killed")]
    TimedOut(f64),
    #[error("{status}{stderr}")]
    Exited { status: String, stderr: String },
    #[error("{0}")]
    Wrong(String),
    #[error("interrupted")]
    Interrupted,
}

/// A failure with these words.
pub fn wrong(what: impl ToString) -> Failure {
    Failure::Wrong(what.to_string())
}

/// A command to run: stdin is empty, stdout is discarded (or goes to a file), stderr is kept for messages.
pub struct Invocation {
    pub argv: Vec<OsString>,
    pub env: Vec<(OsString, OsString)>,
    pub stdout: Option<PathBuf>,
    pub stderr: PathBuf,
    pub limit: Duration,
}

pub struct Running<'a> {
    child: Child,
    pid: Pid,
    pidfd: OwnedFd,
    begin: Instant,
    cpu_begin_s: f64,
    invocation: &'a Invocation,
    interrupt: &'a Interrupt,
    ended: bool,
}

impl Invocation {
    /// Starts it; the caller waits for it and calls `end`.
    pub fn spawn(&self) -> Result<Child, Failure> {
        let create = |path: &PathBuf| File::create(path).map_err(|e| self.refuse(format!("{}: {e}", path.display())));
        let stdout = self.stdout.as_ref().map_or(Ok(Stdio::null()), |path| create(path).map(Stdio::from))?;
        let mut command = Command::new(&self.argv[0]);
        command.args(&self.argv[1..]).stdin(Stdio::null()).stdout(stdout).stderr(create(&self.stderr)?);
        for (name, _) in std::env::vars_os() {
            if FOREIGN_PREFIXES.iter().any(|p| name.as_encoded_bytes().starts_with(p.as_bytes())) {
                command.env_remove(name);
            }
        }
        command.env(SESSIONS, sessions_beside(&self.stderr));
        command.envs(self.env.iter().map(|(k, v)| (k, v)));
        // A process group of its own: Ctrl-C reaches only us, and we can signal the whole group.
        command.process_group(0);
        command.spawn().map_err(|e| self.refuse(e.to_string()))
    }

    fn refuse(&self, what: String) -> Failure {
        Failure::NotStarted { argv0: self.argv[0].to_string_lossy().into_owned(), what }
    }

    pub fn start<'a>(&'a self, interrupt: &'a Interrupt) -> Result<Running<'a>, Failure> {
        let cpu_begin_s = children_cpu_s();
        let begin = Instant::now();
        let mut child = self.spawn()?;
        let pid = Pid::from_child(&child);
        match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(pidfd) => {
                Ok(Running { child, pid, pidfd, begin, cpu_begin_s, invocation: self, interrupt, ended: false })
            }
            Err(e) => {
                let _ = (child.kill(), child.wait());
                Err(self.refuse(format!("pidfd_open: {e}")))
            }
        }
    }

    /// Starts it and waits for its successful end.
    pub fn run(&self, interrupt: &Interrupt) -> Result<Measures, Failure> {
        self.start(interrupt)?.finish()
    }

    /// The failure for this exit status, with the end of the command's stderr.
    pub fn exited(&self, status: ExitStatus) -> Failure {
        Failure::Exited { status: say(status), stderr: self.stderr_tail() }
    }

    fn stderr_tail(&self) -> String {
        let text = fs::read(&self.stderr).unwrap_or_default();
        let cut = text.len().saturating_sub(STDERR_TAIL);
        let tail = String::from_utf8_lossy(&text[cut..]).trim().replace('\n', " | ");
        match (tail.is_empty(), cut) {
            (true, _) => tail,
            (false, 0) => format!(": {tail}"),
            (false, _) => format!(": ..{tail}"),
        }
    }
}

impl Running<'_> {
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Waits for the end, for `at_most` this long; returns whether it has ended.
    ///
    /// # Errors
    /// The limit passed or the user interrupted.
    pub fn ends_within(&mut self, at_most: Duration) -> Result<bool, Failure> {
        let until = Instant::now() + at_most;
        loop {
            let left = self.invocation.limit.saturating_sub(self.begin.elapsed());
            if self.interrupt.is_set() {
                return Err(Failure::Interrupted);
            }
            if left.is_zero() {
                return Err(Failure::TimedOut(self.invocation.limit.as_secs_f64()));
            }
            let wait = until.saturating_duration_since(Instant::now()).min(left).min(GLANCE);
            let timeout = Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: i64::from(wait.subsec_nanos()) };
            // An error is EINTR: check the flag and keep waiting.
            if poll(&mut [PollFd::new(&self.pidfd, PollFlags::IN)], Some(&timeout)).is_ok_and(|ready| ready > 0) {
                return Ok(true);
            }
            if Instant::now() >= until {
                return Ok(false);
            }
        }
    }

    /// Waits for the end; the values are the wall and cpu times.
    pub fn finish(mut self) -> Result<Measures, Failure> {
        while !self.ends_within(self.invocation.limit)? {}
        let status = self.child.wait();
        let wall = self.begin.elapsed();
        self.ended = true;
        match status {
            Ok(status) if status.success() => {
                let cpu = children_cpu_s() - self.cpu_begin_s;
                Ok(vec![seconds("wall", wall.as_secs_f64()), seconds("cpu", cpu)])
            }
            Ok(status) => Err(self.invocation.exited(status)),
            Err(e) => Err(Failure::Wrong(format!("wait: {e}"))),
        }
    }

    /// The failure of a command that has ended although it should still run.
    pub fn failure(&mut self) -> Failure {
        let status = self.child.wait();
        self.ended = true;
        match status {
            Ok(status) => Failure::Exited {
                status: format!("ended early: {}", say(status)),
                stderr: self.invocation.stderr_tail(),
            },
            Err(e) => Failure::Wrong(format!("wait: {e}")),
        }
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if !self.ended {
            end(&mut self.child);
        }
    }
}

/// Ends a command that is still running: SIGTERM first, then SIGKILL for it and all of its descendants.
pub fn end(child: &mut Child) {
    let pid = Pid::from_child(child);
    let is_running = |child: &mut Child| matches!(child.try_wait(), Ok(None));
    if !is_running(child) {
        return;
    }
    let _ = kill_process(pid, Signal::TERM);
    let until = Instant::now() + TERM_GRACE;
    while Instant::now() < until && is_running(child) {
        std::thread::sleep(Duration::from_millis(10));
    }
    if is_running(child) {
        // Collected before the kill: children of a killed process get another parent and would no longer be found.
        for pid in leftovers::descendants_of(pid) {
            let _ = kill_process(pid, Signal::KILL);
        }
        let _ = kill_process_group(pid, Signal::KILL);
        let _ = child.wait();
    }
}

fn say(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("killed by signal {signal}"),
        (None, None) => status.to_string(),
    }
}

/// User and system time of all waited-for descendants of this process, from `/proc/self/stat`.
fn children_cpu_s() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name in parentheses may contain blanks; cutime and cstime are the 14th and 15th fields after it.
    let fields = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
    let ticks: u64 = fields.split(' ').skip(13).take(2).filter_map(|f| f.parse::<u64>().ok()).sum();
    ticks as f64 / rustix::param::clock_ticks_per_second() as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::programs::Scratch;
    use crate::samples::value_of;

    fn sh(script: &str, limit: Duration) -> (Result<Measures, Failure>, Scratch) {
        let dir = Scratch::create_in(&std::env::temp_dir()).unwrap();
        let invocation = Invocation {
            argv: ["/bin/sh", "-c", script].map(OsString::from).to_vec(),
            env: vec![("BENCH_TEST".into(), "7".into())],
            stdout: None,
            stderr: dir.file("stderr"),
            limit,
        };
        (invocation.run(&Interrupt::default()), dir)
    }

    #[test]
    fn a_command_is_timed_with_its_environment() {
        let (result, _dir) = sh("test $BENCH_TEST = 7 && sleep 0.02", Duration::from_secs(60));
        assert!(value_of(&result.unwrap(), "wall").unwrap() >= 0.02);
    }

    #[test]
    fn a_failure_names_exit_status_and_stderr() {
        let (result, _dir) = sh("echo out of cheese >&2; exit 3", Duration::from_secs(60));
        assert_eq!(result.unwrap_err().to_string(), "exit code 3: out of cheese");
        let (result, _dir) = sh("kill -9 $$", Duration::from_secs(60));
        assert_eq!(result.unwrap_err().to_string(), "killed by signal 9");
    }

    #[test]
    fn a_command_over_its_limit_is_killed_with_its_children() {
        let (result, dir) = sh("trap '' TERM; sleep 1000 & echo $! >&2; wait; sleep 1000", Duration::from_millis(300));
        assert_eq!(result, Err(Failure::TimedOut(0.3)));
        let grandchild = fs::read_to_string(dir.file("stderr")).unwrap();
        let stat = format!("/proc/{}/stat", grandchild.trim());
        // It was killed; whether it has been reaped does not matter here.
        let gone = || fs::read_to_string(&stat).map_or(true, |text| text.contains(") Z "));
        let until = Instant::now() + Duration::from_secs(30);
        while !gone() {
            assert!(Instant::now() < until, "the process still exists: {stat}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
