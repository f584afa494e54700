//! The end-to-end tests' harness: runs the product as a user would, with a time limit and checks.
//!
//! Every run has a mark in its environment, which all of its processes inherit. A run that does not end by itself is
//! killed, and its test fails with all of its output. A run that ends must leave nothing behind: no process with the
//! mark, no file in its temporary folder or in `/dev/shm`, and no message of a panic on stderr; and on the hosts of a
//! testbed no process and no file in `/tmp`.
//!
//! [`programs`] finds the product, [`peers`] and [`libraries`] find test programs and other launchers, [`machines`]
//! makes hosts, also such that cannot reach each other, [`sessions`] standing sessions, [`strangers`] another user,
//! [`faults`] runs jobs into which faults are injected. The tests are in `tests/e2e`, one file for each subject.

mod capture;
pub mod faults;
pub mod folders;
pub mod libraries;
pub mod machines;
pub mod peers;
pub mod programs;
pub mod run_processes;
pub mod sessions;
pub mod strangers;
pub mod tables;

use capture::Capture;
pub use programs::wireup;
use run_processes::{Mark, Process};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use wireup_testbed::Testbed;
use wireup_testbed::failing_calls::Supervision;

/// Time after which a run counts as hanging: fifty times as long as the slowest run takes on an idle machine, since
/// machines that run the tests may be busy with other work.
const GUARD: Duration = Duration::from_secs(200);

/// Longest time for remaining processes to exit: long, since it is meant to detect a hang, not a slow machine.
const GONE: Duration = Duration::from_secs(10);

/// A command that has not been started yet.
pub struct Run {
    command: Command,
    shown: String,
    mark: Mark,
    stdin: Feed,
    read_stdout: bool,
    guard: Duration,
    testbed: Option<Arc<Testbed>>,
    leaves: bool,
    ranks_leave_memory: bool,
}

enum Feed {
    Nothing,
    Bytes(Vec<u8>),
    Open,
}

impl Run {
    /// The command `wireup ARGS`.
    pub fn wireup<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Self {
        Self::command(wireup(), args)
    }

    /// The command `wireup run ARGS`; `line` is split at blanks, without quotes.
    pub fn job(line: &str) -> Self {
        Self::wireup(["run"]).args(line.split_whitespace())
    }

    /// The command `sh -c SCRIPT`, where `$WIREUP` is the path of the product.
    pub fn shell(script: &str) -> Self {
        Self::command("/bin/sh", ["-c", script]).env("WIREUP", wireup())
    }

    /// A tool of the system; in its environment `$WIREUP` is the path of the product.
    pub fn tool<S: AsRef<OsStr>>(program: &str, args: impl IntoIterator<Item = S>) -> Self {
        Self::command(program, args).env("WIREUP", wireup())
    }

    fn command<S: AsRef<OsStr>>(program: impl AsRef<OsStr>, args: impl IntoIterator<Item = S>) -> Self {
        Self::new(Command::new(program)).args(args)
    }

    /// A run of this command, with its own mark and folders, and without further changes.
    fn new(mut command: Command) -> Self {
        let mark = Mark::new();
        // A run must not find the sessions of the user who runs the tests.
        let no_sessions = mark.folder().join("run");
        command.env(Mark::VARIABLE, mark.text()).env("TMPDIR", mark.folder()).env(sessions::RUNTIME_DIR, no_sessions);
        let (shown, stdin) = (String::new(), Feed::Nothing);
        Self {
            command,
            shown,
            mark,
            stdin,
            read_stdout: true,
            guard: GUARD,
            testbed: None,
            leaves: false,
            ranks_leave_memory: false,
        }
    }

    /// Runs the command on the hub of a testbed; see [`machines`].
    fn on(mut self, testbed: &Arc<Testbed>) -> Self {
        testbed.enter(&mut self.command);
        self.looking_at(testbed)
    }

    /// Makes the run check that it leaves nothing behind on the hosts of `testbed`.
    fn looking_at(mut self, testbed: &Arc<Testbed>) -> Self {
        self.testbed = Some(Arc::clone(testbed));
        self
    }

    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.command.arg(arg);
        self
    }

    pub fn args<S: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = S>) -> Self {
        self.command.args(args);
        self
    }

    /// Adds `sh -c SCRIPT` as the program of the job. Unless the test chooses a PMI, the job runs without PMIx: with a
    /// script, wireup would offer both PMI and PMIx, and a server for each job and node costs much more than what most
    /// tests do.
    pub fn sh(self, script: &str) -> Self {
        let mut words = self.command.get_args().map(OsStr::as_encoded_bytes);
        let is_ours = words.next() == Some(b"run") && !words.any(|word| word.starts_with(b"--pmi"));
        let offer: &[&str] = if is_ours { &["--pmi", "simple"] } else { &[] };
        self.args(offer).args(["/bin/sh", "-c", script])
    }

    pub fn env(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.command.env(name, value.into());
        self
    }

    /// Lets programs find wireup's C libraries.
    pub fn linked(self) -> Self {
        self.env("LD_LIBRARY_PATH", libraries::library_path())
    }

    pub fn envs(self, variables: Vec<(&'static str, String)>) -> Self {
        variables.into_iter().fold(self, |run, (name, value)| run.env(name, value))
    }

    pub fn cwd(mut self, folder: &Path) -> Self {
        self.command.current_dir(folder);
        self
    }

    pub fn stdin(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.stdin = Feed::Bytes(bytes.into());
        self
    }

    /// Gives the run a pipe as standard input that stays open and empty, like a terminal where nothing is typed; see
    /// [`Running::write`].
    pub fn stdin_open(mut self) -> Self {
        self.stdin = Feed::Open;
        self
    }

    /// Leaves standard output unread, like a stopped terminal.
    pub fn stdout_unread(mut self) -> Self {
        self.read_stdout = false;
        self
    }

    /// Runs the command like on a kernel that lacks all system calls from this number on, or with a container's filter
    /// that refuses them with the error `errno`.
    pub fn without_calls_from(mut self, number: u32, errno: Errno) -> Self {
        let refuse = move || wireup_testbed::refuse_calls_from(number, errno.raw_os_error());
        // SAFETY: everything that is called between fork and exec is async-signal-safe.
        unsafe { self.command.pre_exec(refuse) };
        self
    }

    /// Lets `supervision`, which the caller starts, decide about each system call of the command.
    pub fn supervised(mut self, supervision: &Supervision) -> Self {
        // SAFETY: everything that is called between fork and exec is async-signal-safe.
        unsafe { self.command.pre_exec(supervision.in_child()) };
        self
    }

    /// Allows more time than [`GUARD`].
    pub fn guard(mut self, time: Duration) -> Self {
        self.guard = time;
        self
    }

    /// Makes the run part of the run with `mark`, whose owner checks what remains of both.
    fn leaving(mut self, mark: Mark) -> Self {
        self.command.env(Mark::VARIABLE, mark.text()).env("TMPDIR", mark.folder());
        let _ = fs::remove_dir_all(self.mark.folder());
        self.mark = mark;
        self.leaves = true;
        self
    }

    /// Allows ranks to leave their own files in `/dev/shm`, even if the job ends well.
    pub fn ranks_leave_memory(mut self) -> Self {
        self.ranks_leave_memory = true;
        self
    }

    pub fn start(mut self) -> Running {
        self.shown = format!("{:?}", self.command);
        self.command.stdout(Stdio::piped()).stderr(Stdio::piped());
        self.command.stdin(match &self.stdin {
            Feed::Nothing => Stdio::null(),
            Feed::Bytes(_) | Feed::Open => Stdio::piped(),
        });
        if self.testbed.is_none() && !self.leaves {
            self.mark.give_memory_folder(&mut self.command);
        }
        heed_interrupts(&mut self.command);
        let mut child = self.command.spawn().unwrap_or_else(|e| panic!("{}: {e}", self.shown));
        let mut stdin = child.stdin.take();
        if let Feed::Bytes(bytes) = self.stdin {
            let mut pipe = stdin.take().expect("stdin was asked to be a pipe");
            // Errors are ignored: the program may end without having read all bytes.
            thread::spawn(move || drop(pipe.write_all(&bytes)));
        }
        let stdout = child.stdout.take().expect("stdout was asked to be a pipe");
        let stderr = child.stderr.take().expect("stderr was asked to be a pipe");
        Running {
            stdout: if self.read_stdout { Capture::reading(stdout) } else { Capture::holding(stdout) },
            stderr: Capture::reading(stderr),
            child,
            stdin,
            shown: self.shown,
            mark: self.mark,
            testbed: self.testbed,
            leaves: self.leaves,
            ranks_leave_memory: self.ranks_leave_memory,
            deadline: Instant::now() + self.guard,
        }
    }

    /// Runs the command to its end.
    pub fn finish(self) -> Outcome {
        self.start().finish()
    }

    /// Starts the command and waits until stdout contains `text` at least `count` times.
    pub fn start_until(self, text: &str, count: usize) -> Running {
        let mut running = self.start();
        running.await_out(text, count);
        running
    }

    /// Runs the command to its end; its exit code must be 0.
    pub fn succeed(self) -> Outcome {
        self.finish().expect_code(0)
    }
}

/// A running command.
pub struct Running {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: Capture,
    stderr: Capture,
    shown: String,
    mark: Mark,
    testbed: Option<Arc<Testbed>>,
    leaves: bool,
    ranks_leave_memory: bool,
    deadline: Instant,
}

impl Running {
    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Sends a signal to the started command only, not to other processes of the run.
    pub fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).expect("signal the launcher");
    }

    /// Starts reading the standard output that [`Run::stdout_unread`] has left unread.
    pub fn read_stdout(&mut self) {
        self.stdout.read_now();
    }

    /// Writes to the standard input that [`Run::stdin_open`] has left open.
    pub fn write(&mut self, bytes: &[u8]) {
        if let Err(error) = self.stdin.as_mut().expect("stdin_open").write_all(bytes) {
            self.fail(&format!("takes no input: {error}"));
        }
    }

    pub fn close_stdin(&mut self) {
        self.stdin = None;
    }

    /// All running processes of the run.
    pub fn processes(&self) -> Vec<Process> {
        self.mark.processes()
    }

    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("wait for the launcher").is_some()
    }

    /// Waits until stdout contains `text` at least `count` times.
    pub fn await_out(&mut self, text: &str, count: usize) {
        self.await_that(&format!("{count} x {text:?} on stdout"), |run| {
            run.stdout.text().matches(text).count() >= count
        });
    }

    /// Waits while the command runs until `holds` returns true; `what`: the condition, for messages.
    pub fn await_that(&mut self, what: &str, mut holds: impl FnMut(&mut Self) -> bool) {
        while !holds(self) {
            if Instant::now() > self.deadline || (self.has_ended() && !holds(self)) {
                self.fail(&format!("gave up waiting for: {what}"));
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    pub fn out_text(&self) -> String {
        self.stdout.text()
    }

    pub fn err_text(&self) -> String {
        self.stderr.text()
    }

    pub fn finish(mut self) -> Outcome {
        self.stdin = None;
        self.finish_with_open_stdin()
    }

    /// Waits for the end of the command; its exit code must be 0.
    pub fn succeed(self) -> Outcome {
        self.finish().expect_code(0)
    }

    /// Like [`Self::finish`], but leaves the command's stdin open.
    pub fn finish_with_open_stdin(mut self) -> Outcome {
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("wait for the launcher") {
                break status;
            }
            if Instant::now() > self.deadline {
                self.fail("did not end in time");
            }
            thread::sleep(Duration::from_millis(2));
        };
        let patience = Instant::now() + GONE;
        while !self.leaves && !self.mark.processes().is_empty() {
            if Instant::now() > patience {
                self.fail(&format!("left behind: {}", run_processes::list(&self.mark.processes())));
            }
            thread::sleep(Duration::from_millis(5));
        }
        while let Some(left) = self.testbed.as_deref().map(machines::left).filter(|left| !left.is_empty()) {
            if Instant::now() > patience {
                self.fail(&format!("left behind on the hosts: {left:#?}"));
            }
            thread::sleep(Duration::from_millis(5));
        }
        let outcome = Outcome {
            status,
            stdout: self.stdout.end(),
            stderr: self.stderr.end(),
            shown: std::mem::take(&mut self.shown),
        };
        // wireup keeps the folder of sessions when the last session has ended, as in the user's own runtime directory.
        let _ = fs::remove_dir(self.mark.folder().join("run"));
        let files = self.mark.files();
        assert!(self.leaves || files.is_empty(), "{outcome}\nleft behind: {files:?}");
        let files = self.mark.files_in_memory(status.success() && !self.ranks_leave_memory);
        assert!(files.is_empty(), "{outcome}\nleft behind in /dev/shm: {files:?}");
        assert!(!outcome.err().contains("panicked at"), "{outcome}\na panic");
        outcome
    }

    /// Kills all processes of the run, then fails the test.
    fn fail(&mut self, why: &str) -> ! {
        let all = run_processes::list(&self.mark.processes());
        self.mark.kill_all();
        panic!(
            "{}: {why}\nprocesses: {all}\nstdout: {}\nstderr: {}",
            self.shown,
            self.stdout.text(),
            self.stderr.text()
        );
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.leaves {
            return;
        }
        self.mark.kill_all();
        if let Some(testbed) = self.testbed.as_deref().filter(|_| thread::panicking()) {
            machines::clear(testbed);
        }
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(self.mark.folder());
        let _ = fs::remove_dir_all(self.mark.memory_folder());
    }
}

/// The result of a run.
pub struct Outcome {
    status: ExitStatus,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    shown: String,
}

impl Outcome {
    /// The exit code as a shell reports it: 128+signal if the command was killed by a signal.
    pub fn code(&self) -> i32 {
        self.status.code().unwrap_or_else(|| 128 + self.status.signal().unwrap_or(0))
    }

    pub fn out(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    pub fn err(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }

    /// The lines of stdout, sorted by bytes.
    pub fn sorted_lines(&self) -> Vec<String> {
        let mut lines: Vec<String> = self.out().lines().map(str::to_owned).collect();
        lines.sort();
        lines
    }

    pub fn expect_code(self, code: i32) -> Self {
        assert_eq!(self.code(), code, "{self}");
        self
    }

    pub fn expect_out(self, text: &str) -> Self {
        assert!(self.out().contains(text), "{self}\nexpected on stdout: {text:?}");
        self
    }

    /// Expects a line on stderr that contains all of `words`, and returns it.
    pub fn expect_err_line(&self, words: &[&str]) -> String {
        let err = self.err();
        let found = err.lines().find(|line| words.iter().all(|word| line.contains(word)));
        found.unwrap_or_else(|| panic!("{self}\nexpected in one line of stderr: {words:?}")).to_owned()
    }

    /// Expects that `ranks` ranks of a test program have printed that they found no error.
    pub fn expect_all_right(&self, ranks: usize) {
        assert_eq!(self.out().matches(libraries::ALL_RIGHT).count(), ranks, "{self}");
    }

    /// Expects nothing on stderr.
    pub fn expect_quiet(self) -> Self {
        assert!(self.stderr.is_empty(), "{self}\nexpected nothing on stderr");
        self
    }
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let head = |bytes: &[u8]| String::from_utf8_lossy(&bytes[..bytes.len().min(4000)]).into_owned();
        write!(f, "{}: {}\nstdout: {}\nstderr: {}", self.shown, self.status, head(&self.stdout), head(&self.stderr))
    }
}

/// Whether long tests run, which only repeat at a larger size what shorter tests show: with `WIREUP_NIGHT`, which
/// `cargo xtask night large` sets.
pub fn is_night() -> bool {
    let is_set = std::env::var_os("WIREUP_NIGHT").is_some();
    if !is_set {
        println!("a part is left to cargo xtask night");
    }
    is_set
}

/// Whether this process has the right to make namespaces without a user namespace.
pub fn may_isolate() -> bool {
    rustix::thread::capabilities(None)
        .is_ok_and(|sets| sets.effective.contains(rustix::thread::CapabilitySet::SYS_ADMIN))
}

/// Makes `command` react to SIGINT and SIGQUIT even if the shell that started the tests ignores them.
pub fn heed_interrupts(command: &mut Command) {
    let heed = || {
        wireup_testbed::heed_interrupts();
        Ok(())
    };
    // SAFETY: everything that is called between fork and exec is async-signal-safe.
    unsafe { command.pre_exec(heed) };
}
