//! S2: its closing table (`steps`: the columns and phases of `column`, by processes that are a `rank` each), and the
//! cost of groups of ranks (`groups`, by every `group_scheme`) beside the simulator.
mod column;
mod group_scheme;
mod groups;
pub mod rank;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::path::Path;

use column::{Column, Phase};
pub use groups::{COMMAND as GROUPS, run as groups};
use rustix::fs::{Advice, fadvise};
use serde_json::json;
use wireup_bench::bench::{Bench, Problem, Turn};
use wireup_bench::command::wrong;
use wireup_bench::flags::{LIMIT, RESULTS, ROUNDS, WIREUP, WIREUP_ARG};
use wireup_bench::programs::Scratch;
use wireup_bench::samples::{Measures, median, seconds};
use wireup_bench::startup::PPN;
use wireup_capi::net::now_ns;
use wireup_flags::{Command, Flag, Section, Value, Words};

const COLUMNS: Flag =
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
The phases launch, PMI ring, group, address exchange, connect, on virtual nodes of this machine. Each column has what the one
before it has, with one thing replaced:

  baseline    put, fence and a get for each other rank, then a connection to each; the program is read from the disk
  staged      the program was copied into memory before
  groups      the ranks exchange among themselves (Bruck's alltoall); their ring comes from an allgather
  pmix-ring   their ring comes from PMIX_Ring
  on-demand   no addresses are exchanged; a connection is made with the first message
",
    words: Words::Named(&[]),
    sections: &[
        Section { title: "Jobs", flags: &[COLUMNS, RANKS, PPN, CONNECT_MAX, PARTNERS, ROUNDS, WIREUP, WIREUP_ARG, LIMIT] },
        RESULTS,
    ],
    end: "",
};

/// More ranks were not measured; each has an address of its own below 127.1.0.0/16.
const RANKS_MAX: u32 = 4096;
/// Fewer have no others across the job.
const RANKS_MIN: u32 = 4;
const ROUNDS_DEFAULT: u32 = 3;
const LIMIT_S: u64 = 300;
/// A folder in memory.
const MEMORY: &str = "/dev/shm";

pub fn steps(bench: &Bench) -> Result<(), Problem> {
    let line = &bench.line;
    let columns = Column::ALL.map(|column| (column.name(), column));
    let columns = line.one(COLUMNS, |value| value.list(|column| column.choice(&columns)))?;
    let sizes = line.one(RANKS, |value| value.list(|ranks| ranks.number_in(RANKS_MIN, RANKS_MAX)))?;
    // The last partner of a rank is size / 2 + 2 N - 1 further on, and must not be the rank itself.
    let fewest = sizes.iter().min().copied().unwrap_or(RANKS_MIN);
    let partners = line.one(PARTNERS, |value| value.number_in(1, (fewest / 2).max(2)))?;
    let (ppn, connect_max) = (line.one(PPN, Value::at_least_one)?, line.one(CONNECT_MAX, Value::number)?);
    let mut turns = Vec::new();
    for &ranks in &sizes {
        for &column in columns.iter().filter(|column| !column.connects_all() || ranks <= connect_max) {
            let case = json!({ "ranks": ranks, "ppn": ppn });
            let (contestant, rounds) = (column.name().to_owned(), bench.rounds.unwrap_or(ROUNDS_DEFAULT));
            turns.push(Turn { contestant, case, rounds, what: (column, ranks) });
        }
    }
    if bench.lists(&turns) {
        return Ok(());
    }
    let memory = Scratch::create_in(Path::new(MEMORY))?;
    let program = bench.scratch.file("steps-rank");
    // A file of its own: the running program's pages would stay in memory.
    fs::copy(std::env::current_exe()?, &program)?;
    let staged = memory.file("steps-rank");
    fs::copy(&program, &staged)?;
    let wireup = bench.wireup()?;
    bench.turns(&turns, |&(column, ranks), _| {
        let program = if column == Column::Baseline { &program } else { &staged };
        if column == Column::Baseline {
            forget(program).map_err(wrong)?;
        }
        let begin = now_ns();
        let mut words = ["run", "-n", &ranks.to_string(), "--pmi", "simple"].map(str::to_owned).to_vec();
        if ranks > ppn {
            words.extend(["--virtual-nodes".into(), ranks.div_ceil(ppn).to_string()]);
        }
        words.extend(bench.wireup_args.iter().cloned());
        let mut argv: Vec<OsString> = vec![wireup.clone().into()];
        argv.extend(words.into_iter().map(OsString::from));
        argv.push(program.into());
        argv.extend([rank::WORD, column.name(), &begin.to_string(), &partners.to_string()].map(OsString::from));
        let (_, text) = bench.run(argv, bench.limit_or(LIMIT_S))?;
        read(&text, column, ranks, begin).map_err(wrong)
    });
    Ok(())
}

/// Makes the next reader of the file read it from the disk, if it is on one.
fn forget(program: &Path) -> std::io::Result<()> {
    let file = File::open(program)?;
    file.sync_all()?;
    Ok(fadvise(&file, 0, None, Advice::DontNeed)?)
}

/// The phases of a job from the lines of its ranks, of the median rank and of the slowest, and the time from before the
/// launcher is started until the last rank is connected; `begin` is the clock at the start (ns).
///
/// # Errors
/// A rank's line is missing, twice there, or not that of the column.
fn read(text: &str, column: Column, ranks: u32, begin: u64) -> Result<Measures, String> {
    let mut seen = vec![false; ranks as usize];
    let mut all: BTreeMap<Phase, Vec<f64>> = BTreeMap::new();
    let mut last = begin;
    for line in text.lines().filter_map(|line| line.strip_prefix("measured ")) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [name, rank, phases @ .., end] = &words[..] else { return Err(format!("{line}: too short")) };
        let slot = rank.parse().ok().and_then(|rank: usize| seen.get_mut(rank));
        let (true, Some(slot @ false)) = (*name == column.name() && phases.len() == Phase::ALL.len(), slot) else {
            return Err(format!("{line}: not the line of a rank"));
        };
        *slot = true;
        for (phase, word) in Phase::ALL.into_iter().zip(phases) {
            match (word.parse::<u64>(), column.phases().contains(&phase)) {
                (Ok(ns), true) => all.entry(phase).or_default().push(ns as f64 / 1e9),
                (Err(_), false) if *word == "-" => {}
                _ => return Err(format!("{line}: {}", phase.name())),
            }
        }
        last = last.max(end.parse().map_err(|_| format!("{line}: no end"))?);
    }
    if let Some(missing) = seen.iter().position(|seen| !seen) {
        return Err(format!("rank {missing} of {ranks} has not reported"));
    }
    let mut measures = vec![seconds("total", (last - begin) as f64 / 1e9)];
    for (phase, values) in all {
        let max = values.iter().copied().fold(0.0, f64::max);
        measures.push(seconds(phase.name(), median(&values).unwrap_or(max)));
        measures.push(seconds(format!("{}-max", phase.name()), max));
    }
    Ok(measures)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rank_must_tell_the_phases_of_its_column() {
        let line = |rank: u32, end: u64| format!("measured baseline {rank} {}000 - - 30 40 {end}\n", rank + 1);
        let both = line(1, 9000) + &line(0, 7000);
        let measures = read(&both, Column::Baseline, 2, 1000).unwrap();
        let ns: Vec<f64> = measures.iter().map(|measure| (measure.value * 1e9).round()).collect();
        assert_eq!(ns, [8000.0, 1500.0, 2000.0, 30.0, 30.0, 40.0, 40.0]);
        for wrong in
            [line(0, 7000), both.clone() + &line(0, 1), both.replace("- -", "- 5"), both.replace("baseline", "staged")]
        {
            assert!(read(&wrong, Column::Baseline, 2, 1000).is_err(), "{wrong}");
        }
    }
}
