//! The results of a case as an aligned table, with its warnings below.
use crate::launcher::Launcher;
use crate::measure::{Measured, Series};
use crate::metric::Metric;
use crate::stats;
use crate::target::Against;
use crate::verdict::{Verdict, judge, ratio, reference_values};

/// If the MAD is more than this part of the median, the spread is called wide (chosen).
const SPREAD_WIDE: f64 = 0.1;
const HEAD: [&str; 9] = ["metric", "launcher", "median", "min", "max", "mad", "ratio", "target", "verdict"];
/// Columns of numbers are right-aligned.
const FLUSH_RIGHT: [bool; 9] = [false, false, true, true, true, true, true, false, false];

type Row = [String; 9];

/// The table with its heading; an empty series has a row that says so.
pub fn table(measured: &Measured, launchers: &[Launcher]) -> String {
    let mut rows = vec![HEAD.map(String::from)];
    for metric in measured.case.metrics() {
        for series in &measured.series {
            rows.extend(rows_of(*metric, series, measured, launchers));
        }
    }
    let reference = match measured.case.reference {
        Against::Own(metric) => format!("ratio to {metric}"),
        Against::Baseline => "ratio to baseline-1".into(),
        Against::Echo => "ratio to echo".into(),
        Against::Hydra | Against::Hydra5 => "ratio to hydra".into(),
        Against::Bare | Against::BareAndBaseline => "ratio to bare".into(),
        Against::Serial => "ratio to serial".into(),
        Against::OpenMpi(version) => format!("ratio to open-mpi-{}", version.major()),
        Against::Srun => "ratio to srun".into(),
        Against::Prun => "ratio to prun".into(),
        Against::Manager => "ratio to the best of srun, prun, flux".into(),
    };
    format!("{}: {}; {reference}\n{}", measured.case.name(), measured.case.describe(), align(&rows, &FLUSH_RIGHT))
}

fn rows_of(metric: Metric, series: &Series, measured: &Measured, launchers: &[Launcher]) -> Vec<Row> {
    let launcher = &launchers[series.launcher];
    let values = series.values(metric);
    let summary = stats::summarize(&values.iter().copied().flatten().collect::<Vec<_>>());
    let unit = metric.unit();
    let base = reference_values(measured.case.reference, metric, series, measured, launchers);
    let ratio = base.ok().and_then(|(_, base)| ratio(&values, &base));
    let show = |of: fn(&stats::Summary) -> f64| summary.as_ref().map_or("-".into(), |s| unit.show(of(s)));
    let mut row = [
        metric.to_string(),
        launcher.name.clone(),
        summary.as_ref().map_or("no figure".into(), |s| unit.show(s.median)),
        show(|s| s.min),
        show(|s| s.max),
        show(|s| s.mad),
        ratio.map_or("-".into(), |r| format!("{r:.2}")),
        String::new(),
        String::new(),
    ];
    if !launcher.is_judged(&measured.case) {
        return vec![row];
    }
    // The first target is shown on the figure's own row, further ones below it.
    let mut rows = Vec::new();
    for target in measured.case.target.iter().filter(|target| target.metric == metric) {
        row[7] = target.to_string();
        row[8] = match judge(target, series, measured, launchers) {
            Verdict::Met(figure) => format!("pass: {figure}"),
            Verdict::Missed(figure) => format!("MISS: {figure}"),
            Verdict::NotJudged(why) => format!("not judged: {why}"),
        };
        rows.push(std::mem::take(&mut row));
    }
    if rows.is_empty() {
        rows.push(row);
    }
    rows
}

/// Warnings that a reader of the figures must see.
pub fn warnings(measured: &Measured, launchers: &[Launcher]) -> Vec<String> {
    let mut lines = Vec::new();
    for series in &measured.series {
        let name = &launchers[series.launcher].name;
        let failed = series.failures().count();
        if let Some(failure) = series.failures().next() {
            let give_up = if series.given_up { "; given up" } else { "" };
            lines.push(format!("{name}: {failed} of {} runs failed{give_up}: {failure}", series.runs.len()));
        }
        let hung: f64 = series.values(Metric::Hung).into_iter().flatten().sum();
        if hung > 0.0 {
            lines.push(format!("{name}: {hung:.0} jobs did not end and were killed; their time is not counted"));
        }
        if series.left_behind > 0 {
            lines.push(format!("{name}: left {} processes behind, killed", series.left_behind));
        }
        for metric in measured.case.metrics().iter().filter(|m| **m != Metric::Cpu) {
            let values: Vec<f64> = series.values(*metric).into_iter().flatten().collect();
            let Some(summary) = stats::summarize(&values) else { continue };
            if summary.outliers > 0 {
                lines.push(format!(
                    "{name}: {metric}: {} of {} rounds are outliers (up to {}): others may have used the machine",
                    summary.outliers,
                    summary.count,
                    metric.unit().show(summary.max)
                ));
            }
            if summary.mad > SPREAD_WIDE * summary.median {
                let percent = 100.0 * summary.mad / summary.median;
                lines.push(format!("{name}: {metric}: wide spread, half of the rounds off by {percent:.0} % or more"));
            }
        }
    }
    lines
}

/// Rows as lines with aligned columns.
pub fn align<const N: usize>(rows: &[[String; N]], flush_right: &[bool; N]) -> String {
    let widths: [usize; N] =
        std::array::from_fn(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0));
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            let width = widths[column];
            let padded = if flush_right[column] { format!("{cell:>width$}") } else { format!("{cell:<width$}") };
            line.push_str("  ");
            line.push_str(&padded);
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::Failure;
    use crate::launcher::Kind;
    use crate::metric::Sample;

    fn fixture() -> (Measured, Vec<Launcher>) {
        let wireup = Launcher { name: "wireup".into(), kind: Kind::Wireup, ..Launcher::echo() };
        let launchers = vec![Launcher::baseline(1), wireup];
        let series = |launcher, walls: &[f64]| Series {
            launcher,
            runs: walls.iter().map(|w| Ok(Sample(vec![(Metric::Wall, *w), (Metric::Cpu, 0.01)]))).collect(),
            given_up: false,
            left_behind: 0,
        };
        let series = vec![series(0, &[1.0, 0.002, 0.002, 0.002]), series(1, &[1.0, 0.004, 0.004, 0.004])];
        (Measured { case: "true-1x4".parse().unwrap(), series, up: Vec::new(), load_1min: 0.0 }, launchers)
    }

    #[test]
    fn rows_are_aligned_and_show_targets_and_verdicts() {
        let (measured, launchers) = fixture();
        let text = table(&measured, &launchers);
        let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
        assert!(lines[0].starts_with("true-1x4: static `true`; 4 ranks, one node; 40 rounds; ratio to baseline-1"));
        let ratio = lines[1].find("ratio").unwrap() + "ratio".len();
        assert!(lines[2][..ratio].ends_with(" 1.00") && lines[3][..ratio].ends_with(" 2.00"), "{text}");
        assert!(
            lines[3].contains("<= 1 x baseline-1 + 3.00 ms") && lines[3].ends_with("pass: 1 x baseline-1 + 2.00 ms")
        );
        assert!(lines[4].trim_start().starts_with("<= 0.6 x hydra-5"), "{text}");
        assert!(lines[4].ends_with("not judged: a Hydra 5 was not timed"));
    }

    #[test]
    fn failures_leftovers_and_outliers_are_reported() {
        let (mut measured, launchers) = fixture();
        assert!(warnings(&measured, &launchers).is_empty());
        measured.series[0].runs.push(Ok(Sample(vec![(Metric::Wall, 1.0)])));
        measured.series[1].runs.push(Err(Failure::TimedOut(5.0)));
        measured.series[1].left_behind = 3;
        let lines = warnings(&measured, &launchers);
        assert_eq!(lines.len(), 3, "{lines:?}");
        assert!(lines[0].starts_with("baseline-1: wall: 1 of 4 rounds are outliers (up to 1.00 s)"));
        assert_eq!(lines[1], "wireup: 1 of 5 runs failed: not finished after 5 s, killed");
        assert_eq!(lines[2], "wireup: left 3 processes behind, killed");
    }
}
