//! `wireup bench s4`: table 1 of S4, the whole start of a job until every process is connected to every other.
//!
//! `scheme` lists the schemes and `traffic` their formulas. A job is real processes: a `launcher` (its clock is the
//! measurement), the `process`es, and for two of the schemes `standing` agents (`daemon`; `agent` is their machine
//! without I/O). They exchange `values` in `message`s, across the hypercube by `cube`, and connect the `sockets` that
//! the values name. `report` keeps the figures. Nothing here is code of wireup's own agents.
//! `docs/explanation/connection-benchmarks.md` explains how each number is made.
mod agent;
mod cube;
pub mod daemon;
mod flags;
pub mod launcher;
mod message;
pub mod process;
mod report;
mod scheme;
pub mod secret;
pub mod sockets;
mod standing;
mod traffic;
pub mod values;

use std::ffi::OsString;
use std::fs;

pub use flags::{COMMAND, Flags, read};
use launcher::{Outcome, Task};
use report::Report;
use scheme::{Scheme, Starter};
use standing::Standing;

use crate::command::{Failure, Invocation};
use crate::error::{BenchError, io};
use crate::machine::Machine;
use crate::setup::Setup;
use crate::summary::Summary;
use crate::turns::in_turns;

/// A scheme with a number of processes.
type Case = (Scheme, u16);

pub fn run(flags: &Flags) -> Result<Summary, BenchError> {
    let cases = flags.cases();
    if flags.common_flags.dry_run {
        cases.iter().for_each(|(scheme, size)| println!("{} {size}", scheme.name()));
        return Ok(Summary::listed());
    }
    let setup = Setup::prepare(&flags.across.hosts, flags.across.shared.as_deref())?;
    let program = std::env::current_exe().and_then(|own| setup.scratch.copy_of(&own)).map_err(io("this program"))?;
    let machine = Machine::look();
    println!("{}\n{} hosts by {}", machine.describe(), flags.across.hosts.len(), flags.across.remote_shell);
    let mut report = Report::new(machine, flags.across.hosts.len(), &flags.across.remote_shell);
    let file = setup.scratch.file("s4-agents");
    let standing = match cases.iter().any(|(scheme, _)| scheme.starter() != Starter::Star) {
        true => {
            let errors = setup.scratch.file("s4-agents-errors");
            let across = &flags.across;
            let started = Standing::start(&across.remote_shell, &across.hosts, &program, file.clone(), &errors);
            Some(started.map_err(|error| {
                let said = fs::read_to_string(&errors).unwrap_or_default();
                io(format!("standing agents: {}", said.trim()))(error)
            })?)
        }
        false => None,
    };
    let bench =
        Bench { flags, setup: &setup, program: program.display().to_string(), agents: file.display().to_string() };
    let take = |case: &Case, outcome| match outcome {
        Ok(outcome) => report.add(*case, outcome),
        Err(failure) => report.fail(*case, Failure::to_string(&failure)),
    };
    in_turns(&setup, flags.rounds, &cases, |case| bench.once(*case), take);
    drop(standing);
    print!("{}", report.text());
    flags.common_flags.write(&report.json(), &report.csv(), || report.charts())?;
    if let Some(mismatch) = report.mismatch() {
        return Err(BenchError::Formula(mismatch));
    }
    Ok(Summary { missed: report.missed(), has_measured: report.has_figures(), interrupted: setup.interrupt.is_set() })
}

struct Bench<'a> {
    flags: &'a Flags,
    setup: &'a Setup,
    program: String,
    agents: String,
}

impl Bench<'_> {
    fn once(&self, (scheme, size): Case) -> Result<Outcome, Failure> {
        let wrong = |what: String| Failure::Wrong(what);
        let task = Task {
            scheme,
            size,
            hosts: self.flags.across.hosts.clone(),
            remote_shell: self.flags.across.remote_shell.clone(),
            program: self.program.clone(),
            agents: self.agents.clone(),
        };
        let task = serde_json::to_string(&task).map_err(|error| wrong(error.to_string()))?;
        let argv = [self.program.as_str(), launcher::WORD, &task].map(OsString::from).to_vec();
        let [stdout, stderr] = ["stdout", "stderr"].map(|name| self.setup.scratch.file(name));
        let limit = self.flags.common_flags.limit;
        let printed = stdout.clone();
        Invocation { argv, env: Vec::new(), stdout: Some(stdout), stderr, limit }.run(&self.setup.interrupt)?;
        let text = fs::read_to_string(printed).map_err(|error| wrong(error.to_string()))?;
        serde_json::from_str(&text).map_err(|error| wrong(format!("{text}: {error}")))
    }
}
