//! Collectives of all kinds, by every scheme, many under way: random worlds, each undisturbed, then with misfortunes that
//! strike while they are. `WIREUP_SIM_SEEDS` asks for other seeds.

mod seeds;

use std::collections::BTreeMap;
use wireup_proto::launcher_io::Notice;
use wireup_sim::random::collectives::{collective_world, run_collectives_with_faults};
use wireup_sim::{Report, run};
use wireup_wire::peer::Cause;

/// A job ends at most so long after its last misfortune (ns): a link beside the tree is waited for for 20 s from the end of the
/// start time, a rank that hangs for 30 s.
const END_NS_MAX: u64 = 40_000_000_000;

#[test]
fn every_rule_holds_in_every_collective_world() {
    let (mut calm_sum, mut quiet, mut causes) = (0, 0, BTreeMap::new());
    for seed in seeds::seeds(300) {
        // Shown only if this seed panics.
        println!("seed {seed}");
        let [calm, stormy] = run_collectives_with_faults(seed);
        let calm = calm.expect_good();
        assert_eq!(calm.code, Some(0), "seed {seed}: {:?}", calm.notices);
        calm_sum += calm.collectives;
        quiet += calm.quiet;
        let stormy = stormy.expect_good();
        assert!(stormy.elapsed_ns < calm.elapsed_ns + END_NS_MAX, "seed {seed}: over after {} ns", stormy.elapsed_ns);
        *causes.entry(cause(&stormy)).or_insert(0) += 1;
    }
    println!("{calm_sum} collectives; all was quiet {quiet} times; stormy runs ended by {causes:?}");
    assert!(quiet > 0, "what agents hold was looked at");
}

fn cause(report: &Report) -> String {
    let failed = report.notices.iter().find_map(|notice| match notice {
        Notice::Failed(failure) => Some(&failure.cause),
        _ => None,
    });
    match failed {
        None => format!("{:?}", report.code),
        Some(Cause::Pmi { problem }) => problem.clone(),
        Some(cause) => format!("{cause:?}").split([' ', '(']).next().unwrap_or_default().to_owned(),
    }
}

#[test]
fn same_seed_same_run() {
    for seed in 0..10 {
        assert_eq!(run(collective_world(seed)), run(collective_world(seed)), "seed {seed}");
    }
}
