//! S2: its closing table (`steps`, by processes of which each is a `rank`), and the cost of groups of ranks (`groups`),
//! compared with the simulator.
mod groups;
pub mod mpi;
pub mod rank;

use std::fs::{self, File};
use std::path::Path;

pub use groups::{COMMAND as GROUPS, run as groups};
use rustix::fs::{Advice, fadvise};
use serde_json::json;
use wireup_bench::bench::{Bench, Problem, Turn};
use wireup_bench::command::{Failure, wrong};
use wireup_bench::flags::{LIMIT, NO_WORDS, RESULTS, ROUNDS, WIREUP, WIREUP_ARG};
use wireup_bench::programs::Scratch;
use wireup_bench::samples::{Measures, of_ranks, seconds};
use wireup_bench::stamps;
use wireup_bench::startup::PPN;
use wireup_capi::net::now_ns;
use wireup_flags::{Command, Flag, Section, Value};

const COLUMN: Flag =
    Flag::value(&["--column"], "A,B,..", "Only these.").or("baseline,staged,groups,pmix-ring,on-demand");
const RANKS: Flag = Flag::value(&["--ranks"], "A,B,..", "Numbers of ranks.").or("16,64,256,1024");
const CONNECT_MAX: Flag = Flag::value(
    &["--connect-max"],
    "N",
    "Connect all to all up to this many ranks; N ranks have N x N sockets in all.",
)
.or("1024");
const PARTNERS: Flag =
    Flag::value(&["--partners"], "N", "on-demand: how many other ranks each rank sends a message to.").or("2");

pub const STEPS: Command = Command {
    name: "reproduce steps",
    purpose: "time the phases of a start, by the steps that made it faster",
    intro: "
The phases launch, PMI ring, group, address exchange, connect, on virtual nodes of this machine. Each column has what \
the one
before it has, with one thing replaced:

  baseline    put, fence and a get for each other rank, then a connection to each; the program is read from the disk
  staged      the program was copied into memory before
  groups      the ranks exchange among themselves (Bruck's alltoall); their ring comes from an allgather
  pmix-ring   their ring comes from PMIX_Ring
  on-demand   no addresses are exchanged; a connection is made with the first message
",
    sections: &[
        Section {
            title: "Jobs",
            flags: &[COLUMN, RANKS, PPN, CONNECT_MAX, PARTNERS, ROUNDS, WIREUP, WIREUP_ARG, LIMIT],
        },
        RESULTS,
    ],
    ..NO_WORDS
};

/// Maximum number of ranks: more were not measured. Each rank has an address of its own below 127.1.0.0/16.
const RANKS_MAX: u32 = 4096;
/// Minimum number of ranks: with fewer, there are no ranks about half the job away.
const RANKS_MIN: u32 = 4;
const ROUNDS_DEFAULT: u32 = 3;
const LIMIT_S: u64 = 300;
/// A folder whose files are in memory.
const MEMORY: &str = "/dev/shm";

/// The phases of a rank's start, in order. `launch`: starting the launcher and the rank, until the rank has joined its
/// job. `pmi-ring`: getting the job's secret and the addresses of the rank's two neighbours in the ring of all ranks
/// from the PMI server. `group`: building the binomial graph of the ranks from the ring. `address-exchange`: getting
/// the addresses of all other ranks. `connect`: connecting to all other ranks or, in the column `on-demand`, to those
/// that the rank sends messages to.
const PHASES: [&str; 5] = ["launch", "pmi-ring", "group", "address-exchange", "connect"];

/// The columns of the table, each with the phases that it has.
const COLUMNS: [(&str, [bool; PHASES.len()]); 5] = [
    (BASELINE, [true, false, false, true, true]),
    ("staged", [true, false, false, true, true]),
    ("groups", [true, true, true, true, true]),
    ("pmix-ring", [true, true, true, true, true]),
    (ON_DEMAND, [true, true, true, false, true]),
];
const BASELINE: &str = "baseline";
/// The only column in which ranks are not connected to all others at the end.
const ON_DEMAND: &str = "on-demand";

pub fn steps(bench: &Bench) -> Result<(), Problem> {
    let line = &bench.line;
    let columns = line.one(COLUMN, |value| value.list(|column| column.choice(&COLUMNS.map(|one| (one.0, one)))))?;
    let sizes = line.one(RANKS, |value| value.list(|ranks| ranks.number_in(RANKS_MIN, RANKS_MAX)))?;
    // The last partner of a rank is size / 2 + 2 N - 1 ranks further on, and must not be the rank itself.
    let fewest = sizes.iter().min().copied().unwrap_or(RANKS_MIN);
    let partners = line.one(PARTNERS, |value| value.number_in(1, (fewest / 2).max(2)))?;
    let (ppn, connect_max) = (line.one(PPN, Value::at_least_one)?, line.one(CONNECT_MAX, Value::number)?);
    let mut turns = Vec::new();
    for &ranks in &sizes {
        for &column in columns.iter().filter(|column| column.0 == ON_DEMAND || ranks <= connect_max) {
            let case = json!({ "ranks": ranks, "ppn": ppn });
            let (contestant, rounds) = (column.0.to_owned(), bench.rounds.unwrap_or(ROUNDS_DEFAULT));
            turns.push(Turn { contestant, case, rounds, what: (column, ranks) });
        }
    }
    if bench.lists(&turns) {
        return Ok(());
    }
    let memory = Scratch::create_in(Path::new(MEMORY))?;
    let program = bench.scratch.file("steps-rank");
    // A copy of the program: the pages of the running program itself would stay in memory.
    fs::copy(std::env::current_exe()?, &program)?;
    let staged = memory.file("steps-rank");
    fs::copy(&program, &staged)?;
    bench.turns(&turns, |&((column, phases), ranks), _| {
        let program = if column == BASELINE { &program } else { &staged };
        if column == BASELINE {
            forget(program)?;
        }
        let begin = now_ns();
        let mut argv = bench.wireup_run(ranks, ranks.div_ceil(ppn), ppn, "--pmi simple").map_err(wrong)?;
        argv.extend([program.clone().into(), rank::WORD.into(), column.into()]);
        argv.extend([begin, partners.into()].map(|number| number.to_string().into()));
        let (_, text) = bench.run(argv, bench.limit_or(LIMIT_S))?;
        read(&text, phases, ranks, begin)
    });
    Ok(())
}

/// Drops the file from the page cache, so that its next reader reads it from the disk, if it is on one.
fn forget(program: &Path) -> std::io::Result<()> {
    let file = File::open(program)?;
    file.sync_all()?;
    Ok(fadvise(&file, 0, None, Advice::DontNeed)?)
}

/// The phases of a job from the lines of its ranks, of the median rank and of the slowest, and the time from before the
/// launcher is started until the last rank is connected; `begin` is the clock at the start (ns).
///
/// # Errors
/// A rank's line is missing, exists twice, or does not have the column's phases.
fn read(text: &str, has: [bool; PHASES.len()], ranks: u32, begin: u64) -> Result<Measures, Failure> {
    let all = stamps::lines(text, PHASES.len() + 2, ranks)?;
    let last = all.iter().filter_map(|line| line.last()).max().copied().unwrap_or(begin);
    let mut measures = vec![seconds("total", (last - begin) as f64 / 1e9)];
    for (at, phase) in PHASES.into_iter().enumerate() {
        let times = all.iter().map(|line| line[at + 1]);
        if times.clone().any(|ns| (ns > 0) != has[at]) {
            return Err(wrong(format!("a rank has {phase} that its column lacks, or lacks it")));
        }
        if has[at] {
            measures.extend(of_ranks(phase, times.map(|ns| ns as f64 / 1e9)));
        }
    }
    Ok(measures)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rank_must_tell_the_phases_of_its_column() {
        let both = "1 2000 0 0 30 40 9000\n0 1000 0 0 30 40 7000\n";
        let read = |text: &str| read(text, COLUMNS[0].1, 2, 1000);
        let ns: Vec<f64> = read(both).unwrap().iter().map(|measure| (measure.value * 1e9).round()).collect();
        assert_eq!(ns, [8000.0, 1500.0, 2000.0, 30.0, 30.0, 40.0, 40.0]);
        for wrong in [both.replace("1 2000 0", "1 2000 5"), both.replace("1000 0 0 30", "1000 0 0 0")] {
            assert!(read(&wrong).is_err(), "{wrong}");
        }
    }
}
