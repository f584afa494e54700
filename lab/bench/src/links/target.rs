//! Targets for the agents' links, checked within one run.
use super::flags::Benchmark;
use super::report::{Judged, Report, Series};
use crate::stats;
use crate::verdict::Verdict;

/// The latency is at most this many times that of a bare program.
const LATENCY_FACTOR: f64 = 1.3;
/// The bandwidth is at least this part of a bare program's.
const BANDWIDTH_FACTOR: f64 = 0.85;
/// A direct link is at least this many times as fast as the tree (S3: orders of magnitude, where the tree's hops go
/// through daemons).
const DIRECT_FACTOR: f64 = 3.0;
/// Allgathers are at least this many times as fast as peers' fences.
const PEER_FACTOR: f64 = 3.0;
const SMALL: u32 = 8;
const LARGE: u32 = 4 << 20;
/// Sizes at which allgathers are compared with peers.
const GATHERED: std::ops::RangeInclusive<u32> = 64..=65_536;

pub fn judge(report: &Report) -> Vec<Judged> {
    match report.flags.benchmark {
        Benchmark::P2p => vec![
            latency(report, "tcp", "bare C", SMALL),
            latency(report, "ucx", "perftest, sleeps", SMALL),
            bandwidth(report),
            direct(report),
        ],
        Benchmark::Coll => {
            report.series.iter().filter(|series| series.is_peer).map(|peer| gathered(report, peer)).collect()
        }
    }
}

/// The median of the ratios of each round.
fn ratio(subject: &Series, reference: &Series, bytes: u32) -> Option<f64> {
    let (subject, reference) = (subject.rounds_s(bytes), reference.rounds_s(bytes));
    let ratios: Vec<f64> = subject.iter().zip(&reference).map(|(subject, reference)| subject / reference).collect();
    stats::median(&ratios)
}

fn verdict(is_met: bool, shown: String) -> Verdict {
    if is_met { Verdict::Met(shown) } else { Verdict::Missed(shown) }
}

fn of_two(report: &Report, subject: &str, reference: &str, bytes: u32) -> Result<f64, Verdict> {
    let series = |name: &str| report.get(name).ok_or_else(|| Verdict::NotJudged(format!("{name} was not timed")));
    let (subject, reference) = (series(subject)?, series(reference)?);
    ratio(subject, reference, bytes).ok_or_else(|| {
        let problem = subject.failures.iter().chain(&reference.failures).next();
        Verdict::NotJudged(problem.cloned().unwrap_or_else(|| "not timed".into()))
    })
}

fn latency(report: &Report, subject: &str, reference: &str, bytes: u32) -> Judged {
    let figure = format!("{subject}, {bytes} B: latency at most {LATENCY_FACTOR} x {reference}");
    let verdict = of_two(report, subject, reference, bytes)
        .map_or_else(|why| why, |ratio| verdict(ratio <= LATENCY_FACTOR, format!("{ratio:.2} x")));
    Judged { figure, verdict }
}

fn bandwidth(report: &Report) -> Judged {
    let figure = format!("tcp, {LARGE} B: bandwidth at least {BANDWIDTH_FACTOR} x bare C");
    let verdict = of_two(report, "bare C", "tcp", LARGE)
        .map_or_else(|why| why, |ratio| verdict(ratio >= BANDWIDTH_FACTOR, format!("{ratio:.2} x")));
    Judged { figure, verdict }
}

fn direct(report: &Report) -> Judged {
    let figure = format!("tree against tcp, {SMALL} B: at least {DIRECT_FACTOR} x the latency");
    let verdict = of_two(report, "tree", "tcp", SMALL)
        .map_or_else(|why| why, |ratio| verdict(ratio >= DIRECT_FACTOR, format!("{ratio:.2} x")));
    Judged { figure, verdict }
}

/// Takes the best of our schemes at each size, and of these the worst size.
fn gathered(report: &Report, peer: &Series) -> Judged {
    let figure = format!("allgather, 64 B to 64 KiB: at least {PEER_FACTOR} x as fast as {}", peer.name);
    let ours: Vec<&Series> = report.series.iter().filter(|series| !series.is_peer).collect();
    let mut worst: Option<(f64, u32)> = None;
    for bytes in report.sizes().into_iter().filter(|bytes| GATHERED.contains(bytes)) {
        let best = ours.iter().filter_map(|series| ratio(peer, series, bytes)).max_by(f64::total_cmp);
        if let Some(best) = best.filter(|best| worst.is_none_or(|(worst, _)| *best < worst)) {
            worst = Some((best, bytes));
        }
    }
    let verdict = match worst {
        Some((ratio, bytes)) => verdict(ratio >= PEER_FACTOR, format!("{ratio:.2} x at {bytes} B")),
        None => Verdict::NotJudged(peer.failures.first().cloned().unwrap_or_else(|| "not timed".into())),
    };
    Judged { figure, verdict }
}

#[cfg(test)]
mod tests {
    use super::super::flags::read;
    use super::super::measure::Measured;
    use super::super::subject::Subject;
    use super::*;
    use crate::machine::Machine;

    fn report(benchmark: Benchmark, times: &[(Subject, u32, f64)]) -> Report {
        let flags = read(benchmark, &wireup_flags::Line::default()).unwrap();
        let mut report = Report::new(&flags, Machine::look());
        for (subject, bytes, ns) in times {
            let one = Measured { bytes: *bytes, iterations: 1, mean_ns: *ns, median_ns: *ns, least_ns: *ns };
            report.add(subject, vec![one]);
        }
        report
    }

    #[test]
    fn agent_links_are_judged_against_the_bare_program() {
        let pair = |transport| Subject::Pair { transport };
        let times = [
            (Subject::Bare, 8, 100.0),
            (pair("tcp"), 8, 125.0),
            (pair("tree"), 8, 300.0),
            (pair("ucx"), 8, 100.0),
            (Subject::UcxPerftest { sleeps: true }, 8, 49.0),
            (Subject::UcxPerftest { sleeps: false }, 8, 1.0),
            (Subject::Bare, LARGE, 80.0),
            (pair("tcp"), LARGE, 100.0),
        ];
        let met: Vec<bool> = judge(&report(Benchmark::P2p, &times))
            .iter()
            .map(|judged| matches!(judged.verdict, Verdict::Met(_)))
            .collect();
        assert_eq!(met, [true, true, false, false], "0.8 of the bandwidth and 2.4 times the latency are not enough");
        let judged = judge(&report(Benchmark::P2p, &times[..2]));
        assert!(matches!(judged[1].verdict, Verdict::NotJudged(_)), "{judged:?}");
    }

    #[test]
    fn allgathers_are_judged_by_the_best_scheme_at_the_worst_size() {
        let peer = Subject::Peer { name: "other".into(), command: String::new() };
        let all = |exchange| Subject::All { exchange, transport: None };
        let times = [
            (peer.clone(), 64, 400.0),
            (all("tree"), 64, 100.0),
            (all("ring"), 64, 900.0),
            (peer.clone(), 1024, 400.0),
            (all("tree"), 1024, 900.0),
            (all("ring"), 1024, 150.0),
            (peer, 8, 1.0),
            (all("tree"), 8, 10.0),
        ];
        let judged = judge(&report(Benchmark::Coll, &times));
        assert_eq!(judged[0].verdict, Verdict::Missed("2.67 x at 1024 B".into()));
    }
}
