//! The target of each figure, and whether it was reached.
use super::exchange::{BYTES_EXCHANGES, BYTES_MARK, MEMORY};
use super::flags::{AUTO, Benchmark};
use super::groups;
use super::hydra::{self, BESIDE_HYDRA, HYDRA};
use super::overlap::{self, Kind, PAIRS};
use super::report::{Cell, Judged, Report, at_most, faster, met};
use crate::metric::{Metric, Unit};
use crate::stats;
use crate::verdict::Verdict;

/// The route of an unmodified client's fence: gather and broadcast.
const BASELINE: [&str; 2] = ["tree", AUTO];
const OURS: [&str; 1] = [AUTO];
/// Bytes per value in the ring and the logarithmic exchange: at most this times the value with its length byte.
const BYTES_FACTOR: f64 = 1.05;
/// CPU time of a starting call (seconds), and its growth from the smallest job to the largest.
const START_CPU_MAX: f64 = 30e-6;
const START_CPU_GROWTH_MAX: f64 = 1.3;
/// Growth of a repeated exchange from the first to later rounds: none, except for noise (chosen).
const GROWTH_MAX: f64 = 1.1;
const AGENT_PLUS: f64 = 3.0 * 1048576.0;

const OVERLAP_SLEEPING: f64 = 0.98;
const OVERLAP_SPINNING: f64 = 0.95;
/// What noise may add (chosen).
const OVERLAP_MAX: f64 = 1.05;

pub fn judge(report: &Report) -> Vec<Judged> {
    match report.benchmark {
        Benchmark::Exchange => exchange(report).into_iter().chain(groups::target::judge(report)).collect(),
        Benchmark::Init => init(report),
        Benchmark::Overlap => overlap(report),
    }
}

fn init(report: &Report) -> Vec<Judged> {
    let sizes = [4096, 16384].into_iter();
    let judged = sizes.map(|size| Judged {
        what: format!("init with blocking Fence to init with Iallgather, {size}"),
        target: ">= 5 x".into(),
        source: if size == 16384 { "2.88 x" } else { "" },
        verdict: faster(
            report.find(size, "iallgather", &OURS),
            report.find(size, "text-fence", &OURS),
            Metric::ReadyMedian,
            5.0,
        ),
    });
    judged.collect()
}

fn overlap(report: &Report) -> Vec<Judged> {
    let mut all = Vec::new();
    for (kind, bound, source) in
        [(Kind::Sleep, OVERLAP_SLEEPING, "100 %"), (Kind::Spin, OVERLAP_SPINNING, "89 % at 16384")]
    {
        let cells = PAIRS.iter().flat_map(|(later, _)| {
            let scheme = overlap::name(later, kind);
            report.cells.iter().filter(move |cell| cell.key.scheme == scheme)
        });
        all.extend(cells.map(|cell| Judged {
            what: format!("overlap, {}, {} ranks", cell.key.scheme, cell.key.place.job_size()),
            target: format!(">= {:.0} %", bound * 100.0),
            source,
            verdict:
                cell.median(Metric::Overlap).map_or(Verdict::NotJudged("not run".into()), |share| hidden(share, bound)),
        }));
    }
    all
}

/// More than the whole exchange cannot be hidden: such a figure shows that the times vary too much to be judged.
fn hidden(share: f64, bound: f64) -> Verdict {
    let shown = Unit::Share.show(share);
    if share > OVERLAP_MAX {
        Verdict::NotJudged(format!("{shown} is more than the whole exchange: the times are too noisy"))
    } else {
        met(share >= bound, shown)
    }
}

fn exchange(report: &Report) -> Vec<Judged> {
    let mut all = Vec::new();
    let mut ask = |what: String, target: &str, source: &'static str, verdict: Verdict| {
        all.push(Judged { what, target: target.to_owned(), source, verdict });
    };
    for size in [4096, 8192] {
        ask(
            format!("bytes into a node per value, Allgather, {size}"),
            "<= 1.05 x (value + 1) by ring or log",
            "26 (Fence 35)",
            bytes(report, size),
        );
    }
    let cell = |size, scheme, exchanges: &[&str]| report.find(size, scheme, exchanges);
    ask(
        "Allgather against baseline Fence without gets, 16384".into(),
        "<= 0.5 x",
        "0.62 x",
        at_most(cell(16384, "allgather", &OURS), cell(16384, "text-fence", &BASELINE), Metric::Time, 0.5),
    );
    ask(
        "baseline Fence with all gets to Allgather, 1024".into(),
        ">= 10 x",
        "",
        faster(cell(1024, "allgather", &OURS), cell(1024, "text-get-all", &BASELINE), Metric::Time, 10.0),
    );
    let beside = |scheme| report.find(hydra::PLACE.job_size(), scheme, &[BESIDE_HYDRA]);
    ask(
        "text client under Hydra to our libpmi2: put, fence, get-all, 16x16".into(),
        ">= 20 x",
        "",
        faster(beside("fence-get-all"), beside(HYDRA), Metric::Time, 20.0),
    );
    for scheme in ["iallgather", "ifence"] {
        ask(format!("CPU time of the starting call, {scheme}"), "<= 30 us, every size", "", start_cpu(report, scheme));
        ask(
            format!("the same, largest to smallest job, {scheme}"),
            "<= 1.3 x (16384 to 16)",
            "constant",
            start_cpu_growth(report, scheme),
        );
    }
    for (later, blocking) in [("ifence", "fence"), ("iallgather", "allgather")] {
        for size in report.job_sizes().into_iter().filter(|size| cell(*size, later, &OURS).is_some()) {
            let verdict = at_most(cell(size, later, &OURS), cell(size, blocking, &OURS), Metric::Time, 1.05);
            ask(format!("{later} and wait against {blocking}, {size}"), "<= 1.05 x", "no overhead", verdict);
        }
    }
    for size in report.job_sizes().into_iter().filter(|size| *size >= 1024) {
        for scheme in ["text-fence", "fence"] {
            let verdict = growth(cell(size, scheme, &OURS));
            ask(
                format!("put and fence again and again, {scheme}, {size}: later half of rounds to first"),
                "<= 1.1 x",
                "",
                verdict,
            );
        }
    }
    ask(
        "Fence and two gets to Ring, 16384".into(),
        ">= 3 x",
        "6.3 x at 73728",
        faster(cell(16384, "ring", &OURS), cell(16384, "text-get-2", &BASELINE), Metric::Time, 3.0),
    );
    ask("16384 clients alive, memory of the largest agent".into(), "<= 3 MiB + 2 x pairs", "", memory(report));
    all
}

/// Whether an exchange stays as fast when it is repeated.
fn growth(cell: Option<&Cell>) -> Verdict {
    let values: Vec<f64> =
        cell.map(|cell| cell.values(Metric::Time)).unwrap_or_default().into_iter().flatten().collect();
    let (first, later) = values.split_at(values.len() / 2);
    match (stats::median(first), stats::median(later)) {
        (Some(first), Some(later)) if values.len() >= 4 => {
            met(later <= GROWTH_MAX * first, format!("{:.2} x", later / first))
        }
        _ => Verdict::NotJudged("fewer than 4 rounds".into()),
    }
}

fn bytes(report: &Report, size: u32) -> Verdict {
    let down = |exchange: &str| {
        let counted = |cell: &&Cell| {
            let key = &cell.key;
            key.place.job_size() == size
                && key.scheme == "allgather"
                && key.exchange == format!("{exchange}{BYTES_MARK}")
        };
        report.cells.iter().filter(counted).find_map(|cell| Some((cell.median(Metric::InPerValue)?, cell)))
    };
    let [tree, ring, log] = BYTES_EXCHANGES.map(|exchange| down(exchange).map(|(bytes, _)| bytes));
    let value = down("ring").or(down("log")).map(|(_, cell)| f64::from(cell.key.lengths.value));
    let (Some(value), Some(best)) = (value, [ring, log].into_iter().flatten().reduce(f64::min)) else {
        return Verdict::NotJudged("not run".into());
    };
    let show = |bytes: Option<f64>| bytes.map_or("-".into(), |bytes| format!("{bytes:.2}"));
    let figure = format!("ring {}, log {}, tree {}", show(ring), show(log), show(tree));
    met(best <= BYTES_FACTOR * (value + 1.0), figure)
}

/// Medians of the starting call by job size.
fn starts(report: &Report, scheme: &str) -> Vec<(u32, f64)> {
    let sizes = report.job_sizes().into_iter();
    sizes.filter_map(|size| Some((size, report.find(size, scheme, &OURS)?.median(Metric::StartCpu)?))).collect()
}

fn start_cpu(report: &Report, scheme: &str) -> Verdict {
    let Some((size, worst)) = starts(report, scheme).into_iter().max_by(|a, b| a.1.total_cmp(&b.1)) else {
        return Verdict::NotJudged("not run".into());
    };
    met(worst <= START_CPU_MAX, format!("at most {}, at {size} ranks", Unit::Seconds.show(worst)))
}

fn start_cpu_growth(report: &Report, scheme: &str) -> Verdict {
    let starts = starts(report, scheme);
    match (starts.first(), starts.last()) {
        (Some((16, first)), Some((16384, last))) => {
            let growth = last / first;
            met(growth <= START_CPU_GROWTH_MAX, format!("{growth:.2} x"))
        }
        _ => Verdict::NotJudged("16 and 16384 ranks were not both run".into()),
    }
}

fn memory(report: &Report) -> Verdict {
    let Some(cell) = report.cells.iter().find(|cell| cell.key.scheme == MEMORY) else {
        return Verdict::NotJudged("not run".into());
    };
    let value = |metric| cell.median(metric).unwrap_or(f64::INFINITY);
    // What clients have mapped was created by the agent, and may not be included in the agent's own figure.
    let (agent, shared, pairs) = (value(Metric::AgentMemory), value(Metric::SharedMemory), value(Metric::PairBytes));
    let show = |bytes| Unit::Bytes.show(bytes);
    let figure = format!("{} and {} shared, pairs {}", show(agent), show(shared), show(pairs));
    if cell.key.place.job_size() < 16384 {
        return Verdict::NotJudged(format!("{} ranks: {figure}", cell.key.place.job_size()));
    }
    met(agent + shared <= AGENT_PLUS + 2.0 * pairs, figure)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases::Place;
    use crate::machine::Machine;
    use crate::metric::Sample;
    use crate::startup::report::Key;
    use crate::startup::scheme::Lengths;

    fn report(benchmark: Benchmark, cells: &[(&str, &str, u32, Metric, &[f64])]) -> Report {
        let mut report = Report::new(benchmark, Machine::look());
        report.cells.extend(cells.iter().map(|(scheme, exchange, size, metric, values)| Cell {
            key: Key {
                place: Place { node_count: size / 16, ppn: 16 },
                exchange: (*exchange).into(),
                scheme: (*scheme).into(),
                lengths: Lengths { value: 18, key: 9 },
            },
            runs: values.iter().map(|value| Sample(vec![(*metric, *value)])).collect(),
        }));
        report
    }

    fn verdict(judged: &[Judged], what: &str) -> Verdict {
        judged.iter().find(|judged| judged.what.contains(what)).unwrap_or_else(|| panic!("{what}")).verdict.clone()
    }

    #[test]
    fn bytes_are_judged_by_the_better_of_ring_and_log() {
        let bytes = |ring| {
            let cells = [
                ("allgather", "tree bytes", 4096, Metric::InPerValue, &[20.4][..]),
                ("allgather", "ring bytes", 4096, Metric::InPerValue, ring),
                ("allgather", "log bytes", 4096, Metric::InPerValue, &[20.5]),
            ];
            verdict(&judge(&report(Benchmark::Exchange, &cells)), "Allgather, 4096")
        };
        assert_eq!(bytes(&[19.9]), Verdict::Met("ring 19.90, log 20.50, tree 20.40".into()));
        assert!(matches!(bytes(&[20.0]), Verdict::Missed(_)));
        assert!(matches!(verdict(&judge(&report(Benchmark::Exchange, &[])), "Allgather, 4096"), Verdict::NotJudged(_)));
    }

    #[test]
    fn the_baseline_is_the_tree_if_it_was_measured() {
        let cells = [
            ("text-fence", "auto", 16384, Metric::Time, &[9.0, 1.0, 1.0][..]),
            ("text-fence", "tree", 16384, Metric::Time, &[9.0, 4.0, 4.0]),
            ("allgather", "auto", 16384, Metric::Time, &[9.0, 1.0, 2.0]),
        ];
        let judged = judge(&report(Benchmark::Exchange, &cells));
        assert_eq!(verdict(&judged, "baseline Fence without gets"), Verdict::Met("0.375 x text-fence".into()));
        let judged = judge(&report(Benchmark::Exchange, &[cells[0], cells[2]]));
        assert_eq!(verdict(&judged, "baseline Fence without gets"), Verdict::Missed("1.500 x text-fence".into()));
    }

    #[test]
    fn growth_over_rounds_or_sizes_misses_the_target() {
        let cells = [
            ("fence", "auto", 1024, Metric::Time, &[9.0, 1.0, 1.0, 1.2, 1.2][..]),
            ("ifence", "auto", 16, Metric::StartCpu, &[1.0, 2e-6]),
            ("ifence", "auto", 16384, Metric::StartCpu, &[1.0, 2.8e-6]),
        ];
        let judged = judge(&report(Benchmark::Exchange, &cells));
        assert_eq!(verdict(&judged, "again, fence, 1024"), Verdict::Missed("1.20 x".into()));
        assert_eq!(verdict(&judged, "smallest job, ifence"), Verdict::Missed("1.40 x".into()));
        assert_eq!(verdict(&judged, "starting call, ifence"), Verdict::Met("at most 2.80 us, at 16384 ranks".into()));
    }

    #[test]
    fn overlap_is_judged_by_the_kind_of_work() {
        let cells = [
            ("ifence+sleep", "auto", 256, Metric::Overlap, &[0.5, 0.97][..]),
            ("ifence+spin", "auto spin", 256, Metric::Overlap, &[0.5, 0.97]),
            ("iallgather+sleep", "auto", 256, Metric::Overlap, &[0.5, 1.41]),
        ];
        let judged = judge(&report(Benchmark::Overlap, &cells));
        assert_eq!(verdict(&judged, "ifence+sleep, 256"), Verdict::Missed("97.0 %".into()));
        assert_eq!(verdict(&judged, "ifence+spin, 256"), Verdict::Met("97.0 %".into()));
        let noisy = verdict(&judged, "iallgather+sleep, 256");
        assert!(
            matches!(&noisy, Verdict::NotJudged(why) if why.contains("141.0 %") && why.contains("noisy")),
            "{noisy:?}"
        );
    }
}
