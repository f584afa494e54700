//! Barriers of groups: random worlds, each run without faults, then with faults while ranks wait. `WIREUP_SIM_SEEDS`
//! selects other seeds.

use crate::seeds;
use wireup_sim::random::groups::{group_world, with_faults};
use wireup_sim::run;
use wireup_sim::spec::WorldSpec;
use wireup_sim::workload::{BarrierGroup, Dialect, Script, Step, Who};
use wireup_wire::ids::Rank;
use wireup_wire::job::PmiVersion;
use wireup_wire::peer::{Cause, Failure};

#[test]
fn every_rule_holds_in_every_world_of_groups() {
    let (mut barriers, mut left, mut broken) = (0, 0, Vec::new());
    for seed in seeds::seeds(300) {
        // The test runner shows this only if the test fails with this seed.
        println!("seed {seed}");
        let calm = run(group_world(seed));
        let stormy = run(with_faults(seed, &calm));
        barriers += calm.jobs.barriers;
        left += u32::from(stormy.failure().is_some_and(is_left));
        broken.extend(seeds::broken(seed, &calm, &stormy, None));
    }
    seeds::expect_none(&broken);
    println!("{barriers} barriers; {left} jobs ended by a member that left");
    assert!(barriers > 0 && left > 0);
}

fn is_left(failure: &Failure) -> bool {
    matches!(failure.cause, Cause::LeftGroup { .. })
}

/// 64 nodes with 4 ranks each. One rank leaves after the first barrier of its group, and the other members enter a
/// second barrier. There are no fences.
#[test]
fn a_member_that_left_is_named() {
    let late = 17 * 4 + 2;
    let all = Step::Barrier(BarrierGroup { who: Who::Alike(3), tag: 7 });
    let steps = [Step::Init, all, Step::OnlyRank { rank: late }, Step::Finalize, Step::OnlyRank { rank: late }];
    let rest = [Step::Exit { code: 0 }, all, Step::Finalize, Step::Exit { code: 0 }];
    let steps: Vec<Step> = steps.into_iter().chain(rest).collect();
    let script = Script::new(Dialect::Pmi1, &steps);
    let spec = WorldSpec { fanout: 4, ..WorldSpec::even(1, 64, 4, script) };
    let spec = spec.options(|options| options.pmi.version = PmiVersion::Groups);
    let report = run(spec).expect_good();
    let failure = report.failure().expect("the job fails");
    assert!(is_left(failure), "{failure:?}");
    assert_eq!((failure.rank, report.code), (Some(Rank(late)), Some(1)));
    assert!(report.jobs.barriers >= 2, "the first round of the other groups");
}
