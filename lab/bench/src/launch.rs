//! `wireup bench launch`, `start` and `jobs`: runs the cases with all launchers that were found and shows the results.
use std::fs;

use crate::cases::{Case, Work};
use crate::error::{BenchError, io};
use crate::hosts::{self, Remote};
use crate::launch_flags::Flags;
use crate::launcher::Launcher;
use crate::machine::Machine;
use crate::measure::{Measured, Series, measure};
use crate::metric::Metric;
use crate::sample::Stage;
use crate::setup::Setup;
use crate::summary::Summary;
use crate::verdict::{Verdict, judge};
use crate::{files, gather, initiation, launch_figures, published, sample, soak, table};

/// An MPI program that does init, barrier, finalize, built by the workspace's set-up.
const MPI_PROGRAM: &str = "target/programs/mpich5/initfin";

pub fn launch(flags: &Flags) -> Result<Summary, BenchError> {
    if flags.list {
        list(&flags.cases);
        return Ok(Summary::listed());
    }
    let Setup { scratch, interrupt } = Setup::prepare(&flags.hosts, flags.shared.as_deref())?;
    let machine = Machine::look();
    let wireup = gather::wireup(flags, &scratch, &interrupt).map_err(io("wireup"))?;
    let mpi_program =
        flags.mpi_program.clone().or_else(|| std::path::absolute(MPI_PROGRAM).ok().filter(|path| path.exists()));
    let stage = Stage {
        scratch: &scratch,
        interrupt: &interrupt,
        mpi_program: mpi_program.as_deref(),
        mpi_env: &flags.mpi_env,
        up_args: &flags.up_args,
    };
    if let Some(wanted) = flags.soak {
        return soak::run(flags, wanted, &stage, wireup, machine);
    }
    let (launchers, missing) = gather::launchers(flags, wireup, &scratch, &interrupt);
    gather::show(&machine, &launchers, &missing);
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
        let measured = measure(case, &launchers, &stage);
        print!("\n{}", table::table(&measured, &launchers));
        for warning in table::warnings(&measured, &launchers) {
            println!("  ! {warning}");
        }
        let up = measured
            .up
            .iter()
            .map(|(who, up_s)| format!("{}: up in {}", launchers[*who].name, Metric::Wall.unit().show(*up_s)));
        for line in published::beside(case).into_iter().chain(up) {
            println!("  = {line}");
        }
        all.push(measured);
    }
    if let Some(path) = &flags.json {
        let text = format!("{:#}\n", files::json(flags.benchmark.name(), &machine, &launchers, &missing, &all));
        fs::write(path, text).map_err(io(path.display().to_string()))?;
    }
    if let Some(path) = &flags.csv {
        fs::write(path, files::csv(&launchers, &all)).map_err(io(path.display().to_string()))?;
    }
    if let Some(folder) = &flags.svg {
        fs::create_dir_all(folder).map_err(io(folder.display().to_string()))?;
        let bars = launch_figures::all(&all, &launchers, machine.cores).into_iter();
        let chart = initiation::chart(&all, &launchers, machine.cores);
        let figures = bars.map(|(name, bars)| (name, bars.draw())).chain(chart.map(|chart| (chart.name, chart.draw())));
        for (name, text) in figures.filter_map(|(name, text)| Some((name, text?))) {
            let path = folder.join(format!("{name}.svg"));
            fs::write(&path, text).map_err(io(path.display().to_string()))?;
        }
    }
    let has_figures = |series: &Series| series.failures().count() < series.runs.len();
    let has_measured = all.iter().any(|measured| measured.series.iter().any(has_figures));
    let summary = Summary { missed: missed(&all, &launchers), has_measured, interrupted: interrupt.is_set() };
    if summary.missed > 0 {
        println!("\n{} of the targets were missed", summary.missed);
    }
    Ok(summary)
}

/// The reason why a case cannot be run here; `reached` caches the result for each set of hosts and shell.
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
    if remote.is_allocation() && std::env::var_os("SLURM_JOB_ID").is_none() {
        return Some("needs a Slurm allocation of these hosts: run it in salloc".into());
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
        for target in &case.target {
            println!("    {} {target}", target.metric);
        }
    }
}

fn missed(all: &[Measured], launchers: &[Launcher]) -> usize {
    let judged = |m: &Measured| m.series.iter().find(|s| launchers[s.launcher].is_judged(&m.case)).cloned();
    all.iter()
        .filter_map(|m| Some((m, judged(m)?)))
        .flat_map(|(m, series)| m.case.target.iter().map(move |target| judge(target, &series, m, launchers)))
        .filter(|verdict| matches!(verdict, Verdict::Missed(_)))
        .count()
}
