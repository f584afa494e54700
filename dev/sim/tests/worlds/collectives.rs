//! Collectives of all kinds, with every scheme, many in progress: random worlds, each without faults, then with faults
//! while collectives are in progress; the same for barriers of groups. `WIREUP_SIM_SEEDS` selects other seeds.

use crate::seeds;
use std::collections::BTreeMap;
use wireup_sim::random::collectives::{collective_world, group_world, group_world_with_faults, with_faults};
use wireup_sim::workload::{BarrierGroup, Dialect, Script, Step, Who};
use wireup_sim::{RunReport, WorldSpec, run};
use wireup_wire::ids::Rank;
use wireup_wire::job::PmiVersion;
use wireup_wire::peer::{Cause, Failure};

/// The most time that a run with faults takes longer than the run without (ns). Agents wait for a direct link until 20
/// s after the start timeout; a rank that hangs is ended after 30 s.
const END_NS_MAX: u64 = 40_000_000_000;

#[test]
fn every_rule_holds_in_every_collective_world() {
    let (mut calm_sum, mut quiet, mut causes) = (0, 0, BTreeMap::new());
    let mut broken = Vec::new();
    for seed in seeds::seeds(300) {
        // The test runner shows this only if the test fails with this seed.
        println!("seed {seed}");
        let (calm, stormy, may_hang) = run_both(seed);
        let is_late = stormy.elapsed_ns > calm.elapsed_ns + END_NS_MAX || (cause(&stormy) == "TimedOut" && !may_hang);
        broken.extend(seeds::broken(seed, &calm, &stormy, is_late.then_some("is late")));
        calm_sum += calm.jobs.collectives;
        quiet += calm.checks.quiet;
        *causes.entry(cause(&stormy)).or_insert(0) += 1;
    }
    seeds::expect_none(&broken);
    println!("{calm_sum} collectives; all was quiet {quiet} times; stormy runs ended by {causes:?}");
    assert!(quiet > 0, "no run checked the state that agents keep");
}

/// Runs a world without and with its faults; also returns whether one of its ranks may hang.
fn run_both(seed: u64) -> (RunReport, RunReport, bool) {
    let calm = run(collective_world(seed));
    let stormy = with_faults(seed, &calm);
    let may_hang = stormy.jobs[0].apps.iter().any(|(_, script)| script.steps.contains(&Step::Hang));
    (calm, run(stormy), may_hang)
}

fn cause(report: &RunReport) -> String {
    match report.failure().map(|failure| &failure.cause) {
        None => format!("{:?}", report.code),
        Some(Cause::Pmi { problem }) => problem.clone(),
        Some(cause) => format!("{cause:?}").split([' ', '(']).next().unwrap_or_default().to_owned(),
    }
}

/// Seeds that once failed, each with the defect that it found.
#[test]
fn kept_seeds() {
    for (seed, what) in [
        (3521, "a job ended on a node whose lazy fence was not complete, and its part in the ring was missing"),
        (5240, "the same, and a rank on another node waited forever"),
    ] {
        println!("seed {seed}: {what}");
        let (calm, stormy, _) = run_both(seed);
        assert_eq!(calm.expect_good().code, Some(0), "seed {seed}");
        stormy.expect_good();
    }
}

#[test]
fn every_rule_holds_in_every_world_of_groups() {
    let (mut barriers, mut left, mut broken) = (0, 0, Vec::new());
    for seed in seeds::seeds(300) {
        // The test runner shows this only if the test fails with this seed.
        println!("seed {seed}");
        let calm = run(group_world(seed));
        let stormy = run(group_world_with_faults(seed, &calm));
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
