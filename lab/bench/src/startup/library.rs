//! libwireup beside what it replaces, in turns within the same minutes: barriers, the call that joins the job, whole
//! jobs that use their group once as early as they can, and the first connection to a rank that computes.
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use super::choice::case;
use super::job::{self, Launch, with_job};
use super::scheme::{Lengths, Operation, Step};
use crate::bench::{Bench, Problem, Turn};
use crate::command::{Failure, wrong};
use crate::layout::Layout;
use crate::programs::Program;
use crate::samples::{Measures, median, seconds};
use crate::stamps;

/// Two ranks, each on a node of its own.
const PAIR: Layout = Layout { node_count: 2, ppn: 1 };
const BARRIER: Layout = Layout { node_count: 4, ppn: 16 };
const JOINS: Layout = Layout { node_count: 16, ppn: 16 };
/// A byte from rank 0 to the last rank and back.
const BYTE: Layout = Layout { node_count: 4, ppn: 4 };
const SPINNING: Layout = Layout { node_count: 1, ppn: 2 };
/// Repetitions of a step: one takes some 10 microseconds between two ranks, a millisecond among 64 (chosen).
const PAIR_REPEAT: u32 = 2_000;
const BARRIER_REPEAT: u32 = 20;
/// Rounds that count (chosen): a job of 64 MPI ranks takes seconds on two cores.
const BARRIER_ROUNDS: u32 = 41;
const JOINS_ROUNDS: u32 = 15;
const NODE_ROUNDS: u32 = 7;
const BYTE_ROUNDS: u32 = 21;
const SPINNING_ROUNDS: u32 = 15;
/// Tells the MPI program how many ranks are on a node.
const PPN: &str = "WIREUP_BENCH_PPN";

/// What the ranks of a whole job run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ranks {
    /// `programs/first_use.c` with libwireup.
    Wireup,
    /// The same program in a job with `--instant-on`.
    InstantOn,
    /// The same program with libpmi2.
    Pmi2,
    /// The same program with no library: what the start of the processes takes, whatever they do then.
    Bare,
    /// `dev/programs/mpi/firstuse.c` with MPICH.
    Mpich,
}

fn turn<T>(
    bench: &Bench,
    part: &str,
    layout: Layout,
    rounds: u32,
    contestant: &str,
    what: T,
    lengths: Lengths,
) -> Turn<T> {
    let case = case(part, layout, lengths);
    Turn { contestant: contestant.to_owned(), case, rounds: bench.rounds.unwrap_or(rounds), what }
}

/// `mpi` is an MPI program that uses its job once.
pub fn run(bench: &Bench, lengths: Lengths, mpi: PathBuf) -> Result<(), Problem> {
    // A barrier of two ranks by the peers' engine, and 8 bytes each way on a bare connection of the same two processes.
    let of_two = |name, operation| {
        let step = Step::of(operation, lengths).repeated(PAIR_REPEAT);
        turn(bench, "barrier of 2", PAIR, BARRIER_ROUNDS, name, step, lengths)
    };
    let turns = [of_two("bare-8-bytes", Operation::Bare), of_two("barrier-peers", Operation::Barrier)];
    let launch = Launch::new(bench, PAIR)?.with_groups("peers");
    job::turns(bench, &launch, &turns[0].case, &turns);
    // A barrier of 64 ranks by the agents' engine, and the fence of our libpmi2, in two jobs that take turns.
    let of_64 = |name, is_ours| turn(bench, "barrier of agents", BARRIER, BARRIER_ROUNDS, name, is_ours, lengths);
    let turns = [of_64("fence-alone", false), of_64("barrier-agents", true)];
    let launch = Launch::new(bench, BARRIER)?;
    if !bench.lists(&turns) && !bench.interrupt.is_set() {
        let step = |operation| Step::of(operation, lengths).repeated(BARRIER_REPEAT);
        let ran = with_job(bench, &launch.clone().with_groups("agents"), |ours| {
            with_job(bench, &launch, |theirs| {
                bench.turns(&turns, |is_ours, _| match is_ours {
                    true => ours.step(&step(Operation::Barrier)),
                    false => theirs.step(&step(Operation::FenceAlone)),
                });
                Ok(())
            })
        });
        if let Err(failure) = ran {
            bench.fail_all(&turns, &failure);
        }
    }
    // `wu_open` with the agents' engine, and `PMI2_Init` of our libpmi2, in jobs that take turns.
    let launch = Launch::new(bench, JOINS)?;
    let joining = |name, launch| turn(bench, "joining", JOINS, JOINS_ROUNDS, name, launch, lengths);
    let turns = [joining("pmi2-init", launch.clone()), joining("wu-open", launch.with_groups("agents"))];
    bench.turns(&turns, |launch, _| with_job(bench, launch, |job| job.joins()));
    // The node's group of 64 ranks from `main`; and from exec of rank 0 to a byte answered by the last rank: of 16
    // ranks on 4 nodes, and of as many ranks as the machine has cores, each on a node of its own, so that none waits
    // for a core.
    let apart = Layout { node_count: (bench.machine.cpus as u32).clamp(1, 64), ppn: 1 };
    let node = [("mpich-split", Ranks::Mpich), ("node-group", Ranks::Wireup), ("node-instant-on", Ranks::InstantOn)];
    let byte = [
        ("floor", Ranks::Bare, "floor"),
        ("put-get-connect", Ranks::Pmi2, "pairs"),
        ("wu-send", Ranks::Wireup, "message"),
        ("instant-on", Ranks::InstantOn, "message"),
        ("mpich-send", Ranks::Mpich, "message"),
    ];
    let mut turns: Vec<Turn<(Ranks, &str, Layout)>> = Vec::new();
    for (name, ranks) in node {
        let what = (ranks, "node-group", BARRIER);
        turns.push(turn(bench, "from main", BARRIER, NODE_ROUNDS, name, what, lengths));
    }
    for layout in [BYTE, apart].into_iter().filter(|layout| layout.job_size() > 1) {
        for (name, ranks, what) in byte {
            turns.push(turn(bench, "from exec", layout, BYTE_ROUNDS, name, (ranks, what, layout), lengths));
        }
    }
    if !mpi.exists() {
        bench.absent("mpich", format!("no {}: see --mpi-first-use", mpi.display()));
        turns.retain(|turn| turn.what.0 != Ranks::Mpich);
    }
    let launch = Launch::new(bench, BARRIER)?;
    bench.turns(&turns, |(ranks, what, layout), _| {
        first_use(bench, &Launch { layout: *layout, ..launch.clone() }, *ranks, what, &mpi)
    });
    Ok(())
}

/// A whole job whose ranks append a line to a file when their first use is over; `programs/from_exec.c` runs them and
/// notes when.
fn first_use(bench: &Bench, launch: &Launch, ranks: Ranks, what: &str, mpi: &Path) -> Result<Measures, Failure> {
    let stamps = bench.scratch.empty_file("first-use-stamps").map_err(wrong)?;
    let own = |library: &Path| {
        let program = bench.scratch.program(Program::FirstUse).into();
        vec![program, what.into(), library.into(), stamps.clone().into()]
    };
    let program: Vec<OsString> = match ranks {
        Ranks::Wireup | Ranks::InstantOn => own(&launch.groups_library()),
        Ranks::Pmi2 => own(&launch.library),
        Ranks::Bare => own(Path::new("none")),
        Ranks::Mpich => vec![mpi.into(), what.into(), stamps.clone().into()],
    };
    let mut launch = launch.clone().with([format!("--env={PPN}={}", launch.layout.ppn)]);
    if ranks == Ranks::InstantOn {
        launch.extra.push("--instant-on".into());
    }
    let wrapper = bench.scratch.program(Program::FromExec).into();
    bench.run(launch.argv([vec![wrapper], program].concat()), launch.limit)?;
    evaluate(&fs::read_to_string(stamps).map_err(wrong)?, launch.layout.job_size())
}

/// Each rank's line: rank, exec, `main`, the end of its first use (ns of `CLOCK_MONOTONIC`).
fn evaluate(text: &str, job_size: u32) -> Result<Measures, Failure> {
    let all = stamps::lines(text, 4, job_size)?;
    let (Some(first), Some(last)) = (all.first(), all.last()) else { return Err(wrong("no ranks")) };
    if !all.iter().all(|line| line[1..].is_sorted()) {
        return Err(wrong("a rank's times are out of order"));
    }
    let time = |from: u64, to: u64| (to as f64 - from as f64) / 1e9;
    let mains = all.iter().map(|line| line[2]).min().unwrap_or(0);
    let dones = all.iter().map(|line| line[3]).max().unwrap_or(0);
    let own: Vec<f64> = all.iter().map(|line| time(line[2], line[3])).collect();
    Ok(vec![
        seconds("from-exec", time(first[1], first[3])),
        // From the farthest rank's `main` to the end of rank 0's first use.
        seconds("after-main", time(last[2], first[3])),
        seconds("from-main", time(mains, dones)),
        seconds("rank", median(&own).unwrap_or(0.0)),
    ])
}

/// The first connection to a rank that computes on all cores, with the library's thread and without (`spinning.c`).
pub fn spinning(bench: &Bench) -> Result<(), Problem> {
    let contestants = [
        ("thread-tcp", ["thread", "1"]),
        ("no-thread-tcp", ["alone", "1"]),
        ("thread-udp", ["thread", "2"]),
        ("no-thread-udp", ["alone", "2"]),
    ];
    let lengths = Lengths { value: 1, key: 0 };
    let turns =
        contestants.map(|(name, words)| turn(bench, "spinning", SPINNING, SPINNING_ROUNDS, name, words, lengths));
    let launch = Launch::new(bench, SPINNING)?;
    bench.turns(&turns, |words, _| {
        let result = bench.scratch.empty_file("spinning-result").map_err(wrong)?;
        let mut program: Vec<OsString> = vec![bench.scratch.program(Program::Spinning).into()];
        program.extend(words.map(OsString::from));
        program.extend([launch.groups_library().into(), result.clone().into()]);
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
