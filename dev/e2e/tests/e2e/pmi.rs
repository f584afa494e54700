//! PMI-1 and PMI-2 as programs use them.

use wireup_e2e::peers::{plain, program};
use wireup_e2e::{Run, wireup};
use xtask::programs::Flavour;

const PLACEMENTS: [&str; 3] = ["-n 1", "-n 8", "-n 8 --virtual-nodes 4"];

#[test]
fn the_test_client_exchanges_values_in_both_dialects() {
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
fn the_test_client_starts_and_ends_in_both_dialects() {
    for dialect in ["1", "2"] {
        Run::job("-n 16 --virtual-nodes 4").arg(wireup()).args(["pmi", "init", "--dialect", dialect]).succeed();
    }
}

/// The PMI-1 version that is given to a client that asks for 1.1.
#[test]
fn the_pmi_version_flag_sets_the_pmi_1_version() {
    for (flag, subversion) in [("", "1"), ("--pmi-version=1.1", "1"), ("--pmi-version=1.2", "2")] {
        let outcome = Run::job(&format!("-n 2 {flag}")).arg(wireup()).args(["pmi", "info"]).succeed();
        assert_eq!(outcome.out().matches(&format!(" subversion={subversion} ")).count(), 2, "{outcome}");
    }
    let outcome = Run::job("-n 1 --pmi-version=1.3 true").finish().expect_code(125);
    outcome.expect_err_line(&["--pmi-version 1.3", "1.1"]);
}

/// A rank that has put something continues while another rank has not entered the fence, and will not enter it unless
/// the first one continues.
#[test]
fn a_lazy_fence_is_answered_at_once() {
    let place = std::env::temp_dir().join(format!("wireup-lazy-{}", std::process::id()));
    for placement in ["-n 2", "-n 2 --virtual-nodes 2"] {
        let job = |flags: &str| Run::job(&format!("{placement} {flags}")).arg(plain("lazy")).arg(&place);
        job("--timeout 1").finish().expect_code(124);
        job("--pmi-fence=lazy").succeed();
        std::fs::remove_file(&place).expect("rank 0 has made it");
    }
}

#[test]
fn compressed_exchanges_deliver_the_right_values() {
    for scheme in ["auto", "tree", "ring", "log"] {
        let placement = format!("-n 12 --virtual-nodes 4 --exchange={scheme} --exchange-compress=100");
        let client = ["pmi", "exchange", "--check", "--value-len", "1000", "--rounds", "3"];
        Run::job(&placement).arg(wireup()).args(client).succeed();
    }
}

/// Lazy fences work for PMI-2 clients as well: the test client, and Slurm's unmodified client library.
#[test]
fn lazy_fences_work_for_other_clients() {
    for placement in PLACEMENTS {
        let placement = format!("{placement} --pmi-fence=lazy");
        for dialect in ["1", "2"] {
            let client = ["pmi", "exchange", "--check", "--rounds", "5", "--dialect", dialect];
            Run::job(&placement).arg(wireup()).args(client).succeed();
        }
        let Some(attrs) = program(Flavour::Pmi2, "attrs") else { continue };
        Run::job(&placement).arg(&attrs).succeed().expect_out(": all right\n");
    }
}

/// Slurm's unmodified client library.
#[test]
fn slurms_pmi_2_library_works() {
    let Some(attrs) = program(Flavour::Pmi2, "attrs") else { return };
    for (placement, ranks) in PLACEMENTS.into_iter().zip([1, 8, 8]) {
        let outcome = Run::job(placement).arg(&attrs).succeed();
        assert_eq!(outcome.out().matches(": all right\n").count(), ranks, "{outcome}");
        assert!(!placement.contains("nodes 4") || outcome.out().contains("mapping (vector,(0,4,2))\n"), "{outcome}");
    }
}
