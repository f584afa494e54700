//! The startup extensions of libpmi2: as requests of our own server, and built from what others have.

use crate::harness::libraries::{ALL_RIGHT, PLACEMENTS, hydras, library_path, own, under};
use crate::harness::peers::{skip, tool};
use crate::harness::{Outcome, Run};

/// What every rank is to say of itself: many outstanding, many fences, all lengths, all calls.
const PROGRAMS: [&str; 4] = ["outstanding", "store", "lengths", "extensions"];

fn run(placement: &str, name: &str, ranks: usize) -> Outcome {
    let outcome = Run::job(placement).env("LD_LIBRARY_PATH", library_path()).arg(own(name)).succeed();
    assert_eq!(outcome.out().matches(ALL_RIGHT).count(), ranks, "{placement} {name}: {outcome}");
    outcome
}

#[test]
fn on_every_placement() {
    for name in PROGRAMS {
        for (placement, ranks) in PLACEMENTS {
            run(placement, name, ranks);
        }
    }
}

/// Nodes with different numbers of ranks, one of them with one.
#[test]
fn on_uneven_nodes() {
    for name in PROGRAMS {
        run("-n 7 --virtual-nodes 3 --ppn 3", name, 7);
        run("-n 10 --virtual-nodes 4 --ppn 3", name, 10);
    }
}

#[test]
fn by_every_way_among_agents() {
    for way in ["tree", "ring", "log"] {
        for name in PROGRAMS {
            run(&format!("-n 13 --virtual-nodes 5 --exchange={way}"), name, 13);
        }
    }
}

#[test]
fn built_from_what_hydra_has() {
    let hydras = hydras();
    if hydras.is_empty() {
        return skip("no mpiexec.hydra").unwrap_or_default();
    }
    for (hydra, _) in hydras {
        for name in PROGRAMS {
            for ranks in [1, 5] {
                let said = under(&hydra, ranks, &[], &own(name), "");
                assert_eq!(said.matches(ALL_RIGHT).count(), ranks, "{hydra:?} {name}: {said}");
            }
        }
    }
}

#[test]
fn a_shared_array_cannot_be_written() {
    run("-n 6 --virtual-nodes 2", "sealed", 6);
}

#[test]
fn without_an_error_of_memory() {
    let Some(valgrind) = tool("/usr/bin/valgrind") else { return };
    for name in ["outstanding", "store", "extensions"] {
        let mut run = Run::job("-n 3 --virtual-nodes 2").env("LD_LIBRARY_PATH", library_path());
        run = run.arg(&valgrind).args([
            "-q",
            "--error-exitcode=9",
            "--leak-check=full",
            "--errors-for-leak-kinds=definite",
        ]);
        let outcome = run.arg(own(name)).succeed();
        assert_eq!(outcome.out().matches(ALL_RIGHT).count(), 3, "{name}: {outcome}");
    }
}
