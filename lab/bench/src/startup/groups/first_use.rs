//! Whole jobs that use their group once, as early as they can: how soon after the start of the ranks.
//!
//! Every contestant is a program that appends a line to a file when its first use is over; `programs/from_exec.c` runs
//! it and notes when. All are started by wireup on virtual nodes, in turns: A B C, C B A, …
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use super::super::flags::{AUTO, Flags};
use super::super::report::Cell;
use super::super::surroundings::Surroundings;
use super::{FROM_EXEC, FROM_EXEC_CORES, FROM_MAIN, key};
use crate::cases::Place;
use crate::command::{Failure, Invocation};
use crate::metric::{Metric, Sample};
use crate::programs::Program;
use crate::stats;
use crate::turns::turn;

/// The group of the node's ranks, on one node.
pub const NODE_PLACE: Place = Place { node_count: 4, ppn: 16 };
/// A byte from rank 0 to the last rank and back.
const BYTE_PLACE: Place = Place { node_count: 4, ppn: 4 };

/// Its cases: 16 ranks on 4 nodes; and as many ranks as the machine has cores, each on a node of its own, so that none
/// waits for a core.
pub fn byte_cases() -> Vec<(Place, &'static str)> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let apart = Place { node_count: u32::try_from(cores.min(64)).unwrap_or(1), ppn: 1 };
    let mut cases = vec![(BYTE_PLACE, FROM_EXEC), (apart, FROM_EXEC_CORES)];
    cases.retain(|(place, _)| place.job_size() > 1);
    cases
}
/// Built by the workspace's set-up (`dev/programs/mpi/firstuse.c`).
const MPI_PROGRAM: &str = "target/programs/mpich5/firstuse";
/// Tells that program how many ranks are on a node.
const PPN: &str = "WIREUP_BENCH_PPN";
/// Rounds that count: a job of 64 MPI ranks takes seconds on two cores (chosen).
const NODE_ROUNDS: u32 = 7;
const BYTE_ROUNDS: u32 = 21;

/// What the ranks run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ranks {
    /// `programs/first_use.c`.
    Wireup,
    /// The same in a job with `--instant-on`.
    InstantOn,
    /// The same with libpmi2.
    Pmi2,
    /// The same with no library: what the start of the processes takes, whatever they do then.
    Bare,
    Mpich,
}

/// The name of the figures, the program, and what it is told to do.
type Contestant = (&'static str, Ranks, &'static str);

/// The first one is judged against the others.
pub const NODE: [&str; 3] = ["node-instant-on", "node-group", "mpich-split"];
const NODE_CONTESTANTS: [Contestant; 3] = [
    (NODE[0], Ranks::InstantOn, "node-group"),
    (NODE[1], Ranks::Wireup, "node-group"),
    (NODE[2], Ranks::Mpich, "node-group"),
];
pub const BYTE: [&str; 5] = ["instant-on", "wu-send", "put-get-connect", "floor", "mpich-send"];
const BYTE_CONTESTANTS: [Contestant; 5] = [
    (BYTE[0], Ranks::InstantOn, "message"),
    (BYTE[1], Ranks::Wireup, "message"),
    (BYTE[2], Ranks::Pmi2, "pairs"),
    (BYTE[3], Ranks::Bare, "floor"),
    (BYTE[4], Ranks::Mpich, "message"),
];

/// The node's group, of 64 ranks, from `main`.
pub fn node(flags: &Flags, surroundings: &Surroundings) -> Result<Vec<Cell>, Failure> {
    turns(flags, surroundings, NODE_PLACE, FROM_MAIN, &NODE_CONTESTANTS, NODE_ROUNDS)
}

/// From exec of rank 0 to a byte answered by the last rank. `floor` is the limit for all others.
pub fn byte(flags: &Flags, surroundings: &Surroundings, place: Place, case: &str) -> Result<Vec<Cell>, Failure> {
    turns(flags, surroundings, place, case, &BYTE_CONTESTANTS, BYTE_ROUNDS)
}

fn turns(
    flags: &Flags,
    surroundings: &Surroundings,
    place: Place,
    case: &str,
    contestants: &[Contestant],
    rounds: u32,
) -> Result<Vec<Cell>, Failure> {
    let mpi = mpi_program(flags)?;
    let mut cells: Vec<Cell> = contestants.iter().map(|(name, ..)| Cell::new(key(flags, place, case, name))).collect();
    for round in 0..=flags.rounds.unwrap_or(rounds) {
        for at in turn(round, contestants.len()) {
            let (cell, (_, ranks, what)) = (&mut cells[at], &contestants[at]);
            let stamps = surroundings.scratch.empty_file("first-use-stamps").map_err(wrong)?;
            let program = command(*ranks, what, surroundings, &mpi, &stamps);
            cell.runs.push(once(flags, surroundings, place, *ranks, program, &stamps)?);
        }
    }
    Ok(cells)
}

fn mpi_program(flags: &Flags) -> Result<PathBuf, Failure> {
    let default = || std::path::absolute(MPI_PROGRAM).ok().filter(|path| path.exists());
    let found = flags.mpi_first_use.clone().or_else(default);
    found.ok_or_else(|| wrong(format!("no {MPI_PROGRAM} here: see --mpi-first-use")))
}

fn command(ranks: Ranks, what: &str, surroundings: &Surroundings, mpi: &Path, stamps: &Path) -> Vec<OsString> {
    let first_use = surroundings.scratch.program(Program::FirstUse);
    let with = |library: &Path| vec![first_use.clone().into(), what.into(), library.into(), stamps.into()];
    let program: Vec<OsString> = match ranks {
        Ranks::Wireup | Ranks::InstantOn => with(&surroundings.groups_library()),
        Ranks::Pmi2 => with(&surroundings.library),
        Ranks::Bare => with(Path::new("none")),
        Ranks::Mpich => vec![mpi.into(), what.into(), stamps.into()],
    };
    [vec![surroundings.scratch.program(Program::FromExec).into()], program].concat()
}

fn once(
    flags: &Flags,
    surroundings: &Surroundings,
    place: Place,
    ranks: Ranks,
    program: Vec<OsString>,
    stamps: &Path,
) -> Result<Sample, Failure> {
    let mut launch = surroundings.launch(flags, place, AUTO);
    launch.extra.push(format!("--env={PPN}={}", place.ppn));
    if ranks == Ranks::InstantOn {
        launch.extra.push("--instant-on".into());
    }
    let mut argv = vec![launch.wireup.clone().into_os_string()];
    argv.extend(launch.words().into_iter().map(OsString::from));
    argv.extend(program);
    let stderr = surroundings.scratch.file("stderr-first-use");
    Invocation { argv, env: Vec::new(), stdout: None, stderr, limit: launch.limit }.run(&surroundings.interrupt)?;
    evaluate(&fs::read_to_string(stamps).map_err(wrong)?, place.job_size())
}

/// One rank's line (ns of `CLOCK_MONOTONIC`).
#[derive(Clone, Copy)]
struct Stamp {
    rank: u32,
    exec: u64,
    main: u64,
    done: u64,
}

fn evaluate(text: &str, job_size: u32) -> Result<Sample, Failure> {
    let mut stamps =
        text.lines().map(parse).collect::<Option<Vec<Stamp>>>().ok_or_else(|| wrong("a line of a rank"))?;
    stamps.sort_unstable_by_key(|stamp| stamp.rank);
    if !stamps.iter().map(|stamp| stamp.rank).eq(0..job_size) {
        return Err(wrong(format!("{} lines of {job_size} ranks", stamps.len())));
    }
    let (Some(first), Some(last)) = (stamps.first(), stamps.last()) else { return Err(wrong("no ranks")) };
    let seconds = |from: u64, to: u64| (to as f64 - from as f64) / 1e9;
    let mains = stamps.iter().map(|stamp| stamp.main).min().unwrap_or(0);
    let dones = stamps.iter().map(|stamp| stamp.done).max().unwrap_or(0);
    let own: Vec<f64> = stamps.iter().map(|stamp| seconds(stamp.main, stamp.done)).collect();
    Ok(Sample(vec![
        (Metric::FromExec, seconds(first.exec, first.done)),
        (Metric::AfterMain, seconds(last.main, first.done)),
        (Metric::FromMain, seconds(mains, dones)),
        (Metric::RankMedian, stats::median(&own).unwrap_or(0.0)),
    ]))
}

fn parse(line: &str) -> Option<Stamp> {
    let numbers: Vec<u64> = line.split(' ').map(|word| word.parse().ok()).collect::<Option<_>>()?;
    let [rank, exec, main, done] = numbers[..] else { return None };
    (exec <= main && main <= done).then_some(Stamp { rank: u32::try_from(rank).ok()?, exec, main, done })
}

fn wrong(what: impl ToString) -> Failure {
    Failure::Wrong(what.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_count_from_rank_0_and_from_the_first_and_the_last_main() {
        let sample = evaluate("2 5000 9000 12000\n0 1000 3000 11000\n1 2000 2500 4000\n", 3).unwrap();
        let us = |metric| (sample.get(metric).unwrap() * 1e6).round();
        assert_eq!((us(Metric::FromExec), us(Metric::AfterMain), us(Metric::FromMain)), (10.0, 2.0, 10.0));
        assert_eq!(us(Metric::RankMedian), 3.0);
    }

    #[test]
    fn missing_repeated_and_senseless_lines_are_refused() {
        for text in
            ["", "0 1 2 3\n", "0 1 2 3\n0 1 2 3\n", "0 1 2 3\n1 3 2 4\n", "0 1 2 3\n1 1 2\n", "0 - 2 3\n1 1 2 3\n"]
        {
            assert!(evaluate(text, 2).is_err(), "{text:?}");
        }
        // An answer may be there before the last rank's main has begun: its socket exists already.
        let sample = evaluate("0 1 2 3\n1 1 9 9\n", 2).unwrap();
        assert!(sample.get(Metric::AfterMain).unwrap() < 0.0);
    }
}
