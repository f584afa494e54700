//! S1: whole applications by the four schemes (figure 13).
//!
//! The ranks are `programs/applications.c`: kernels in the manner of NAS, which connect to each other by the addresses
//! of the scheme, and check their results. A setup phase lies between the start of the exchange and the kernel. With
//! `Fence` a job takes exchange + setup + kernel; with `Iallgather` the exchange goes on during the setup phase and the
//! part of the kernel before its first message, which saves the shorter of the two.
//!
//! An unmodified MPI program has the setup phase at the end of `MPI_Init`, by `programs/mpi_shim.c`. It takes turns
//! with strict fences and with lazy ones, which return at once and let the first get wait.
use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value as Json, json};
use wireup_bench::bench::{Bench, Problem, Turn};
use wireup_bench::command::{Failure, wrong};
use wireup_bench::flags::{LIBRARY, LIMIT, NO_WORDS, PART, RESULTS, ROUNDS, WIREUP, WIREUP_ARG, parts, together};
use wireup_bench::launch::timed_mpi;
use wireup_bench::layout::Layout;
use wireup_bench::samples::{Measures, median, seconds, value_of};
use wireup_bench::stamps;
use wireup_bench::startup::job::Launch;
use wireup_bench::startup::{RANKS, sizes};
use wireup_flags::{Command, Flag, Section, Value};

use super::slow_nodes;

const RANKS_HERE: Flag = Flag { help: "Job sizes, powers of two", ..RANKS }.or("4,16,64");
const PARTS: Flag = PART.or("kernels,mpi");
const KERNEL: Flag = Flag::value(&["--kernel"], "A,B,..", "Only these.").or("ep,cg,is,mg");
const SCHEME: Flag =
    Flag::value(&["--scheme"], "A,B,..", "Only these; gains are over fence.").or("fence,allgather,ifence,iallgather");
const SETUP: Flag =
    Flag::value(&["--setup"], "A,B,..", "Lengths of the setup phase, in percent of a fence.").or("0,50,100,200");
const DELAY_MS: Flag = Flag::value(&["--delay-ms"], "N", "Delay of the links between agents; 0: none.").or("100");

const MPI_PROGRAM: Flag = Flag::value(&["--mpi-program"], "PATH", "An MPI program that does init, barrier, finalize.")
    .or("target/programs/mpich5/initfin");

pub const COMMAND: Command = Command {
    name: "reproduce apps",
    purpose: "time whole applications whose ranks exchange their addresses by four schemes",
    sections: &[
        Section { title: "Jobs", flags: &[RANKS_HERE, DELAY_MS, ROUNDS, WIREUP, WIREUP_ARG, LIBRARY, LIMIT] },
        Section { title: "Applications", flags: &[PARTS, KERNEL, SCHEME, SETUP, MPI_PROGRAM] },
        RESULTS,
    ],
    ..NO_WORDS
};

/// Nodes of a job, which the ranks fill.
const NODES: u32 = 4;
const FENCE: &str = "fence";
const BLOCKING: [&str; 2] = [FENCE, "allgather"];
/// Number of jobs that run first to find the length of the setup phase. `ROUNDS_DEFAULT`: number of measured rounds
/// (both chosen).
const TRIALS: u32 = 5;
const ROUNDS_DEFAULT: u32 = 7;
/// The contestants of an MPI program: names, and values of `--pmi-fence`.
const FENCES: [&str; 2] = ["strict", "lazy"];
/// Number of numbers that each rank writes: its rank and the times of `programs/applications.c`.
const NUMBERS: usize = 6;

/// What the ranks of a job run.
#[derive(Clone, Copy, Debug)]
enum App {
    Kernel {
        kernel: &'static str,
        scheme: &'static str,
    },
    /// An MPI program, with this kind of fence.
    Mpi {
        fence: &'static str,
    },
}

pub fn run(bench: &Bench) -> Result<(), Problem> {
    let line = &bench.line;
    let delay = Duration::from_millis(line.one(DELAY_MS, Value::number)?.into());
    let program = std::path::absolute(line.one(MPI_PROGRAM, Value::path)?)?;
    let (kernels, schemes) = (parts(line, KERNEL)?, parts(line, SCHEME)?);
    for ranks in line.one(RANKS_HERE, sizes)? {
        let layout = Layout { node_count: NODES, ppn: ranks / NODES };
        if layout.job_size() != ranks || !ranks.is_power_of_two() {
            together(format!("{ranks} ranks do not fill {NODES} nodes, or are no power of two"))?;
        }
        let jobs = Jobs { bench, layout, delay, program: &program };
        for part in parts(line, PARTS)? {
            if part == "kernels" {
                let of_kernel = |kernel: &&'static str| {
                    let apps = schemes.iter().map(|&scheme| (scheme, App::Kernel { kernel, scheme }));
                    (json!({ "kernel": kernel }), apps.collect())
                };
                let trial = App::Kernel { kernel: "cg", scheme: FENCE };
                jobs.measure(kernels.iter().map(of_kernel).collect(), (trial, "call"))?;
            } else if program.exists() {
                let apps = FENCES.map(|fence| (fence, App::Mpi { fence }));
                let trial = App::Mpi { fence: FENCES[0] };
                jobs.measure(vec![(json!({ "part": part }), apps.into())], (trial, "mpi-exchange"))?;
            } else {
                bench.absent(part, format!("no {}: see --mpi-program", program.display()));
            }
        }
    }
    Ok(())
}

/// The jobs of one size.
struct Jobs<'a> {
    bench: &'a Bench,
    layout: Layout,
    delay: Duration,
    /// The MPI program.
    program: &'a Path,
}

impl Jobs<'_> {
    /// Times the applications of each case, with each setup phase. The phases are fractions of an exchange: of this
    /// quantity of the application `trial`, which is run before the others.
    fn measure(&self, cases: Vec<(Json, Vec<(&str, App)>)>, (trial, quantity): (App, &str)) -> Result<(), Problem> {
        let &Jobs { bench, layout, delay, .. } = self;
        let rounds = bench.rounds.unwrap_or(ROUNDS_DEFAULT);
        let mut turns = Vec::new();
        for (mut case, apps) in cases {
            case["ranks"] = layout.job_size().into();
            case["nodes"] = layout.node_count.into();
            case["delay-ms"] = (delay.as_millis() as u64).into();
            for percent in bench.line.one(SETUP, |value| value.list(Value::number))? {
                case["setup-percent"] = percent.into();
                turns.extend(apps.iter().map(|(name, app)| Turn::new(name, &case, rounds, (*app, percent))));
            }
        }
        if bench.lists(&turns) {
            return Ok(());
        }
        let launch = Launch::on(bench, layout, slow_nodes(bench, layout, delay)?)?;
        let exchanges = (0..TRIALS).map(|_| Ok(need(&self.run(&launch, trial, 0.0)?, quantity)));
        let exchange_s = median(exchanges.collect::<Result<Vec<f64>, Failure>>()?).unwrap_or(0.0);
        // A wrong result in one round fails the contestant, even if other rounds are right.
        let mut failed = None;
        bench.turns(&turns, |&(app, percent), _| {
            let outcome = self.run(&launch, app, exchange_s * f64::from(percent) / 100.0);
            failed = failed.take().or(outcome.clone().err());
            outcome
        });
        turns.iter().for_each(|turn| add_gains(bench, turn));
        failed.map_or(Ok(()), |failure| Err(failure.into()))
    }

    /// Runs one job; all of its ranks must have right results.
    fn run(&self, launch: &Launch, app: App, setup_s: f64) -> Result<Measures, Failure> {
        let (bench, size, setup_ns) = (self.bench, self.layout.job_size(), (setup_s * 1e9).round().to_string());
        let mut measures = match app {
            App::Mpi { fence } => timed_mpi(bench, size, |variables| {
                let words = [format!("--pmi-fence={fence}"), format!("--env=WIREUP_BENCH_SETUP_NS={setup_ns}")];
                let launch = launch.clone().with(words).with(variables.map(|variable| format!("--env={variable}")));
                Ok(bench.run(launch.argv(vec![self.program.into()]), launch.limit)?.0)
            })?,
            App::Kernel { kernel, scheme } => {
                let times = bench.scratch.empty_file("times")?;
                let mut argv: Vec<OsString> = vec![bench.scratch.program("applications").into()];
                argv.extend([kernel, scheme, &setup_ns].map(OsString::from));
                argv.extend([launch.library.clone().into(), times.clone().into()]);
                let (measures, _) = bench.run(launch.argv(argv), launch.limit)?;
                [measures, read(&fs::read_to_string(times)?, size)?].concat()
            }
        };
        measures.push(seconds("setup", setup_s));
        Ok(measures)
    }
}

/// Adds the time that a scheme other than `FENCE` has gained over it in each round that both have.
fn add_gains(bench: &Bench, turn: &Turn<(App, u32)>) {
    let App::Kernel { scheme, .. } = turn.what.0 else { return };
    for round in 0..turn.rounds.into() {
        let [fence, ours] = [FENCE, scheme].map(|name| bench.measured(&turn.case, name, round));
        if scheme != FENCE && !fence.is_empty() && !ours.is_empty() {
            bench.add(&turn.case, scheme, round, Ok(gains(&fence, &ours, BLOCKING.contains(&scheme))));
        }
    }
}

/// Parses the times of a job from the lines of its ranks.
fn read(text: &str, job_size: u32) -> Result<Measures, Failure> {
    let all = stamps::lines(text, NUMBERS, job_size)?;
    if !all.iter().all(|line| line[1] > 0 && line[1..].is_sorted()) {
        return Err(wrong("a rank's times are out of order"));
    }
    let last = |at: usize| all.iter().map(|line| line[at]).max().unwrap_or(0);
    let from_last = |begin: usize, end: usize| last(end).saturating_sub(last(begin)) as f64 / 1e9;
    let before_use = all.iter().map(|line| line[3] - line[2]).max().unwrap_or(0);
    Ok(vec![
        seconds("run", from_last(1, 5)),
        seconds("first-message", from_last(1, 4)),
        seconds("call", from_last(1, 2)),
        seconds("before-use", before_use as f64 / 1e9),
    ])
}

/// The time that a job has gained over the job with a fence; and, if the job does not wait for its exchange, the time
/// that it should have gained: the fence, or everything that could be done meanwhile.
fn gains(fence: &Measures, ours: &Measures, is_blocking: bool) -> Measures {
    let gain = |name: &str, quantity| seconds(name, need(fence, quantity) - need(ours, quantity));
    let hidden = need(fence, "call").min(need(fence, "before-use"));
    let gains = [("gain", "run"), ("wall-gain", "wall"), ("first-message-gain", "first-message")];
    let predicted = (!is_blocking).then(|| seconds("predicted-gain", hidden));
    gains.into_iter().map(|(name, quantity)| gain(name, quantity)).chain(predicted).collect()
}

fn need(measures: &Measures, quantity: &str) -> f64 {
    value_of(measures, quantity).unwrap_or_else(|| panic!("a job has no {quantity}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(text: &str) -> Measures {
        [vec![seconds("wall", 1.0)], read(text, 2).unwrap()].concat()
    }

    #[test]
    fn a_gain_is_at_most_what_the_fence_or_the_work_has_taken() {
        let fence = job("1 1000 5000 7000 7000 9000\n0 2000 6000 7500 7500 9500\n");
        let ours = job("0 1000 1010 3000 6000 8000\n1 2000 2010 4000 6000 8000\n");
        let ns = |measures: &Measures, name| (need(measures, name) * 1e9).round();
        let names = ["run", "first-message", "call", "before-use"];
        assert_eq!(names.map(|name| ns(&fence, name)), [7500.0, 5500.0, 4000.0, 2000.0]);
        let gains = gains(&fence, &ours, false);
        let names = ["gain", "first-message-gain", "predicted-gain"];
        assert_eq!(names.map(|name| ns(&gains, name)), [1500.0, 1500.0, 2000.0]);
    }

    #[test]
    fn a_rank_without_a_result_is_an_error() {
        for text in ["", "0 1 2 3 4 5\n", "0 1 2 3 4 5\n1 1 2 4 3 5\n", "0 1 2 3 4 5\n1 0 2 3 4 5\n"] {
            assert!(read(text, 2).is_err(), "{text}");
        }
    }
}
