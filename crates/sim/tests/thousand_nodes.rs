//! A thousand nodes with 64 ranks each: put, fence, get, leave.

use std::time::Instant;
use wireup_sim::workload::{Dialect, Script};
use wireup_sim::{WorldSpec, run};

#[test]
fn a_thousand_nodes_exchange_and_leave() {
    let start = Instant::now();
    let spec =
        WorldSpec { event_max: 100_000_000, ..WorldSpec::even(1, 1000, 64, Script::exchange(Dialect::Pmi1, 32, 2)) };
    let report = run(spec).expect_good();
    assert_eq!((report.code, report.ranks_started, report.fences), (Some(0), 64_000, 1));
    assert_eq!(report.gets, 64_000 * 4);
    // For people: never judged.
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "{} events in {seconds:.1} s, {:.0} a second; virtual {} ms",
        report.events,
        report.events as f64 / seconds,
        report.elapsed_ns / 1_000_000
    );
    println!("{:?}", report.classes);
}
