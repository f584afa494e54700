//! Direct links, as the ring and the logarithmic allgather need them: made once, early or late, missing, broken.

use wireup_sim::fault_injection::Fault;
use wireup_sim::spec::{Delay, Timing};
use wireup_sim::workload::{Dialect, Script, Step, Whose};
use wireup_sim::{RunReport, WorldSpec, run};
use wireup_wire::job::{EarlyWireup, ExchangeScheme};
use wireup_wire::peer::{AgentTransport, Cause, Note};

const MS: u64 = 1_000_000;
const SEEDS: u64 = 20;

/// A tree of 7 nodes, 0 - (1, 2), 1 - (3, 4), 2 - (5, 6), with two fences; after each fence, ranks compute for 100 ms.
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
    let world = WorldSpec { fanout: 2, ..WorldSpec::even(seed, 7, 2, script) };
    world.options(|options| options.exchange.scheme = exchange)
}

fn notes(report: &RunReport) -> Vec<(u32, u32, String)> {
    let note = |note: &Note| match note {
        Note::Routed { agent, peer, problem } => Some((agent.0, peer.0, problem.clone())),
        _ => None,
    };
    report.notes().filter_map(note).collect()
}

#[test]
fn each_pair_that_speaks_has_one_link_for_the_whole_job() {
    for seed in 0..SEEDS {
        // Of the ring 0-1-…-6-0, only the link 0-1 is also in the tree. The pairs at distances 1, 2 and 4 modulo 7 are
        // all 21 pairs.
        for (exchange, links) in [(ExchangeScheme::Tree, 0), (ExchangeScheme::RING, 6), (ExchangeScheme::BRUCK, 15)] {
            for early_wireup in [EarlyWireup::Auto, EarlyWireup::No] {
                let report = run(world(seed, exchange).options(|options| options.exchange.early_wireup = early_wireup))
                    .expect_good();
                assert_eq!((report.code, report.jobs.fences), (Some(0), 2), "seed {seed}, {exchange:?}");
                assert_eq!(report.direct_links, links, "seed {seed}, {exchange:?}");
                assert_eq!(notes(&report), []);
            }
        }
    }
}

#[test]
fn the_tree_alone_is_enough() {
    for seed in 0..SEEDS {
        for exchange in [ExchangeScheme::RING, ExchangeScheme::BRUCK] {
            let report = run(WorldSpec { transport: AgentTransport::Tree, ..world(seed, exchange) }).expect_good();
            assert_eq!(
                (report.code, report.jobs.fences, report.direct_links),
                (Some(0), 2, 0),
                "seed {seed}, {exchange:?}"
            );
            assert_eq!(notes(&report), []);
        }
    }
}

#[test]
fn ucx_is_for_all_or_for_nobody() {
    for seed in 0..SEEDS {
        for exchange in [ExchangeScheme::RING, ExchangeScheme::BRUCK] {
            let spec = WorldSpec { transport: AgentTransport::Ucx, ..world(seed, exchange) };
            let links = if exchange == ExchangeScheme::RING { 6 } else { 15 };
            for faults in [
                vec![],
                vec![Fault::NoTransport { agent: 5 }],
                vec![Fault::NoTransport { agent: 0 }, Fault::NoTransport { agent: 3 }],
            ] {
                let count = faults.len();
                let report = run(WorldSpec { faults, ..spec.clone() }).expect_good();
                assert_eq!((report.code, report.jobs.fences, report.direct_links), (Some(0), 2, links), "seed {seed}");
                let without = report.notes().filter(|note| matches!(note, Note::NoTransport(_)));
                assert_eq!(without.count(), count.min(1), "one agent is reported");
                assert_eq!(notes(&report), []);
            }
        }
    }
}

/// Ranks start late, so only the first collective shows whether the direct links were made by then.
#[test]
fn links_made_while_ranks_start_are_there_when_they_are_wanted() {
    for seed in 0..SEEDS {
        let timing = Timing { spawn: Delay::between(50 * MS, 60 * MS), ..Timing::default() };
        let spec = WorldSpec { timing, ..world(seed, ExchangeScheme::BRUCK) };
        let routed = |early_wireup| {
            let report =
                run(spec.clone().options(|options| options.exchange.early_wireup = early_wireup)).expect_good();
            assert_eq!((report.code, report.direct_links), (Some(0), 15));
            report.routed_frames
        };
        assert_eq!(routed(EarlyWireup::Auto), 0, "seed {seed}");
        assert!(routed(EarlyWireup::No) >= 15, "seed {seed}");
        // With the exchange scheme `auto` the tree may suffice, so no direct link is made in advance unless requested.
        for (early_wireup, links) in [(EarlyWireup::Auto, 0), (EarlyWireup::Yes, 15), (EarlyWireup::No, 0)] {
            let auto = spec.clone().options(|options| {
                options.exchange.early_wireup = early_wireup;
                options.exchange.scheme = ExchangeScheme::Auto;
            });
            assert_eq!(run(auto).expect_good().direct_links, links);
        }
    }
}

#[test]
fn who_cannot_be_dialled_dials_and_of_those_who_cannot_both_ways_one_is_told() {
    for seed in 0..SEEDS {
        let one = vec![Fault::NoDial { agent: 3 }];
        let report = run(WorldSpec { faults: one, ..world(seed, ExchangeScheme::RING) }).expect_good();
        assert_eq!((report.code, report.direct_links, notes(&report)), (Some(0), 6, vec![]), "seed {seed}");
        let all = (0..7).map(|agent| Fault::NoDial { agent }).collect();
        let report = run(WorldSpec { faults: all, ..world(seed, ExchangeScheme::RING) }).expect_good();
        assert_eq!((report.code, report.jobs.fences, report.direct_links), (Some(0), 2, 0), "seed {seed}");
        let told = notes(&report);
        assert_eq!(told.len(), 6, "seed {seed}: one for each pair: {told:?}");
        for (agent, peer, problem) in told {
            let (here, there) =
                (format!("agent {peer}: Connection refused"), format!("agent {agent}: Connection refused"));
            assert_eq!(problem, format!("{here}; in the other direction: {there}"));
        }
    }
}

#[test]
fn a_job_survives_a_link_that_breaks_and_says_so() {
    for seed in 0..SEEDS {
        let at_ns = between_fences(seed);
        let silent = Fault::SilenceDirect { agent: 3, at_ns: at_ns - 2000 * MS };
        for fault in [Fault::CutDirect { agent: 3, at_ns }, silent] {
            let report = run(WorldSpec { faults: vec![fault], ..slow(seed) }).expect_good();
            assert_eq!((report.code, report.jobs.fences), (Some(0), 2), "seed {seed}: {:?}", report.notices);
            let told = notes(&report);
            assert!(told.len() == 1 || told.len() == 2, "seed {seed}: {told:?}");
            assert!(
                told.iter().all(|(_, _, problem)| problem.starts_with("their link broke: ")),
                "seed {seed}: {told:?}"
            );
        }
    }
}

/// Direct links break while the frames of an exchange are in flight on them.
#[test]
fn a_link_that_breaks_in_an_exchange_loses_none_of_it() {
    for seed in 0..10 * SEEDS {
        for exchange in [ExchangeScheme::RING, ExchangeScheme::BRUCK] {
            let calm = run(world(seed, exchange)).expect_good();
            let mut faults = Vec::new();
            for (n, at_ns) in calm.checks.exchange_ns.iter().skip(seed as usize % 7).step_by(5).take(6).enumerate() {
                faults.push(Fault::CutDirect { agent: n as u32, at_ns: at_ns + seed * 500 % 40_000 });
            }
            let report = run(WorldSpec { faults, ..world(seed, exchange) }).expect_good();
            assert_eq!((report.code, report.jobs.fences), (Some(0), 2), "seed {seed}: {:?}", report.notices);
        }
    }
}

#[test]
fn of_an_agent_that_dies_the_tree_tells() {
    for seed in 0..SEEDS {
        let at_ns = between_fences(seed);
        let faults = vec![Fault::KillAgent { agent: 3, at_ns }];
        let report = run(WorldSpec { faults, ..slow(seed) }).expect_good();
        let named = report.failure().map(|failure| &failure.cause);
        assert!(matches!(named, Some(Cause::AgentLost { .. })), "seed {seed}: {named:?}");
        assert_eq!(notes(&report), [], "seed {seed}");
    }
}

/// A world whose ranks compute for longer than agents wait for a report from the tree that explains a broken direct
/// link.
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
    let world = WorldSpec { fanout: 2, ..WorldSpec::even(seed, 7, 2, script) };
    world.options(|options| options.exchange.scheme = ExchangeScheme::RING)
}

/// A time in a slow world when its ranks compute.
fn between_fences(seed: u64) -> u64 {
    run(slow(seed)).expect_good().elapsed_ns - 2500 * MS
}
