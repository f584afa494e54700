//! The results of a startup benchmark as files: JSON with everything, CSV with one line per sample.
use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use super::report::{Cell, Report};
use crate::metric::Sample;

/// Increased when a reader of older files would misread newer ones.
const FORMAT: u32 = 1;

pub fn json(report: &Report) -> Value {
    json!({
        "benchmark": report.benchmark.name(),
        "format": FORMAT,
        "machine": report.machine,
        "warnings": report.warnings,
        "targets": report.judged,
        "series": report.cells.iter().map(series).collect::<Vec<_>>(),
    })
}

fn series(cell: &Cell) -> Value {
    let key = &cell.key;
    let mut metrics: Vec<_> = cell.runs.iter().flat_map(|Sample(values)| values.iter().map(|(m, _)| *m)).collect();
    metrics.sort_unstable_by_key(|metric| metric.name());
    metrics.dedup();
    let figures: Vec<Value> = metrics
        .into_iter()
        .map(|metric| json!({ "metric": metric, "unit": metric.unit().name(), "summary": cell.summary(metric) }))
        .collect();
    json!({
        "scheme": key.scheme,
        "exchange": key.exchange,
        "ranks": key.place.job_size(),
        "node_count": key.place.node_count,
        "ppn": key.place.ppn,
        "value_bytes": key.lengths.value,
        "key_bytes": key.lengths.key,
        "figures": figures,
        "runs": cell.runs.iter().map(|Sample(values)| {
            values.iter().map(|(metric, value)| (metric.name().to_owned(), json!(value))).collect::<Map<_, _>>()
        }).collect::<Vec<_>>(),
    })
}

/// The first line names the columns; if there are several rounds, round 0 is the warm-up.
pub fn csv(report: &Report) -> String {
    let mut text =
        String::from("benchmark,ranks,nodes,ppn,exchange,value_bytes,key_bytes,scheme,round,metric,unit,value\n");
    for cell in &report.cells {
        let key = &cell.key;
        let head = format!(
            "{},{},{},{},{},{},{},{}",
            report.benchmark.name(),
            key.place.job_size(),
            key.place.node_count,
            key.place.ppn,
            key.exchange,
            key.lengths.value,
            key.lengths.key,
            key.scheme
        );
        for (round, Sample(values)) in cell.runs.iter().enumerate() {
            for (metric, value) in values {
                // Writing to a string cannot fail.
                let _ = writeln!(text, "{head},{round},{metric},{},{value}", metric.unit().name());
            }
        }
    }
    text
}
