//! `wireup bench p2p` and `coll`: what agents' links carry (S3, backup slides 1 and 2).
//!
//! The agents of a real job measure among themselves before its ranks start; `contestant` says in which ways, and beside whom: a bare C
//! program over TCP, `ucx_perftest`, any other command. `measure` runs all in interleaved rounds; `report` keeps the figures, `asked`
//! judges them, `table`, `files` and `figures` show them. How each number is made is told in `docs/link-benchmarks.md`.
mod asked;
mod contestant;
mod figures;
mod files;
mod flags;
mod measure;
mod report;
mod table;

use std::fs;
use std::io;
use std::path::Path;

pub use flags::{Benchmark, Flags, HELP, parse};
use report::Report;

use crate::interrupt::Interrupt;
use crate::machine::Machine;
use crate::orphans;
use crate::programs::Scratch;
use crate::summary::Summary;

#[derive(Debug, thiserror::Error)]
pub enum LinksError {
    #[error("{what}: {source}")]
    Io { what: String, source: io::Error },
}

pub fn run(flags: &Flags) -> Result<Summary, LinksError> {
    let io = |what: &str| {
        let what = what.to_owned();
        move |source: io::Error| LinksError::Io { what, source }
    };
    let contestants = contestant::all(flags);
    if flags.dry_run {
        for contestant in &contestants {
            println!("{}", contestant.name());
        }
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
    let wireup = flags.wireup.clone().unwrap_or(here);
    let machine = Machine::look();
    println!("{}\nwireup: {}", machine.describe(), wireup.display());
    let mut report = Report::new(flags, machine);
    let place = measure::Place { flags, wireup: &wireup, scratch: &scratch, interrupt: &interrupt };
    measure::rounds(&place, &contestants, &mut report);
    report.judged = asked::judge(&report);
    print!("{}", table::text(&report));
    for (path, text) in [(&flags.json, format!("{:#}\n", files::json(&report))), (&flags.csv, files::csv(&report))] {
        if let Some(path) = path {
            fs::write(path, text).map_err(io(&path.display().to_string()))?;
        }
    }
    if let Some(folder) = &flags.svg {
        fs::create_dir_all(folder).map_err(io(&folder.display().to_string()))?;
        for chart in figures::charts(&report) {
            let Some(text) = chart.draw() else { continue };
            let path = folder.join(format!("{}.svg", chart.name));
            fs::write(&path, text).map_err(io(&path.display().to_string()))?;
        }
    }
    Ok(Summary { missed: report.missed(), interrupted: interrupt.is_set() })
}
