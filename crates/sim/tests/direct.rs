//! Links beside the tree, as the ring and the logarithmic allgather want them: made once, missed with a reason, broken.

use wireup_proto::launcher_io::Notice;
use wireup_sim::faults::Fault;
use wireup_sim::workload::{Dialect, Script, Step, Whose};
use wireup_sim::{Report, WorldSpec, run};
use wireup_wire::job::ExchangeScheme;
use wireup_wire::peer::{Cause, Failure};

const MS: u64 = 1_000_000;
const SEEDS: u64 = 20;
const OURS: u8 = 125;

/// 7 nodes, 0 - (1, 2), 1 - (3, 4), 2 - (5, 6), with two fences; between them ranks compute for 100 ms.
fn world(seed: u64, exchange: ExchangeScheme) -> WorldSpec {
    let mut steps = vec![Step::Init];
    for pair in 0..2 {
        steps.push(Step::Put { pair, value_bytes: 40 });
        steps.push(Step::Fence);
        steps.push(Step::Get { pair, value_bytes: 40, whose: Whose::All });
        steps.push(Step::Compute { ns: 100 * MS });
    }
    steps.push(Step::Finalize);
    let script = Script::new(Dialect::Pmi2, &steps);
    WorldSpec { exchange, fanout: 2, ..WorldSpec::even(seed, 7, 2, script) }
}

fn failure(report: &Report) -> Option<&Failure> {
    report.notices.iter().find_map(|notice| match notice {
        Notice::Failed(failure) => Some(failure),
        _ => None,
    })
}

#[test]
fn each_pair_that_speaks_has_one_link_for_the_whole_job() {
    for seed in 0..SEEDS {
        // The ring 0-1-…-6-0 has only 0-1 in common with the tree. Distances 1, 2 and 4 modulo 7 are all pairs: 21.
        for (exchange, links) in [(ExchangeScheme::Tree, 0), (ExchangeScheme::Ring, 6), (ExchangeScheme::Bruck, 15)] {
            let report = run(world(seed, exchange)).expect_good();
            assert_eq!((report.code, report.fences), (Some(0), 2), "seed {seed}, {exchange:?}");
            assert_eq!(report.direct_links, links, "seed {seed}, {exchange:?}");
        }
    }
}

#[test]
fn a_node_that_cannot_be_dialled_is_named() {
    for seed in 0..SEEDS {
        let faults = (0..7).map(|agent| Fault::NoDial { agent }).collect();
        let report = run(WorldSpec { faults, ..world(seed, ExchangeScheme::Ring) }).expect_good();
        assert_eq!(report.code, Some(OURS), "seed {seed}: {:?}", report.notices);
        let Some(Failure { host, cause: Cause::NoDirectLink { agent, host: other, problem }, .. }) = failure(&report)
        else {
            panic!("seed {seed}: {:?}", report.notices)
        };
        assert!(host != other && *other == format!("node{agent}"), "seed {seed}: {host}, {other}");
        assert_eq!(*problem, format!("agent {agent}: Connection refused"));
    }
}

#[test]
fn a_link_that_breaks_ends_the_job_and_says_so() {
    for seed in 0..SEEDS {
        let at_ns = between_fences(seed);
        let faults = vec![Fault::CutDirect { agent: 3, at_ns }];
        let report = run(WorldSpec { faults, ..slow(seed) }).expect_good();
        assert_eq!(report.code, Some(OURS), "seed {seed}: {:?}", report.notices);
        let named = failure(&report).map(|failure| &failure.cause);
        assert!(
            matches!(named, Some(Cause::NoDirectLink { problem, .. }) if problem.contains("connection timed out")),
            "seed {seed}: {named:?}"
        );
    }
}

#[test]
fn of_an_agent_that_dies_the_tree_tells() {
    for seed in 0..SEEDS {
        let at_ns = between_fences(seed);
        let faults = vec![Fault::KillAgent { agent: 3, at_ns }];
        let report = run(WorldSpec { faults, ..slow(seed) }).expect_good();
        let named = failure(&report).map(|failure| &failure.cause);
        assert!(matches!(named, Some(Cause::AgentLost { .. })), "seed {seed}: {named:?}");
    }
}

/// Ranks compute for longer than a broken link is left to the tree to explain.
fn slow(seed: u64) -> WorldSpec {
    let steps = [
        Step::Init,
        Step::Put { pair: 0, value_bytes: 40 },
        Step::Fence,
        Step::Compute { ns: 5000 * MS },
        Step::Put { pair: 1, value_bytes: 40 },
        Step::Fence,
        Step::Finalize,
    ];
    let script = Script::new(Dialect::Pmi1, &steps);
    WorldSpec { exchange: ExchangeScheme::Ring, fanout: 2, ..WorldSpec::even(seed, 7, 2, script) }
}

/// A moment in a slow world when its ranks compute.
fn between_fences(seed: u64) -> u64 {
    run(slow(seed)).expect_good().elapsed_ns - 2500 * MS
}
