//! A job of startup clients that keeps running and executes one step after the other.
//!
//! The ranks wait at the gate (`board`); rank 0 reports through a fifo that all have arrived, and the benchmark writes
//! the next step and releases them through another fifo. So everything can be examined while no rank runs, the launch
//! is paid only once, and schemes take turns within one job.
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use rustix::fs::{CWD, FileType, Mode, mknodat};

use super::agents::Agents;
use super::board::{Board, Network, Slot};
use super::scheme::{Lengths, Step};
use super::slow_shell;
use super::times;
use crate::cases::Place;
use crate::command::{Failure, Invocation, Running};
use crate::interrupt::Interrupt;
use crate::metric::{Metric, Sample};
use crate::programs::{Program, Scratch};

/// How often the fifo is checked; no time is measured by it (chosen).
const GLANCE: Duration = Duration::from_millis(2);
/// Time for the agents to become idle after the last answers, before the next step (chosen).
const QUIET: Duration = Duration::from_millis(30);
/// A repeated step uses a new salt each time.
const SALTS_PER_STEP: u32 = 1 << 16;
/// Flags of `open` that the standard library does not define.
const NONBLOCK: i32 = rustix::fs::OFlags::NONBLOCK.bits() as i32;

/// The program of the ranks, and the library that it loads.
#[derive(Clone, Debug, PartialEq)]
pub enum Client {
    /// `programs/startup.c`, with a libpmi2.
    Startup { library: PathBuf },
    /// `programs/groups.c`, with a libwireup.
    Groups { library: PathBuf, engine: &'static str },
}

impl Client {
    /// Its command line; the files are the board and the fifos.
    fn words(&self, scratch: &Scratch, place: Place, [board, ready, go]: [&Path; 3]) -> Vec<OsString> {
        let (program, library, more) = match self {
            Client::Startup { library } => (Program::Startup, library, Vec::new()),
            Client::Groups { library, engine } => {
                (Program::Groups, library, vec![(*engine).into(), place.ppn.to_string().into()])
            }
        };
        let files = [&scratch.program(program), board, library, ready, go];
        files.into_iter().map(|path| path.as_os_str().to_owned()).chain(more).collect()
    }
}

/// How a job is started.
#[derive(Clone, Debug, PartialEq)]
pub struct Launch {
    pub wireup: PathBuf,
    pub client: Client,
    /// This program.
    pub own: PathBuf,
    pub place: Place,
    /// How much longer frames between agents take.
    pub link_delay: Option<Duration>,
    /// Further arguments of `wireup run`.
    pub extra: Vec<String>,
    /// Time limit for the whole job.
    pub limit: Duration,
}

impl Launch {
    /// The command line without the program.
    pub fn words(&self) -> Vec<String> {
        // The clients load their library by dlopen, so wireup cannot see which one it is. They tell their numbers, by
        // which their memory is read: those must be the same here.
        let mut words: Vec<String> = ["run", "--pmi", "simple", "--contain", "none", "-n"].map(String::from).into();
        words.push(self.place.job_size().to_string());
        match self.link_delay {
            Some(delay) => {
                let slow = (1..self.place.node_count).map(|node| format!(",slow{node}")).collect::<String>();
                let shell = format!("{} {} {}", self.own.display(), slow_shell::WORD, delay.as_nanos());
                words.extend([format!("--hosts=localhost{slow}"), format!("--ppn={}", self.place.ppn)]);
                // All frames pass the links of the tree, which are the slow ones.
                words.extend([format!("--remote-shell={shell}"), "--agent-transport=tree".into()]);
            }
            None if self.place.node_count > 1 => {
                words.extend(["--virtual-nodes".into(), self.place.node_count.to_string()]);
            }
            None => {}
        }
        words.extend(self.extra.iter().cloned());
        words
    }
}

/// A job whose ranks all wait at the gate.
pub struct Job<'a> {
    running: Running<'a>,
    board: Board,
    ready: File,
    go: File,
    agents: Agents,
    steps: u64,
}

/// Starts a job, lets `use_it` run steps, and ends the job.
///
/// # Errors
/// The job could not be started, failed, or exceeded its limit; or `use_it` returned an error.
pub fn with_job<R>(
    launch: &Launch,
    scratch: &Scratch,
    interrupt: &Interrupt,
    use_it: impl FnOnce(&mut Job) -> Result<R, Failure>,
) -> Result<R, Failure> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let board = Board::create(launch.place.job_size(), number, &scratch.file("")).map_err(wrong)?;
    let [ready_path, go_path] = ["ready", "go"].map(|name| scratch.file(&format!("{name}-{number}")));
    let ready = fifo(&ready_path)?;
    let go = fifo(&go_path)?;

    let mut argv = vec![launch.wireup.clone().into_os_string()];
    argv.extend(launch.words().into_iter().map(OsString::from));
    argv.extend(launch.client.words(scratch, launch.place, [board.path(), &ready_path, &go_path]));
    let stderr = scratch.file(&format!("stderr-{number}"));
    let invocation = Invocation { argv, env: Vec::new(), stdout: None, stderr, limit: launch.limit };
    let mut running = invocation.start(interrupt)?;
    wait_for(&mut running, &ready)?;
    let agents = Agents::below(running.pid(), launch.place.node_count).map_err(wrong)?;
    let mut job = Job { running, board, ready, go, agents, steps: 0 };
    let result = use_it(&mut job)?;
    job.leave()?;
    Ok(result)
}

impl Job<'_> {
    /// Lets all ranks run a step; they are at the gate again when this returns.
    pub fn step(&mut self, step: &Step) -> Result<Sample, Failure> {
        thread::sleep(QUIET);
        let before = self.agents.cpu_s();
        self.open(step)?;
        wait_for(&mut self.running, &self.ready)?;
        let cpu = self.agents.cpu_s() - before;
        let opened_ns = self.board.opened_ns().map_err(wrong)?;
        let mut sample = times::evaluate(&self.slots()?, self.steps, opened_ns, step.repeat).map_err(wrong)?;
        sample.0.push((Metric::AgentCpu, cpu / f64::from(step.repeat)));
        Ok(sample)
    }

    /// The time of `PMI2_Init`.
    pub fn joins(&self) -> Result<Sample, Failure> {
        Ok(times::joins(&self.slots()?))
    }

    /// Memory of agents and clients, all at rest.
    pub fn memory(&self) -> Result<Sample, Failure> {
        thread::sleep(QUIET);
        self.agents.memory(&self.slots()?).map_err(wrong)
    }

    /// What each rank has sent in the last step, or since the start if there was none; and what it holds.
    pub fn networks(&self) -> Result<Vec<Network>, Failure> {
        Ok(self.slots()?.iter().map(|slot| slot.network).collect())
    }

    fn slots(&self) -> Result<Vec<Slot>, Failure> {
        self.board.slots().map_err(wrong)
    }

    fn open(&mut self, step: &Step) -> Result<(), Failure> {
        self.steps += 1;
        self.board.write_step(step, self.steps as u32 * SALTS_PER_STEP).map_err(wrong)?;
        self.go.write_all(b"g").map_err(wrong)
    }

    fn leave(mut self) -> Result<Sample, Failure> {
        self.open(&Step::leave(Lengths { value: 8, key: 0 }))?;
        self.running.finish()
    }
}

/// Waits until rank 0 reports that all ranks are at the gate.
fn wait_for(running: &mut Running, mut ready: &File) -> Result<(), Failure> {
    loop {
        let mut byte = [0];
        match ready.read(&mut byte) {
            Ok(1) => return Ok(()),
            Err(e) if e.kind() == ErrorKind::WouldBlock => {}
            other => return Err(wrong(format!("the fifo of rank 0: {other:?}"))),
        }
        if running.ends_within(GLANCE)? {
            return Err(running.failure());
        }
    }
}

/// A fifo that is open for reading and writing from the beginning, so that opening it never blocks.
fn fifo(path: &Path) -> Result<File, Failure> {
    let _ = fs::remove_file(path);
    mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).map_err(wrong)?;
    OpenOptions::new().read(true).write(true).custom_flags(NONBLOCK).open(path).map_err(wrong)
}

fn wrong(what: impl ToString) -> Failure {
    Failure::Wrong(what.to_string())
}
