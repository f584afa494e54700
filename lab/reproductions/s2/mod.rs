//! `wireup bench steps`: S2's closing table, real jobs on virtual nodes.
//!
//! `column` lists the columns and phases. Each job's processes are `rank`s, which use the engine of libwireup and time
//! their own phases; `report` keeps and shows the figures. `docs/explanation/connection-benchmarks.md` explains how
//! each number is made.
mod column;
mod flags;
pub mod rank;
mod report;

use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use column::Column;
pub use flags::{COMMAND, Flags, read};
use report::{Outcome, Report};
use rustix::fs::{Advice, fadvise};
use wireup_capi::net::now_ns;

use crate::command::{Failure, Invocation};
use crate::error::{BenchError, io};
use crate::machine::Machine;
use crate::programs::Scratch;
use crate::setup::Setup;
use crate::summary::Summary;
use crate::turns::in_turns;

/// A folder in memory.
const MEMORY: &str = "/dev/shm";

pub fn run(flags: &Flags) -> Result<Summary, BenchError> {
    let cases = flags.cases();
    if flags.common_flags.dry_run {
        cases.iter().for_each(|(column, ranks)| println!("{} {ranks}", column.name()));
        return Ok(Summary::listed());
    }
    let setup = Setup::prepare(&[], None)?;
    let memory = Scratch::create_in(Path::new(MEMORY)).map_err(io(MEMORY))?;
    let program = setup.scratch.file("steps-rank");
    // A file of its own: the running program's pages would stay in memory.
    std::env::current_exe().and_then(|own| fs::copy(own, &program)).map_err(io("this program"))?;
    let staged = memory.file("steps-rank");
    fs::copy(&program, &staged).map_err(io(MEMORY))?;
    let wireup = flags.common_flags.program()?;
    let machine = Machine::look();
    println!("{}\nwireup: {}", machine.describe(), wireup.display());
    let mut report = Report::new(machine, flags.ppn);
    let bench = Bench { flags, setup: &setup, wireup, program, staged };
    let take = |case: &(Column, u32), outcome| match outcome {
        Ok(outcome) => report.add(*case, outcome),
        Err(failure) => report.fail(*case, Failure::to_string(&failure)),
    };
    in_turns(&setup, flags.rounds, &cases, |case| bench.once(*case), take);
    print!("{}", report.text());
    flags.common_flags.write(&report.json(), &report.csv(), || report.charts())?;
    Ok(Summary { missed: 0, has_measured: report.has_figures(), interrupted: setup.interrupt.is_set() })
}

struct Bench<'a> {
    flags: &'a Flags,
    setup: &'a Setup,
    wireup: PathBuf,
    program: PathBuf,
    /// Its copy in memory.
    staged: PathBuf,
}

impl Bench<'_> {
    fn once(&self, (column, ranks): (Column, u32)) -> Result<Outcome, Failure> {
        let wrong = |error: std::io::Error| Failure::Wrong(error.to_string());
        let program = if column == Column::Baseline { &self.program } else { &self.staged };
        if column == Column::Baseline {
            forget(program).map_err(wrong)?;
        }
        let begin = now_ns();
        let [stdout, stderr] = ["stdout", "stderr"].map(|name| self.setup.scratch.file(name));
        let (argv, limit) = (self.argv(program, column, ranks, begin), self.flags.common_flags.limit);
        let printed = stdout.clone();
        Invocation { argv, env: Vec::new(), stdout: Some(stdout), stderr, limit }.run(&self.setup.interrupt)?;
        let text = fs::read_to_string(printed).map_err(wrong)?;
        Outcome::read(&text, column, ranks, begin).map_err(Failure::Wrong)
    }

    fn argv(&self, program: &Path, column: Column, ranks: u32, begin: u64) -> Vec<OsString> {
        let nodes = ranks.div_ceil(self.flags.ppn);
        let mut words = vec!["run".to_owned(), "-n".into(), ranks.to_string(), "--pmi".into(), "simple".into()];
        if nodes > 1 {
            words.extend(["--virtual-nodes".into(), nodes.to_string()]);
        }
        words.extend(self.flags.common_flags.wireup_args.iter().cloned());
        let mut argv: Vec<OsString> = vec![self.wireup.clone().into()];
        argv.extend(words.into_iter().map(OsString::from));
        argv.push(program.into());
        argv.extend(
            [rank::WORD, column.name(), &begin.to_string(), &self.flags.partners.to_string()].map(OsString::from),
        );
        argv
    }
}

/// Makes the next reader of the file read it from the disk, if it is on one.
fn forget(program: &Path) -> std::io::Result<()> {
    let file = File::open(program)?;
    file.sync_all()?;
    Ok(fadvise(&file, 0, None, Advice::DontNeed)?)
}
