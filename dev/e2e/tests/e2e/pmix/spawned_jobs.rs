//! Jobs that ranks spawn by PMIx, and how they relate to each other and to their parent.

use super::{CLIENTS, run};
use std::time::{Duration, Instant};
use wireup_e2e::Outcome;

const PLACEMENTS: [&str; 2] = ["-n 2", "-n 2 --virtual-nodes 2"];

fn spawned(line: &str, words: &str, check: impl Fn(Outcome)) {
    for client in CLIENTS {
        if let Some(run) = run(client, "spawned", line, words) {
            check(run.finish());
        }
    }
}

fn lines(outcome: &Outcome, begin: &str, end: &str) -> usize {
    outcome.out().lines().filter(|line| line.starts_with(begin) && line.ends_with(end)).count()
}

#[test]
fn parents_and_children_connect_and_get_each_others_data() {
    for placement in ["-n 2", "-n 2 --virtual-nodes 2", "-n 4 --virtual-nodes 3 --modex direct"] {
        let parents: usize = placement[3..4].parse().expect("a digit");
        spawned(placement, "family 3", |outcome| {
            let outcome = outcome.expect_code(0);
            assert_eq!(lines(&outcome, "parent ", " has met 3"), parents, "{placement}: {outcome}");
            assert_eq!(lines(&outcome, "child ", &format!(" has met {parents}")), 3, "{placement}: {outcome}");
            outcome.expect_quiet();
        });
    }
}

#[test]
fn a_failure_ends_connected_jobs_only() {
    for placement in PLACEMENTS {
        spawned(placement, "orphan", |outcome| {
            let outcome = outcome.expect_code(9);
            assert_eq!(lines(&outcome, "parent ", " goes on"), 2, "{placement}: {outcome}");
            outcome.expect_err_line(&["job 1: rank 0", "exited with code 9"]);
        });
        let begun = Instant::now();
        spawned(placement, "bound", |outcome| {
            outcome.expect_code(9).expect_err_line(&["job 1: rank 0", "exited with code 9"]);
        });
        assert!(begun.elapsed() < Duration::from_secs(50), "the parents do not wait for a minute");
    }
}

#[test]
fn nobody_waits_for_a_job_that_does_not_connect() {
    for placement in PLACEMENTS {
        spawned(placement, "absent", |outcome| {
            let outcome = outcome.expect_code(0);
            assert_eq!(lines(&outcome, "parent ", " is told"), 2, "{placement}: {outcome}");
        });
        spawned(placement, "late", |outcome| {
            let outcome = outcome.expect_code(0);
            assert_eq!(lines(&outcome, "parent ", " has waited"), 2, "{placement}: {outcome}");
        });
    }
}

#[test]
fn what_cannot_be_is_refused_at_once() {
    for placement in PLACEMENTS {
        spawned(placement, "refused", |outcome| {
            let outcome = outcome.expect_code(0);
            assert_eq!(lines(&outcome, "rank ", " is refused"), 2, "{placement}: {outcome}");
            for said in
                ["/no/such/program: not found", "moon is not a node", "PMIX_PREFIX is not offered", "/no/such/file"]
            {
                assert!(outcome.err().contains(said), "{said}: {outcome}");
            }
        });
    }
}
