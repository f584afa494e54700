//! Frames and payload bytes of collectives in the simulator, for each agent, link and direction, as recorded in
//! `traffic/recorded.txt`. The end-to-end tests (`dev/e2e/tests/e2e/traffic.rs`) compare real runs with the same
//! record: the agent code is the same in both, so a difference lies around it: in how programs send requests, or in how
//! the agents' drivers send frames.
//!
//! `BLESS=1` records.

use std::fmt::Write;
use std::path::Path;
use std::rc::Rc;
use wireup_coll::allgather::schemes;
use wireup_proto::launcher_io::Notice;
use wireup_sim::WorldSpec;
use wireup_sim::workload::{Dialect, Lens, Script, Step, Which};
use wireup_wire::job::ExchangeScheme;

const NODES: u32 = 4;
const PPN: u32 = 4;
/// The last node has only one rank.
const RANKS: u32 = 13;
const FANOUT: u32 = 2;

/// A line for each agent: its links up, down and direct, each with frames in, bytes in, frames out, bytes out.
fn record(case: &str, exchange: ExchangeScheme, script: Script) -> String {
    let spec = WorldSpec { fanout: FANOUT, ..WorldSpec::even(1, NODES, PPN, Script::default()) };
    let spec = spec.job(|job| job.apps = vec![(RANKS, Rc::new(script))]);
    let spec = spec.options(|options| (options.profile, options.exchange.scheme) = (true, exchange));
    let report = wireup_sim::run(spec).expect_good();
    let traces = report.notices.iter().filter_map(|notice| match notice {
        Notice::Trace(trace) => Some(trace),
        _ => None,
    });
    let mut lines: Vec<_> = traces.map(|trace| (trace.agent.0, trace.traffic)).collect();
    lines.sort_by_key(|(agent, _)| *agent);
    assert_eq!(lines.len(), NODES as usize, "not every agent reported");
    lines.iter().fold(String::new(), |mut text, (agent, traffic)| {
        let links = [("up", traffic.up), ("down", traffic.down), ("direct", traffic.direct)];
        let links = links.map(|(name, link)| {
            format!("{name} {} {} {} {}", link.frames_in, link.bytes_in, link.frames_out, link.bytes_out)
        });
        writeln!(text, "{case} agent {agent} {}", links.join(" ")).expect("a string grows");
        text
    })
}

/// `wireup pmi exchange`: puts and fences in both dialects.
fn of_text_clients() -> String {
    let round = |name| [Step::PutAs { name, value_bytes: 100 }, Step::Fence];
    // The measurements go through one last fence.
    let times = |name| Step::PutAs { name, value_bytes: 125 };
    let mut steps = vec![Step::Init];
    steps.extend(round("wireup-0-"));
    steps.extend(round("wireup-1-"));
    steps.extend([times("wireup-times-0-"), times("wireup-times-1-"), Step::Fence, Step::Finalize]);
    let dialects = [(1, Dialect::Pmi1), (2, Dialect::Pmi2)];
    let cases = schemes().zip(dialects.into_iter().cycle());
    cases
        .map(|((name, scheme), (number, dialect))| {
            record(&format!("pmi-{number} {name}"), scheme, Script::new(dialect, &steps))
        })
        .collect()
}

/// Our library: fences, allgathers and rings, several in progress at once, with few bytes and with so many that even
/// `auto` leaves the tree.
fn of_our_library() -> String {
    let put = |name, value_bytes| Step::PutAs { name, value_bytes };
    let script = |value_bytes| {
        Script::own(&[
            Step::Init,
            put("card-0-", 33),
            Step::StartFence,
            Step::StartAllgather { lens: Lens::Fixed(value_bytes), shared: true },
            Step::Ring { value_bytes: 40 },
            Step::Wait(Which::All),
            put("card-1-", 500),
            Step::StartFence,
            Step::Wait(Which::All),
            Step::StartFence,
            Step::Wait(Which::All),
            Step::Finalize,
        ])
    };
    let cases = [18, 60_000].into_iter().flat_map(|value_bytes| schemes().map(move |scheme| (value_bytes, scheme)));
    cases.map(|(bytes, (name, scheme))| record(&format!("library-{bytes} {name}"), scheme, script(bytes))).collect()
}

#[test]
fn traffic_is_as_recorded() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/traffic/recorded.txt");
    let text = of_text_clients() + &of_our_library();
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, &text).expect("the record can be written");
    }
    assert!(std::fs::read_to_string(&path).unwrap_or_default() == text, "traffic differs from {}", path.display());
}
