//! Compares libwireup with the libraries that it replaces, in turns within the same minutes: barriers, the call that
//! joins the job, whole jobs that use their group once as early as possible, and the first connection to a rank that
//! computes.
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use super::choice::case;
use super::job::{self, Launch, with_job};
use super::scheme::{Lengths, Operation, Step};
use crate::bench::{Bench, Problem, Turn};
use crate::command::{Failure, wrong};
use crate::layout::Layout;
use crate::samples::{Measures, median, seconds};
use crate::stamps;

/// Layout with two ranks, each on a node of its own.
const PAIR: Layout = Layout { node_count: 2, ppn: 1 };
const BARRIER: Layout = Layout { node_count: 4, ppn: 16 };
const JOINS: Layout = Layout { node_count: 16, ppn: 16 };
/// Layout of the jobs that time a byte from rank 0 to the last rank and back.
const BYTE: Layout = Layout { node_count: 4, ppn: 4 };
const SPINNING: Layout = Layout { node_count: 1, ppn: 2 };
/// Number of repetitions of a step: a step takes some 10 microseconds between two ranks, a millisecond among 64
/// (chosen).
const PAIR_REPEAT: u32 = 2_000;
const BARRIER_REPEAT: u32 = 20;
/// Number of measured rounds (chosen): a job of 64 MPI ranks takes seconds on two cores.
const BARRIER_ROUNDS: u32 = 41;
const JOINS_ROUNDS: u32 = 15;
const NODE_ROUNDS: u32 = 7;
const BYTE_ROUNDS: u32 = 21;
const SPINNING_ROUNDS: u32 = 15;
/// Variable that tells the MPI program the number of ranks on a node.
const PPN: &str = "WIREUP_BENCH_PPN";

/// The program of the ranks of a whole job: the library that `programs/first_use.c` uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ranks {
    Wireup,
    /// libwireup, in a job with `--instant-on`.
    InstantOn,
    Pmi2,
    /// No library: the measured time is the time to start the processes.
    Bare,
    /// MPICH, with the program `dev/programs/mpi/firstuse.c` instead.
    Mpich,
}

/// Whole jobs: name, library, and the first use. Ranks make a group of their node's ranks (timed from `main`) or send a
/// byte from rank 0 to the last rank and back (timed from the exec of rank 0).
const FIRST_USES: [(&str, Ranks, &str); 8] = [
    ("mpich-split", Ranks::Mpich, NODE_GROUP),
    ("node-group", Ranks::Wireup, NODE_GROUP),
    ("node-instant-on", Ranks::InstantOn, NODE_GROUP),
    ("floor", Ranks::Bare, "floor"),
    ("put-get-connect", Ranks::Pmi2, "pairs"),
    ("wu-send", Ranks::Wireup, "message"),
    ("instant-on", Ranks::InstantOn, "message"),
    ("mpich-send", Ranks::Mpich, "message"),
];
const NODE_GROUP: &str = "node-group";

/// Runs all comparisons but `spinning`. `mpi`: an MPI program for `Ranks::Mpich`, by default the compiled `firstuse.c`.
pub fn run(bench: &Bench, lengths: Lengths, mpi: PathBuf) -> Result<(), Problem> {
    let rounds = |rounds| bench.rounds.unwrap_or(rounds);
    // A barrier of two ranks by the peers' engine, and 8 bytes each way on a bare connection of the same two processes.
    let barrier_of_2 = case("barrier of 2", PAIR, lengths);
    let of_2 = |name, operation| {
        let step = Step::of(operation, lengths).repeated(PAIR_REPEAT);
        Turn::new(name, &barrier_of_2, rounds(BARRIER_ROUNDS), step)
    };
    let turns = [of_2("bare-8-bytes", Operation::Bare), of_2("barrier-peers", Operation::Barrier)];
    job::turns(bench, &Launch::new(bench, PAIR)?.with_groups("peers"), &barrier_of_2, &turns);
    // A barrier of 64 ranks by the agents' engine, and the fence of wireup's libpmi2, in two jobs that take turns.
    let of_64 = |name, operation| {
        let step = Step::of(operation, lengths).repeated(BARRIER_REPEAT);
        Turn::new(name, &case("barrier of agents", BARRIER, lengths), rounds(BARRIER_ROUNDS), step)
    };
    let turns = [of_64("fence-alone", Operation::FenceAlone), of_64("barrier-agents", Operation::Barrier)];
    let launch = Launch::new(bench, BARRIER)?;
    bench.attempt(&turns, || {
        with_job(bench, &launch.clone().with_groups("agents"), |ours| {
            with_job(bench, &launch, |theirs| {
                bench.turns(&turns, |step, _| match step.operation {
                    Operation::Barrier => ours.step(step),
                    _ => theirs.step(step),
                });
                Ok(())
            })
        })
    });
    // `wu_open` with the agents' engine, and `PMI2_Init` of wireup's libpmi2, in jobs that take turns.
    let launch = Launch::new(bench, JOINS)?;
    let joining = |name, launch| Turn::new(name, &case("joining", JOINS, lengths), rounds(JOINS_ROUNDS), launch);
    let turns = [joining("pmi2-init", launch.clone()), joining("wu-open", launch.clone().with_groups("agents"))];
    bench.turns(&turns, |launch, _| with_job(bench, launch, |job| job.joins()));
    // A byte among 16 ranks on 4 nodes, and among as many ranks as the machine has cores, each on a node of its own, so
    // that none waits for a core.
    let apart = Layout { node_count: (bench.machine.cpus as u32).clamp(1, 64), ppn: 1 };
    let mut turns = Vec::new();
    for layout in [BARRIER, BYTE, apart].into_iter().filter(|layout| layout.job_size() > 1) {
        let (part, most) = if layout == BARRIER { ("from main", NODE_ROUNDS) } else { ("from exec", BYTE_ROUNDS) };
        for (name, ranks, what) in FIRST_USES.into_iter().filter(|one| (one.2 == NODE_GROUP) == (layout == BARRIER)) {
            turns.push(Turn::new(name, &case(part, layout, lengths), rounds(most), (ranks, what, layout)));
        }
    }
    if !mpi.exists() {
        bench.absent("mpich", format!("no {}: see --mpi-first-use", mpi.display()));
        turns.retain(|turn| turn.what.0 != Ranks::Mpich);
    }
    bench.turns(&turns, |&(ranks, what, layout), _| first_use(bench, layout, ranks, what, &mpi));
    Ok(())
}

/// Runs a whole job whose ranks append a line to a file when their first use has completed; `programs/from_exec.c`
/// starts the ranks and records the time of the exec.
fn first_use(bench: &Bench, layout: Layout, ranks: Ranks, what: &str, mpi: &Path) -> Result<Measures, Failure> {
    let launch = Launch::new(bench, layout)?;
    let stamps = bench.scratch.empty_file("first-use-stamps")?;
    let library = match ranks {
        Ranks::Wireup | Ranks::InstantOn => Some(launch.groups_library()),
        Ranks::Pmi2 => Some(launch.library.clone()),
        Ranks::Bare => Some("none".into()),
        Ranks::Mpich => None,
    };
    let program = if ranks == Ranks::Mpich { mpi.to_owned() } else { bench.scratch.program("first_use") };
    let mut argv: Vec<OsString> = vec![bench.scratch.program("from_exec").into(), program.into(), what.into()];
    argv.extend(library.into_iter().chain([stamps.clone()]).map(OsString::from));
    let ppn = format!("--env={PPN}={}", layout.ppn);
    let instant = (ranks == Ranks::InstantOn).then(|| "--instant-on".to_owned());
    let launch = launch.with([ppn].into_iter().chain(instant));
    bench.run(launch.argv(argv), launch.limit)?;
    evaluate(&fs::read_to_string(stamps)?, layout.job_size())
}

/// Parses a line of each rank: rank, and the times of exec, `main` and the end of its first use (ns of
/// `CLOCK_MONOTONIC`).
fn evaluate(text: &str, job_size: u32) -> Result<Measures, Failure> {
    let all = stamps::lines(text, 4, job_size)?;
    let (Some(first), Some(last)) = (all.first(), all.last()) else { return Err(wrong("no ranks")) };
    if !all.iter().all(|line| line[1..].is_sorted()) {
        return Err(wrong("a rank's times are out of order"));
    }
    let time = |from: u64, to: u64| (to as f64 - from as f64) / 1e9;
    let mains = all.iter().map(|line| line[2]).min().unwrap_or(0);
    let dones = all.iter().map(|line| line[3]).max().unwrap_or(0);
    let own = all.iter().map(|line| time(line[2], line[3]));
    Ok(vec![
        seconds("from-exec", time(first[1], first[3])),
        // Time from the last rank's `main` to the end of rank 0's first use.
        seconds("after-main", time(last[2], first[3])),
        seconds("from-main", time(mains, dones)),
        seconds("rank", median(own).unwrap_or(0.0)),
    ])
}

/// Measures the first connection to a rank that computes on all cores, with the library's thread and without
/// (`programs/first_use.c`), by the transports of these numbers.
pub fn spinning(bench: &Bench) -> Result<(), Problem> {
    let case = case("spinning", SPINNING, Lengths { value: 1, key: 0 });
    let turns = [("thread-tcp", "thread", "1"), ("no-thread-tcp", "alone", "1")]
        .into_iter()
        .chain([("thread-udp", "thread", "2"), ("no-thread-udp", "alone", "2")])
        .map(|(name, how, number)| Turn::new(name, &case, bench.rounds.unwrap_or(SPINNING_ROUNDS), [how, number]));
    let launch = Launch::new(bench, SPINNING)?;
    bench.turns(&turns.collect::<Vec<_>>(), |words, _| {
        let result = bench.scratch.empty_file("spinning-result")?;
        let mut program: Vec<OsString> = vec![bench.scratch.program("first_use").into(), words[0].into()];
        program.extend([launch.groups_library().into(), result.clone().into(), words[1].into()]);
        bench.run(launch.argv(program), launch.limit)?;
        let ns: f64 = fs::read_to_string(result).map_err(wrong)?.trim().parse().map_err(wrong)?;
        Ok(vec![seconds("time", ns / 1e9)])
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_use_is_counted_from_exec_and_from_main() {
        let measures = evaluate("1 100 400 900\n0 50 200 1000\n", 2).unwrap();
        let ns: Vec<f64> = measures.iter().map(|measure| (measure.value * 1e9).round()).collect();
        assert_eq!(ns, [950.0, 600.0, 800.0, 650.0]);
        assert!(evaluate("0 50 200 100\n1 1 2 3\n", 2).is_err() && evaluate("0 1 2 3\n", 2).is_err());
    }
}
