//! Random worlds, by seed: each run without faults, then with faults. `WIREUP_SIM_SEEDS=1000..2000` (or a count)
//! selects other seeds.

use crate::seeds;
use wireup_sim::random::collectives::{collective_world, group_world};
use wireup_sim::random::modex::modex_world;
use wireup_sim::random::{run_with_faults, world};
use wireup_sim::{WorldSpec, run};
use wireup_wire::peer::{Cause, Failure, Note};

#[test]
fn every_rule_holds_in_every_world() {
    let (mut struck, mut failed, mut linked, mut unlinked) = (0, 0, 0, 0);
    for seed in seeds::seeds(300) {
        // The test runner shows this only if the test fails with this seed.
        println!("seed {seed}");
        let [calm, stormy] = run_with_faults(seed);
        let calm = calm.expect_good();
        assert_eq!(calm.code, Some(0), "seed {seed}");
        let stormy = stormy.expect_good();
        linked += calm.direct_links;
        let is_without_link = |failure: &Failure| matches!(failure.cause, Cause::NoDirectLink { .. });
        assert!(!stormy.failure().is_some_and(is_without_link), "seed {seed}: a lost direct link does not end a job");
        unlinked += stormy.notes().filter(|note| matches!(note, Note::Routed { .. })).count();
        struck += stormy.checks.strikes;
        failed += u32::from(stormy.code != Some(0));
    }
    println!("{struck} faults struck, {failed} runs failed as they should");
    println!("{linked} links beside the tree; {unlinked} pairs went on without one");
}

/// Seeds that once failed because of a defect in agents or in the simulator itself, each with that defect.
#[test]
fn kept_seeds() {
    for (seed, what) in [
        (0, "a time limit during the grace period of a kill replaced the first failure"),
        (1, "output frames longer than a chunk"),
        (9, "the report of a subtree's end overtook its last output"),
        (2749, "a second interrupt was reported as a second failure"),
        (3850, "the same"),
        (31_770, "the simulator inserted a faulty step between another one and the step that selects its rank"),
        (5529, "a terminal was stopped for longer than the time limit waits for it"),
    ] {
        println!("seed {seed}: {what}");
        let [calm, stormy] = run_with_faults(seed);
        assert_eq!(calm.expect_good().code, Some(0), "seed {seed}");
        stormy.expect_good();
    }
}

#[test]
fn same_seed_same_run() {
    for seed in seeds::seeds(300).take(20) {
        assert_eq!(run(world(seed)), run(world(seed)), "seed {seed}");
        let other = WorldSpec { seed: seed + 1_000_000, ..world(seed) };
        assert_ne!(run(world(seed)).digest, run(other).digest, "seed {seed}");
    }
    for seed in 0..10 {
        for world in [collective_world, group_world, modex_world] {
            assert_eq!(run(world(seed)), run(world(seed)), "seed {seed}");
        }
    }
}
