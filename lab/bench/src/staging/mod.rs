//! `wireup bench stage`: copies of files to the nodes of a session, in turns with bare relays of the same bytes.
//!
//! A `case` is a `tree` and a contestant. On each host stands a process of the benchmark (`host`; `hosts` are all of
//! them), which starts relays and reads the memory of agents; `session` has the contestants that are wireup, `relays`
//! the others. `report` keeps and judges the figures. `docs/explanation/staging-benchmarks.md` explains how each number
//! is made.
mod case;
mod flags;
pub mod host;
mod hosts;
mod relays;
mod report;
mod session;
mod tree;

use case::{Case, Contestant};
pub use flags::{COMMAND, Flags, read};
use hosts::Hosts;
use report::{Outcome, Report};
use session::Session;
use tree::Tree;

use crate::command::Failure;
use crate::error::{BenchError, io};
use crate::leftovers;
use crate::machine::{Machine, available_bytes};
use crate::setup::Setup;
use crate::summary::Summary;
use crate::turns::turn;

/// What a tree and its manifest need on a host beyond the files' bytes (chosen): the last page of each file, the
/// manifest twice.
const OVERHEAD: f64 = 1.25;

pub fn run(flags: &Flags) -> Result<Summary, BenchError> {
    let cases = flags.cases();
    if flags.common_flags.dry_run {
        let all = cases.iter().chain(&flags.memory_cases()).copied().collect::<Vec<Case>>();
        all.iter().for_each(|(kind, contestant)| println!("{} {}", contestant.name(), kind.name()));
        return Ok(Summary::listed());
    }
    let setup = Setup::prepare(&flags.across.hosts, flags.across.shared.as_deref())?;
    let program = std::env::current_exe().and_then(|own| setup.scratch.copy_of(&own)).map_err(io("this program"))?;
    let wireup = flags.common_flags.program()?;
    let machine = Machine::look();
    println!("{}\n{} hosts by {}", machine.describe(), flags.across.hosts.len(), flags.across.remote_shell);
    println!("wireup: {}", wireup.display());
    let errors = setup.scratch.file("hosts-stderr");
    let measured = Hosts::start(&flags.across, &program, &errors, &setup.interrupt).and_then(|mut hosts| {
        is_room(flags, &hosts)?;
        let mut trees = Vec::new();
        for kind in flags.kinds() {
            let tree = Tree::make(kind, flags, &setup.scratch.file(""), &setup.interrupt);
            trees.push(tree.map_err(|error| hosts::wrong(format!("tree {}: {error}", kind.name())))?);
        }
        let mut report = Report::new(machine, hosts.count(), &flags.across.remote_shell, trees.clone());
        let mut bench = Bench { flags, setup: &setup, trees: &trees, hosts: &mut hosts, sessions: Vec::new() };
        for contestant in Contestant::SESSIONS {
            let session = Session::begin(contestant, &wireup, flags, &setup, bench.hosts)?;
            bench.sessions.push((contestant, session));
        }
        bench.turns(&mut report);
        Ok(report)
    });
    leftovers::settle(&[]);
    let report = match measured {
        Ok(report) => report,
        Err(Failure::Interrupted) => return Ok(Summary { missed: 0, has_measured: false, interrupted: true }),
        Err(_) if setup.interrupt.is_set() => return Ok(Summary { missed: 0, has_measured: false, interrupted: true }),
        Err(failure) => return Err(BenchError::Unmeasured(failure.to_string())),
    };
    print!("{}", report.text());
    flags.common_flags.write(&report.json(), &report.csv(), Vec::new)?;
    let interrupted = setup.interrupt.is_set();
    let has_measured = report.has_all(&[cases, flags.memory_cases()].concat());
    Ok(Summary { missed: report.missed(), has_measured, interrupted })
}

struct Bench<'a> {
    flags: &'a Flags,
    setup: &'a Setup,
    trees: &'a [Tree],
    // Dropped before the hosts' folders are removed.
    sessions: Vec<(Contestant, Session<'a>)>,
    hosts: &'a mut Hosts,
}

impl Bench<'_> {
    fn turns(&mut self, report: &mut Report) {
        let cases = self.flags.cases();
        for round in 0..=self.flags.rounds {
            for at in turn(round, cases.len()) {
                self.take(cases[at], round == 0, report);
            }
        }
        for case in self.flags.memory_cases() {
            self.take(case, false, report);
        }
    }

    fn take(&mut self, case: Case, warms_up: bool, report: &mut Report) {
        if self.setup.interrupt.is_set() {
            return;
        }
        match self.once(case) {
            Ok(outcome) => report.add(case, outcome, warms_up),
            Err(Failure::Interrupted) => {}
            Err(failure) => report.fail(case, failure.to_string(), warms_up),
        }
    }

    fn once(&mut self, (kind, contestant): Case) -> Result<Outcome, Failure> {
        let tree = self.trees.iter().find(|tree| tree.kind == kind).ok_or_else(|| hosts::wrong("no such tree"))?;
        let session = self.sessions.iter().find(|(other, _)| *other == contestant);
        match (contestant, session) {
            (Contestant::Relays(shape), _) => {
                let relayed = relays::once(shape, tree, self.flags, self.setup, self.hosts);
                let ended = self.hosts.end_relays();
                let outcome = relayed?;
                ended.map(|()| outcome)
            }
            (_, Some((_, session))) => session.stage(tree, self.hosts),
            (_, None) => Err(hosts::wrong("no session")),
        }
    }
}

/// Whether the hosts that are this machine have the memory.
fn is_room(flags: &Flags, hosts: &Hosts) -> Result<(), Failure> {
    let largest = flags.kinds().into_iter().map(|kind| flags.bytes_of(kind)).max().unwrap_or(0);
    let needed = (largest as f64 * hosts.here() as f64 * OVERHEAD) as u64;
    match available_bytes() {
        Some(there) if there < needed => Err(hosts::wrong(format!(
            "{} hosts are this machine and need {} MiB in its memory, of which {} are available; choose fewer MiB",
            hosts.here(),
            needed >> 20,
            there >> 20
        ))),
        _ => Ok(()),
    }
}
