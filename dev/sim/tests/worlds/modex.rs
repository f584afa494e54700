//! PMIx: random worlds, each without faults, then with faults: a server process that dies or never starts, a node that
//! dies in a fence or while others ask for its data, ranks that leave. `WIREUP_SIM_SEEDS` selects other seeds.

use crate::seeds;
use wireup_sim::random::modex::{modex_world, with_faults};
use wireup_sim::workload::{PmixStep, Script, Step, Who, Whose};
use wireup_sim::{WorldSpec, run};
use wireup_wire::job::{Modex, PmiFlavour};
use wireup_wire::peer::{Cause, Failure};

#[test]
fn every_rule_holds_in_every_world_of_pmix() {
    let (mut gets, mut fences, mut excused, mut timeouts, mut servers, mut events) = (0, 0, 0, 0, 0, 0);
    let mut broken = Vec::new();
    for seed in seeds::seeds(300) {
        // The test runner shows this only if the test fails with this seed.
        println!("seed {seed}");
        let calm = run(modex_world(seed));
        let stormy = run(with_faults(seed, &calm));
        for report in [&calm, &stormy] {
            gets += report.checks.gets;
            fences += report.jobs.barriers;
            excused += report.jobs.excused;
            timeouts += report.jobs.timeouts;
            events += report.jobs.events_told;
        }
        let is_server = |failure: &Failure| matches!(failure.cause, Cause::PmixServer { .. });
        servers += u32::from(stormy.failure().is_some_and(is_server));
        broken.extend(seeds::broken(seed, &calm, &stormy, None));
    }
    seeds::expect_none(&broken);
    println!("{fences} fences, {gets} gets, {excused} without who had left, {timeouts} too long, {events} events");
    println!("{servers} jobs ended by their server");
    assert!(fences > 0 && gets > 0 && excused > 0 && timeouts > 0 && servers > 0 && events > 0);
}

/// Direct modex: a node asks only once for the data of a rank, even if several of its own ranks need it.
#[test]
fn a_rank_is_asked_for_once_by_each_node() {
    const NODES: u64 = 5;
    const PPN: u64 = 3;
    let script = |turns: usize| {
        let bare = PmixStep::Fence { who: Who::World, collect: false, timeout_s: None };
        let turn = [PmixStep::Get { whose: Whose::All, key: None }, bare];
        let turns = std::iter::repeat_n(turn, turns).flatten();
        let steps =
            [PmixStep::Init, PmixStep::Commit { bytes: 0 }, bare].into_iter().chain(turns).chain([PmixStep::Finalize]);
        Script::plain(&steps.map(Step::Pmix).chain([Step::Exit { code: 0 }]).collect::<Vec<_>>())
    };
    for seed in 0..20 {
        for turns in [1, 3] {
            let world = WorldSpec::even(seed, NODES as u32, PPN as u32, script(turns));
            let world =
                world.options(|options| (options.pmi.flavour, options.pmi.modex) = (PmiFlavour::Pmix, Modex::Direct));
            let report = run(world).expect_good();
            let ranks = NODES * PPN;
            assert!(
                report.checks.gets >= turns as u64 * ranks * (ranks - 1),
                "seed {seed}: {} gets",
                report.checks.gets
            );
            // At most one request by each node for each rank of another node, and one by each rank's own agent, which
            // keeps the data of ranks that have ended.
            let most = NODES * (ranks - PPN) + ranks;
            assert!(
                (1..=most).contains(&report.jobs.modex_wanted),
                "seed {seed}: {} requests",
                report.jobs.modex_wanted
            );
        }
    }
}
