//! Standing sessions by seed: jobs from many launchers, agents that are lost and return. `WIREUP_SIM_SEEDS=1000..2000` (or a count)
//! asks for others.

mod seeds;

use wireup_sim::session::random::{calm, stormy};
use wireup_sim::session::spec::{Fault, JobPlan};
use wireup_sim::session::{SessionSpec, run};

#[test]
fn every_rule_holds_in_every_session() {
    let (mut launched, mut succeeded, mut torn, mut lost) = (0, 0, 0, 0);
    for seed in seeds::seeds(200) {
        // Shown only if this seed panics.
        println!("seed {seed}");
        let report = run(calm(seed)).expect_good();
        assert_eq!((report.torn, report.nodes.1), (0, 0), "seed {seed}");
        let report = run(stormy(seed)).expect_good();
        launched += report.launched;
        succeeded += report.succeeded;
        torn += report.torn;
        lost += report.nodes.1;
    }
    println!("{succeeded} of {launched} jobs succeeded, {torn} lost a node; {lost} nodes were lost at the end");
}

#[test]
fn same_seed_same_session() {
    for seed in seeds::seeds(200).take(10) {
        assert_eq!(run(stormy(seed)), run(stormy(seed)), "seed {seed}");
        let other = SessionSpec { seed: seed + 1_000_000, ..stormy(seed) };
        assert_ne!(run(stormy(seed)).digest, run(other).digest, "seed {seed}");
    }
}

/// A thousand jobs leave no more behind than ten.
#[test]
fn agents_do_not_grow_with_jobs() {
    let after = |jobs: u64| {
        let job = |index: u64| JobPlan::plain(10_000_000 * index, [(index % 5) as u32, (index % 4) as u32 + 5, 9], 1);
        let spec = SessionSpec { agents: 10, fanout: 3, jobs: (0..jobs).map(job).collect(), ..SessionSpec::default() };
        let report = run(spec).expect_good();
        assert_eq!(u64::from(report.succeeded), jobs);
        report.holds
    };
    let (few, many) = (after(90), after(1080));
    for (few, many) in few.iter().zip(&many) {
        assert_eq!((few.jobs, few.early_frames, few.session), (many.jobs, many.early_frames, many.session));
    }
}

/// Fan-out 2: agent 1 is lost with 3 and 4 below it, and returns.
#[test]
fn the_tree_closes_around_a_lost_agent() {
    const SECOND: u64 = 1_000_000_000;
    let on = |at_ns, agents: &[u32]| JobPlan::plain(at_ns, agents.iter().copied(), 2);
    let long = JobPlan { work_ns: 3 * SECOND, ..on(SECOND / 2, &[3, 4, 6]) };
    let hit = JobPlan { work_ns: 3 * SECOND, ..on(SECOND / 2, &[0, 1, 2]) };
    let spec = SessionSpec {
        jobs: vec![long, hit, on(2 * SECOND, &[3, 6]), on(2 * SECOND, &[0, 1, 3]), on(20 * SECOND, &[1, 3, 4])],
        faults: vec![(SECOND, Fault::KillAgent { agent: 1 }), (10 * SECOND, Fault::Revive)],
        ..SessionSpec::default()
    };
    let report = run(spec).expect_good();
    assert_eq!((report.launched, report.succeeded, report.torn, report.nodes), (5, 4, 1, (7, 0)));
}
