//! One run of one case with one launcher: the program that it starts, the values that result.
use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::cases::{Case, OpenMpi, SLEEP_S, Stream, Work};
use crate::command::{Failure, Invocation};
use crate::interrupt::Interrupt;
use crate::launcher::{Kind, Launcher};
use crate::memory;
use crate::metric::{Metric, Sample};
use crate::programs::{Program, Scratch};
use crate::{polling, stamps, stream, traffic};

/// How often the ranks' file is checked while they arrive; no time is measured by it (chosen).
const ARRIVAL_GLANCE: Duration = Duration::from_millis(20);
/// Time for the agents to become idle after the last get, before their memory is read (chosen).
const QUIET: Duration = Duration::from_millis(200);

/// Time for what a job left running on other hosts to end, and for the last packets (chosen).
const FAR_QUIET: Duration = Duration::from_millis(50);

/// Shared by all runs of a benchmark.
pub struct Stage<'a> {
    pub scratch: &'a Scratch,
    pub interrupt: &'a Interrupt,
    pub mpi_program: Option<&'a Path>,
    pub mpi_env: &'a [(OsString, OsString)],
    /// Further arguments of `wireup up`.
    pub up_args: &'a [String],
}

impl Stage<'_> {
    /// Runs the case once. A warm-up run also checks that every rank of a `true` job was started.
    pub fn run(&self, case: &Case, launcher: &Launcher, warm_up: bool) -> Result<Sample, Failure> {
        if case.remote.is_none() {
            return self.run_once(case, launcher, warm_up);
        }
        let before = traffic::sent();
        let mut run = self.run_once(case, launcher, warm_up);
        thread::sleep(FAR_QUIET);
        if let (Ok(sample), Some(before), Some(after)) = (&mut run, before, traffic::sent()) {
            sample.0.push((Metric::NetBytes, after.saturating_sub(before) as f64));
        }
        run
    }

    fn run_once(&self, case: &Case, launcher: &Launcher, warm_up: bool) -> Result<Sample, Failure> {
        match case.work {
            Work::True | Work::Initiation if warm_up => self.run_counted(case, launcher),
            Work::True | Work::Initiation => self.run_plain(case, launcher, vec![self.program(Program::True)]),
            Work::PmiInit => self.run_plain(case, launcher, self.sized(case, Program::PmiInit)),
            Work::PmiBare => self.run_plain(case, launcher, self.sized(case, Program::PmiBare)),
            Work::MpiInit => {
                let program = self.mpi_program.ok_or_else(|| wrong("needs --mpi-program"))?;
                self.run_plain(case, launcher, vec![program.into()])
            }
            Work::OpenMpi(version) => self.run_open_mpi(case, launcher, version),
            Work::PmixSleep => {
                let run = self.run_plain(case, launcher, vec!["/bin/sleep".into(), SLEEP_S.to_string().into()]);
                run.map(|sample| less(sample, SLEEP_S))
            }
            Work::PmixExchange => self.run_pmix(case, launcher, "collect"),
            Work::PmixFence => self.run_pmix(case, launcher, "rest"),
            Work::PmixDirect => self.run_pmix(case, launcher, "direct"),
            Work::Exchange => self.run_exchange(case, launcher),
            Work::Memory => self.run_held(case, launcher),
            Work::Polling => self.run_polling(case, launcher),
            Work::Jobs => self.run_jobs(case, launcher, warm_up),
        }
    }

    fn run_plain(&self, case: &Case, launcher: &Launcher, program: Vec<OsString>) -> Result<Sample, Failure> {
        self.invocation(case, launcher, program).run(self.interrupt)
    }

    /// The shim is loaded only into the ranks, by `env`, since launchers have no common option for it. wireup has an
    /// option, which is used because it examines the program.
    fn run_open_mpi(&self, case: &Case, launcher: &Launcher, version: OpenMpi) -> Result<Sample, Failure> {
        let program = std::path::absolute(open_mpi_program(version)).map_err(wrong)?;
        let stamps = self.empty_file("mpi-stamps")?;
        let mut shim = OsString::from("LD_PRELOAD=");
        shim.push(self.program(Program::MpiShim));
        let mut file = OsString::from("WIREUP_BENCH_STAMPS=");
        file.push(&stamps);
        let sample = if launcher.kind == Kind::Wireup {
            let flags = [shim, file].map(|variable| format!("--env={}", variable.to_string_lossy()));
            let launcher = Launcher { extra: [&launcher.extra[..], &flags].concat(), ..launcher.clone() };
            self.run_plain(case, &launcher, vec![program.into()])?
        } else {
            self.run_plain(case, launcher, vec!["/usr/bin/env".into(), shim, file, program.into()])?
        };
        let text = fs::read_to_string(stamps).map_err(wrong)?;
        let inits = text.lines().filter_map(|line| line.split(' ').nth(1)?.parse::<u64>().ok());
        if text.lines().count() != case.place.job_size() as usize {
            return Err(wrong(format!(
                "only {} of {} ranks reported their times",
                text.lines().count(),
                case.place.job_size()
            )));
        }
        let slowest_s = inits.max().unwrap_or(0) as f64 / 1e9;
        let mut sample = less(sample, slowest_s);
        sample.0.push((Metric::MpiInit, slowest_s));
        Ok(sample)
    }

    fn run_pmix(&self, case: &Case, launcher: &Launcher, how: &str) -> Result<Sample, Failure> {
        let stamps = self.empty_file("stamps")?;
        let program = [self.sized(case, Program::PmixExchange), vec![how.into(), stamps.clone().into()]].concat();
        let wall = self.run_plain(case, launcher, program)?;
        with_stamps(wall, &stamps, case)
    }

    fn run_polling(&self, case: &Case, launcher: &Launcher) -> Result<Sample, Failure> {
        let board = self.scratch.file("board");
        polling::empty_board(&board).map_err(wrong)?;
        let program =
            [self.sized(case, Program::Polling), vec![polling::TURNS.to_string().into(), board.clone().into()]];
        let busy = polling::BusyCpus::begin(self.scratch).map_err(wrong)?;
        let sample = self.run_plain(case, launcher, program.concat());
        drop(busy);
        let mut sample = sample?;
        let elapsed_s = polling::elapsed_s(&fs::read(board).map_err(wrong)?);
        sample.0.push((Metric::Time, elapsed_s.ok_or_else(|| wrong("the ranks did not all meet"))?));
        Ok(sample)
    }

    fn run_counted(&self, case: &Case, launcher: &Launcher) -> Result<Sample, Failure> {
        let file = self.empty_file("started")?;
        let sample = self.run_plain(case, launcher, vec![self.program(Program::True), file.clone().into()])?;
        expect(&file, launcher.process_count(case))?;
        Ok(sample)
    }

    /// Runs a slice of the stream; the warm-up is a shorter slice whose started ranks are counted.
    fn run_jobs(&self, case: &Case, launcher: &Launcher, warm_up: bool) -> Result<Sample, Failure> {
        let Stream { jobs, in_flight } = case.stream;
        let jobs = if warm_up { jobs.min(2 * in_flight) } else { jobs };
        let (started, mut program) = (self.empty_file("started")?, vec![self.program(Program::True)]);
        if warm_up {
            program.push(started.clone().into());
        }
        let argv = launcher.argv(self.scratch, case, program);
        let (stream, env) = (Stream { jobs, in_flight }, launcher.env_of_launcher(self.scratch));
        let ended = stream::run(stream, argv, env, case.limit, self.scratch, self.interrupt)?;
        // Jobs that other launchers lose are reported, but their figures still count.
        if ended.badly > 0 || ended.well == 0 || launcher.is_judged(case) && ended.hung > 0 {
            return Err(wrong(format!("of {jobs} jobs {} ended badly, {} hung", ended.badly, ended.hung)));
        }
        if warm_up && ended.hung == 0 {
            expect(&started, jobs * launcher.process_count(case))?;
        }
        let rate = f64::from(ended.well) / ended.elapsed_s;
        let hung = f64::from(ended.hung);
        Ok(Sample(vec![(Metric::JobRate, rate), (Metric::Wall, ended.elapsed_s), (Metric::Hung, hung)]))
    }

    fn run_exchange(&self, case: &Case, launcher: &Launcher) -> Result<Sample, Failure> {
        let stamps = self.empty_file("stamps")?;
        let mut program = self.exchange(case, "all", &stamps);
        if launcher.kind == Kind::Echo {
            program.push("--unchecked".into());
        }
        let wall = self.run_plain(case, launcher, program)?;
        with_stamps(wall, &stamps, case)
    }

    /// The ranks wait for a FIFO whose only writer is this process; closing it releases them.
    fn run_held(&self, case: &Case, launcher: &Launcher) -> Result<Sample, Failure> {
        let stamps = self.empty_file("stamps")?;
        let fifo = self.scratch.file("hold");
        let _ = fs::remove_file(&fifo);
        mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).map_err(wrong)?;
        // Opened for reading and writing, so that the open does not wait for a reader.
        let writer = OpenOptions::new().read(true).write(true).open(&fifo).map_err(wrong)?;

        let mut program = self.exchange(case, "neighbours", &stamps);
        program.extend(["--hold".into(), fifo.into_os_string()]);
        let invocation = self.invocation(case, launcher, program);
        let mut running = invocation.start(self.interrupt)?;
        let mut ended = false;
        while !ended && line_count(&stamps) < case.place.job_size() as usize {
            ended = running.ends_within(ARRIVAL_GLANCE)?;
        }
        if ended || running.ends_within(QUIET)? {
            running.finish()?;
            return Err(wrong("the job ended while its ranks should have been held"));
        }
        let memory = memory::sample(running.pid(), case.place.node_count).map_err(wrong);
        drop(writer);
        let mut sample = running.finish()?;
        sample.0.extend(memory?.0);
        with_stamps(sample, &stamps, case)
    }

    fn exchange(&self, case: &Case, gets: &str, stamps: &Path) -> Vec<OsString> {
        [self.sized(case, Program::PmiExchange), vec![gets.into(), stamps.into()]].concat()
    }

    fn invocation(&self, case: &Case, launcher: &Launcher, program: Vec<OsString>) -> Invocation {
        let mpi_env = if case.work.is_mpi() { self.mpi_env } else { &[] };
        Invocation {
            argv: launcher.argv(self.scratch, case, program),
            env: [launcher.env_of_launcher(self.scratch), mpi_env.to_vec()].concat(),
            stdout: None,
            stderr: self.scratch.file("stderr"),
            limit: case.limit,
        }
    }

    /// A program that gets the job's size as an argument, so that it can refuse another size.
    fn sized(&self, case: &Case, program: Program) -> Vec<OsString> {
        vec![self.program(program), case.place.job_size().to_string().into()]
    }

    fn program(&self, program: Program) -> OsString {
        self.scratch.program(program).into_os_string()
    }

    fn empty_file(&self, name: &str) -> Result<PathBuf, Failure> {
        self.scratch.empty_file(name).map_err(wrong)
    }
}

/// A program that does init, barrier, finalize, built by the workspace's set-up.
pub fn open_mpi_program(version: OpenMpi) -> &'static Path {
    Path::new(match version {
        OpenMpi::V4 => "target/programs/openmpi4/initfin",
        OpenMpi::V5 => "target/programs/openmpi5/initfin",
    })
}

/// Checks the number of ranks: every rank that starts appends a byte.
fn expect(file: &Path, expected: u32) -> Result<(), Failure> {
    let started = fs::metadata(file).map_err(wrong)?.len();
    match started == u64::from(expected) {
        true => Ok(()),
        false => Err(wrong(format!("{started} of {expected} ranks were started"))),
    }
}

fn less(mut sample: Sample, own_s: f64) -> Sample {
    let wall = sample.get(Metric::Wall).map(|wall| (Metric::Overhead, wall - own_s));
    sample.0.extend(wall);
    sample
}

fn with_stamps(mut sample: Sample, stamps: &Path, case: &Case) -> Result<Sample, Failure> {
    let text = fs::read_to_string(stamps).map_err(wrong)?;
    sample.0.extend(stamps::evaluate(&text, case.place.job_size()).map_err(wrong)?.0);
    Ok(sample)
}

fn line_count(path: &Path) -> usize {
    fs::read(path).map_or(0, |text| text.iter().filter(|byte| **byte == b'\n').count())
}

fn wrong(what: impl ToString) -> Failure {
    Failure::Wrong(what.to_string())
}
