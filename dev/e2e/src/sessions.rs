//! Standing sessions for tests: each has its own runtime directory, and must leave nothing behind when it has ended.

use super::machines::{self, Machines};
use super::run_processes::{self, Mark, Process};
use super::{Outcome, Run};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use wireup_testbed::Testbed;

/// The environment variable that tells the product where the directories of sessions are.
pub const RUNTIME_DIR: &str = "WIREUP_RUNTIME_DIR";
/// Time limit of waits for events that come soon or not at all.
const PATIENCE: Duration = Duration::from_secs(60);

/// A session with its own runtime directory, or such a directory without a session.
pub struct Session {
    mark: Mark,
    testbed: Option<Arc<Testbed>>,
}

impl Session {
    /// A runtime directory without a session.
    pub fn nowhere() -> Session {
        let session = Session { mark: Mark::new(), testbed: None };
        fs::create_dir_all(session.runtime_dir()).expect("a runtime directory");
        session
    }

    /// Starts a session by `wireup up FLAGS`, which must succeed.
    pub fn up(line: &str) -> Session {
        let session = Session::nowhere();
        let outcome = session.again(line).expect_code(0);
        assert!(outcome.out().is_empty(), "{outcome}");
        session
    }

    /// Starts a session by `wireup up FLAGS` on the hub of a testbed; the command must succeed.
    pub fn on(machines: &Machines, line: &str) -> Session {
        Session::on_some(machines, line, 0)
    }

    /// Starts a session by `wireup up FLAGS` on the hub of a testbed; the command must end with exit code `code`.
    pub fn on_some(machines: &Machines, line: &str, code: i32) -> Session {
        let mut session = Session::nowhere();
        session.testbed = Some(machines.testbed());
        session.again(line).expect_code(code);
        session
    }

    /// Runs `wireup up FLAGS` with this runtime directory; any result is allowed.
    pub fn again(&self, line: &str) -> Outcome {
        self.again_later(line).finish()
    }

    /// The command `wireup up FLAGS`, not started yet.
    pub fn again_later(&self, line: &str) -> Run {
        let run = Run::wireup(["up"]).args(line.split_whitespace());
        self.leaving(run)
    }

    /// The command `wireup run FLAGS` in this session.
    pub fn job(&self, line: &str) -> Run {
        self.placed(Run::job(line))
    }

    /// The command `wireup run FLAGS`, if processes of the job may outlive the command; they are checked at the
    /// session's end.
    pub fn job_leaving(&self, line: &str) -> Run {
        self.leaving(Run::job(line))
    }

    /// Any command whose processes may outlive it; they are checked at the session's end.
    pub fn leaving(&self, run: Run) -> Run {
        self.placed(run).leaving(self.mark.clone())
    }

    /// The command `wireup WORDS` with this runtime directory.
    pub fn wireup(&self, line: &str) -> Run {
        self.placed(Run::wireup(line.split_whitespace()))
    }

    /// `wireup run --detach FLAGS SCRIPT`; returns the job's number. The job's processes are checked at the session's
    /// end.
    pub fn detach(&self, line: &str, script: &str) -> String {
        let run = self.leaving(Run::job(&format!("--detach {line}")).sh(script));
        run.succeed().out().trim().to_owned()
    }

    /// The command `sh -c SCRIPT`, where `$WIREUP` is the path of the product.
    pub fn shell(&self, script: &str) -> Run {
        self.placed(Run::shell(script))
    }

    /// Runs `sh -c SCRIPT`, where `$WIREUP` is the path of the product; remaining processes are checked at the
    /// session's end.
    pub fn shell_leaving(&self, script: &str) -> Outcome {
        self.leaving(Run::shell(script)).finish()
    }

    fn placed(&self, run: Run) -> Run {
        let run = run.env(RUNTIME_DIR, self.runtime_dir());
        match &self.testbed {
            Some(testbed) => run.cwd("/".as_ref()).entering(testbed),
            None => run,
        }
    }

    pub fn runtime_dir(&self) -> PathBuf {
        self.mark.folder().join("run")
    }

    /// The directory of the session with this name.
    pub fn place(&self, name: &str) -> PathBuf {
        self.runtime_dir().join(name)
    }

    /// All processes of the session on this machine, except those of jobs.
    pub fn processes(&self) -> Vec<Process> {
        self.mark.processes()
    }

    /// The session's processes with this name: its own (`wireup-session`), keepers (`wireup-keeper`), agents
    /// (`wireup`).
    pub fn named(&self, name: &str) -> Vec<Process> {
        self.processes().into_iter().filter(|process| process.name == name).collect()
    }

    /// Pid of the root agent's process.
    pub fn daemon(&self) -> Pid {
        self.named("wireup-session").first().expect("the session has a process").pid
    }

    /// Processes of agents other than the root.
    pub fn agents(&self) -> Vec<Process> {
        self.named("wireup").into_iter().filter(|process| process.command.contains(" agent ")).collect()
    }

    /// Waits until `holds` returns true; `what`: the condition, for messages.
    pub fn await_that(&self, what: &str, mut holds: impl FnMut() -> bool) {
        let until = Instant::now() + PATIENCE;
        while !holds() {
            let all = self.processes();
            assert!(Instant::now() < until, "gave up waiting for: {what}; processes: {}", run_processes::list(&all));
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Expects that nothing is left of the session.
    pub fn expect_gone(&self) {
        self.await_that("the end of all processes", || self.processes().is_empty());
        self.await_that("the end of its directory", || {
            let is_session = |entry: fs::DirEntry| !entry.file_name().as_encoded_bytes().starts_with(b".");
            fs::read_dir(self.runtime_dir()).is_ok_and(|entries| !entries.flatten().any(is_session))
        });
        if let Some(testbed) = &self.testbed {
            // Not counted: sshd on a host that is up keeps its connections to a host that was switched off.
            let is_left = |line: &String| !line.contains(" sshd");
            self.await_that("the end of all processes on the hosts", || !machines::left(testbed).iter().any(is_left));
        }
    }

    /// Runs `wireup down FLAGS`, and expects that nothing is left of the session.
    pub fn down(self, line: &str) -> Outcome {
        let outcome = self.wireup(&format!("down {line}")).succeed();
        self.expect_gone();
        assert!(!self.place(".default").exists(), "it is forgotten");
        outcome
    }

    pub fn kill(&self, pid: Pid) {
        kill_process(pid, Signal::KILL).expect("send the signal");
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.mark.kill_all();
        if let Some(testbed) = self.testbed.as_deref().filter(|_| thread::panicking()) {
            machines::clear(testbed);
        }
        let _ = fs::remove_dir_all(self.mark.folder());
    }
}

/// The number in the line that begins with `name`, in the file `file` of a process's folder in `/proc`.
pub fn status_of(pid: Pid, file: &str, name: &str) -> u64 {
    let text = fs::read_to_string(format!("/proc/{}/{file}", pid.as_raw_nonzero())).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
    let digits: String = line.chars().filter(char::is_ascii_digit).collect();
    digits.parse().unwrap_or(0)
}

impl Run {
    /// Makes the run's command run on the hub of a testbed, without a check of what the run leaves on the hosts.
    fn entering(mut self, testbed: &Testbed) -> Self {
        testbed.enter(&mut self.command);
        self
    }
}
