//! Figures like the source's (S3: latency over size, both logarithmic), and bandwidth.
use super::flags::Benchmark;
use super::report::{Report, Series};
use crate::startup::chart::{Axis, Chart, Line, Style};

pub fn charts(report: &Report) -> Vec<Chart> {
    let flags = &report.flags;
    let chart = |name, title: String, values, of: &dyn Fn(&Series, u32) -> Option<f64>| {
        let line = |series: &Series| Line {
            name: series.name.clone(),
            style: Style::Measured,
            points: series.by_size.keys().filter_map(|&bytes| Some((f64::from(bytes), of(series, bytes)?))).collect(),
        };
        let lines = report.series.iter().map(line).collect();
        Chart { name, title, across: "size, B", values, axis: Axis::Log, lines, note: String::new() }
    };
    let latency = |series: &Series, bytes| series.latency_s(bytes);
    match flags.benchmark {
        Benchmark::P2p => vec![
            chart("p2p-latency", format!("Between two of {} agents", flags.nodes), "lat, s", &latency),
            chart("p2p-bandwidth", format!("Between two of {} agents", flags.nodes), "MB/s", &|series, bytes| {
                series.bandwidth(bytes).map(|rate| rate / 1e6)
            }),
        ],
        Benchmark::Coll => {
            vec![chart("coll-latency", format!("Allgather among {} agents", flags.nodes), "latency, s", &latency)]
        }
    }
}
