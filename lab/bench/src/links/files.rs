//! The results as files: JSON with everything, CSV with one line per round and size.
use std::fmt::Write as _;

use serde_json::{Value, json};

use super::report::{Report, Series};

/// Increased when a reader of older files would misread newer ones.
const FORMAT: u32 = 1;

pub fn json(report: &Report) -> Value {
    let flags = &report.flags;
    json!({
        "benchmark": flags.benchmark.name(),
        "format": FORMAT,
        "machine": report.machine,
        "nodes": flags.nodes,
        "hosts": flags.across.hosts,
        "fanout": flags.fanout,
        "pair": [flags.pair.0, flags.pair.1],
        "cpus": flags.cpus.map(|(first, second)| [first, second]),
        "targets": report.judged,
        "series": report.series.iter().map(series).collect::<Vec<_>>(),
    })
}

fn series(series: &Series) -> Value {
    let sizes: Vec<Value> = series
        .by_size
        .iter()
        .map(|(&bytes, rounds)| {
            json!({
                "bytes": bytes,
                "iterations": rounds.first().map(|one| one.iterations),
                "latency_s": series.latency_s(bytes),
                "bytes_per_s": series.bandwidth(bytes),
                "rounds_median_s": series.rounds_s(bytes),
                "rounds_mean_s": rounds.iter().map(|one| series.mean_s(one)).collect::<Vec<_>>(),
            })
        })
        .collect();
    json!({ "name": series.name, "sizes": sizes, "failures": series.failures })
}

/// The first line names the columns.
pub fn csv(report: &Report) -> String {
    let mut text = String::from("benchmark,nodes,fanout,name,bytes,round,iterations,median_s,mean_s\n");
    let flags = &report.flags;
    for series in &report.series {
        for (bytes, rounds) in &series.by_size {
            for (round, (one, median_s)) in rounds.iter().zip(series.rounds_s(*bytes)).enumerate() {
                let _ = writeln!(
                    text,
                    "{},{},{},{},{bytes},{},{},{median_s:e},{:e}",
                    flags.benchmark.name(),
                    flags.nodes,
                    flags.fanout,
                    series.name,
                    round + 1,
                    one.iterations,
                    series.mean_s(one)
                );
            }
        }
    }
    text
}
