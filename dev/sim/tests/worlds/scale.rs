//! Launch and one allgather of all ranks' addresses on many nodes, with costs. The large world is for a machine that
//! has time and memory for it:
//!
//! ```text
//! WIREUP_SIM_SCALE=16384x64 cargo test --release -p wireup-sim --test worlds scale:: -- --ignored --nocapture
//! ```
#![expect(clippy::disallowed_types, reason = "it shows what a world takes of the machine")]

use std::time::Instant;
use wireup_sim::costs::Costs;
use wireup_sim::spec::Timing;
use wireup_sim::workload::{Lens, Script, Step, Which};
use wireup_sim::{RunReport, WorldSpec, run};
use wireup_wire::frame::Class;
use wireup_wire::job::ExchangeScheme;

const COSTS: Costs = Costs {
    hosts_per_machine: 1,
    cores: 36,
    call_ns: 200_000,
    shell_ns: 1_000_000,
    agent_ns: 2_000_000,
    handshake_ns: 200_000,
    input_ns: 3_000,
    frame_ns: 5_000,
    card_kib_ns: 850,
    kib_ns: 300,
    fork_ns: 100_000,
    load_ns: 20_000,
    exec_ns: 800_000,
    request_ns: 5_000,
    answer_ns: 2_000,
};
const FANOUT: u32 = 32;
const ADDRESS_BYTES: u32 = 24;

/// The blocks of all nodes go up the tree and down again: then all agents of the simulator share one buffer.
fn launch_and_allgather(nodes: u32, ppn: u32) -> RunReport {
    let lens = Lens::Fixed(ADDRESS_BYTES);
    let steps = [Step::Init, Step::StartAllgather { lens, shared: true }, Step::Wait(Which::All), Step::Finalize];
    let timing = Timing { costs: Some(COSTS), batch_permille: 0, cut_permille: 0, ..Timing::default() };
    let even = WorldSpec::even(1, nodes, ppn, Script::own(&steps));
    let spec = WorldSpec { timing, fanout: FANOUT, event_max: u64::MAX, ..even };
    run(spec.options(|options| options.exchange.scheme = ExchangeScheme::Tree)).expect_good()
}

/// Each link carries one frame up and one down, whose bytes are those of all nodes.
fn check(report: &RunReport, nodes: u32, ppn: u32) {
    let ranks = nodes * ppn;
    assert_eq!((report.code, report.checks.started, report.jobs.collectives), (Some(0), ranks, 1));
    let exchange = report.classes[Class::Exchange as usize];
    let values = u64::from(ranks) * u64::from(ADDRESS_BYTES + 1);
    assert_eq!(exchange.frames, 2 * u64::from(nodes - 1));
    assert!(exchange.bytes > u64::from(nodes - 1) * values, "{exchange:?}");
}

#[test]
fn ranks_of_many_nodes_have_all_addresses() {
    check(&launch_and_allgather(200, 8), 200, 8);
}

#[test]
#[ignore = "takes a size from the environment"]
fn a_world_of_any_size() {
    let size = std::env::var("WIREUP_SIM_SCALE").unwrap_or("64x64".into());
    let numbers = size.split_once('x').and_then(|(nodes, ppn)| Some((nodes.parse().ok()?, ppn.parse().ok()?)));
    let (nodes, ppn) = numbers.expect("WIREUP_SIM_SCALE is nodes and ranks per node, as 16384x64");
    let start = Instant::now();
    let report = launch_and_allgather(nodes, ppn);
    check(&report, nodes, ppn);
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux shows the memory of a process");
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default().trim();
    let (seconds, ms) = (start.elapsed().as_secs_f64(), report.elapsed_ns / 1_000_000);
    println!(
        "{size}: {seconds:.1} s, memory {peak}, simulated {ms} ms, {} events, {:?}",
        report.events, report.classes
    );
}
