//! One run of one case with one launcher: the program that it starts, and the values that result.
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use super::case::{Case, Ranks, Remote, SRUN};
use super::launcher::{Kind, Launcher, words};
use crate::bench::Bench;
use crate::command::{Failure, Invocation, stream, wrong};
use crate::samples::{Measures, bytes, count, rate, seconds, value_of};
use crate::{shells, stamps};

/// Time that processes which a job has left on other hosts may need to end, and the last packets to arrive (chosen).
const FAR_QUIET: Duration = Duration::from_millis(50);
/// Time for which ranks of `Ranks::Sleep` sleep (s).
const SLEEP_S: f64 = 0.3;
/// Number of times that polling ranks meet. Chosen: a launcher whose ranks become extremely slow still ends within its
/// limit.
const POLLING_TURNS: u32 = 2000;
/// Time for the busy processes to start before the polling ranks (chosen).
const BUSY_LEAD: Duration = Duration::from_millis(50);
/// Size of the file that polling ranks map: two words, then the times of the first and last meeting
/// (`programs/polling.c`).
const POLLING_BOARD_BYTES: usize = 24;
/// Time limit of one job of a stream; a job that takes longer counts as hanging and is killed. A hundred times the
/// longest time of a single job under another launcher (chosen).
const JOB_LIMIT: Duration = Duration::from_secs(10);
/// Time per job that the time limit of a whole stream allows (chosen: far more than a usual job takes).
const JOB_SHARE: Duration = Duration::from_secs(2);
/// Time limit for contacting all hosts at once, before anything is timed (chosen).
const REACH_LIMIT: Duration = Duration::from_secs(60);

/// State that all runs of a benchmark share.
pub struct Surroundings<'a> {
    pub bench: &'a Bench,
    pub mpi_program: Option<PathBuf>,
    pub mpi_env: Vec<(OsString, OsString)>,
}

impl Surroundings<'_> {
    /// Runs the case once. A warm-up run also checks that every rank of a `true` job was started.
    pub fn once(&self, case: &Case, launcher: &Launcher, warms_up: bool) -> Result<Measures, Failure> {
        let before = case.remote.is_some().then(bytes_sent).flatten();
        let mut run = self.here(case, launcher, warms_up);
        if case.remote.is_some() {
            thread::sleep(FAR_QUIET);
        }
        if let (Ok(measures), Some(before), Some(after)) = (&mut run, before, bytes_sent()) {
            measures.push(bytes("net-bytes", after.saturating_sub(before) as f64));
        }
        run
    }

    fn here(&self, case: &Case, launcher: &Launcher, warms_up: bool) -> Result<Measures, Failure> {
        let plain = |program| self.invocation(case, launcher, program).run(&self.bench.interrupt);
        match case.work.ranks {
            Ranks::True if warms_up => {
                let file = self.bench.scratch.empty_file("started")?;
                let measures = plain(vec![self.program("true"), file.clone().into()])?;
                expect(&file, launcher.process_count(case))?;
                Ok(measures)
            }
            Ranks::True => plain(vec![self.program("true")]),
            Ranks::Sized(program) => plain(self.sized(case, program)),
            Ranks::Mpi => plain(vec![self.mpi_program.clone().ok_or_else(|| wrong("needs --mpi-program"))?.into()]),
            Ranks::Calls(..) => self.calls(case, launcher),
            Ranks::Sleep => plain(words(&format!("/bin/sleep {SLEEP_S}"))).map(|measures| less(measures, SLEEP_S)),
            // The echo server returns no real values, so they cannot be checked.
            Ranks::Stamped(program, how) => {
                let more = if launcher.kind == Kind::Echo { "--unchecked" } else { "" };
                let stamps = self.bench.scratch.empty_file("stamps")?;
                let words = [self.sized(case, program), vec![how.into(), stamps.clone().into()], words(more)].concat();
                with_stamps(plain(words)?, &stamps, case)
            }
            Ranks::Polling => self.polling(case, launcher),
            Ranks::Jobs => self.jobs(case, launcher, warms_up),
        }
    }

    /// Times the calls of an MPI program. The shim is loaded only into the ranks, by `env`, since launchers have no
    /// common option for it. wireup has an option, which is used because it examines the program.
    fn calls(&self, case: &Case, launcher: &Launcher) -> Result<Measures, Failure> {
        let program = std::path::absolute(program_of(case))?;
        let measures = timed_mpi(self.bench, case.layout.job_size(), |variables| {
            let invocation = if launcher.kind == Kind::Wireup {
                let flags = variables.map(|variable| format!("--env={variable}"));
                let launcher = Launcher { extra: [&launcher.extra[..], &flags].concat(), ..launcher.clone() };
                self.invocation(case, &launcher, vec![program.into()])
            } else {
                let [shim, file] = variables.map(OsString::from);
                self.invocation(case, launcher, vec!["/usr/bin/env".into(), shim, file, program.into()])
            };
            invocation.run(&self.bench.interrupt)
        })?;
        let value = |quantity| value_of(&measures, quantity).unwrap_or(0.0);
        let other_s = value("wall") - value("MPI_Init") - value("MPI_Barrier") - value("MPI_Finalize");
        let slowest_s = value("mpi-init-max");
        Ok([less(measures, slowest_s), vec![seconds("other", other_s)]].concat())
    }

    /// Measures ranks that poll while they wait for each other, when other processes want the same cpus.
    ///
    /// A busy machine is simulated by as many busy processes as there are cpus, each in a session of its own, like
    /// another user's programs. When ranks poll and yield, the other ranks should run next, not those processes. With
    /// Linux' autogroups, or with a single group for all, that depends on how the launcher starts the ranks.
    fn polling(&self, case: &Case, launcher: &Launcher) -> Result<Measures, Failure> {
        let board = self.bench.scratch.file("board");
        fs::write(&board, [0; POLLING_BOARD_BYTES])?;
        let mut words = self.sized(case, "polling");
        words.extend([POLLING_TURNS.to_string().into(), board.clone().into()]);
        let busy = BusyCpus::begin(&self.bench.scratch.program("polling"))?;
        let run = self.invocation(case, launcher, words).run(&self.bench.interrupt);
        drop(busy);
        let (mut measures, board) = (run?, fs::read(board)?);
        let (words, _) = board.as_chunks::<8>();
        let [begin, end] = [1, 2].map(|at| words.get(at).map_or(0, |word| u64::from_ne_bytes(*word)));
        if begin == 0 || end < begin {
            return Err(wrong("the ranks did not all meet"));
        }
        measures.push(seconds("time", (end - begin) as f64 / 1e9));
        Ok(measures)
    }

    /// Runs one slice of the stream of jobs; the warm-up is a shorter slice whose ranks are counted.
    fn jobs(&self, case: &Case, launcher: &Launcher, warms_up: bool) -> Result<Measures, Failure> {
        let jobs = if warms_up { case.jobs.min(2 * case.in_flight) } else { case.jobs };
        let (started, mut program) = (self.bench.scratch.empty_file("started")?, vec![self.program("true")]);
        if warms_up {
            program.push(started.clone().into());
        }
        let once = self.invocation(case, launcher, program);
        let ended = stream(&once, jobs, case.in_flight, JOB_LIMIT, &self.bench.interrupt)?;
        // Hung jobs of other launchers are reported, but their figures are used; in a session of wireup no job may
        // hang.
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
    pub fn reach(&self, remote: &Remote) -> Result<(), Failure> {
        let seen = self.bench.scratch.program("true");
        let script = format!("test -x {0} || {{ echo {{host}}: {0} is not there >&2; false; }}", seen.display());
        let called = match remote.is_allocation() {
            true => format!("{SRUN} --overlap -N 1 -n 1 -w {{host}} /bin/sh -c"),
            false => format!("{} {{host}}", remote.shell),
        };
        let own = std::env::current_exe()?.into_os_string();
        let begin = words(&format!("{} {} {called}", shells::WORD, remote.list()));
        self.bench.run([vec![own], begin, vec![script.into()]].concat(), REACH_LIMIT).map(drop)
    }

    fn invocation(&self, case: &Case, launcher: &Launcher, program: Vec<OsString>) -> Invocation {
        let scratch = &self.bench.scratch;
        let mpi_env = if case.work.is_mpi() { &self.mpi_env[..] } else { &[] };
        Invocation {
            env: [&launcher.env_of_launcher(scratch)[..], &files_of_mpi(case, launcher)[..], mpi_env].concat(),
            stdout: None,
            ..self.bench.command(launcher.argv(scratch, case, program), case.limit)
        }
    }

    fn sized(&self, case: &Case, program: &str) -> Vec<OsString> {
        vec![self.program(program), case.layout.job_size().to_string().into()]
    }

    fn program(&self, program: &str) -> OsString {
        self.bench.scratch.program(program).into_os_string()
    }
}

/// Times an MPI program into which `programs/mpi_shim.c` is loaded (`stamps::of_mpi`); `run` runs it with variables.
pub fn timed_mpi(
    bench: &Bench,
    job_size: u32,
    run: impl FnOnce([String; 2]) -> Result<Measures, Failure>,
) -> Result<Measures, Failure> {
    let stamps = bench.scratch.empty_file("mpi-stamps")?;
    let shim = format!("LD_PRELOAD={}", bench.scratch.program("mpi_shim").display());
    let measures = run([shim, format!("WIREUP_BENCH_STAMPS={}", stamps.display())])?;
    Ok([measures, stamps::of_mpi(&fs::read_to_string(stamps)?, job_size)?].concat())
}

/// Path of the program of `Ranks::Calls`, which does init, barrier, finalize; `cargo xtask setup` builds it.
pub fn program_of(case: &Case) -> PathBuf {
    Path::new("target/programs").join(case.work.name).join("initfin")
}

/// Variables that ranks need to find the files of their MPI where `cargo xtask setup` has put them.
fn files_of_mpi(case: &Case, launcher: &Launcher) -> Vec<(OsString, OsString)> {
    if !case.work.is("intel") {
        return Vec::new();
    }
    let root = std::path::absolute("target/peers/intel").unwrap_or_default();
    let providers = root.join("lib/prov").into_os_string();
    let files = [("I_MPI_ROOT", root.into()), ("FI_PROVIDER_PATH", providers), ("FI_PROVIDER", "tcp".into())];
    // Otherwise Intel's library expects its own launcher, and each rank would be alone.
    let pmi = launcher.is_peer("srun").then(|| ("I_MPI_PMI_LIBRARY", "libpmi2.so.0".into()));
    files.into_iter().chain(pmi).map(|(name, value)| (name.into(), value)).collect()
}

/// Time limit for a whole stream of `jobs` jobs.
pub fn stream_limit(jobs: u32) -> Duration {
    Duration::from_secs(60) + JOB_SHARE * jobs
}

/// Checks the number of ranks that were started: every rank appends a byte to the file.
fn expect(file: &Path, expected: u32) -> Result<(), Failure> {
    let started = fs::metadata(file)?.len();
    match started == u64::from(expected) {
        true => Ok(()),
        false => Err(wrong(format!("{started} of {expected} ranks were started"))),
    }
}

/// Adds the wall time minus the time of the ranks themselves.
fn less(mut measures: Measures, own_s: f64) -> Measures {
    let overhead = value_of(&measures, "wall").map(|wall| seconds("overhead", wall - own_s));
    measures.extend(overhead);
    measures
}

fn with_stamps(mut measures: Measures, stamps: &Path, case: &Case) -> Result<Measures, Failure> {
    measures.extend(stamps::evaluate(&fs::read_to_string(stamps)?, case.layout.job_size())?);
    Ok(measures)
}

/// One busy process for each cpu; these processes are ended on drop.
struct BusyCpus(Vec<Child>);

impl BusyCpus {
    fn begin(program: &Path) -> std::io::Result<BusyCpus> {
        let mut busy = BusyCpus(Vec::new());
        for _ in 0..thread::available_parallelism()?.get() {
            let mut command = Command::new(program);
            command.arg("--busy").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            busy.0.push(command.spawn()?);
        }
        thread::sleep(BUSY_LEAD);
        Ok(busy)
    }
}

impl Drop for BusyCpus {
    fn drop(&mut self) {
        // A process may have exited already; then it is only reaped.
        self.0.iter_mut().for_each(|child| drop((child.kill(), child.wait())));
    }
}

/// Number of bytes of whole frames that were sent over the network of a testbed since it was created; `None`: this is
/// no testbed.
///
/// The benchmark's own network name space holds one end of every cable of the testbed. Each frame counts once, at its
/// sender: a node (received by a port of the hub) or the hub (sent by its bridge). On other networks the counters of
/// one host do not cover the rest.
fn bytes_sent() -> Option<u64> {
    // `wireup-testbed run` sets this variable on its hub.
    std::env::var_os("WIREUP_TESTBED_HOSTS")?;
    let ports = procfs::net::dev_status().ok()?;
    let received = ports.values().filter(|port| port.name.starts_with('v')).map(|port| port.recv_bytes);
    Some(ports.get("br0")?.sent_bytes + received.sum::<u64>())
}
