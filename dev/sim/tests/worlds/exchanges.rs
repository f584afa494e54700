//! Named scenarios of collectives: how large ones are sent, what happens to a rank that does not wait, which rank is
//! reported when it does not enter, what a lazy fence guarantees.

use std::rc::Rc;
use wireup_sim::fault_injection::{Fault, NoStart};
use wireup_sim::workload::{Dialect, Lens, Script, Step, Which, Whose};
use wireup_sim::{WorldSpec, run};
use wireup_wire::frame::Class;
use wireup_wire::ids::{Epoch, Rank};
use wireup_wire::job::{ExchangeScheme, PmiFence};
use wireup_wire::peer::{Cause, Failure};

const MS: u64 = 1_000_000;
const SEEDS: u64 = 5;
const ALLGATHER: Step = Step::StartAllgather { lens: Lens::UpTo(300), shared: false };
const ALL: Step = Step::Wait(Which::All);

fn schemes() -> impl Iterator<Item = ExchangeScheme> {
    wireup_coll::allgather::schemes().map(|(_, scheme)| scheme)
}

/// A world of 7 nodes with 3 ranks each, in a binary tree.
fn world(seed: u64, exchange: ExchangeScheme, script: Script) -> WorldSpec {
    let world = WorldSpec { fanout: 2, ..WorldSpec::even(seed, 7, 3, script) };
    world.options(|options| options.exchange.scheme = exchange)
}

fn own(steps: &[Step]) -> Script {
    Script::own(&[&[Step::Init], steps, &[Step::Finalize]].concat())
}

/// The steps, each preceded by one that restricts it to rank 9.
fn one_alone(steps: &[Step]) -> Vec<Step> {
    steps.iter().flat_map(|step| [Step::OnlyRank { rank: 9 }, *step]).collect()
}

/// Runs a world that must fail with a failure that fits `is_so`.
#[track_caller]
fn fails(spec: WorldSpec, is_so: impl Fn(&Failure) -> bool) {
    let report = run(spec).expect_good();
    assert!(report.failure().is_some_and(is_so), "seed {}: {:?}", report.seed, report.notices);
}

#[test]
fn few_bytes_take_the_tree_and_many_do_not() {
    for seed in 0..SEEDS {
        for (len, is_direct) in [(300, false), (60_000, true)] {
            let allgather = Step::StartAllgather { lens: Lens::Fixed(len), shared: true };
            let script = own(&[allgather, ALL, Step::StartFence, ALL]);
            let report = run(world(seed, ExchangeScheme::Auto, script)).expect_good();
            assert_eq!((report.code, report.jobs.collectives), (Some(0), 2), "seed {seed}");
            assert_eq!(report.direct_links > 0, is_direct, "seed {seed}: {len} bytes");
        }
    }
}

#[test]
fn a_rank_that_dies_with_collectives_outstanding_ends_the_job() {
    for seed in 0..SEEDS {
        for exchange in schemes() {
            let steps =
                [&[Step::StartFence, ALLGATHER][..], &one_alone(&[Step::Die { signal: 11 }]), &[ALLGATHER, ALL]];
            fails(world(seed, exchange, own(&steps.concat())), |failure| {
                matches!(failure.cause, Cause::Signalled { signal: 11, .. }) && failure.rank == Some(Rank(9))
            });
        }
    }
}

#[test]
fn a_rank_that_leaves_with_collectives_outstanding_is_named() {
    for seed in 0..SEEDS {
        for exchange in schemes() {
            // Rank 0 is late, so rank 9 may not finalize; it exits nevertheless. Its collectives would still complete,
            // and without a check the other ranks would never notice.
            let late = [Step::OnlyRank { rank: 0 }, Step::Compute { ns: 100 * MS }];
            let leaves = one_alone(&[Step::Finalize, Step::Exit { code: 0 }]);
            let steps = [&late[..], &[ALLGATHER, ALLGATHER], &leaves, &[ALL, Step::Compute { ns: 5_000 * MS }]];
            fails(world(seed, exchange, own(&steps.concat())), |failure| {
                matches!(failure.cause, Cause::NotFinalized { .. }) && failure.rank == Some(Rank(9))
            });
        }
    }
}

#[test]
fn one_that_leaves_before_the_third_of_four_breaks_that_one() {
    for seed in 0..SEEDS {
        for exchange in schemes() {
            let leaves = one_alone(&[ALL, Step::Finalize, Step::Exit { code: 0 }]);
            let steps = [&[Step::StartFence, ALLGATHER][..], &leaves, &[ALLGATHER, Step::StartFence, ALL]];
            fails(world(seed, exchange, own(&steps.concat())), |failure| {
                // The failure of rank 9 may be noticed at the third collective or the fourth, depending on which rank's
                // node reports first.
                let third = matches!(failure.cause, Cause::LeftFence { epoch: Epoch(2..=3), finalized: true, .. });
                third && failure.rank == Some(Rank(9))
            });
        }
    }
}

#[test]
fn different_collectives_are_told_apart() {
    for seed in 0..SEEDS {
        for exchange in schemes() {
            let steps = [&[Step::StartFence][..], &one_alone(&[Step::StartFence]), &[ALLGATHER, Step::StartFence, ALL]];
            fails(world(seed, exchange, own(&steps.concat())), |failure| {
                let Cause::Pmi { problem } = &failure.cause else { return false };
                problem.contains("collective 1 of the job")
            });
        }
    }
}

/// An agent waits for its direct link with a missing node, and learns from the tree that the node is missing.
#[test]
fn a_node_that_is_missing_is_told_by_the_tree() {
    for seed in 0..SEEDS {
        for exchange in [ExchangeScheme::RING, ExchangeScheme::BRUCK] {
            for agent in [2, 6] {
                let faults = vec![Fault::NoStart { agent, how: NoStart::ShellFails { code: 255 } }];
                let spec = WorldSpec { faults, ..world(seed, exchange, own(&[ALLGATHER, ALL])) };
                fails(spec, |failure| {
                    let Cause::AgentsMissing { missing } = &failure.cause else { return false };
                    missing.iter().any(|missing| missing.agent.0 == agent)
                });
            }
        }
    }
}

fn lazy(seed: u64, exchange: ExchangeScheme, steps: &[Step]) -> WorldSpec {
    let script = Script::new(Dialect::Pmi1, &[&[Step::Init], steps, &[Step::Finalize]].concat());
    world(seed, exchange, script).options(|options| options.pmi.fence = PmiFence::Lazy)
}

/// The checkers verify that a get returns what the rank's fence has published, and that no get is answered before that.
#[test]
fn a_get_waits_for_lazy_fences_and_nothing_else_does() {
    let put = |pair| Step::Put { pair, value_bytes: 40 };
    let get = |pair| Step::Get { pair, value_bytes: 40, whose: Whose::All };
    for seed in 0..SEEDS {
        for exchange in schemes() {
            let late = one_alone(&[Step::Compute { ns: 100 * MS }]);
            let steps =
                [&late[..], &[put(0), Step::Fence, put(1), Step::Fence, get(1), get(0), Step::GetMissing]].concat();
            let report = run(lazy(seed, exchange, &steps)).expect_good();
            assert_eq!((report.code, report.jobs.fences, report.checks.gets), (Some(0), 2, 2 * 21 * 21), "seed {seed}");
        }
    }
}

/// A node forwards the data of its ranks that do not wait for the fence.
#[test]
fn ranks_that_leave_in_lazy_fences_hold_nobody_up() {
    for seed in 0..SEEDS {
        for exchange in schemes() {
            let put = Step::Put { pair: 0, value_bytes: 40 };
            let get = one_alone(&[Step::Get { pair: 0, value_bytes: 40, whose: Whose::All }]);
            let steps = [&[put, Step::Fence][..], &get].concat();
            let report = run(lazy(seed, exchange, &steps)).expect_good();
            assert_eq!((report.code, report.jobs.fences, report.checks.gets), (Some(0), 1, 21), "seed {seed}");
        }
    }
}

#[test]
fn a_lazy_fence_without_puts_is_a_barrier() {
    for seed in 0..SEEDS {
        let report = run(lazy(seed, ExchangeScheme::Auto, &[Step::Fence, Step::Fence])).expect_good();
        assert_eq!((report.code, report.jobs.fences), (Some(0), 2), "seed {seed}");
        // Rank 9 never enters the fence, and the waiting ranks get an error.
        let finalizes = one_alone(&[Step::Finalize, Step::Exit { code: 0 }]);
        let steps = [&finalizes[..], &[Step::Put { pair: 0, value_bytes: 8 }, Step::Fence, Step::Fence]].concat();
        fails(lazy(seed, ExchangeScheme::Auto, &steps), |failure| {
            matches!(failure.cause, Cause::LeftFence { .. }) && failure.rank == Some(Rank(9))
        });
    }
}

/// Most ranks leave before fence 1. Then two ranks leave before fence 0; as it is the earlier fence, these ranks must
/// be reported, too.
#[test]
fn the_earliest_departure_counts() {
    for seed in 0..SEEDS {
        let put = [Step::Put { pair: 0, value_bytes: 8 }, Step::Fence];
        let leaves = Script::new(Dialect::Pmi1, &[&[Step::Init][..], &put, &[Step::Finalize]].concat());
        let late = [Step::Init, Step::Compute { ns: 100 * MS }, Step::Finalize];
        let waits = Script::new(Dialect::Pmi1, &[Step::Init, Step::Fence, Step::Finalize]);
        let apps = vec![(18, leaves), (2, Script::new(Dialect::Pmi1, &late)), (1, waits)];
        let apps = apps.into_iter().map(|(ranks, script)| (ranks, Rc::new(script))).collect();
        fails(lazy(seed, ExchangeScheme::Auto, &[]).job(|job| job.apps = apps), |failure| {
            matches!(failure.cause, Cause::LeftFence { epoch: Epoch(0), .. })
        });
    }
}

/// The blocks of all nodes go up the tree and down again.
#[test]
fn an_allgather_by_the_tree_crosses_each_link_once_in_each_direction() {
    let (nodes, ppn, address_bytes) = (200, 8, 24);
    let start = Step::StartAllgather { lens: Lens::Fixed(address_bytes), shared: true };
    let even =
        WorldSpec::even(1, nodes, ppn, Script::own(&[Step::Init, start, Step::Wait(Which::All), Step::Finalize]));
    let report = run(even.options(|options| options.exchange.scheme = ExchangeScheme::Tree)).expect_good();
    assert_eq!((report.code, report.checks.started, report.jobs.collectives), (Some(0), nodes * ppn, 1));
    let (exchange, links) = (report.classes[Class::Exchange as usize], u64::from(nodes - 1));
    assert_eq!(exchange.frames, 2 * links);
    assert!(exchange.bytes > links * u64::from(nodes * ppn * (address_bytes + 1)), "{exchange:?}");
}
