//! PMI-1 and PMI-2 as programs use them.

use wireup_e2e::peers::{plain, program};
use wireup_e2e::{Run, wireup};
use xtask::programs::Flavour;

/// Exchanges work with lazy fences too, and for PMI-2 with two clients: the test client, and Slurm's unmodified client
/// library.
#[test]
fn clients_exchange_values_in_both_dialects_and_with_lazy_fences() {
    for (placement, ranks) in [("-n 1", 1), ("-n 8", 8), ("-n 8 --virtual-nodes 4", 8)] {
        for (fence, rounds) in [("", "1"), (" --pmi-fence=lazy", "5")] {
            let job = || Run::job(&format!("{placement}{fence}"));
            for dialect in ["1", "2"] {
                for bytes in ["32", "1023"] {
                    let client = ["pmi", "exchange", "--check", "--dialect", dialect, "--value-len", bytes];
                    job().arg(wireup()).args(client).args(["--rounds", rounds]).succeed();
                }
            }
            let Some(attrs) = program(Flavour::Pmi2, "attrs") else { continue };
            let outcome = job().arg(&attrs).succeed();
            outcome.expect_all_right(ranks);
            let is_mapped = outcome.out().contains("mapping (vector,(0,4,2))\n");
            assert!(!placement.contains("nodes 4") || is_mapped, "{outcome}");
        }
    }
}

/// The PMI-1 version that a client receives if it asks for 1.1.
#[test]
fn the_pmi_version_flag_sets_the_pmi_1_version() {
    for (flag, subversion) in [("", "1"), ("--pmi-version=1.1", "1"), ("--pmi-version=1.2", "2")] {
        let outcome = Run::job(&format!("-n 2 {flag}")).arg(wireup()).args(["pmi", "info"]).succeed();
        assert_eq!(outcome.out().matches(&format!(" subversion={subversion} ")).count(), 2, "{outcome}");
    }
    let outcome = Run::job("-n 1 --pmi-version=1.3 true").finish().expect_code(125);
    outcome.expect_err_line(&["--pmi-version 1.3", "1.1"]);
}

/// A rank that has put a value leaves its lazy fence although another rank has not entered it, and will enter it only
/// after the first rank has left.
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
