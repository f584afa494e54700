//! A job of startup clients that stays alive and executes one step after the other.
//!
//! The ranks wait at the gate (`board`); rank 0 reports through a fifo that all ranks have arrived, and the benchmark
//! writes the next step and releases the ranks through another fifo. So everything can be examined while no rank runs,
//! the job is launched only once, and schemes take turns within one job.
use std::ffi::OsString;
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use rustix::process::Pid;
use serde_json::Value as Json;
use wireup_flags::Value;

use super::board::{self, Board, Slot};
use super::scheme::Step;
use crate::bench::{Bench, Problem, Turn, wireup_near};
use crate::command::{Failure, Running, wrong};
use crate::flags::LIBRARY as LIBRARY_FLAG;
use crate::layout::Layout;
use crate::memory;
use crate::programs::{Scratch, fifo};
use crate::samples::{Measures, seconds};

/// Interval at which the fifo is checked; no time is measured by it (chosen).
const GLANCE: Duration = Duration::from_millis(2);
/// Time for the agents to become idle after the last answers, before the next step (chosen).
const QUIET: Duration = Duration::from_millis(30);
/// Number of salts for one step, since each repetition of a step uses a new salt.
const SALTS_PER_STEP: u32 = 1 << 16;

/// How a job is started.
#[derive(Clone, Debug, PartialEq)]
pub struct Launch {
    /// The command line of `wireup run` up to the program.
    run: Vec<OsString>,
    /// Path of the libpmi2 that ranks load; libwireup lies in the same folder.
    pub library: PathBuf,
    /// The ranks run `programs/groups.c` with libwireup and this engine; `None`: they run `programs/startup.c` with
    /// libpmi2.
    pub engine: Option<&'static str>,
    pub layout: Layout,
    /// Time limit of the whole job.
    pub limit: Duration,
}

/// The library that ranks load if they form groups; it lies in the same folder as `LIBRARY`.
const GROUPS_LIBRARY: &str = "libwireup.so.0.0.0";
const LIBRARY: &str = "libpmi2.so.0.0.0";
const LIMIT_S: u64 = 600;

impl Launch {
    /// A job on virtual nodes of this machine whose ranks exchange by libpmi2.
    pub fn new(bench: &Bench, layout: Layout) -> Result<Launch, Problem> {
        Launch::on(bench, layout, None)
    }

    /// A job as for `new`, on the nodes that these arguments of `wireup run` choose.
    pub fn on(bench: &Bench, layout: Layout, nodes: Option<Vec<String>>) -> Result<Launch, Problem> {
        // A PMI must be selected: the clients load their library by dlopen, so wireup cannot see which library they
        // use. Without a PID namespace the pids that clients report, by which their memory is read, are the same here.
        let virtual_nodes = if nodes.is_some() { 1 } else { layout.node_count };
        let run = bench.wireup_run(layout.job_size(), virtual_nodes, layout.ppn, "--pmi=simple --contain=none")?;
        Ok(Launch::by(bench, layout, run)?.with(nodes.unwrap_or_default()))
    }

    /// A job of the launcher that this command line starts; it takes the ranks' program as its last words.
    pub fn by(bench: &Bench, layout: Layout, run: Vec<OsString>) -> Result<Launch, Problem> {
        Ok(Launch { run, library: library(bench)?, engine: None, layout, limit: bench.limit_or(LIMIT_S) })
    }

    /// This job with ranks that exchange by libwireup, with this engine.
    pub fn with_groups(self, engine: &'static str) -> Launch {
        Launch { engine: Some(engine), ..self }
    }

    /// This job with further arguments of `wireup run`.
    pub fn with(mut self, words: impl IntoIterator<Item = String>) -> Launch {
        self.run.extend(words.into_iter().map(OsString::from));
        self
    }

    pub fn groups_library(&self) -> PathBuf {
        self.library.with_file_name(GROUPS_LIBRARY)
    }

    /// The command line that starts `program` as the ranks of the job.
    pub fn argv(&self, program: Vec<OsString>) -> Vec<OsString> {
        [&self.run[..], &program].concat()
    }

    /// The command line of the ranks' program, which waits at the gate; the paths lead to the board and the fifos.
    fn client(&self, scratch: &Scratch, [board, ready, go]: [&Path; 3]) -> Vec<OsString> {
        let (program, library) = match self.engine {
            Some(_) => ("groups", self.groups_library()),
            None => ("startup", self.library.clone()),
        };
        let files = [&scratch.program(program), board, &library, ready, go].map(|path| path.as_os_str().to_owned());
        let more = self.engine.map(|engine| [OsString::from(engine), self.layout.ppn.to_string().into()]);
        files.into_iter().chain(more.into_iter().flatten()).collect()
    }
}

/// The library that clients load: the library that the user names, or the library near the launcher or near this
/// program.
fn library(bench: &Bench) -> Result<PathBuf, Problem> {
    let wireup = bench.wireup()?;
    let near = |program: &Path| {
        let folder = program.parent()?;
        [folder.join(LIBRARY), folder.join("../lib").join(LIBRARY)].into_iter().find(|path| path.is_file())
    };
    let named = bench.line.last(LIBRARY_FLAG, Value::path)?;
    let found = named.or_else(|| near(&wireup)).or_else(|| near(&wireup_near()?));
    let missing = || {
        let folder = wireup.display();
        wrong(format!(
            "{LIBRARY} was not found beside {folder}, nor in ../lib from there: see --library; to build it: cargo \
             xtask libraries"
        ))
    };
    Ok(std::path::absolute(found.ok_or_else(missing)?)?)
}

/// A job whose ranks all wait at the gate.
pub struct Job {
    running: Running,
    board: Board,
    ready: File,
    go: File,
    agents: Vec<memory::Agent>,
    node_count: u32,
    steps: u64,
}

/// Starts a job, lets `use_it` run steps, and ends the job.
///
/// # Errors
/// The job could not be started, failed, or exceeded its limit; or `use_it` returned an error.
pub fn with_job<R>(
    bench: &Bench,
    launch: &Launch,
    use_it: impl FnOnce(&mut Job) -> Result<R, Failure>,
) -> Result<R, Failure> {
    let scratch = &bench.scratch;
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let board = Board::create(launch.layout.job_size())?;
    let [ready_path, go_path] = ["ready", "go"].map(|name| scratch.file(&format!("{name}-{number}")));
    let ready = fifo(&ready_path)?;
    let go = fifo(&go_path)?;

    let client = launch.client(scratch, [board.path().as_ref(), &ready_path, &go_path]);
    let mut invocation = bench.command(launch.argv(client), launch.limit);
    (invocation.stdout, invocation.stderr) = (None, scratch.file(&format!("stderr-{number}")));
    let mut running = invocation.start(&bench.interrupt)?;
    wait_for(&mut running, &ready)?;
    let agents = memory::agents(running.pid, launch.layout.node_count)?;
    let node_count = launch.layout.node_count;
    let mut job = Job { running, board, ready, go, agents, node_count, steps: 0 };
    let result = use_it(&mut job)?;
    job.leave()?;
    Ok(result)
}

impl Job {
    /// Lets all ranks run a step; the ranks are at the gate again when the call returns.
    pub fn step(&mut self, step: &Step) -> Result<Measures, Failure> {
        thread::sleep(QUIET);
        let before = memory::cpu_s(&self.agents);
        self.open(step)?;
        wait_for(&mut self.running, &self.ready)?;
        let cpu = memory::cpu_s(&self.agents) - before;
        let opened_ns = self.board.opened_ns()?;
        let mut measures = board::evaluate(&self.slots()?, self.steps, opened_ns, step.repeat)?;
        measures.push(seconds("agent-cpu", cpu / f64::from(step.repeat)));
        Ok(measures)
    }

    /// The times of the call by which the ranks have joined the job.
    pub fn joins(&self) -> Result<Measures, Failure> {
        Ok(board::joins(&self.slots()?))
    }

    /// Memory of agents and clients, while all of them are idle.
    pub fn memory(&self) -> Result<Measures, Failure> {
        thread::sleep(QUIET);
        let pids: Vec<Pid> = self.slots()?.iter().filter_map(|slot| Pid::from_raw(slot.pid as i32)).collect();
        Ok([memory::sample(self.running.pid, self.node_count)?, memory::of_clients(&pids)].concat())
    }

    /// The readings that each rank has written to the board in the last step.
    pub fn slots(&self) -> Result<Vec<Slot>, Failure> {
        self.board.slots().map_err(wrong)
    }

    fn open(&mut self, step: &Step) -> Result<(), Failure> {
        self.steps += 1;
        self.board.write_step(step, self.steps as u32 * SALTS_PER_STEP)?;
        self.go.write_all(b"g").map_err(wrong)
    }

    fn leave(mut self) -> Result<Measures, Failure> {
        self.open(&Step::leave())?;
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

/// Starts a job and runs its steps in turns; the contestants are ways of doing the same exchange. Then reports how long
/// joining the job took, and the memory of idle agents and clients.
pub fn turns(bench: &Bench, launch: &Launch, case: &Json, turns: &[Turn<Step>]) {
    bench.attempt(turns, || {
        with_job(bench, launch, |job| {
            let joins = job.joins()?;
            bench.turns(turns, |step, _| job.step(step));
            bench.add(case, "at rest", 0, Ok([job.memory()?, joins].concat()));
            Ok(())
        })
    });
}
