//! One command: starts it, limits its time, waits for it, and cleans up after it.
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use procfs::process::Process;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, kill_process_group, pidfd_open};
use wireup_os::process::{kill, tree};

use crate::leftovers::Interrupt;
use crate::programs::sessions_beside;
use crate::samples::{Measures, seconds};

/// Interval at which a wait checks for an interrupt (chosen); the end of the command is noticed at once.
pub const GLANCE: Duration = Duration::from_millis(100);
/// Time between SIGTERM and SIGKILL for a command that ran too long (chosen).
const TERM_GRACE: Duration = Duration::from_secs(2);
/// Length of the end of a failed command's stderr that is shown (bytes).
const STDERR_TAIL: usize = 300;
/// Prefixes of variables that would make a rank of one launcher look like a rank of another launcher.
const FOREIGN_PREFIXES: [&str; 4] = ["PMI_", "PMIX_", "HYDI_", "OMPI_"];
/// The variable with the folder in which wireup looks for sessions: set to a folder of the benchmark, so that the
/// user's sessions are not used.
const SESSIONS: &str = "WIREUP_RUNTIME_DIR";

#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Failure {
    #[error("not finished after {0:.0} s, killed")]
    TimedOut(f64),
    #[error("{0}")]
    Wrong(String),
    #[error("interrupted")]
    Interrupted,
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        wrong(error)
    }
}

pub fn wrong(what: impl ToString) -> Failure {
    Failure::Wrong(what.to_string())
}

/// A command to run. Its stdin is empty, its stdout is discarded (or goes to a file), and its stderr is kept for
/// messages.
#[derive(Clone, Debug)]
pub struct Invocation {
    pub argv: Vec<OsString>,
    pub env: Vec<(OsString, OsString)>,
    pub stdout: Option<PathBuf>,
    pub stderr: PathBuf,
    pub limit: Duration,
}

/// A command that was started. Dropping this value ends the command.
pub struct Running {
    pub child: Child,
    pub pid: Pid,
    pub pidfd: OwnedFd,
    pub begin: Instant,
    cpu_begin_s: f64,
    invocation: Invocation,
    interrupt: Interrupt,
}

impl Invocation {
    fn command(&self) -> io::Result<Command> {
        let mut command = Command::new(&self.argv[0]);
        command.args(&self.argv[1..]).stdin(Stdio::null()).stderr(File::create(&self.stderr)?);
        command.stdout(self.stdout.as_ref().map_or(Ok(Stdio::null()), |path| File::create(path).map(Stdio::from))?);
        for (name, _) in std::env::vars_os() {
            if FOREIGN_PREFIXES.iter().any(|p| name.as_encoded_bytes().starts_with(p.as_bytes())) {
                command.env_remove(name);
            }
        }
        command.env(SESSIONS, sessions_beside(&self.stderr)).envs(self.env.iter().map(|(k, v)| (k, v)));
        // In a process group of its own, so that Ctrl-C reaches only this process, and the whole group can be
        // signalled.
        command.process_group(0);
        Ok(command)
    }

    pub fn start(self, interrupt: &Interrupt) -> Result<Running, Failure> {
        let (cpu_begin_s, begin) = (children_cpu_s(), Instant::now());
        let (child, pidfd) =
            self.command().and_then(|mut command| spawn(&mut command)).map_err(|e| self.not_started(e))?;
        let (pid, invocation, interrupt) = (Pid::from_child(&child), self, interrupt.clone());
        Ok(Running { child, pid, pidfd, begin, cpu_begin_s, invocation, interrupt })
    }

    fn not_started(&self, error: io::Error) -> Failure {
        wrong(format!("cannot start {}: {error}", self.argv[0].to_string_lossy()))
    }

    /// Starts the command and waits for its successful end.
    pub fn run(self, interrupt: &Interrupt) -> Result<Measures, Failure> {
        self.start(interrupt)?.finish()
    }
}

fn spawn(command: &mut Command) -> io::Result<(Child, OwnedFd)> {
    let child = command.spawn()?;
    let pidfd = pidfd_open(Pid::from_child(&child), PidfdFlags::empty())?;
    Ok((child, pidfd))
}

impl Running {
    /// Waits for the end of the command, for at most `at_most`; returns whether the command has ended.
    ///
    /// # Errors
    /// The time limit of the command has passed or the user has interrupted.
    pub fn ends_within(&mut self, at_most: Duration) -> Result<bool, Failure> {
        let latest = self.begin + self.invocation.limit;
        match await_ready(&self.pidfd, latest.min(Instant::now() + at_most), &self.interrupt)? {
            false if Instant::now() >= latest => Err(Failure::TimedOut(self.invocation.limit.as_secs_f64())),
            has_ended => Ok(has_ended),
        }
    }

    /// Waits for the end of the command; returns its wall and cpu times.
    pub fn finish(mut self) -> Result<Measures, Failure> {
        while !self.ends_within(self.invocation.limit)? {}
        let status = self.child.wait().map_err(|error| wrong(format!("wait: {error}")))?;
        let wall = self.begin.elapsed();
        if !status.success() {
            return Err(wrong(say(status) + &self.stderr_tail()));
        }
        Ok(vec![seconds("wall", wall.as_secs_f64()), seconds("cpu", children_cpu_s() - self.cpu_begin_s)])
    }

    /// The failure that describes a command that has ended although it should still run.
    pub fn failure(&mut self) -> Failure {
        match self.child.wait() {
            Ok(status) => wrong(format!("ended early: {}{}", say(status), self.stderr_tail())),
            Err(error) => wrong(format!("wait: {error}")),
        }
    }

    /// The end of the text that the command has written to stderr.
    fn stderr_tail(&self) -> String {
        let text = fs::read(&self.invocation.stderr).unwrap_or_default();
        let cut = text.len().saturating_sub(STDERR_TAIL);
        let tail = String::from_utf8_lossy(&text[cut..]).trim().replace('\n', " | ");
        match (tail.is_empty(), cut) {
            (true, _) => tail,
            (false, 0) => format!(": {tail}"),
            (false, _) => format!(": ..{tail}"),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

/// Waits until the descriptor is readable or has ended; returns whether that happened before `until`.
///
/// # Errors
/// The user has interrupted.
pub fn await_ready(descriptor: &impl AsFd, until: Instant, interrupt: &Interrupt) -> Result<bool, Failure> {
    loop {
        if interrupt.is_set() {
            return Err(Failure::Interrupted);
        }
        // An error of `poll` counts as "not ready".
        let glance = until.min(Instant::now() + GLANCE);
        if await_any(&mut [PollFd::new(descriptor, PollFlags::IN)], glance).unwrap_or(false) {
            return Ok(true);
        }
        if Instant::now() >= until {
            return Ok(false);
        }
    }
}

/// Waits until one of the descriptors is ready; returns whether that happened before `until`.
pub fn await_any(all: &mut [PollFd<'_>], until: Instant) -> io::Result<bool> {
    loop {
        let left = until.saturating_duration_since(Instant::now()).min(Duration::from_secs(3600));
        let limit = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
        match poll(all, Some(&limit)) {
            Ok(count) => return Ok(count > 0),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Ends a command that is still running: first by SIGTERM, then by SIGKILL to the command and all of its descendants.
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
        // Listed before the kill: children of a killed process get another parent and would no longer be found.
        for one in tree(child.id()) {
            let _ = kill(one.pid, Signal::KILL.as_raw());
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

/// User and system time of all descendants of this process that have been waited for (s).
fn children_cpu_s() -> f64 {
    let own = Process::myself().and_then(|own| own.stat());
    own.map_or(0.0, |own| (own.cutime + own.cstime) as f64 / procfs::ticks_per_second() as f64)
}

/// Number of commands that ended in each way.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Ended {
    /// Number of commands that ended with exit code 0.
    pub well: u32,
    pub badly: u32,
    /// Number of commands that were killed because they exceeded their time limit.
    pub hung: u32,
    /// Time from the start of the first command until the end of the last one that ended by itself (s).
    pub elapsed_s: f64,
}

/// Runs a command `count` times, at most `in_flight` at the same time. A run that takes longer than `each` counts as
/// hanging and is killed.
///
/// # Errors
/// All runs together take longer than the limit of the command, or the user has interrupted.
pub fn stream(
    once: &Invocation,
    count: u32,
    in_flight: u32,
    each: Duration,
    interrupt: &Interrupt,
) -> Result<Ended, Failure> {
    let fail = |error| once.not_started(error);
    let mut command = once.command().map_err(fail)?;
    let mut running: Vec<(Child, OwnedFd, Instant)> = Vec::new();
    let (begin, mut started, mut ended) = (Instant::now(), 0, Ended::default());
    let ran = loop {
        if started < count && running.len() < in_flight as usize {
            let (child, pidfd) = spawn(&mut command).map_err(fail)?;
            running.push((child, pidfd, Instant::now()));
            started += 1;
            continue;
        }
        if running.is_empty() {
            break Ok(());
        }
        let mut polls: Vec<PollFd> = running.iter().map(|(_, pidfd, _)| PollFd::new(pidfd, PollFlags::IN)).collect();
        let _ = await_any(&mut polls, Instant::now() + GLANCE);
        running.retain_mut(|(child, _, since)| match child.try_wait() {
            Ok(None) if since.elapsed() < each => true,
            Ok(Some(status)) => {
                ended.elapsed_s = begin.elapsed().as_secs_f64();
                *(if status.success() { &mut ended.well } else { &mut ended.badly }) += 1;
                false
            }
            _ => {
                let _ = (child.kill(), child.wait());
                ended.hung += 1;
                false
            }
        });
        if interrupt.is_set() {
            break Err(Failure::Interrupted);
        }
        if begin.elapsed() > once.limit {
            break Err(Failure::TimedOut(once.limit.as_secs_f64()));
        }
    };
    running.iter_mut().for_each(|(child, ..)| end(child));
    ran.map(|()| ended)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::programs::Scratch;
    use crate::samples::value_of;

    fn sh(script: &str, limit: Duration) -> (Invocation, Scratch) {
        let dir = Scratch::create_in(&std::env::temp_dir()).unwrap();
        let argv = ["/bin/sh", "-c", script].map(OsString::from).to_vec();
        let env = vec![("BENCH_TEST".into(), "7".into())];
        (Invocation { argv, env, stdout: None, stderr: dir.file("stderr"), limit }, dir)
    }

    fn run(script: &str, limit: Duration) -> (Result<Measures, Failure>, Scratch) {
        let (invocation, dir) = sh(script, limit);
        (invocation.run(&Interrupt::default()), dir)
    }

    #[test]
    fn a_command_is_timed_with_its_environment() {
        let (result, _dir) = run("test $BENCH_TEST = 7 && sleep 0.02", Duration::from_secs(60));
        assert!(value_of(&result.unwrap(), "wall").unwrap() >= 0.02);
    }

    #[test]
    fn a_failure_names_exit_status_and_stderr() {
        let (result, _dir) = run("echo out of cheese >&2; exit 3", Duration::from_secs(60));
        assert_eq!(result.unwrap_err().to_string(), "exit code 3: out of cheese");
        let (result, _dir) = run("kill -9 $$", Duration::from_secs(60));
        assert_eq!(result.unwrap_err().to_string(), "killed by signal 9");
    }

    #[test]
    fn a_command_over_its_limit_is_killed_with_its_children() {
        let (result, dir) = run("trap '' TERM; sleep 1000 & echo $! >&2; wait; sleep 1000", Duration::from_millis(300));
        assert_eq!(result, Err(Failure::TimedOut(0.3)));
        let grandchild = fs::read_to_string(dir.file("stderr")).unwrap();
        let stat = format!("/proc/{}/stat", grandchild.trim());
        // The process was killed; whether it has been reaped does not matter here.
        let gone = || fs::read_to_string(&stat).map_or(true, |text| text.contains(") Z "));
        let until = Instant::now() + Duration::from_secs(30);
        while !gone() {
            assert!(Instant::now() < until, "the process still exists: {stat}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn the_ends_of_a_stream_are_counted() {
        // The runs leave files, by which each has a number.
        let script = "cd ${0%/*}; for i in 0 1 2 3 4 5; do mkdir run$i && break; done 2>&-
                      case $i in 3) exit 1;; 4) exec sleep 1000;; esac";
        let (mut once, dir) = sh(script, Duration::from_secs(60));
        once.argv.push(dir.file("x").into());
        let ended = stream(&once, 6, 2, Duration::from_secs(1), &Interrupt::default()).unwrap();
        assert_eq!((ended.well, ended.badly, ended.hung), (4, 1, 1));
    }
}
