//! `wireup bench p2p` and `coll`: the performance of the links between agents (S3, backup slides 1 and 2).
//!
//! `process` has the links of agents in processes of their own, between which messages are timed. Allgathers are those
//! of the ranks of a job, one on each node. `subject` lists the transports and schemes, and what they are compared
//! with: a bare C program over TCP, `ucx_perftest`, any other command. `measure` runs everything in interleaved rounds;
//! `report` keeps the figures, `target` judges them, `table`, `files` and `figures` show them.
//! `docs/explanation/link-benchmarks.md` explains how each number is made.
mod figures;
mod files;
mod flags;
mod measure;
pub mod process;
mod report;
mod subject;
mod table;
mod target;

pub use flags::{Benchmark, COMMAND, Flags, read};
use report::Report;

use crate::error::BenchError;
use crate::machine::Machine;
use crate::setup::Setup;
use crate::summary::Summary;
use crate::turns::Place;

pub fn run(flags: &Flags) -> Result<Summary, BenchError> {
    let subjects = subject::all(flags);
    if flags.common_flags.dry_run {
        for subject in &subjects {
            println!("{}", subject.name());
        }
        return Ok(Summary::listed());
    }
    let setup = Setup::prepare(&flags.across.hosts, flags.across.shared.as_deref())?;
    let wireup = flags.common_flags.program()?;
    let programs = subject::Programs::copy(flags, &wireup, &setup.scratch)?;
    let machine = Machine::look();
    println!("{}\nwireup: {}", machine.describe(), wireup.display());
    let mut report = Report::new(flags, machine);
    measure::rounds(&Place { flags, wireup: &wireup, setup: &setup }, &programs, &subjects, &mut report);
    report.judged = target::judge(&report);
    print!("{}", table::text(&report));
    flags.common_flags.write(&files::json(&report), &files::csv(&report), || figures::charts(&report))?;
    let has_measured = report.series.iter().any(|series| !series.by_size.is_empty());
    Ok(Summary { missed: report.missed(), has_measured, interrupted: setup.interrupt.is_set() })
}
