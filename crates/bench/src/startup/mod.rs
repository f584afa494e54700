//! `wireup bench exchange`, `init` and `overlap`: startup exchanges by every scheme, on real processes.
//!
//! `scheme` says what ranks can be told to do; `job` runs ranks that wait at a gate (`board`) for one step after the other, and `rounds` tells
//! schemes in turns to do theirs; `times` and `agents` make figures of what ranks and agents have left, `trace` of what agents have counted.
//! `exchange`, `init` and `overlap` are the benchmarks; `report` keeps the figures, `asked` judges them, `table`, `files` and `figure`
//! show them, beside what the `source` has published. How each number is made is told in `docs/startup-benchmarks.md`.
mod agents;
mod asked;
mod board;
mod exchange;
mod files;
mod flags;
mod hydra;
mod job;
mod report;
mod rounds;
mod scheme;
mod source;
mod surroundings;
mod table;
mod times;
mod trace;

use std::fs;

pub use flags::{Benchmark, Flags, HELP, parse};
use report::Report;
pub use surroundings::StartupError;
use surroundings::Surroundings;

use crate::machine::Machine;
use crate::metric::Metric;
use crate::summary::Summary;

pub fn run(flags: &Flags) -> Result<Summary, StartupError> {
    if flags.dry_run {
        print!("{}", exchange::describe(flags));
        return Ok(Summary { missed: 0, interrupted: false });
    }
    let surroundings = Surroundings::prepare(flags)?;
    let machine = Machine::look();
    println!("{}", machine.describe());
    println!("wireup: {}\nlibrary: {}", surroundings.wireup.display(), surroundings.library.display());
    let mut report = Report::new(flags.benchmark.name(), machine);
    exchange::run(flags, &surroundings, &mut report);
    report.judged = asked::exchange(&report);
    let metrics = [
        Metric::Time,
        Metric::Whole,
        Metric::StartCpu,
        Metric::StartCpuMax,
        Metric::AgentCpu,
        Metric::UpPerValue,
        Metric::DownPerValue,
    ];
    print!("{}{}", table::tables(&report, "text-fence", &metrics), table::tail(&report));
    for (path, text) in [(&flags.json, format!("{:#}\n", files::json(&report))), (&flags.csv, files::csv(&report))] {
        if let Some(path) = path {
            fs::write(path, text).map_err(|source| StartupError::Io { what: path.display().to_string(), source })?;
        }
    }
    Ok(Summary { missed: report.missed(), interrupted: surroundings.interrupt.is_set() })
}
