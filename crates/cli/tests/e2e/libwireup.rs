//! libwireup, under our launcher and under others.

use crate::harness::Run;
use crate::harness::libraries::{ALL_RIGHT, PLACEMENTS, hydras, library_path, own, under};
use crate::harness::peers::skip;

fn run(placement: &str, engine: &str, ranks: usize) {
    let run = Run::job(placement).env("LD_LIBRARY_PATH", library_path()).arg(own("bootstrap")).arg(engine);
    let outcome = run.succeed();
    assert_eq!(outcome.out().matches(ALL_RIGHT).count(), ranks, "{placement} {engine}: {outcome}");
}

#[test]
fn groups_collectives_and_messages_work_with_both_engines() {
    for (placement, ranks) in PLACEMENTS {
        for engine in ["auto", "agents", "peers"] {
            run(placement, engine, ranks);
        }
    }
    run("-n 7 --virtual-nodes 3 --ppn 3", "auto", 7);
}

#[test]
fn ranks_make_their_own_network_under_hydra() {
    if hydras().is_empty() {
        return skip("no mpiexec.hydra").unwrap_or_default();
    }
    for (hydra, _) in hydras() {
        for engine in ["auto", "agents"] {
            let said = under(&hydra, 5, &[], &own("bootstrap"), engine);
            assert_eq!(said.matches(ALL_RIGHT).count(), 5, "{hydra:?} {engine}: {said}");
        }
    }
}

#[test]
fn a_process_without_a_launcher_is_a_job_of_one() {
    let output = std::process::Command::new(own("bootstrap")).env("LD_LIBRARY_PATH", library_path()).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), format!("0 of 1{ALL_RIGHT}"));
}
