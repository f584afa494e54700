//! `wireup bench p2p` and `coll`: the performance of the links between agents (S3, backup slides 1 and 2).
//!
//! The agents of a real job measure among themselves before its ranks start. `contestant` lists the transports and schemes, and what they
//! are compared with: a bare C program over TCP, `ucx_perftest`, any other command. `measure` runs everything in interleaved rounds;
//! `report` keeps the figures, `asked` judges them, `table`, `files` and `figures` show them. `docs/explanation/link-benchmarks.md` explains how each
//! number is made.
mod asked;
mod contestant;
mod figures;
mod files;
mod flags;
mod measure;
mod report;
mod table;

pub use flags::{Benchmark, Flags, HELP, parse};
use report::Report;

use crate::error::BenchError;
use crate::ground::Ground;
use crate::machine::Machine;
use crate::summary::Summary;
use crate::turns::Place;

pub fn run(flags: &Flags) -> Result<Summary, BenchError> {
    let contestants = contestant::all(flags);
    if flags.usual.dry_run {
        for contestant in &contestants {
            println!("{}", contestant.name());
        }
        return Ok(Summary::listed());
    }
    let ground = Ground::prepare(&flags.across.hosts, flags.across.shared.as_deref())?;
    let wireup = flags.usual.program()?;
    let machine = Machine::look();
    println!("{}\nwireup: {}", machine.describe(), wireup.display());
    let mut report = Report::new(flags, machine);
    measure::rounds(&Place { flags, wireup: &wireup, ground: &ground }, &contestants, &mut report);
    report.judged = asked::judge(&report);
    print!("{}", table::text(&report));
    flags.usual.write(&files::json(&report), &files::csv(&report), || figures::charts(&report))?;
    let has_measured = report.series.iter().any(|series| !series.by_size.is_empty());
    Ok(Summary { missed: report.missed(), has_measured, interrupted: ground.interrupt.is_set() })
}
