//! Standing sessions for tests: each has its own runtime directory and leaves nothing when it is down.

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

/// The variable that tells the product where sessions are.
pub const RUNTIME_DIR: &str = "WIREUP_RUNTIME_DIR";
/// Time limit of waits for events that come at once or not at all.
const PATIENCE: Duration = Duration::from_secs(60);

/// A session, or the place for one.
pub struct Session {
    mark: Mark,
    testbed: Option<Arc<Testbed>>,
}

impl Session {
    /// A place without a session.
    pub fn nowhere() -> Session {
        let session = Session { mark: Mark::new(), testbed: None };
        fs::create_dir_all(session.runtime_dir()).expect("a runtime directory");
        session
    }

    /// `wireup up FLAGS`, which must succeed.
    pub fn up(line: &str) -> Session {
        let session = Session::nowhere();
        let outcome = session.again(line).expect_code(0);
        assert!(outcome.out().is_empty(), "{outcome}");
        session
    }

    /// `wireup up FLAGS` on the hub of a testbed, which must succeed.
    pub fn on(machines: &Machines, line: &str) -> Session {
        Session::on_some(machines, line, 0)
    }

    /// `wireup up FLAGS` on the hub of a testbed, which must end with this code.
    pub fn on_some(machines: &Machines, line: &str, code: i32) -> Session {
        let mut session = Session::nowhere();
        session.testbed = Some(machines.testbed());
        session.again(line).expect_code(code);
        session
    }

    /// `wireup up FLAGS`, with any result.
    pub fn again(&self, line: &str) -> Outcome {
        self.again_later(line).finish()
    }

    /// `wireup up FLAGS`, not started yet.
    pub fn again_later(&self, line: &str) -> Run {
        let run = Run::wireup(["up"]).args(line.split_whitespace());
        self.leaving(run)
    }

    /// `wireup run FLAGS`.
    pub fn job(&self, line: &str) -> Run {
        self.placed(Run::job(line))
    }

    /// `wireup run FLAGS`, if processes of the job may outlive the command; they belong to the session.
    pub fn job_leaving(&self, line: &str) -> Run {
        self.leaving(Run::job(line))
    }

    /// Any command, if its processes may outlive it; they belong to the session.
    pub fn leaving(&self, run: Run) -> Run {
        self.placed(run).leaving(self.mark.clone())
    }

    /// `wireup WORDS`.
    pub fn wireup(&self, line: &str) -> Run {
        self.placed(Run::wireup(line.split_whitespace()))
    }

    /// `wireup run --detach FLAGS SCRIPT`; returns the job's number. Its remaining processes belong to the session.
    pub fn detach(&self, line: &str, script: &str) -> String {
        let run = self.leaving(Run::job(&format!("--detach {line}")).sh(script));
        run.succeed().out().trim().to_owned()
    }

    /// `sh -c SCRIPT`, where `$WIREUP` is the product.
    pub fn shell(&self, script: &str) -> Run {
        self.placed(Run::shell(script))
    }

    /// `sh -c SCRIPT`, where `$WIREUP` is the product; the remaining processes belong to the session.
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

    /// All processes of the session on this machine, without those of jobs.
    pub fn processes(&self) -> Vec<Process> {
        self.mark.processes()
    }

    /// Processes with this name: the session's own (`wireup-session`), keepers (`wireup-keeper`), agents (`wireup`).
    pub fn named(&self, name: &str) -> Vec<Process> {
        self.processes().into_iter().filter(|process| process.name == name).collect()
    }

    /// The process of the root agent.
    pub fn daemon(&self) -> Pid {
        self.named("wireup-session").first().expect("the session has a process").pid
    }

    /// Processes of agents other than the root.
    pub fn agents(&self) -> Vec<Process> {
        self.named("wireup").into_iter().filter(|process| process.command.contains(" agent ")).collect()
    }

    /// Waits for a condition.
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
            // sshd keeps connections to a host that was switched off.
            let is_left = |line: &String| !line.contains(" sshd");
            self.await_that("the end of all processes on the hosts", || !machines::left(testbed).iter().any(is_left));
        }
    }

    /// `wireup down FLAGS`, after which nothing must be left.
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

/// The number in the line that begins with `name` in a file of a process' `/proc` folder.
pub fn status_of(pid: Pid, file: &str, name: &str) -> u64 {
    let text = fs::read_to_string(format!("/proc/{}/{file}", pid.as_raw_nonzero())).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
    let digits: String = line.chars().filter(char::is_ascii_digit).collect();
    digits.parse().unwrap_or(0)
}

impl Run {
    /// Runs the command on the hub of a testbed that is checked elsewhere.
    fn entering(mut self, testbed: &Testbed) -> Self {
        testbed.enter(&mut self.command);
        self
    }
}
