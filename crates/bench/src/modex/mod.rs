//! `wireup bench modex`: what ranks of PMIx wait for at their start (S3).
//!
//! Four experiments (`plan`): the collecting fence after two without data, against the number of nodes, with links made early or not; the
//! first get by direct modex, with the ranks at rest and with all cores busy; what joining by PMIx and opening UCX cost by themselves;
//! `shmem_init` against the ranks of a node. `run` starts a job for each and round, in turns; `report` keeps and shows the figures. How
//! each number is made is told in `docs/explanation/pmix-benchmarks.md`.
mod flags;
mod plan;
mod report;
mod run;

pub use flags::{Flags, HELP, parse};
use report::Report;

use crate::error::BenchError;
use crate::ground::Ground;
use crate::machine::Machine;
use crate::summary::Summary;
use crate::turns::Place;

pub fn run(flags: &Flags) -> Result<Summary, BenchError> {
    let plan = plan::all(flags);
    if flags.usual.dry_run {
        plan.iter().for_each(|task| println!("{}", task.name()));
        return Ok(Summary { missed: 0, interrupted: false });
    }
    let ground = Ground::prepare(&flags.across.hosts, flags.across.shared.as_deref())?;
    let wireup = flags.usual.program()?;
    let machine = Machine::look();
    println!("{}", machine.describe());
    let mut report = Report::new(machine);
    run::rounds(&Place { flags, wireup: &wireup, ground: &ground }, &plan, &mut report);
    print!("{}", report.table());
    flags.usual.write(&report.json(), &report.csv(), || report.charts())?;
    Ok(Summary { missed: 0, interrupted: ground.interrupt.is_set() })
}
