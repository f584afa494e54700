//! A thousand nodes with 64 ranks each: put, fence, get, leave; then the same with a lost link and with a dying rank.

use std::time::Instant;
use wireup_proto::launcher_io::Notice;
use wireup_sim::faults::Fault;
use wireup_sim::workload::{Dialect, Script};
use wireup_sim::{Report, WorldSpec, run};
use wireup_wire::ids::{AgentId, Rank};
use wireup_wire::peer::Cause;

const MS: u64 = 1_000_000;

fn thousand(faults: Vec<Fault>) -> Report {
    let start = Instant::now();
    let even = WorldSpec::even(1, 1000, 64, Script::exchange(Dialect::Pmi1, 32, 2));
    let report = run(WorldSpec { event_max: 20_000_000, faults, ..even }).expect_good();
    // For people: never judged.
    let (seconds, events) = (start.elapsed().as_secs_f64(), report.events);
    println!("{events} events in {seconds:.1} s, {:.0} a second", events as f64 / seconds);
    println!("virtual time {} ms, traffic by class {:?}", report.elapsed_ns / MS, report.classes);
    report
}

fn cause(report: &Report) -> Option<(&Cause, Option<Rank>)> {
    report.notices.iter().find_map(|notice| match notice {
        Notice::Failed(failure) => Some((&failure.cause, failure.rank)),
        _ => None,
    })
}

#[test]
fn a_thousand_nodes_exchange_and_leave() {
    let report = thousand(Vec::new());
    assert_eq!((report.code, report.ranks_started, report.fences), (Some(0), 64_000, 1));
    assert_eq!(report.gets, 64_000 * 4);
}

#[test]
fn one_lost_link_ends_a_thousand_nodes() {
    let report = thousand(vec![Fault::CutLink { agent: 17, at_ns: 9 * MS }]);
    assert_eq!(report.code, Some(125));
    assert!(
        matches!(cause(&report), Some((Cause::AgentLost { agent: AgentId(17), .. }, None))),
        "{:?}",
        report.notices
    );
}

#[test]
fn one_dying_rank_ends_a_thousand_nodes() {
    let report = thousand(vec![Fault::KillRank { rank: 40_000, at_ns: 14 * MS }]);
    assert_eq!((report.code, report.fences), (Some(137), 0));
    let killed = cause(&report)
        .is_some_and(|(cause, rank)| matches!(cause, Cause::Signalled { signal: 9, .. }) && rank == Some(Rank(40_000)));
    assert!(killed, "{:?}", report.notices);
}
