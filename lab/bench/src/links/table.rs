//! The measurements as tables for the terminal.
use std::fmt::Write as _;

use super::flags::Benchmark;
use super::report::{Report, Series};
use crate::verdict::Verdict;

pub fn text(report: &Report) -> String {
    let flags = &report.flags;
    let mut text = match flags.benchmark {
        Benchmark::P2p => {
            let cpus = flags.cpus.map(|(first, second)| format!(", on cpus {first} and {second}"));
            format!(
                "\n{} nodes, fan-out {}, between nodes {} and {}{}; median of {} rounds\n",
                flags.nodes,
                flags.fanout,
                flags.pair.0,
                flags.pair.1,
                cpus.unwrap_or_default(),
                flags.rounds
            )
        }
        Benchmark::Coll => format!(
            "\nallgather among {} nodes, fan-out {}; median of {} rounds\n",
            flags.nodes, flags.fanout, flags.rounds
        ),
    };
    matrix(report, "latency [us]", |series, bytes| series.latency_s(bytes).map(|s| s * 1e6), &mut text);
    if flags.benchmark == Benchmark::P2p {
        matrix(report, "bandwidth [MB/s]", |series, bytes| series.bandwidth(bytes).map(|rate| rate / 1e6), &mut text);
    }
    for series in report.series.iter().filter(|series| !series.failures.is_empty()) {
        let _ = writeln!(text, "{}: {} runs failed: {}", series.name, series.failures.len(), series.failures[0]);
    }
    for judged in &report.judged {
        let (word, shown) = match &judged.verdict {
            Verdict::Met(shown) => ("met", shown),
            Verdict::Missed(shown) => ("MISSED", shown),
            Verdict::NotJudged(why) => ("not judged", why),
        };
        let _ = writeln!(text, "{word}: {}: {shown}", judged.figure);
    }
    text
}

fn matrix(report: &Report, what: &str, of: impl Fn(&Series, u32) -> Option<f64>, text: &mut String) {
    let _ = write!(text, "\n{:>16}", what);
    for series in &report.series {
        let _ = write!(text, " {:>15}", series.name);
    }
    text.push('\n');
    for bytes in report.sizes() {
        let _ = write!(text, "{bytes:>14} B");
        for series in &report.series {
            let shown = of(series, bytes).map_or_else(|| "-".to_owned(), |value| format!("{value:.1}"));
            let _ = write!(text, " {shown:>15}");
        }
        text.push('\n');
    }
}
