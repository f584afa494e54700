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
use std::time::Duration;

use serde_json::json;
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

#[derive(Clone, Copy, Debug)]
struct App {
    kernel: &'static str,
    scheme: &'static str,
    setup_percent: u32,
}

pub fn run(bench: &Bench) -> Result<(), Problem> {
    let line = &bench.line;
    let delay = Duration::from_millis(line.one(DELAY_MS, Value::number)?.into());
    let parts = parts(line, PARTS)?;
    for ranks in line.one(RANKS_HERE, sizes)? {
        let layout = Layout { node_count: NODES, ppn: ranks / NODES };
        if layout.job_size() != ranks || !ranks.is_power_of_two() {
            together(format!("{ranks} ranks do not fill {NODES} nodes, or are no power of two"))?;
        }
        for part in &parts {
            if *part == "mpi" { mpi(bench, layout, delay)? } else { one_size(bench, layout, delay)? }
        }
    }
    Ok(())
}

/// Times an MPI program with each kind of fence. The setup phases are fractions of what an `MPI_Init` with strict
/// fences waits for the PMI server.
fn mpi(bench: &Bench, layout: Layout, delay: Duration) -> Result<(), Problem> {
    let program = std::path::absolute(bench.line.one(MPI_PROGRAM, Value::path)?)?;
    if !program.exists() {
        bench.absent("mpi", format!("no {}: see --mpi-program", program.display()));
        return Ok(());
    }
    let mut turns = Vec::new();
    for percent in bench.line.one(SETUP, |value| value.list(Value::number))? {
        let case = json!({
            "part": "mpi", "ranks": layout.job_size(), "nodes": layout.node_count, "setup-percent": percent,
            "delay-ms": delay.as_millis() as u64,
        });
        let turn = |fence| Turn::new(fence, &case, bench.rounds.unwrap_or(ROUNDS_DEFAULT), (fence, percent));
        turns.extend(FENCES.map(turn));
    }
    if bench.lists(&turns) {
        return Ok(());
    }
    let launch = Launch::on(bench, layout, slow_nodes(bench, layout, delay)?)?;
    let run = |fence: &str, setup_s: f64| {
        let setup_ns = (setup_s * 1e9).round();
        let words = [format!("--pmi-fence={fence}"), format!("--env=WIREUP_BENCH_SETUP_NS={setup_ns}")];
        timed_mpi(bench, layout.job_size(), |variables| {
            let launch = launch.clone().with(words).with(variables.map(|variable| format!("--env={variable}")));
            Ok(bench.run(launch.argv(vec![program.clone().into()]), launch.limit)?.0)
        })
    };
    let exchanges = (0..TRIALS).map(|_| Ok(need(&run(FENCES[0], 0.0)?, "mpi-exchange")));
    let exchange_s = median(exchanges.collect::<Result<Vec<f64>, Failure>>()?).unwrap_or(0.0);
    bench.turns(&turns, |&(fence, percent), _| {
        let setup_s = exchange_s * f64::from(percent) / 100.0;
        let measures = run(fence, setup_s)?;
        Ok([measures, vec![seconds("setup", setup_s)]].concat())
    });
    Ok(())
}

fn one_size(bench: &Bench, layout: Layout, delay: Duration) -> Result<(), Problem> {
    let turns = turns(bench, layout, delay)?;
    if bench.lists(&turns) {
        return Ok(());
    }
    let launch = Launch::on(bench, layout, slow_nodes(bench, layout, delay)?)?;
    let fence_s = fence_s(bench, &launch)?;
    // A wrong result in one round fails the contestant, even if other rounds are right.
    let mut failed = None;
    bench.turns(&turns, |&app, _| {
        let outcome = job(bench, &launch, app, fence_s * f64::from(app.setup_percent) / 100.0);
        failed = failed.take().or(outcome.clone().err());
        outcome
    });
    turns.iter().filter(|turn| turn.contestant != FENCE).for_each(|turn| add_gains(bench, turn));
    failed.map_or(Ok(()), |failure| Err(failure.into()))
}

/// The contestants for one job size.
fn turns(bench: &Bench, layout: Layout, delay: Duration) -> Result<Vec<Turn<App>>, Problem> {
    let line = &bench.line;
    let (kernels, schemes) = (parts(line, KERNEL)?, parts(line, SCHEME)?);
    let rounds = bench.rounds.unwrap_or(ROUNDS_DEFAULT);
    let mut turns = Vec::new();
    for kernel in kernels {
        for setup_percent in line.one(SETUP, |value| value.list(Value::number))? {
            let case = json!({
                "kernel": kernel, "ranks": layout.job_size(), "nodes": layout.node_count,
                "setup-percent": setup_percent, "delay-ms": delay.as_millis() as u64,
            });
            let turn = |&scheme| Turn::new(scheme, &case, rounds, App { kernel, scheme, setup_percent });
            turns.extend(schemes.iter().map(turn));
        }
    }
    Ok(turns)
}

/// The duration of a fence, measured in some jobs before the others; the setup phases are fractions of it.
fn fence_s(bench: &Bench, launch: &Launch) -> Result<f64, Failure> {
    let app = App { kernel: "cg", scheme: FENCE, setup_percent: 0 };
    let fences = (0..TRIALS).map(|_| Ok(need(&job(bench, launch, app, 0.0)?, "call")));
    Ok(median(fences.collect::<Result<Vec<f64>, Failure>>()?).unwrap_or(0.0))
}

/// Adds the time that a scheme has gained over `FENCE` in each round that both have.
fn add_gains(bench: &Bench, turn: &Turn<App>) {
    let is_blocking = BLOCKING.contains(&turn.what.scheme);
    for round in 0..turn.rounds.into() {
        let [fence, ours] = [FENCE, turn.contestant.as_str()].map(|name| bench.measured(&turn.case, name, round));
        if !fence.is_empty() && !ours.is_empty() {
            bench.add(&turn.case, &turn.contestant, round, Ok(gains(&fence, &ours, is_blocking)));
        }
    }
}

/// Runs one job; all of its ranks must have right results.
fn job(bench: &Bench, launch: &Launch, app: App, setup_s: f64) -> Result<Measures, Failure> {
    let times = bench.scratch.empty_file("times")?;
    let setup_ns = (setup_s * 1e9).round().to_string();
    let mut argv: Vec<OsString> = vec![bench.scratch.program("applications").into()];
    argv.extend([app.kernel, app.scheme, &setup_ns].map(OsString::from));
    argv.extend([launch.library.clone().into(), times.clone().into()]);
    let (mut measures, _) = bench.run(launch.argv(argv), launch.limit)?;
    measures.retain(|measure| measure.quantity == "wall");
    measures.extend(read(&fs::read_to_string(times)?, launch.layout.job_size())?);
    Ok(measures)
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
