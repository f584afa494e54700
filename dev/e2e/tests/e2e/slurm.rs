//! Under a real Slurm: what wireup's libraries answer with `srun --mpi=pmi2`, and that its jobs leave nothing behind.

use crate::libpmi::expect_same;
use wireup_e2e::Run;
use wireup_e2e::libraries::{library_path, own};
use wireup_e2e::machines::{self, Machines};
use wireup_e2e::peers::program;
use xtask::programs::Flavour;

/// Flags of `srun`: four ranks on each of four nodes; the first rank that fails ends the step.
const STEP: &str = "--mpi=pmi2 --kill-on-bad-exit -N 4 -n 16";
const JOB: &str = "--hosts n[0-3] -n 16 --ppn 4";

/// Lines of `same` that depend on the server rather than the library: Slurm's server gives no application number, knows
/// every job attribute, and supports names; ranks under wireup's server know which rank of a node puts its attribute.
const OF_THE_SERVER: [&str; 6] = [" appnum ", " no job attr ", " publish ", " lookup ", " unpublish ", " put attr "];

#[test]
fn our_library_gives_the_same_answers_as_slurms() {
    let Some(machines) = machines::with_slurm() else { return };
    let Some(slurms) = program(Flavour::LibpmiSlurm, "same") else { return };
    let (ours, path) = (own("same"), library_path());
    for what in ["slurm", ""] {
        let answers = |run: Run, program| {
            let run = run.arg(program).args(what.split_whitespace());
            run.succeed().sorted_lines()
        };
        let step = |path: &str| machines.step(STEP).env("LD_LIBRARY_PATH", path);
        let wanted = answers(step(""), &slurms);
        assert!(wanted.len() > 16 * 20 && wanted.contains(&"- before 0".to_owned()), "{wanted:?}");
        expect_same(&answers(step(&path), &slurms), &wanted, &format!("{what}: their binary on our library"));
        expect_same(&answers(step(&path), &ours), &wanted, &format!("{what}: our binary"));
        if what == "slurm" {
            assert!(wanted.contains(&"15 lookup 0 port of 0".to_owned()), "{wanted:?}");
            let of_both = |lines: Vec<String>| -> Vec<String> {
                lines.into_iter().filter(|line| !OF_THE_SERVER.iter().any(|part| line.contains(part))).collect()
            };
            let here = answers(machines.job(JOB).linked(), &slurms);
            expect_same(&of_both(here), &of_both(wanted), "under our launcher");
        }
    }
}

#[test]
fn programs_of_our_libraries_work_under_srun_and_across_hosts() {
    let Some(machines) = machines::with_slurm() else { return };
    for (name, args) in [("extensions", &[][..]), ("bootstrap", &["auto", "4"])] {
        for run in [machines.step(STEP), machines.job(JOB)] {
            run.linked().arg(own(name)).args(args).succeed().expect_all_right(16);
        }
    }
    machines.step(STEP).linked().arg(own("pmi1")).arg("slurm").succeed().expect_all_right(16);
}

#[test]
fn an_abort_ends_the_step() {
    let Some(machines) = machines::with_slurm() else { return };
    for library in ["pmi", "pmi2"] {
        let outcome = machines.step(STEP).linked().arg(own("stop")).arg(library).finish();
        assert_ne!(outcome.code(), 0, "{outcome}");
    }
}

/// Waits until exactly `count` ranks of a step run the program `name`; returns whether that happened.
fn await_ranks(machines: &Machines, name: &str, count: usize) -> bool {
    machines.all_processes().iter().flatten().filter(|process| process.command.contains(name)).count() == count
}

#[test]
fn a_cancelled_step_leaves_no_rank() {
    let Some(machines) = machines::with_slurm() else { return };
    // The last rank never enters the fence, so the other ranks wait in it.
    let script = r#"test "$PMI_RANK" = 15 && exec sleep 1000; exec "$0""#;
    let step = machines.step(STEP).linked().arg("--job-name=cancelled").sh(script).arg(own("same"));
    let mut running = step.start();
    running.await_that("ranks in a fence", |_| {
        await_ranks(&machines, "libpmi/same", 15) && await_ranks(&machines, "sleep 1000", 1)
    });
    machines.cancel("--name=cancelled");
    let outcome = running.finish();
    assert_ne!(outcome.code(), 0, "{outcome}");
}

/// Unmodified MPI programs run under `srun`: for them, the hosts are an ordinary Slurm cluster.
#[test]
fn mpich_5_runs_under_srun() {
    let Some(machines) = machines::with_slurm() else { return };
    for (name, says) in [("initfin", ""), ("allreduce", "allreduce over 16 ranks: 4096 sums are right\n")] {
        let Some(program) = program(Flavour::Mpich5, name) else { return };
        let outcome = machines.step(STEP).arg(program).succeed();
        assert_eq!(outcome.out(), says, "{outcome}");
    }
}
