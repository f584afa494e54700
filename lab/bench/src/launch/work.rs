//! One run of one case with one launcher: the program that it starts, the values that result.
use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use rustix::fs::{CWD, FileType, Mode, mknodat};

use super::case::{Case, Remote, SRUN, Stream, Work};
use super::launcher::{Kind, Launcher};
use crate::bench::Bench;
use crate::command::{Failure, Invocation, wrong};
use crate::memory;
use crate::programs::{Program, Scratch};
use crate::samples::{Measures, bytes, count, rate, seconds, value_of};
use crate::stamps;

/// How often the ranks' file is checked while they arrive; no time is measured by it (chosen).
const ARRIVAL_GLANCE: Duration = Duration::from_millis(20);
/// Time for the agents to become idle after the last get, before their memory is read (chosen).
const QUIET: Duration = Duration::from_millis(200);
/// Time for what a job left running on other hosts to end, and for the last packets (chosen).
const FAR_QUIET: Duration = Duration::from_millis(50);
/// How long ranks of `Work::PmixSleep` sleep (s).
const SLEEP_S: f64 = 0.3;
/// How often polling ranks meet. Chosen: a launcher whose ranks become extremely slow still ends within its limit.
const POLLING_TURNS: u32 = 2000;
/// Time for the busy processes beside polling ranks to start (chosen).
const BUSY_LEAD: Duration = Duration::from_millis(50);
/// The file that polling ranks map: two words, then the times of the first and last meeting (`programs/polling.c`).
const POLLING_BOARD_BYTES: usize = 24;
/// A job of a stream that takes longer counts as hanging and is killed: a hundred times the longest time seen of a
/// peer's single job (chosen).
const JOB_LIMIT_S: u32 = 10;
/// Time per job in the limit of a stream, as if all jobs were about as slow as that (chosen).
const JOB_SHARE: Duration = Duration::from_secs(2);
/// Time limit for contacting all hosts at once, before anything is timed (chosen).
const REACH_LIMIT: Duration = Duration::from_secs(60);

/// Shared by all runs of a benchmark.
pub struct Surroundings<'a> {
    pub bench: &'a Bench,
    pub mpi_program: Option<&'a Path>,
    pub mpi_env: &'a [(OsString, OsString)],
}

impl Surroundings<'_> {
    /// Runs the case once. A warm-up run also checks that every rank of a `true` job was started.
    pub fn once(&self, case: &Case, launcher: &Launcher, warms_up: bool) -> Result<Measures, Failure> {
        if case.remote.is_none() {
            return self.here(case, launcher, warms_up);
        }
        let before = bytes_sent();
        let mut run = self.here(case, launcher, warms_up);
        thread::sleep(FAR_QUIET);
        if let (Ok(measures), Some(before), Some(after)) = (&mut run, before, bytes_sent()) {
            measures.push(bytes("net-bytes", after.saturating_sub(before) as f64));
        }
        run
    }

    fn here(&self, case: &Case, launcher: &Launcher, warms_up: bool) -> Result<Measures, Failure> {
        let plain = |program| self.invocation(case, launcher, program).run(&self.bench.interrupt);
        match case.work {
            Work::True | Work::Initiation if warms_up => {
                let file = self.empty_file("started")?;
                let measures = plain(vec![self.program(Program::True), file.clone().into()])?;
                expect(&file, launcher.process_count(case))?;
                Ok(measures)
            }
            Work::True | Work::Initiation => plain(vec![self.program(Program::True)]),
            Work::PmiInit => plain(self.sized(case, Program::PmiInit)),
            Work::PmiBare => plain(self.sized(case, Program::PmiBare)),
            Work::MpiInit => plain(vec![self.mpi_program.ok_or_else(|| wrong("needs --mpi-program"))?.into()]),
            Work::OpenMpi(version) => self.open_mpi(case, launcher, version),
            Work::PmixSleep => {
                plain(vec!["/bin/sleep".into(), SLEEP_S.to_string().into()]).map(|measures| less(measures, SLEEP_S))
            }
            Work::PmixExchange => self.stamped(case, launcher, Program::PmixExchange, "collect", &[]),
            Work::PmixFence => self.stamped(case, launcher, Program::PmixExchange, "rest", &[]),
            Work::PmixDirect => self.stamped(case, launcher, Program::PmixExchange, "direct", &[]),
            Work::Exchange => {
                let more: &[&str] = if launcher.kind == Kind::Echo { &["--unchecked"] } else { &[] };
                self.stamped(case, launcher, Program::PmiExchange, "all", more)
            }
            Work::Memory => self.held(case, launcher),
            Work::Polling => self.polling(case, launcher),
            Work::Jobs => self.jobs(case, launcher, warms_up),
        }
    }

    /// The shim is loaded only into the ranks, by `env`, since launchers have no common option for it. wireup has an
    /// option, which is used because it examines the program.
    fn open_mpi(&self, case: &Case, launcher: &Launcher, version: u32) -> Result<Measures, Failure> {
        let program = std::path::absolute(open_mpi_program(version)).map_err(wrong)?;
        let stamps = self.empty_file("mpi-stamps")?;
        let shim = format!("LD_PRELOAD={}", self.bench.scratch.program(Program::MpiShim).display());
        let variables = [shim, format!("WIREUP_BENCH_STAMPS={}", stamps.display())];
        let invocation = if launcher.kind == Kind::Wireup {
            let flags = variables.map(|variable| format!("--env={variable}"));
            let launcher = Launcher { extra: [&launcher.extra[..], &flags].concat(), ..launcher.clone() };
            self.invocation(case, &launcher, vec![program.into()])
        } else {
            let [shim, file] = variables.map(OsString::from);
            self.invocation(case, launcher, vec!["/usr/bin/env".into(), shim, file, program.into()])
        };
        let measures = invocation.run(&self.bench.interrupt)?;
        let lines = stamps::lines(&fs::read_to_string(stamps).map_err(wrong)?, 3, case.layout.job_size())?;
        let slowest_s = lines.iter().map(|line| line[1]).max().unwrap_or(0) as f64 / 1e9;
        let mut measures = less(measures, slowest_s);
        measures.push(seconds("mpi-init", slowest_s));
        Ok(measures)
    }

    /// A program whose ranks leave their clock readings.
    fn stamped(
        &self,
        case: &Case,
        launcher: &Launcher,
        program: Program,
        how: &str,
        more: &[&str],
    ) -> Result<Measures, Failure> {
        let stamps = self.empty_file("stamps")?;
        let mut words = [self.sized(case, program), vec![how.into(), stamps.clone().into()]].concat();
        words.extend(more.iter().map(OsString::from));
        let measures = self.invocation(case, launcher, words).run(&self.bench.interrupt)?;
        with_stamps(measures, &stamps, case)
    }

    /// The ranks wait for a FIFO whose only writer is this process; closing it releases them.
    fn held(&self, case: &Case, launcher: &Launcher) -> Result<Measures, Failure> {
        let stamps = self.empty_file("stamps")?;
        let fifo = self.bench.scratch.file("hold");
        let _ = fs::remove_file(&fifo);
        mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).map_err(wrong)?;
        // Opened for reading and writing, so that the open does not wait for a reader.
        let writer = OpenOptions::new().read(true).write(true).open(&fifo).map_err(wrong)?;
        let mut words = self.sized(case, Program::PmiExchange);
        words.extend(["neighbours".into(), stamps.clone().into(), "--hold".into(), fifo.into_os_string()]);
        let invocation = self.invocation(case, launcher, words);
        let mut running = invocation.start(&self.bench.interrupt)?;
        let arrived = || fs::read(&stamps).map_or(0, |text| text.iter().filter(|byte| **byte == b'\n').count());
        let mut ended = false;
        while !ended && arrived() < case.layout.job_size() as usize {
            ended = running.ends_within(ARRIVAL_GLANCE)?;
        }
        if ended || running.ends_within(QUIET)? {
            running.finish()?;
            return Err(wrong("the job ended while its ranks should have been held"));
        }
        let memory = memory::sample(running.pid(), case.layout.node_count).map_err(wrong);
        drop(writer);
        let mut measures = running.finish()?;
        measures.extend(memory?);
        with_stamps(measures, &stamps, case)
    }

    /// Ranks that poll for each other while other processes want the same cpus.
    ///
    /// A busy machine is simulated by as many busy processes as there are cpus, each in a session of its own, like
    /// another user's programs. When ranks poll and yield, the other ranks should run next, not those processes. With
    /// Linux' autogroups, or with a single group for all, that depends on how the launcher starts the ranks.
    fn polling(&self, case: &Case, launcher: &Launcher) -> Result<Measures, Failure> {
        let board = self.bench.scratch.file("board");
        fs::write(&board, [0; POLLING_BOARD_BYTES]).map_err(wrong)?;
        let mut words = self.sized(case, Program::Polling);
        words.extend([POLLING_TURNS.to_string().into(), board.clone().into()]);
        let busy = BusyCpus::begin(&self.bench.scratch).map_err(wrong)?;
        let run = self.invocation(case, launcher, words).run(&self.bench.interrupt);
        drop(busy);
        let mut measures = run?;
        let board = fs::read(board).map_err(wrong)?;
        let [begin, end] = [8, 16]
            .map(|at| board.get(at..at + 8).map_or(0, |word| u64::from_ne_bytes(word.try_into().unwrap_or_default())));
        if begin == 0 || end < begin {
            return Err(wrong("the ranks did not all meet"));
        }
        measures.push(seconds("time", (end - begin) as f64 / 1e9));
        Ok(measures)
    }

    /// Runs a slice of the stream; the warm-up is a shorter slice whose started ranks are counted.
    fn jobs(&self, case: &Case, launcher: &Launcher, warms_up: bool) -> Result<Measures, Failure> {
        let Stream { jobs, in_flight } = case.stream;
        let jobs = if warms_up { jobs.min(2 * in_flight) } else { jobs };
        let (started, mut program) = (self.empty_file("started")?, vec![self.program(Program::True)]);
        if warms_up {
            program.push(started.clone().into());
        }
        let argv = launcher.argv(&self.bench.scratch, case, program);
        let env = launcher.env_of_launcher(&self.bench.scratch);
        let ended = stream(self.bench, Stream { jobs, in_flight }, argv, env, case.limit)?;
        // Jobs that launchers lose are reported, but their figures still count.
        if ended.badly > 0 || ended.well == 0 || launcher.kind == Kind::Session && ended.hung > 0 {
            return Err(wrong(format!("of {jobs} jobs {} ended badly, {} hung", ended.badly, ended.hung)));
        }
        if warms_up && ended.hung == 0 {
            expect(&started, jobs * launcher.process_count(case))?;
        }
        let per_second = rate("job-rate", f64::from(ended.well) / ended.elapsed_s);
        Ok(vec![per_second, seconds("wall", ended.elapsed_s), count("hung", f64::from(ended.hung))])
    }

    /// Checks that every host answers and sees the test programs.
    ///
    /// # Errors
    /// The shells' messages about the hosts that do not.
    pub fn reach(&self, remote: &Remote) -> Result<(), Failure> {
        let seen = self.bench.scratch.program(Program::True);
        let script = format!("test -x {0} || {{ echo {{host}}: {0} is not there >&2; false; }}", seen.display());
        let called: &[&str] = match remote.is_allocation() {
            true => &[SRUN, "--overlap", "-N", "1", "-n", "1", "-w", "{host}", "/bin/sh", "-c"],
            false => &[&remote.shell, "{host}"],
        };
        let mut argv: Vec<OsString> = vec![self.program(Program::Shells), remote.list().into()];
        argv.extend(called.iter().map(OsString::from));
        argv.push(script.into());
        self.bench.run(argv, REACH_LIMIT).map(drop)
    }

    fn invocation(&self, case: &Case, launcher: &Launcher, program: Vec<OsString>) -> Invocation {
        let mpi_env = if case.work.is_mpi() { self.mpi_env } else { &[] };
        Invocation {
            env: [launcher.env_of_launcher(&self.bench.scratch), mpi_env.to_vec()].concat(),
            stdout: None,
            ..self.bench.command(launcher.argv(&self.bench.scratch, case, program), case.limit)
        }
    }

    /// A program that gets the job's size as an argument, so that it can refuse another size.
    fn sized(&self, case: &Case, program: Program) -> Vec<OsString> {
        vec![self.program(program), case.layout.job_size().to_string().into()]
    }

    fn program(&self, program: Program) -> OsString {
        self.bench.scratch.program(program).into_os_string()
    }

    fn empty_file(&self, name: &str) -> Result<PathBuf, Failure> {
        self.bench.scratch.empty_file(name).map_err(wrong)
    }
}

/// A program that does init, barrier, finalize, built by `cargo xtask setup`.
pub fn open_mpi_program(version: u32) -> PathBuf {
    format!("target/programs/openmpi{version}/initfin").into()
}

/// Checks the number of ranks: every rank that starts appends a byte.
fn expect(file: &Path, expected: u32) -> Result<(), Failure> {
    let started = fs::metadata(file).map_err(wrong)?.len();
    match started == u64::from(expected) {
        true => Ok(()),
        false => Err(wrong(format!("{started} of {expected} ranks were started"))),
    }
}

/// Adds the wall time without the time of the ranks themselves.
fn less(mut measures: Measures, own_s: f64) -> Measures {
    let overhead = value_of(&measures, "wall").map(|wall| seconds("overhead", wall - own_s));
    measures.extend(overhead);
    measures
}

fn with_stamps(mut measures: Measures, stamps: &Path, case: &Case) -> Result<Measures, Failure> {
    measures.extend(stamps::evaluate(&fs::read_to_string(stamps).map_err(wrong)?, case.layout.job_size())?);
    Ok(measures)
}

/// One busy process for each cpu; they are ended on drop.
struct BusyCpus(Vec<Child>);

impl BusyCpus {
    fn begin(scratch: &Scratch) -> std::io::Result<BusyCpus> {
        let mut busy = BusyCpus(Vec::new());
        for _ in 0..thread::available_parallelism()?.get() {
            let mut command = Command::new(scratch.program(Program::Polling));
            command.arg("--busy").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            busy.0.push(command.spawn()?);
        }
        thread::sleep(BUSY_LEAD);
        Ok(busy)
    }
}

impl Drop for BusyCpus {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // It may have exited already; then it is only reaped.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// How the jobs of a stream ended.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Ended {
    /// With exit code 0.
    pub well: u32,
    pub badly: u32,
    /// Killed by us.
    pub hung: u32,
    /// Until the end of the last job that ended by itself (s).
    pub elapsed_s: f64,
}

/// Time limit for a stream as a whole.
pub fn stream_limit(jobs: u32) -> Duration {
    Duration::from_secs(60) + JOB_SHARE * jobs
}

/// Runs `argv` as the stream says (`programs/spawn_jobs.c`); `{i}` in it is replaced by the number of the run.
pub fn stream(
    bench: &Bench,
    stream: Stream,
    argv: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    limit: Duration,
) -> Result<Ended, Failure> {
    let mut all = vec![bench.scratch.program(Program::SpawnJobs).into_os_string()];
    all.extend([stream.jobs, stream.in_flight, JOB_LIMIT_S].map(|number| number.to_string().into()));
    all.extend(argv);
    Invocation { env, ..bench.command(all, limit) }.run(&bench.interrupt)?;
    let text = fs::read(bench.scratch.file("stdout")).map_err(wrong)?;
    // The last line follows the output of the jobs.
    let text = String::from_utf8_lossy(&text).into_owned();
    let words: Vec<&str> = text.lines().last().unwrap_or_default().split(' ').collect();
    let number = |at: usize| words.get(at).and_then(|word| word.parse::<f64>().ok());
    let all = [0, 1, 2, 3].map(number);
    let [Some(well), Some(badly), Some(hung), Some(elapsed_s)] = all else {
        return Err(wrong("spawn-jobs did not report what it has run"));
    };
    Ok(Ended { well: well as u32, badly: badly as u32, hung: hung as u32, elapsed_s })
}

/// Bytes of whole frames that were sent over the network of a testbed since it was created, if this is one.
///
/// The benchmark's own name space holds one end of every cable there. Each frame counts once, where it was sent: by a
/// node (received by a port of the hub) or by the hub (sent by its bridge). On other networks the counters of one host
/// do not cover the rest.
fn bytes_sent() -> Option<u64> {
    // Set by `wireup-testbed run` on its hub.
    std::env::var_os("WIREUP_TESTBED_HOSTS")?;
    sum_of_ports(&fs::read_to_string("/proc/self/net/dev").ok()?)
}

/// `None` if there is no hub's bridge.
fn sum_of_ports(table: &str) -> Option<u64> {
    let (mut total, mut is_hub) = (0, false);
    for (name, counters) in table.lines().filter_map(|line| line.split_once(':')) {
        let mut counters = counters.split_whitespace().map(|word| word.parse::<u64>().unwrap_or(0));
        match name.trim() {
            "br0" => {
                total += counters.nth(8)?;
                is_hub = true;
            }
            port if port.starts_with('v') => total += counters.next()?,
            _ => {}
        }
    }
    is_hub.then_some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traffic_of_nodes_and_hub_is_summed() {
        let ports = "    v0: 300 0 0 0 0 0 0 0 4000 0\n    v1: 1 0 0 0 0 0 0 0 2 0\ndocker0: 7 0 0 0 0 0 0 0 7 0\n";
        let table = format!("Inter-|   Receive\n    lo: 9 9 0 0 0 0 0 0 9 9\n   br0: 1 0 0 0 0 0 0 0 20 0\n{ports}");
        assert_eq!((sum_of_ports(&table), sum_of_ports(ports)), (Some(321), None));
    }
}
