//! PMIx clients that die, that wait in vain or that belong to another user. Servers that are killed: `kill`.
//!
//! The harness checks at the end of every run that neither processes nor directories are left.

use super::{CLIENTS, PLACEMENTS, run};
use rustix::process::Signal;
use wireup_e2e::peers::{program, tool};
use wireup_e2e::{Run, folders};
use xtask::programs::Flavour;

/// If rank 3 exits with code 0, the others continue with the available data or with an error; no rank waits forever.
#[test]
fn a_client_that_dies_in_a_collective_is_named_and_does_not_hang_others() {
    for client in CLIENTS {
        for placement in PLACEMENTS {
            let faults = |words| run(client, "faults", placement, words).map(Run::finish);
            for (words, code) in [("fence 3", 3), ("modex 4", 4)] {
                let Some(outcome) = faults(words) else { return };
                outcome.expect_code(code).expect_err_line(&["rank 3", &format!("exited with code {code}")]);
            }
            for (words, said, count) in [("fence 0", "", 0), ("modex 0", "refused", 3), ("set 0", "rank 0: ", 1)] {
                let Some(outcome) = faults(words) else { return };
                let goes_on = said.is_empty() || outcome.out().matches(said).count() == count;
                assert!(outcome.code() != 0 || goes_on, "{words}: {outcome}");
                if words == "fence 0" && outcome.code() != 0 {
                    outcome.expect_err_line(&["rank 3", "MPI_Finalize"]);
                }
            }
        }
    }
}

/// The library ends the fence for the ranks that have entered it; on the late rank's node it notifies nobody. They can
/// fence again. Version 5 of the library notifies only one rank of each node, under its own launcher as well.
#[test]
fn a_fence_with_a_timeout_times_out() {
    for placement in PLACEMENTS {
        for how in ["timeout", "again"] {
            let Some(faults) = run(Flavour::Pmix, "faults", placement, how) else { return };
            let outcome = faults.succeed();
            assert_eq!(outcome.out().matches("out of patience").count(), 3, "{outcome}");
        }
    }
}

/// Only the PMIx library knows whether other ranks of the node wait for the rank that has left.
#[test]
fn a_rank_that_leaves_before_it_connects_is_named() {
    for client in CLIENTS {
        let Some(program) = program(client, "fences") else { return };
        for placement in PLACEMENTS {
            for code in [0, 3] {
                let script = format!("[ $PMIX_RANK = 1 ] && exit {code}; exec {}", program.display());
                let outcome = Run::job(&format!("{placement} --pmi pmix")).sh(&script).finish();
                assert_ne!(outcome.code(), 0, "{outcome}");
                outcome.expect_err_line(&["rank 1 ", &format!("exited with code {code}")]);
            }
        }
    }
}

#[test]
fn exiting_without_finalize_is_no_error_if_no_rank_waits() {
    for client in CLIENTS {
        let Some(faults) = run(client, "faults", "-n 4 --virtual-nodes 2", "without") else { return };
        faults.succeed().expect_quiet();
    }
}

#[test]
fn abort_and_job_control_end_the_job() {
    for client in CLIENTS {
        let Some(faults) = run(client, "faults", "-n 4 --virtual-nodes 2", "stranger 17") else { return };
        let outcome = faults.finish().expect_code(17);
        outcome.expect_err_line(&["rank 0", "17", "no more cheese"]);
        // The connections of the rank that aborts last as long as the job, so no other rank can report a failure first
        // because they were closed.
        assert!(!outcome.out().contains("goes on"), "{outcome}");
        // The program compares pids that PMIx reports, which are those outside of a PID namespace, with its own pids,
        // so it runs without a PID namespace.
        let Some(ask) = run(client, "ask", "-n 4 --virtual-nodes 2 --contain none", "end") else { return };
        let outcome = ask.finish();
        assert_ne!(outcome.code(), 0, "{outcome}");
        outcome.expect_err_line(&["rank 0", "end of the job"]);
    }
}

#[test]
fn ranks_get_an_event_when_another_rank_dies() {
    for client in CLIENTS {
        for placement in PLACEMENTS {
            let Some(events) = run(client, "events", placement, "death") else { return };
            let outcome = events.finish();
            let told: Vec<String> = (0..3).map(|rank| format!("rank {rank} was told of rank 3")).collect();
            assert_eq!(outcome.sorted_lines(), told, "{outcome}");
        }
    }
}

/// A client of another user gets no data, even if it has all of the job's environment variables.
#[test]
fn a_client_of_another_user_is_refused() {
    let (Some(brief), Some(setpriv)) = (program(Flavour::Pmix, "brief"), tool("/usr/bin/setpriv")) else { return };
    if !xtask::debian::is_root() {
        return;
    }
    // A folder that every user may read.
    let copy = std::env::temp_dir().join(format!("brief-{}", std::process::id()));
    folders::copy_program(&brief, &copy);
    let script = format!(
        "{} --reuid 65534 --regid 65534 --clear-groups timeout 10 {} >/dev/null 2>&1 && echo let in || echo refused",
        setpriv.display(),
        copy.display()
    );
    let outcome = Run::job("-n 1 --pmi pmix").sh(&script).finish();
    std::fs::remove_file(copy).expect("remove the file");
    assert_eq!(outcome.out(), "refused\n", "{outcome}");
}

#[test]
fn pmix_directories_are_private() {
    let script = r#"stat -c %a "$PMIX_SERVER_TMPDIR""#;
    let outcome = Run::job("-n 4 --virtual-nodes 2 --pmi pmix").sh(script).succeed();
    assert_eq!(outcome.out(), "700\n".repeat(4), "{outcome}");
}

#[test]
fn signals_and_time_limits_leave_nothing() {
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let mut running = Run::job("-n 4 --virtual-nodes 2 --pmi pmix").sh("echo ready; exec sleep 1000").start();
        running.await_out("ready\n", 4);
        running.signal(signal);
        assert_ne!(running.finish().code(), 0);
    }
    let outcome = Run::job("-n 4 --virtual-nodes 2 --pmi pmix --timeout 0.5 sleep 1000").finish();
    assert_eq!(outcome.code(), 124, "{outcome}");
}

/// The PMIx library does not say which ranks of a node wait; but a rank that has not connected to its server is named.
#[test]
fn a_rank_that_does_not_call_init_is_named_while_others_wait() {
    let Some(program) = program(Flavour::OpenMpi4, "initfin") else { return };
    let script = format!("test $WIREUP_RANK = 1 && exec sleep 100; exec {}", program.display());
    let mut running = Run::job("-n 4 --virtual-nodes 2 --pmi pmix").sh(&script).start();
    running.await_that("ranks run", |running| running.processes().iter().any(|one| one.name == "initfin"));
    running.await_that("rank 1 is named", |running| {
        // At first, the other ranks may not have connected to their servers either.
        running.signal(Signal::ALARM);
        running.err_text().contains("node0: 1 arrived, missing rank 1 (pid ")
    });
    running.signal(Signal::KILL);
    running.finish();
}
