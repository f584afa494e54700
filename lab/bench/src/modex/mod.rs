//! `wireup bench modex`: what PMIx ranks wait for when they start (S3).
//!
//! There are four experiments (`plan`): the collecting fence after two fences without data, against the number of
//! nodes, with early and late links; the first get by direct modex, with idle ranks and with all cores busy; the cost
//! of joining by PMIx and of opening UCX on their own; `shmem_init` against the ranks per node. `run` starts one job
//! for each of them in every round, in turn; `report` keeps and shows the figures.
//! `docs/explanation/pmix-benchmarks.md` explains how each number is made.
mod flags;
mod plan;
mod report;
mod run;

pub use flags::{COMMAND, Flags, read};
use report::Report;

use crate::error::BenchError;
use crate::machine::Machine;
use crate::setup::Setup;
use crate::summary::Summary;
use crate::turns::Place;

pub fn run(flags: &Flags) -> Result<Summary, BenchError> {
    let plan = plan::all(flags);
    if flags.common_flags.dry_run {
        plan.iter().for_each(|task| println!("{}", task.name()));
        return Ok(Summary::listed());
    }
    let setup = Setup::prepare(&flags.across.hosts, flags.across.shared.as_deref())?;
    let wireup = flags.common_flags.program()?;
    let machine = Machine::look();
    println!("{}", machine.describe());
    let mut report = Report::new(machine);
    run::rounds(&Place { flags, wireup: &wireup, setup: &setup }, &plan, &mut report);
    print!("{}", report.table());
    flags.common_flags.write(&report.json(), &report.csv(), || report.charts())?;
    Ok(Summary { missed: 0, has_measured: report.has_figures(), interrupted: setup.interrupt.is_set() })
}
