//! The profile as JSON.

use super::report::TapReport;
use serde_json::{Value, json};
use wireup_tap::{End, Record};

pub fn value(report: &TapReport, command: &str) -> Value {
    let since = |at: u64| if at == 0 { Value::Null } else { ms(at.saturating_sub(report.from_ns)) };
    let rank = |record: &Record| {
        let tally = &record.tally;
        let fences: Vec<Value> = tally
            .fence_times
            .iter()
            .filter(|times| times.0 > 0)
            .map(|&(from, to)| json!([since(from), since(to)]))
            .collect();
        let (code, signal) = match record.end {
            End::Exit(code) => (Some(code), None),
            End::Signal(signal) => (None, Some(signal)),
        };
        json!({
            "rank": record.rank, "node": record.node, "exit_code": code, "signal": signal,
            "tap_ms": since(record.tap_ns), "exec_ms": since(record.exec_ns), "loaded_ms": since(tally.loaded_ns),
            "first_request_ms": since(tally.first_ns), "finalize_ms": since(tally.finalize_ns),
            "end_ms": since(record.end_ns),
            "fences_ms": fences,
            "until_first_request": until_first_request(record),
        })
    };
    let fences: Vec<Value> = report
        .fences
        .iter()
        .map(|fence| {
            json!({
                "ranks": fence.ranks, "first_in_ms": since(fence.first_in_ns), "last_in_ms": since(fence.last_in_ns),
                "last_out_ms": since(fence.last_out_ns), "last_rank": fence.last_rank,
            })
        })
        .collect();
    json!({
        "launcher": report.launcher(), "pmi": report.spoken(), "size": report.size, "nodes": report.nodes,
        "missing": report.missing, "refused": report.refused,
        "total_ms": ms(report.end_ns.saturating_sub(report.from_ns)),
        "fences": fences, "requests": report.kinds, "start": report.start,
        "ranks": report.records.values().map(rank).collect::<Vec<_>>(),
        "wireup": { "command": command },
    })
}

/// The resources (CPU time, page faults, reads, mapped files) that a rank used until its first request; `null`: they
/// are not known, as with PMIx.
fn until_first_request(record: &Record) -> Value {
    let effort = &record.effort;
    if effort.mapped_files == 0 {
        return Value::Null;
    }
    json!({
        "cpu_ms": ms(effort.cpu_ns), "waiting_for_core_ms": ms(effort.core_wait_ns),
        "major_faults": effort.major_faults, "read_calls": effort.read_calls, "read_bytes": effort.read_bytes,
        "mapped_files": effort.mapped_files,
    })
}

fn ms(ns: u64) -> Value {
    json!(ns as f64 / 1e6)
}
