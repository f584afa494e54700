//! The trace of a simulated run, in the format in which `wireup run --profile` writes the traces of real runs.

use crate::machine::is_built_in;
use crate::plan::{EXCHANGES, Plan, STARTS, Start, name_of, name_of_scheme, ranks_on_nodes};
use wireup_node::launcher::Stamps;
use wireup_node::trace::{About, Trace};
use wireup_proto::launcher_io::Notice;
use wireup_sim::{RunReport, START};
use wireup_wire::peer::{RankTrace, TracePart};

/// The trace of a run whose job recorded time stamps for a profile.
pub fn trace(plan: &Plan, machine: &str, launcher_ns: u64, report: &RunReport) -> Trace {
    // All simulated machines have the same clock, so the clock offsets that agents estimate are replaced by 0.
    let parts = report.notices.iter().filter_map(|notice| match notice {
        Notice::Trace(part) => Some(TracePart { clock_offset_ns: 0, clock_error_ns: 0, ..(**part).clone() }),
        _ => None,
    });
    let parts: Vec<TracePart> = parts.collect();
    let last = |stamp: fn(&RankTrace) -> u64| parts.iter().flat_map(|part| &part.ranks).map(stamp).max().unwrap_or(0);
    let resolved_ns = START.0 + plan.launched_ns();
    let ended_ns = last(|rank| rank.exit_ns);
    let stamps = Stamps {
        process_ns: resolved_ns.saturating_sub(launcher_ns),
        resolved_ns,
        begun_ns: resolved_ns,
        started_ns: last(|rank| rank.exec_ns),
        ended_ns,
        // In a session the launcher's exit is not simulated: the end of the last rank is used instead.
        left_ns: if plan.start == Start::Session { ended_ns } else { START.0 + report.elapsed_ns },
    };
    Trace::new(about(plan, machine), &stamps, &[], &parts)
}

fn about(plan: &Plan, machine: &str) -> About {
    let Plan { ranks, nodes, fanout, start, exchange, scheme, value_bytes, seed, .. } = plan;
    About {
        wireup: env!("CARGO_PKG_VERSION").to_owned(),
        program: String::new(),
        settings: vec![
            ranks_on_nodes(*ranks, *nodes),
            format!("machine: {machine}{}", if is_built_in(machine) { " (built in, not measured here)" } else { "" }),
            format!("start: {}", name_of(&STARTS, start)),
            format!("tree: fan-out {fanout}"),
            format!("exchange: {} of {value_bytes} bytes from each rank", name_of(&EXCHANGES, exchange)),
            format!("scheme: {}", name_of_scheme(*scheme)),
            format!("seed: {seed}"),
        ],
        fanout: *fanout,
        simulated: Some(machine.to_owned()),
        ..About::default()
    }
}
