//! `wireup bench launch`: gathers the contestants, runs the cases, shows the results.
use std::fs;
use std::io;
use std::path::Path;

use crate::cases::{Case, Work};
use crate::contestant::{Contestant, Kind};
use crate::error::{BenchError, io};
use crate::flags::Flags;
use crate::ground::Ground;
use crate::hosts::{self, Remote};
use crate::interrupt::Interrupt;
use crate::machine::Machine;
use crate::measure::{Measured, measure};
use crate::peers::{self, PeerKind};
use crate::programs::Scratch;
use crate::sample::Stage;
use crate::summary::Summary;
use crate::verdict::{Verdict, judge};
use crate::{files, sample, table};

/// Where the workspace's set-up leaves an MPI program that does init, barrier, finalize.
const MPI_PROGRAM: &str = "target/programs/mpich5/initfin";

pub fn launch(flags: &Flags) -> Result<Summary, BenchError> {
    if flags.list {
        list(&flags.cases);
        return Ok(Summary { missed: 0, interrupted: false });
    }
    let Ground { scratch, interrupt } = Ground::prepare(&flags.hosts, flags.shared.as_deref())?;
    let machine = Machine::look();

    let (contestants, missing) = gather(flags, &scratch, &interrupt).map_err(io("wireup"))?;
    show_start(&machine, &contestants, &missing);
    let mpi_program =
        flags.mpi_program.clone().or_else(|| std::path::absolute(MPI_PROGRAM).ok().filter(|path| path.exists()));
    let stage = Stage {
        scratch: &scratch,
        interrupt: &interrupt,
        mpi_program: mpi_program.as_deref(),
        mpi_env: &flags.mpi_env,
    };
    let (mut all, mut reached) = (Vec::new(), Vec::new());
    for case in &flags.cases {
        if interrupt.is_set() {
            break;
        }
        if let Some(why) = obstacle(case, &stage, &mut reached) {
            println!("\n{}: not run: {why}", case.name());
            continue;
        }
        eprintln!("wireup bench: {}: {}", case.name(), case.describe());
        let measured = measure(case, &contestants, &stage);
        print!("\n{}", table::table(&measured, &contestants));
        for warning in table::warnings(&measured, &contestants) {
            println!("  ! {warning}");
        }
        if let Some(line) = hosts::published(case) {
            println!("  = {line}");
        }
        all.push(measured);
    }
    if let Some(path) = &flags.json {
        let text = format!("{:#}\n", files::json(&machine, &contestants, &missing, &all));
        fs::write(path, text).map_err(io(path.display().to_string()))?;
    }
    if let Some(path) = &flags.csv {
        fs::write(path, files::csv(&contestants, &all)).map_err(io(path.display().to_string()))?;
    }
    let summary = Summary { missed: missed(&all, &contestants), interrupted: interrupt.is_set() };
    if summary.missed > 0 {
        println!("\n{} of the figures asked for were missed", summary.missed);
    }
    Ok(summary)
}

/// Why a case cannot be run here; `reached` remembers what was found of hosts and shells.
fn obstacle(case: &Case, stage: &Stage, reached: &mut Vec<(Remote, Option<String>)>) -> Option<String> {
    if case.work == Work::MpiInit && stage.mpi_program.is_none() {
        return Some("needs --mpi-program".into());
    }
    if let Work::OpenMpi(version) = case.work
        && !sample::open_mpi_program(version).exists()
    {
        return Some(format!("no {} here; cargo xtask setup makes it", sample::open_mpi_program(version).display()));
    }
    let remote = case.remote.as_ref()?;
    if remote.hosts.len() < case.place.node_count as usize {
        return Some(format!("needs {} hosts", case.place.node_count));
    }
    if let Some((_, failure)) = reached.iter().find(|(known, _)| known == remote) {
        return failure.clone();
    }
    let failure =
        hosts::reach(remote, stage.scratch, stage.interrupt).err().map(|e| format!("hosts: {e}; see --shared"));
    reached.push((remote.clone(), failure.clone()));
    failure
}

fn list(cases: &[Case]) {
    for case in cases {
        println!("{}: {}", case.name(), case.describe());
        for asked in &case.asked {
            println!("    {} {asked}", asked.metric);
        }
    }
}

/// Everyone who is timed, the floors first, and what is missing.
fn gather(flags: &Flags, scratch: &Scratch, interrupt: &Interrupt) -> io::Result<(Vec<Contestant>, Vec<String>)> {
    let path = flags.wireup.clone().map_or_else(std::env::current_exe, Ok)?;
    let wireup = Contestant {
        name: "wireup".into(),
        kind: Kind::Wireup,
        version: wireup_version(&path, scratch, interrupt),
        path,
        extra: flags.wireup_args.clone(),
    };
    let serial = Contestant { name: "serial".into(), kind: Kind::Serial, ..wireup.clone() };
    let found = peers::find(&flags.peers, scratch, interrupt);
    let mut missing = found.refused;
    for kind in PeerKind::ALL {
        if !found.peers.iter().any(|p| p.kind == Kind::Peer(kind)) {
            missing.push(format!("{}: not installed", kind.name()));
        }
    }
    let mut contestants =
        vec![Contestant::floor(1), Contestant::floor(2), Contestant::echo(), Contestant::bare(), serial, wireup];
    contestants.extend(found.peers);
    contestants.retain(|c| !flags.without.contains(&c.name));
    Ok((contestants, missing))
}

/// The first line of `wireup --version`, empty if it does not say.
fn wireup_version(path: &Path, scratch: &Scratch, interrupt: &Interrupt) -> String {
    let answer = peers::ask_version(path, scratch, interrupt).unwrap_or_default();
    answer.lines().next().and_then(|line| line.split_whitespace().nth(1)).unwrap_or_default().to_owned()
}

fn show_start(machine: &Machine, contestants: &[Contestant], missing: &[String]) {
    println!("{}", machine.describe());
    for contestant in contestants.iter().filter(|c| !c.path.as_os_str().is_empty()) {
        println!("{}: {} {}", contestant.name, contestant.path.display(), contestant.version);
    }
    for what in missing {
        println!("missing: {what}");
    }
}

fn missed(all: &[Measured], contestants: &[Contestant]) -> usize {
    let wireup = |m: &Measured| m.series.iter().find(|s| contestants[s.contestant].kind == Kind::Wireup).cloned();
    all.iter()
        .filter_map(|m| Some((m, wireup(m)?)))
        .flat_map(|(m, series)| m.case.asked.iter().map(move |asked| judge(asked, &series, m, contestants)))
        .filter(|verdict| matches!(verdict, Verdict::Missed(_)))
        .count()
}
