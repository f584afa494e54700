//! PMI-1 and PMI-2 as programs meet them.

use crate::harness::peers::program;
use crate::harness::{Run, wireup};
use xtask::programs::Flavour;

const PLACEMENTS: [&str; 3] = ["-n 1", "-n 8", "-n 8 --virtual-nodes 4"];

#[test]
fn the_test_client_exchanges() {
    for placement in PLACEMENTS {
        for dialect in ["1", "2"] {
            for bytes in ["32", "1023"] {
                let client = ["pmi", "exchange", "--check", "--dialect", dialect, "--value-len", bytes];
                Run::job(placement).arg(wireup()).args(client).succeed();
            }
        }
    }
}

#[test]
fn the_test_client_starts_and_ends() {
    for dialect in ["1", "2"] {
        Run::job("-n 16 --virtual-nodes 4").arg(wireup()).args(["pmi", "init", "--dialect", dialect]).succeed();
    }
}

/// Slurm's client library, unmodified.
#[test]
fn the_pmi_2_library() {
    let Some(attrs) = program(Flavour::Pmi2, "attrs") else { return };
    for (placement, ranks) in PLACEMENTS.into_iter().zip([1, 8, 8]) {
        let outcome = Run::job(placement).arg(&attrs).succeed();
        assert_eq!(outcome.out().matches(": all right\n").count(), ranks, "{outcome}");
    }
}

#[test]
fn the_mapping_is_the_placement() {
    let Some(attrs) = program(Flavour::Pmi2, "attrs") else { return };
    let outcome = Run::job("-n 8 --virtual-nodes 4").arg(&attrs).succeed();
    outcome.expect_out("mapping (vector,(0,4,2))\n");
}
