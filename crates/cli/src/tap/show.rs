//! The profile as text.

use super::report::{Fence, Late, TapReport};
use crate::words::{count, phase_table, ranges};
use std::fmt::Write as _;
use wireup_node::trace::Phase as Row;
use wireup_tap::{End, Record};

/// The whole text, with the command that measures the same start under wireup.
pub fn text(report: &TapReport, command: &str) -> String {
    let (ranks, nodes) = (count(report.records.len() as u32, "rank"), count(report.nodes.len() as u32, "node"));
    let by = if report.launcher().is_empty() { String::new() } else { format!(", started by {}", report.launcher()) };
    let spoken = match report.spoken() {
        "" => ", which made no PMI or PMIx request that the tap could see".to_owned(),
        spoken => format!(", {spoken}"),
    };
    let mut text = format!("wireup: tap: {ranks} on {nodes}{by}{spoken}\n");
    text += &phase_table(&phases(report));
    text += &spreads(report);
    text += &requests(report);
    if report.records.len() > 1 {
        let what = if report.fences.is_empty() { "to their first request" } else { "into fence 0" };
        text += &late("ranks", what, &report.slowest_ranks);
        if report.nodes.len() > 1 {
            text += &late("nodes", what, &report.slowest_nodes);
        }
    }
    text += &notes(report);
    text + &compare(report, command)
}

/// One time stamp of a rank's record.
type Stamp = fn(&Record) -> u64;

fn phases(report: &TapReport) -> Row {
    let records = || report.records.values();
    let last = |stamp: Stamp| {
        let happened = records().filter(|record| stamp(record) > 0);
        let count_of = happened.clone().count() as u32;
        let slowest = happened.max_by_key(|record| stamp(record))?;
        let by = if count_of > 1 { format!(", last rank {} on {}", slowest.rank, slowest.node) } else { String::new() };
        Some((stamp(slowest), format!("{}{by}", count(count_of, "rank"))))
    };
    let first_exec = records().map(|record| record.exec_ns).min().unwrap_or(report.from_ns);
    let mut total = Row::new("total", report.from_ns, report.end_ns, "");
    let exec: Stamp = |record| record.exec_ns;
    let known = records().find(|record| record.launcher_ns > 0);
    let from = match known {
        Some(record) => format!("; from the start of {}", record.process),
        None => "; from the first tap, since the launcher's start is not visible".to_owned(),
    };
    let mut done = report.from_ns;
    let stamps: [(&str, u64, Stamp); 3] = [
        ("spawn", report.from_ns, exec),
        ("load", first_exec, |record| record.tally.loaded_ns),
        ("init", first_exec, |record| record.tally.first_ns),
    ];
    for (name, from_ns, stamp) in stamps {
        if let Some((to_ns, remark)) = last(stamp) {
            let from = if name == "spawn" { from.as_str() } else { "" };
            total.parts.push(Row::new(name, from_ns, to_ns, format!("{remark}{from}")));
            done = done.max(to_ns);
        }
    }
    if let Some(exchange) = exchange(report) {
        done = done.max(exchange.to_ns);
        total.parts.push(exchange);
    }
    if let Some((to_ns, remark)) = last(|record| record.end_ns) {
        total.parts.push(Row::new("run", done, to_ns, remark));
    }
    total
}

fn exchange(report: &TapReport) -> Option<Row> {
    let from = report.fences.iter().map(|fence| fence.first_in_ns).min()?;
    let to = report.fences.iter().map(|fence| fence.last_out_ns).max()?;
    let most = report.records.values().map(|record| record.tally.fences).max().unwrap_or(0);
    let more = most.saturating_sub(report.fences.len() as u64);
    let more = if more > 0 { format!(" shown of {most}") } else { String::new() };
    let mut whole = Row::new("exchange", from, to, format!("{}{more}", count(report.fences.len() as u32, "fence")));
    whole.parts = report.fences.iter().enumerate().map(|(number, fence)| of_fence(report, number, fence)).collect();
    Some(whole)
}

fn of_fence(report: &TapReport, number: usize, fence: &Fence) -> Row {
    let node = report.records.get(&fence.last_rank).map_or("?", |record| record.node.as_str());
    let remark = format!("{}, last in rank {} on {node}", count(fence.ranks, "rank"), fence.last_rank);
    let mut row = Row::new(format!("fence {number}"), fence.first_in_ns, fence.last_out_ns, remark);
    let waiting = "from the first to the last rank that enters: time of the ranks";
    row.parts.push(Row::new("wait", fence.first_in_ns, fence.last_in_ns, waiting));
    row.parts.push(Row::new("move", fence.last_in_ns, fence.last_out_ns, "last in to last out"));
    row
}

fn spreads(report: &TapReport) -> String {
    let mut text = format!("{:<26} {:>10} {:>10} {:>10}\n", "each rank, ms", "least", "median", "most");
    for row in &report.spreads {
        let node = report.records.get(&row.rank).map_or("?", |record| record.node.as_str());
        let who = if report.records.len() > 1 { format!("  rank {} on {node}", row.rank) } else { String::new() };
        let (least, median, most) = (row.least_ms, row.median_ms, row.most_ms);
        let _ = writeln!(text, "{:<26} {least:>10.3} {median:>10.3} {most:>10.3}{who}", row.name);
    }
    text
}

fn requests(report: &TapReport) -> String {
    if report.kinds.is_empty() {
        return String::new();
    }
    let mut text = format!(
        "{:<16} {:>9} {:>12} {:>12} {:>10} {:>10}\n",
        "requests", "number", "bytes sent", "received", "mean ms", "longest"
    );
    for kind in &report.kinds {
        let _ = writeln!(
            text,
            "{:<16} {:>9} {:>12} {:>12} {:>10.3} {:>10.3}",
            kind.name, kind.calls, kind.sent, kind.received, kind.mean_ms, kind.longest_ms
        );
    }
    text
}

fn late(noun: &str, what: &str, late: &[Late]) -> String {
    let all: Vec<String> = late.iter().map(|late| format!("{} ({:.3} ms)", late.who, late.behind_ms)).collect();
    if all.is_empty() {
        return String::new();
    }
    format!("slowest {noun}, behind the median {what}: {}\n", all.join(", "))
}

fn notes(report: &TapReport) -> String {
    let mut text = String::new();
    if !report.missing.is_empty() {
        let ranks = ranges(report.missing.iter().flat_map(|&(first, last)| first..=last));
        let _ = writeln!(
            text,
            "wireup: tap: no record of ranks {ranks}: they still run, have made no request, or their node does not \
             see the folder of --dir"
        );
    }
    for refused in &report.refused {
        let _ = writeln!(text, "wireup: tap: record refused: {}", crate::words::one_line(refused));
    }
    for record in report.failed().take(3) {
        let how = match record.end {
            End::Exit(code) => format!("exit code {code}"),
            End::Signal(signal) => format!("signal {signal}"),
        };
        let _ = writeln!(text, "wireup: tap: rank {} on {} ended with {how}", record.rank, record.node);
    }
    if let Some(lost) = report.records.values().find(|record| record.is_lost) {
        let _ = writeln!(
            text,
            "wireup: tap: rank {} on {} uses an unknown PMI dialect: only some of its requests are counted",
            lost.rank, lost.node
        );
    }
    let mut bare = report.records.values().filter(|record| record.is_bare);
    if let Some(first) = bare.next() {
        let _ = writeln!(
            text,
            "wireup: tap: the tap could not watch the requests of {}, such as rank {} on {}: memory or descriptors \
             ran out there, or PMI_PORT is no address",
            count(bare.count() as u32 + 1, "rank"),
            first.rank,
            first.node
        );
    }
    if report.clocks.moved > 0 {
        let (moved, error) = (report.clocks.moved_ns as f64 / 1e6, report.clocks.error_ns as f64 / 1e6);
        let _ = writeln!(
            text,
            "clocks of the nodes: moved by up to {moved:.3} ms to agree with the fences, off by {error:.3} ms at most"
        );
    }
    if let Some(node) = report.clocks.contradictory.first() {
        let _ = writeln!(
            text,
            "clocks of the nodes: the times of fences on {} contradict each other ({node}, for example) and are not \
             corrected",
            count(report.clocks.contradictory.len() as u32, "node")
        );
    }
    text
}

/// How to measure the same start under wireup.
fn compare(report: &TapReport, command: &str) -> String {
    if report.launcher() == "wireup" { String::new() } else { format!("compare: {command}\n") }
}
