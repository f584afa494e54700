//! How a job ends: exit codes, the line with the reason, time limits.

use wireup_e2e::Run;
use wireup_e2e::peers::{plain, program};
use xtask::programs::Flavour;

const PLACEMENTS: [&str; 2] = ["-n 4", "-n 4 --virtual-nodes 2"];

#[test]
fn a_successful_job_prints_nothing() {
    for placement in PLACEMENTS {
        let outcome = Run::job(placement).arg("true").succeed();
        assert_eq!(outcome.out(), "");
        outcome.expect_quiet();
    }
}

#[test]
fn the_first_failing_rank_gives_the_exit_code() {
    for placement in PLACEMENTS {
        let script = "echo pid $$; test $WIREUP_RANK = 2 && exit 9; exec sleep 1000";
        // Contained ranks see other numbers than the messages tell.
        let job = Run::job(placement).args(["--label", "--contain", "none"]);
        let outcome = job.sh(script).finish().expect_code(9);
        let pid = outcome.out().lines().find_map(|line| line.strip_prefix("[2] pid ").map(str::to_owned));
        outcome.expect_err_line(&["rank 2", "9", &pid.expect("rank 2 said its pid")]);
    }
}

#[test]
fn the_failed_ranks_node_is_named() {
    let script = "test $WIREUP_RANK = 3 && exit 1; exec sleep 1000";
    let outcome = Run::job("-n 4 --virtual-nodes 2").sh(script).finish().expect_code(1);
    outcome.expect_err_line(&["rank 3", "node1"]);
}

#[test]
fn a_rank_killed_by_a_signal_gives_128_plus_its_number() {
    for placement in PLACEMENTS {
        let outcome = Run::job(placement).arg(plain("crash")).arg("1").finish().expect_code(128 + 11);
        outcome.expect_err_line(&["rank 1", "SIGSEGV"]);
        let outcome =
            Run::job(placement).sh("test $WIREUP_RANK = 1 && kill -9 $$; sleep 1000").finish().expect_code(137);
        outcome.expect_err_line(&["rank 1", "SIGKILL"]);
    }
}

#[test]
fn a_failed_job_prints_one_line() {
    let outcome = Run::job("-n 8 --virtual-nodes 2").sh("test $WIREUP_RANK = 5 && exit 3; exec sleep 1000").finish();
    assert_eq!(outcome.expect_code(3).err().lines().count(), 1);
}

#[test]
fn a_rank_that_fails_after_finalize_lets_the_others_finish() {
    for placement in PLACEMENTS {
        let Some(program) = program(Flavour::Mpich5, "lateexit") else { return };
        let outcome = Run::job(placement).arg(program).finish().expect_code(3);
        assert_eq!(outcome.out().matches("has finished").count(), 3, "{outcome}");
        outcome.expect_err_line(&["rank 1", "code 3", "the other ranks continue"]);
        assert_eq!(outcome.err().lines().count(), 1, "{outcome}");
    }
}

/// As under Hydra and Open MPI.
#[test]
fn a_rank_that_is_killed_after_finalize_ends_the_others() {
    let Some(program) = program(Flavour::Mpich5, "lateexit") else { return };
    let outcome = Run::job("-n 3").arg(program).arg("signal").finish().expect_code(137);
    assert!(!outcome.out().contains("has finished"), "{outcome}");
    outcome.expect_err_line(&["rank 1", "SIGKILL"]);
}

#[test]
fn several_failing_ranks_give_one_exit_code_and_one_line() {
    let outcome = Run::job("-n 8 --virtual-nodes 4").arg("false").finish().expect_code(1);
    assert_eq!(outcome.err().lines().count(), 1, "{outcome}");
}

/// A rank that needs some time after the first signal gets it; its last output arrives.
#[test]
fn other_ranks_get_sigterm_and_time_to_end() {
    let script = "test $WIREUP_RANK = 1 && { sleep 0.5; exit 6; }; trap 'echo bye; exit 0' TERM; \
        while :; do sleep 0.02; done";
    let outcome = Run::job("-n 3 --virtual-nodes 2").sh(script).finish().expect_code(6);
    assert_eq!(outcome.out(), "bye\nbye\n", "{outcome}");
}

#[test]
fn ranks_that_ignore_sigterm_are_killed() {
    let script = "test $WIREUP_RANK = 1 && { sleep 0.5; exit 6; }; trap '' TERM INT HUP; while :; do sleep 0.1; done";
    Run::job("-n 3 --virtual-nodes 2").sh(script).finish().expect_code(6);
}

#[test]
fn a_time_limit_ends_the_job_with_exit_code_124() {
    for placement in PLACEMENTS {
        let outcome = Run::job(placement).args(["--timeout", "0.5", "sleep", "1000"]).finish().expect_code(124);
        outcome.expect_err_line(&["--timeout"]);
    }
    Run::job("-n 2 --timeout 60 true").succeed();
}

#[test]
fn a_rank_that_leaves_a_fence_ends_the_job() {
    for placement in ["-n 3", "-n 4 --virtual-nodes 2"] {
        let outcome = Run::job(placement).arg(plain("badpmi")).arg("leave").finish();
        assert_ne!(outcome.code(), 0, "{outcome}");
        outcome.expect_err_line(&["rank 1", "fence"]);
    }
}

/// An MPI program that does not use the PMI link offered to it.
#[test]
fn an_mpi_program_that_ignores_pmi_is_reported() {
    for flavour in [Flavour::Mpich4, Flavour::Mpich5] {
        let Some(program) = program(flavour, "noinit") else { continue };
        let outcome = Run::job("-n 2").arg(&program).succeed();
        assert_eq!(outcome.out().matches("rank 0 of 1").count(), 2, "{outcome}");
        outcome.expect_err_line(&["noinit", "PMI"]);
        Run::job("-n 1").arg(program).succeed().expect_quiet();
    }
}

#[test]
fn programs_without_mpi_get_no_warning() {
    Run::job("-n 2").args(["/usr/bin/python3", "-c", "print(1)"]).succeed().expect_quiet();
}

#[test]
fn a_job_of_256_short_ranks_delivers_all_output() {
    let outcome = Run::job("-n 256 --virtual-nodes 4 echo x").succeed();
    assert_eq!(outcome.out(), "x\n".repeat(256));
}
