//! `wireup bench modex`: what ranks of PMIx wait for at their start (S3).
//!
//! Four experiments (`plan`): the collecting fence after two without data, against the number of nodes, with links made early or not; the
//! first get by direct modex, with the ranks at rest and with all cores busy; what joining by PMIx and opening UCX cost by themselves;
//! `shmem_init` against the ranks of a node. `run` starts a job for each and round, in turns; `report` keeps and shows the figures. How
//! each number is made is told in `docs/pmix.md`.
mod flags;
mod plan;
mod report;
mod run;

use std::fs;
use std::io;
use std::path::Path;

pub use flags::{Flags, HELP, parse};
use report::Report;

use crate::interrupt::Interrupt;
use crate::machine::Machine;
use crate::orphans;
use crate::programs::Scratch;
use crate::summary::Summary;

#[derive(Debug, thiserror::Error)]
pub enum ModexError {
    #[error("{what}: {source}")]
    Io { what: String, source: io::Error },
}

pub fn run(flags: &Flags) -> Result<Summary, ModexError> {
    let io = |what: &str| {
        let what = what.to_owned();
        move |source: io::Error| ModexError::Io { what, source }
    };
    let plan = plan::all(flags);
    if flags.dry_run {
        plan.iter().for_each(|task| println!("{}", task.name()));
        return Ok(Summary { missed: 0, interrupted: false });
    }
    let interrupt = Interrupt::install().map_err(io("signal handlers"))?;
    orphans::adopt().map_err(|e| io("child subreaper")(e.into()))?;
    let scratch = match flags.hosts.is_empty() {
        true => Scratch::create(),
        false => std::path::absolute(flags.shared.as_deref().unwrap_or(Path::new(".")))
            .and_then(|dir| Scratch::create_in(&dir)),
    };
    let scratch = scratch.map_err(io("test programs"))?;
    let here = std::env::current_exe().map_err(io("this program"))?;
    let machine = Machine::look();
    println!("{}", machine.describe());
    let mut report = Report::new(machine);
    let place = run::Place {
        flags,
        wireup: flags.wireup.as_deref().unwrap_or(&here),
        scratch: &scratch,
        interrupt: &interrupt,
    };
    run::rounds(&place, &plan, &mut report);
    print!("{}", report.table());
    for (path, text) in [(&flags.json, format!("{:#}\n", report.json())), (&flags.csv, report.csv())] {
        if let Some(path) = path {
            fs::write(path, text).map_err(io(&path.display().to_string()))?;
        }
    }
    if let Some(folder) = &flags.svg {
        fs::create_dir_all(folder).map_err(io(&folder.display().to_string()))?;
        for chart in report.charts() {
            let Some(text) = chart.draw() else { continue };
            let path = folder.join(format!("{}.svg", chart.name));
            fs::write(&path, text).map_err(io(&path.display().to_string()))?;
        }
    }
    Ok(Summary { missed: 0, interrupted: interrupt.is_set() })
}
