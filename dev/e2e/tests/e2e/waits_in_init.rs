//! Ranks that wait in `MPI_Init` for a rank that comes late or never: with each MPI library, on one node and on two.
//!
//! On one node, MPICH 5 and Open MPI wait in shared memory or inside their PMIx server: the agent knows of no
//! collective in progress.

use rustix::process::Signal;
use std::path::PathBuf;
use wireup_e2e::peers::program;
use wireup_e2e::{Outcome, Run, Running};
use xtask::programs::{Flavour, environment};

const MPI: [Flavour; 5] = [Flavour::Mpich4, Flavour::Mpich5, Flavour::Intel, Flavour::OpenMpi4, Flavour::OpenMpi5];
const PLACEMENTS: [&str; 2] = ["-n 3", "-n 4 --virtual-nodes 2"];

fn programs() -> impl Iterator<Item = (Flavour, PathBuf)> {
    MPI.into_iter().filter_map(|flavour| Some((flavour, program(flavour, "allreduce")?)))
}

/// The command for a job in which a shell in each rank runs `first`, and then the program.
fn after(first: &str, (flavour, program): &(Flavour, PathBuf), placement: &str) -> Run {
    let script = format!("{first}; exec {}", program.display());
    Run::job(placement).args(["sh", "-c", &script]).envs(environment(*flavour))
}

/// Ends a run once a line of its standard error contains all of `words`. `asks`: whether reports are requested until
/// then.
fn ends_when_told(mut running: Running, words: &[&str], asks: bool) -> Outcome {
    running.await_that(&format!("{words:?}"), |running| {
        if asks {
            running.signal(Signal::ALARM);
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        running.err_text().lines().any(|line| words.iter().all(|word| line.contains(word)))
    });
    running.signal(Signal::TERM);
    running.finish()
}

#[test]
fn a_rank_that_leaves_without_init_ends_the_job() {
    for mpi in programs() {
        for placement in PLACEMENTS {
            let outcome = after("test $WIREUP_RANK = 1 && exit 0", &mpi, placement).finish().expect_code(1);
            outcome.expect_err_line(&["rank 1 ", "exited with code 0", "MPI_Init"]);
        }
        let two = Run::job("-n 1").envs(environment(mpi.0)).arg(&mpi.1).args([":", "-n", "1", "hostname"]);
        two.finish().expect_code(1).expect_err_line(&["rank 1 ", "exited with code 0", "MPI_Init"]);
    }
}

#[test]
fn a_rank_that_is_late_for_init_is_reported() {
    let late = "test $WIREUP_RANK = 0 && { echo late; exec sleep 1000; }";
    for mpi in programs() {
        for placement in PLACEMENTS {
            let reporting = format!("{placement} --stall-report 1");
            let outcome = ends_when_told(after(late, &mpi, &reporting).start(), &["missing rank 0 (pid "], false);
            assert!(!outcome.err().contains("no rank"), "{outcome}");
            let asked = after(late, &mpi, placement).start_until("late\n", 1);
            ends_when_told(asked, &["missing rank 0 (pid "], true);
        }
    }
}

#[test]
fn a_job_without_mpi_has_no_missing_ranks() {
    let mut running = Run::job("-n 2").sh("echo on; exec sleep 1000").start();
    running.await_out("on\n", 2);
    let outcome = ends_when_told(running, &["2 ranks are running and none has called MPI_Init"], true);
    assert!(!outcome.err().contains("missing") && !outcome.err().contains("fence"), "{outcome}");
}

#[test]
fn two_kinds_of_mpi_cannot_form_one_job() {
    let [mpich, open_mpi] = [Flavour::Mpich5, Flavour::OpenMpi4].map(|flavour| program(flavour, "allreduce"));
    let (Some(mpich), Some(open_mpi)) = (mpich, open_mpi) else { return };
    let job = |flags: &str| Run::job(&format!("{flags} -n 1")).arg(&mpich).args([":", "-n", "1"]).arg(&open_mpi);
    job("").finish().expect_code(125).expect_err_line(&["linked to libmpi.so.12", "linked to libmpi.so.40"]);
    // If it is unknown before the start which PMI the program uses, a report names both possibilities.
    let words = ["missing rank 0 (pid ", "another MPI library"];
    ends_when_told(job("--pmi both --stall-report 1").start(), &words, false);
}
