//! The initialisation of a real MPI, split into its communication with the PMI server and the rest (S1 figure 1).
//!
//! `programs/mpi_shim.c` is loaded into the MPI program and measures both times on every rank.
use std::fs;
use std::path::PathBuf;

use super::flags::{AUTO, Flags, MPI_PPN};
use super::report::{Cell, Key, Report};
use super::surroundings::Surroundings;
use crate::cases::Place;
use crate::command::{Failure, Invocation};
use crate::metric::{Metric, Sample};
use crate::programs::Program;
use crate::stats;

/// The name of its figures.
pub const MPI: &str = "mpi";
/// An MPI program that does init, barrier, finalize, built by the workspace's set-up.
const MPI_PROGRAM: &str = "target/programs/mpich5/initfin";
/// Starting an MPI rank costs some 10 ms of CPU time.
const ROUNDS: u32 = 3;

pub fn describe(flags: &Flags) -> String {
    let rounds = flags.rounds.unwrap_or(ROUNDS);
    flags.mpi_ranks.iter().map(|ranks| format!("mpi, {}: {rounds} rounds\n", place(*ranks))).collect()
}

pub fn run(flags: &Flags, surroundings: &Surroundings, report: &mut Report) {
    let Some(program) = program(flags) else {
        report.warnings.push(format!("mpi: no {MPI_PROGRAM} here: see --mpi-program"));
        return;
    };
    for ranks in &flags.mpi_ranks {
        if surroundings.interrupt.is_set() {
            return;
        }
        let place = place(*ranks);
        eprintln!("wireup bench init: mpi, {place}");
        let key = Key { place, exchange: MPI.into(), scheme: MPI.into(), lengths: flags.lengths };
        let runs = (0..=flags.rounds.unwrap_or(ROUNDS)).map(|_| once(flags, surroundings, place, &program));
        let cell = runs.collect::<Result<Vec<_>, _>>().map(|runs| vec![Cell { key, runs }]);
        report.add(&format!("mpi, {place}"), cell);
    }
}

fn place(ranks: u32) -> Place {
    Place { node_count: ranks / MPI_PPN, ppn: MPI_PPN }
}

fn program(flags: &Flags) -> Option<PathBuf> {
    let default = || std::path::absolute(MPI_PROGRAM).ok().filter(|path| path.exists());
    flags.mpi_program.clone().or_else(default)
}

fn once(
    flags: &Flags,
    surroundings: &Surroundings,
    place: Place,
    program: &std::path::Path,
) -> Result<Sample, Failure> {
    let scratch = &surroundings.scratch;
    let stamps = scratch.empty_file("mpi-stamps").map_err(wrong)?;
    let mut launch = surroundings.launch(flags, place, AUTO);
    launch.extra.extend([
        format!("--env=LD_PRELOAD={}", scratch.program(Program::MpiShim).display()),
        format!("--env=WIREUP_BENCH_STAMPS={}", stamps.display()),
    ]);
    let mut argv = vec![launch.wireup.clone().into_os_string()];
    argv.extend(launch.words().into_iter().map(Into::into));
    argv.push(program.into());
    let stderr = scratch.file("stderr-mpi");
    let mut sample =
        Invocation { argv, env: Vec::new(), stdout: None, stderr, limit: launch.limit }.run(&surroundings.interrupt)?;
    let text = fs::read_to_string(stamps).map_err(wrong)?;
    sample.0.extend(evaluate(&text, place.job_size()).map_err(wrong)?.0);
    Ok(sample)
}

/// Medians over the ranks' lines.
fn evaluate(text: &str, job_size: u32) -> Result<Sample, String> {
    let read = |line: &str| -> Option<(f64, f64)> {
        let numbers: Vec<u64> = line.split(' ').map(|word| word.parse().ok()).collect::<Option<_>>()?;
        let [_, init_ns, pmi_ns] = numbers[..] else { return None };
        (pmi_ns <= init_ns).then_some((init_ns as f64 / 1e9, pmi_ns as f64 / 1e9))
    };
    let lines: Vec<(f64, f64)> =
        text.lines().map(read).collect::<Option<_>>().ok_or("a rank's times cannot be read")?;
    if lines.len() != job_size as usize {
        return Err(format!("only {} of {job_size} ranks reported their times", lines.len()));
    }
    let median = |of: fn(&(f64, f64)) -> f64| stats::median(&lines.iter().map(of).collect::<Vec<_>>()).unwrap_or(0.0);
    Ok(Sample(vec![(Metric::MpiInit, median(|line| line.0)), (Metric::MpiExchange, median(|line| line.1))]))
}

fn wrong(what: impl ToString) -> Failure {
    Failure::Wrong(what.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_rank_counts_and_every_rank_must_report() {
        let text = "0 3000000 1000000\n2 9000000 2000000\n1 4000000 500000\n";
        let sample = evaluate(text, 3).unwrap();
        assert_eq!((sample.get(Metric::MpiInit), sample.get(Metric::MpiExchange)), (Some(0.004), Some(0.001)));
        assert!(evaluate(text, 4).is_err());
        assert!(evaluate("0 1 2\n", 1).is_err(), "more exchange than init");
        assert!(evaluate("0 1\n", 1).is_err());
    }
}
