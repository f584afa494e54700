//! `wireup bench exchange`, `init` and `overlap`: startup exchanges with every scheme, in real processes.
//!
//! `scheme` lists what ranks can do; `job` runs ranks that wait at a gate (`board`) for one step after the other, and
//! `rounds` runs the schemes in turn; `times` and `agents` compute figures from what ranks and agents leave, `trace`
//! from what agents have counted. `groups` are the exchanges of ranks among themselves. `exchange`, `init` and
//! `overlap` are the benchmarks; `report` keeps the figures, `target` judges them, `table`, `files` and `figures`
//! (drawn by `chart`) show them, next to the results that the `source` has published.
//! `docs/explanation/startup-benchmarks.md` explains how each number is made.
mod agents;
mod board;
pub mod chart;
mod exchange;
mod figures;
mod files;
mod flags;
mod groups;
mod hydra;
mod init;
mod job;
mod mpi;
mod overlap;
mod report;
mod rounds;
mod scheme;
pub mod slow_shell;
mod source;
mod surroundings;
mod table;
mod target;
mod times;
mod trace;

pub use flags::{Benchmark, COMMAND, Flags, read};
use report::Report;
use surroundings::Surroundings;
pub use surroundings::library;

use crate::error::BenchError;
use crate::machine::Machine;
use crate::summary::Summary;

pub fn run(flags: &Flags) -> Result<Summary, BenchError> {
    let machine = Machine::look();
    if flags.common_flags.dry_run {
        print!("{}", describe(flags, &machine));
        return Ok(Summary::listed());
    }
    let surroundings = Surroundings::prepare(flags)?;
    println!("{}", machine.describe());
    println!("wireup: {}\nlibrary: {}", surroundings.wireup.display(), surroundings.library.display());
    let mut report = Report::new(flags.benchmark, machine);
    match flags.benchmark {
        Benchmark::Exchange => {
            exchange::run(flags, &surroundings, &mut report);
            groups::run(flags, &surroundings, &mut report);
        }
        Benchmark::Init => init::run(flags, &surroundings, &mut report),
        Benchmark::Overlap => overlap::run(flags, &surroundings, &mut report),
    }
    report.judged = target::judge(&report);
    print!("{}{}{}", table::tables(&report), groups::table::tables(&report), table::tail(&report));
    flags.common_flags.write(&files::json(&report), &files::csv(&report), || figures::charts(&report))?;
    // A case that has measured nothing leaves an empty cell.
    let has_measured = !report.cells.is_empty() && report.cells.iter().all(|cell| !cell.runs.is_empty());
    Ok(Summary { missed: report.missed(), has_measured, interrupted: surroundings.interrupt.is_set() })
}

fn describe(flags: &Flags, machine: &Machine) -> String {
    match flags.benchmark {
        Benchmark::Exchange => exchange::describe(flags) + &groups::describe(flags),
        Benchmark::Init => init::describe(flags),
        Benchmark::Overlap => overlap::describe(flags, machine.cores),
    }
}
