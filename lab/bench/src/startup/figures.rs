//! The figures of the startup benchmarks (S1 figures 1, 9 to 12), with the source's numbers next to ours.
use super::chart::{Axis, Chart, Line, Point, Points, Style};
use super::exchange::BYTES_MARK;
use super::flags::{AUTO, Benchmark};
use super::mpi::MPI;
use super::overlap::{self, Kind, PAIRS};
use super::report::Report;
use super::source;
use super::table::extrapolated_time;
use crate::metric::Metric;

/// Factors from seconds to milliseconds and microseconds.
const MS: f64 = 1e3;
const US: f64 = 1e6;

pub fn charts(report: &Report) -> Vec<Chart> {
    let chart = |name, title: &str, values, axis, lines: Vec<Line>| {
        let has_published = lines.iter().any(|line| matches!(line.style, Style::Published { .. }));
        let mut note = "Medians; bars: smallest and largest value of the rounds.".to_owned();
        if has_published {
            note += &format!("\nPublished: {}", source::CITATION);
        }
        let better = if name == "overlap" { "higher" } else { "lower" };
        let title = format!("{title} ({} cores): {better} is better", report.machine.cores);
        Chart { name, title, across: "ranks", values, axis, lines, note }
    };
    match report.benchmark {
        Benchmark::Exchange => vec![
            chart(
                "exchange-time",
                "Time of an exchange",
                "last start to last end [ms]",
                Axis::Log,
                exchange_times(report),
            ),
            chart(
                "exchange-bytes",
                "Bytes into the worst node for each value",
                "bytes for each value",
                Axis::Linear(40.0),
                exchange_bytes(report),
            ),
            chart(
                "exchange-start",
                "CPU time of the call that starts an exchange",
                "CPU time, median rank [us]",
                Axis::Linear(40.0),
                ["ifence", "iallgather"].map(|scheme| line(report, scheme, Metric::StartCpu, US)).into(),
            ),
        ],
        Benchmark::Init => vec![
            chart(
                "init-schemes",
                "Initialisation of a middleware: local work and exchange",
                "init, median rank [ms]",
                Axis::Log,
                [
                    "text-get-all",
                    "text-get-2",
                    "text-fence",
                    "fence-get-2",
                    "allgather",
                    "ifence",
                    "iallgather",
                    "work",
                ]
                .map(|scheme| line(report, scheme, Metric::ReadyMedian, MS))
                .into(),
            ),
            chart(
                "init-mpi",
                "MPI_Init of a real MPI and the exchange in it",
                "median rank [ms]",
                Axis::Log,
                mpi(report),
            ),
        ],
        Benchmark::Overlap => vec![
            chart("overlap", "Exchange hidden behind other work", "overlap [%]", Axis::Linear(105.0), overlaps(report)),
            chart(
                "overlap-work",
                "Work that is needed to hide an exchange: the time of its blocking form",
                "blocking form, median rank [ms]",
                Axis::Log,
                PAIRS.map(|(_, blocking)| line(report, blocking, Metric::RankMedian, MS)).into(),
            ),
        ],
    }
}

/// Medians of a scheme by job size, in the job without a forced route.
fn line(report: &Report, scheme: &str, metric: Metric, unit: f64) -> Line {
    let sizes = report.job_sizes().into_iter();
    let points = sizes.filter_map(|size| {
        let summary = report.find(size, scheme, &[AUTO])?.summary(metric)?;
        (summary.min > 0.0).then(|| Point::of(size, &summary, unit))
    });
    Line { name: scheme.to_owned(), style: Style::Measured, points: points.collect() }
}

fn exchange_times(report: &Report) -> Vec<Line> {
    let schemes =
        ["text-get-all", "fence-get-all", "text-get-2", "fence-get-2", "text-fence", "fence", "allgather", "ring"];
    let mut lines: Vec<Line> = schemes.map(|scheme| line(report, scheme, Metric::Time, MS)).into();
    let beyond = report.job_sizes().into_iter();
    let beyond = beyond.filter_map(|size| Some((f64::from(size), extrapolated_time(report, size, AUTO)? * MS)));
    lines.push(Line {
        name: "text-get-all, extrapolated".into(),
        style: Style::Extrapolated,
        points: beyond.collect(),
    });
    for (name, rows, is_first) in
        [("Fence, published", &source::FENCE, true), ("Allgather, published", &source::ALLGATHER, false)]
    {
        let points = rows.iter().map(|row| (f64::from(row.job_size), row.total_ms)).collect();
        lines.push(Line { name: name.into(), style: Style::Published { is_first }, points });
    }
    lines
}

fn exchange_bytes(report: &Report) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    for cell in report.cells.iter() {
        let Some(summary) = cell.summary(Metric::InPerValue) else { continue };
        let name = format!("{}, {}", cell.key.scheme, cell.key.exchange.trim_end_matches(BYTES_MARK));
        let point = Point::of(cell.key.place.job_size(), &summary, 1.0);
        match lines.iter_mut().find(|line| line.name == name) {
            Some(line) => line.points.0.push(point),
            None => lines.push(Line { name, style: Style::Measured, points: Points(vec![point]) }),
        }
    }
    if lines.is_empty() {
        return lines;
    }
    for (name, rows, is_first) in
        [("Fence, published", &source::FENCE, true), ("Allgather, published", &source::ALLGATHER, false)]
    {
        let points = rows.iter().map(|row| (f64::from(row.job_size), f64::from(row.bytes_per_value))).collect();
        lines.push(Line { name: name.into(), style: Style::Published { is_first }, points });
    }
    lines
}

fn mpi(report: &Report) -> Vec<Line> {
    let named = |metric, name: &str| {
        let cells = report.cells.iter().filter(|cell| cell.key.scheme == MPI);
        let points = cells.filter_map(|cell| Some(Point::of(cell.key.place.job_size(), &cell.summary(metric)?, MS)));
        Line { name: name.into(), style: Style::Measured, points: points.collect() }
    };
    vec![named(Metric::MpiInit, "MPI_Init"), named(Metric::MpiExchange, "of it with the PMI server")]
}

fn overlaps(report: &Report) -> Vec<Line> {
    let mut lines = Vec::new();
    for kind in [Kind::Sleep, Kind::Spin] {
        for (later, _) in PAIRS {
            let name = overlap::name(later, kind);
            let cells = report.cells.iter().filter(|cell| cell.key.scheme == name);
            let points =
                cells.filter_map(|c| Some(Point::of(c.key.place.job_size(), &c.summary(Metric::Overlap)?, 100.0)));
            lines.push(Line { points: points.collect(), style: Style::Measured, name });
        }
    }
    if lines.iter().any(|line| !line.points.0.is_empty()) {
        let points = [(16384.0, 89.0)].into_iter().collect();
        lines.push(Line { name: "spinning, published".into(), style: Style::Published { is_first: true }, points });
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases::Place;
    use crate::machine::Machine;
    use crate::metric::Sample;
    use crate::startup::report::{Cell, Key};
    use crate::startup::scheme::Lengths;

    fn cell(scheme: &str, exchange: &str, job_size: u32, metric: Metric, value: f64) -> Cell {
        let key = Key {
            place: Place { node_count: 1, ppn: job_size },
            exchange: exchange.into(),
            scheme: scheme.into(),
            lengths: Lengths { value: 18, key: 9 },
        };
        Cell { key, runs: vec![Sample(vec![(metric, value)])] }
    }

    #[test]
    fn charts_name_axes_units_and_the_source() {
        let mut report = Report::new(Benchmark::Exchange, Machine::look());
        for size in [1024, 4096] {
            report.cells.push(cell("text-fence", AUTO, size, Metric::Time, 1e-3 * f64::from(size)));
        }
        report.cells.push(cell("text-get-all", AUTO, 1024, Metric::Time, 5.0));
        report.cells.push(cell("allgather", "ring", 4096, Metric::InPerValue, 19.1));
        let charts = charts(&report);
        let time = charts[0].draw().unwrap();
        assert!(
            time.starts_with("<svg")
                && time.contains("last start to last end [ms]")
                && time.contains("lower is better"),
            "{time}"
        );
        assert!(time.contains("Stampede") && time.contains("4096") && time.contains("extrapolated"));
        let beyond = charts[0].lines.iter().find(|line| line.style == Style::Extrapolated).unwrap();
        // 4.096 s without gets, and 16 times the time of the gets at 1,024 ranks.
        assert_eq!(beyond.points, [(4096.0, 4096.0 + (5000.0 - 1024.0) * 16.0)].into_iter().collect());
        assert!(charts[1].draw().unwrap().contains("allgather, ring"));
        assert_eq!(charts[2].draw(), None, "nothing was measured");
    }
}
