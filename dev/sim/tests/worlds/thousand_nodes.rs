//! A thousand nodes with 64 ranks each: put, fence, get, finalize; then, with 16 ranks each, a lost link and a dying
//! rank. Direct links with wireup's own clients on 128 nodes.
//!
//! Each agent builds its own index when its ranks get; to save time, only the ranks of an eighth of the nodes get.
#![expect(clippy::disallowed_types, reason = "it shows how long the machine takes for a world")]

use std::rc::Rc;
use std::time::Instant;
use wireup_proto::launcher_io::Notice;
use wireup_sim::fault_injection::Fault;
use wireup_sim::workload::{Dialect, Lens, Script, Step, Which, Whose};
use wireup_sim::{RunReport, WorldSpec, run};
use wireup_wire::frame::Class;
use wireup_wire::ids::{AgentId, Rank};
use wireup_wire::job::ExchangeScheme;
use wireup_wire::peer::Cause;

const MS: u64 = 1_000_000;

fn thousand(ppn: u32, faults: Vec<Fault>) -> RunReport {
    let gets = Rc::new(Script::exchange(Dialect::Pmi1, 32, 2));
    let steps = [Step::Init, Step::Put { pair: 0, value_bytes: 32 }, Step::Fence, Step::Finalize];
    let fences = Rc::new(Script::new(Dialect::Pmi1, &steps));
    let apps = vec![(125 * ppn, gets), (875 * ppn, fences)];
    // With the scheme `Tree`, all agents of the simulator share one buffer of the result.
    let exchange = ExchangeScheme::Tree;
    let even = WorldSpec::even(1, 1000, ppn, Script::plain(&[]));
    let even = even.job(|job| job.apps = apps).options(|options| options.exchange.scheme = exchange);
    measure(WorldSpec { faults, ..even })
}

fn measure(spec: WorldSpec) -> RunReport {
    let start = Instant::now();
    let report = run(spec).expect_good();
    // The speed is printed for people; the test does not check it.
    let (seconds, events) = (start.elapsed().as_secs_f64(), report.events);
    println!("{events} events in {seconds:.1} s, {:.0} a second", events as f64 / seconds);
    println!("virtual time {} ms, traffic by class {:?}", report.elapsed_ns / MS, report.classes);
    report
}

fn cause(report: &RunReport) -> Option<(&Cause, Option<Rank>)> {
    report.notices.iter().find_map(|notice| match notice {
        Notice::Failed(failure) => Some((&failure.cause, failure.rank)),
        _ => None,
    })
}

#[test]
fn a_thousand_nodes_exchange_and_leave() {
    let report = thousand(64, Vec::new());
    assert_eq!((report.code, report.checks.started, report.jobs.fences), (Some(0), 64_000, 1));
    assert_eq!(report.checks.gets, 125 * 64 * 4);
}

#[test]
fn one_lost_link_ends_a_thousand_nodes() {
    let report = thousand(16, vec![Fault::CutLink { agent: 17, at_ns: 13 * MS }]);
    assert_eq!(report.code, Some(125));
    assert!(
        matches!(cause(&report), Some((Cause::AgentLost { agent: AgentId(17), .. }, None))),
        "{:?}",
        report.notices
    );
}

#[test]
fn one_dying_rank_ends_a_thousand_nodes() {
    let report = thousand(16, vec![Fault::KillRank { rank: 10_000, at_ns: 14 * MS }]);
    assert_eq!((report.code, report.jobs.fences), (Some(137), 0));
    let killed = cause(&report)
        .is_some_and(|(cause, rank)| matches!(cause, Cause::Signalled { signal: 9, .. }) && rank == Some(Rank(10_000)));
    assert!(killed, "{:?}", report.notices);
}

/// Each peer sends 127 times in a ring and 7 times in the logarithmic allgather, for each of four collectives.
#[test]
fn all_schemes_beside_the_tree() {
    let steps = [
        Step::Init,
        Step::Put { pair: 0, value_bytes: 32 },
        Step::StartFence,
        Step::StartAllgather { lens: Lens::Fixed(18), shared: false },
        Step::StartAllgather { lens: Lens::UpTo(40), shared: true },
        Step::Wait(Which::Random),
        Step::Wait(Which::All),
        Step::LookUp { pair: 0, value_bytes: 32, whose: Whose::Neighbours },
        Step::StartFence,
        Step::Wait(Which::All),
        Step::Finalize,
    ];
    for (exchange, messages) in [(ExchangeScheme::RING, 127), (ExchangeScheme::BRUCK, 7)] {
        let spec =
            WorldSpec::even(2, 128, 16, Script::own(&steps)).options(|options| options.exchange.scheme = exchange);
        let report = measure(spec);
        assert_eq!(
            (report.code, report.jobs.collectives, report.checks.gets),
            (Some(0), 4, 2 * 128 * 16),
            "{exchange:?}"
        );
        // In addition to these frames: a size from each agent except the root, sent up the tree; and for each link its
        // endpoint and first frames through the tree, hop by hop, and acknowledgements.
        let frames = report.classes[Class::Exchange as usize].frames;
        let wanted = 4 * (128 * messages + 127);
        let extra = frames.checked_sub(wanted).expect("no frame is missing");
        assert!(
            extra <= 32 * u64::from(report.direct_links),
            "{exchange:?}: {extra} for {} links",
            report.direct_links
        );
    }
}
