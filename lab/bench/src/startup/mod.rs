//! `wireup bench exchange`: startup exchanges with every scheme, in real processes (S1 figure 9), and the
//! initialisation of a middleware with every scheme (S1 figure 10).
//!
//! `scheme` lists the operations of ranks; `job` runs ranks that wait at a gate (`board`) for one step after the other.
//! `library` compares libwireup with the libraries that it replaces.
//!
//! A middleware initialises itself by an exchange and by local work that does not need its result. With a blocking
//! scheme its initialisation is the sum of both; with a non-blocking one it ends with the work, and the wait comes when
//! the application first needs a peer. The local work is a sleep: setting up a network card takes time but no cores.
pub mod board;
mod choice;
pub mod job;
mod library;
pub mod scheme;

use std::time::Duration;

use wireup_flags::{Command, Flag, Section, Value};

use crate::bench::{Bench, Problem, Turn};
use crate::flags::{LIBRARY, LIMIT, NO_WORDS, PART, RESULTS, ROUNDS, WIREUP, WIREUP_ARG, parts};
use crate::layout::Layout;
pub use choice::{Choice, KEY_BYTES, PPN, RANKS, SCHEME, VALUE_BYTES, sizes};
use job::Launch;
use scheme::{Step, Work, default_rounds};

const RANKS_HERE: Flag = RANKS.or("16,64,256,1024,4096,8192,16384");
const REPEAT: Flag = Flag::value(&["--repeat"], "N", "Exchanges in a round; their mean counts.").or("4");
const WORK_MS: Flag = Flag::value(
    &["--work-ms"],
    "N",
    "times: also local work of each rank, asleep: before a blocking exchange, between start and wait of another.",
)
.or("0");
const PARTS: Flag = PART.or("times,library,spinning");
const MPI_FIRST_USE: Flag =
    Flag::value(&["--mpi-first-use"], "PATH", "library: an MPI program that uses its job once.")
        .or("target/programs/mpich5/firstuse");

pub const COMMAND: Command = Command {
    name: "bench exchange",
    purpose: "time startup exchanges by every scheme",
    intro: "
Exchanges of addresses between real processes of this machine, by an unmodified PMI-2 client and by wireup's libpmi2.

  times      every scheme at every job size, and the memory that agents and clients hold afterwards
  library    libwireup next to what it replaces
  spinning   the first connection to a rank that computes
",
    sections: &[
        Section { title: "Jobs", flags: &[RANKS_HERE, PPN, ROUNDS, PARTS, WIREUP, WIREUP_ARG, LIBRARY, LIMIT] },
        Section { title: "Exchanges", flags: &[SCHEME, VALUE_BYTES, KEY_BYTES, REPEAT, WORK_MS] },
        Section { title: "Parts", flags: &[MPI_FIRST_USE] },
        RESULTS,
    ],
    ..NO_WORDS
};

/// Maximum number of repetitions: more do not improve the result (chosen).
const REPEAT_MAX: u32 = 1000;

pub fn run(bench: &Bench) -> Result<(), Problem> {
    let line = &bench.line;
    let choice = Choice::read(line, RANKS_HERE)?;
    let repeat = line.one(REPEAT, |value| value.number_in(1, REPEAT_MAX))?;
    let work_ms = line.one(WORK_MS, Value::number)?;
    for part in parts(line, PARTS)? {
        match part {
            "times" => {
                choice.layouts.iter().try_for_each(|layout| times(bench, &choice, *layout, repeat, work_ms))?;
            }
            "library" => {
                library::run(bench, choice.lengths, std::path::absolute(line.one(MPI_FIRST_USE, Value::path)?)?)?
            }
            _ => library::spinning(bench)?,
        }
    }
    Ok(())
}

fn times(bench: &Bench, choice: &Choice, layout: Layout, repeat: u32, work_ms: u32) -> Result<(), Problem> {
    let (mut case, size) = (choice.case("times", layout), layout.job_size());
    let work = match work_ms {
        0 => Work::None,
        ms => Work::Sleep(Duration::from_millis(ms.into())),
    };
    let mut turns = Vec::new();
    if work != Work::None {
        case["work-ms"] = work_ms.into();
        let rounds = bench.rounds.unwrap_or_else(|| default_rounds(size));
        turns.push(Turn::new("work", &case, rounds, Step::work_alone(work, choice.lengths)));
    }
    turns.extend(choice.fitting(layout).map(|scheme| {
        // A step that takes seconds or contains work is measured without repetitions.
        let repeat = if scheme.is_long(size) || work != Work::None { 1 } else { repeat };
        let step = Step::exchange(scheme, choice.lengths).with_work(work).repeated(repeat);
        Turn::new(scheme.name, &case, scheme.rounds(size, bench.rounds), step)
    }));
    job::turns(bench, &Launch::new(bench, layout)?, &case, &turns);
    Ok(())
}
