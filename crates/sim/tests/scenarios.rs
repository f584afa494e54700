//! Named scenarios: each with the one thing it is about, on some seeds.

use wireup_sim::workload::{Dialect, Script};
use wireup_sim::{WorldSpec, run};

#[test]
fn a_clean_exchange_ends_well() {
    for seed in 0..20 {
        for dialect in [Dialect::Pmi1, Dialect::Pmi2] {
            let report = run(WorldSpec { fanout: 2, ..WorldSpec::even(seed, 5, 3, Script::exchange(dialect, 40, 3)) })
                .expect_good();
            assert_eq!((report.code, report.ranks_started, report.fences), (Some(0), 15, 1), "seed {seed}");
        }
    }
}
