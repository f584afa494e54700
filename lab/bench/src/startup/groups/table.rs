//! Tables of groups of ranks: one for each kind of figures.
use super::super::report::{Cell, Report};
use super::{
    AGENTS, FROM_EXEC, FROM_EXEC_CORES, FROM_MAIN, HELD, HELD_SIMULATED, JOINS, PAIR, PEERS, SIMULATED, SPINNING,
};
use crate::metric::Metric;
use crate::table::align;
use crate::verdict::ratio;

type Columns = &'static [(Metric, &'static str)];

const COUNTS: Columns = &[
    (Metric::Time, "time"),
    (Metric::Rounds, "rounds"),
    (Metric::Messages, "messages"),
    (Metric::MessagesAll, "all ranks"),
    (Metric::Sent, "bytes"),
    (Metric::SentAll, "all ranks"),
    (Metric::Questions, "requests"),
    (Metric::Disagreeing, "differ"),
];
const HOLDS: Columns = &[
    (Metric::Connections, "connections"),
    (Metric::ConnectionsAll, "of the job"),
    (Metric::Addresses, "addresses"),
    (Metric::NodeAddresses, "of a node"),
    (Metric::NodeDifferent, "different"),
    (Metric::ClientMemory, "memory"),
    (Metric::Questions, "requests"),
    (Metric::Time, "time"),
];
const BARRIERS: Columns = &[(Metric::Time, "time"), (Metric::Whole, "whole")];
const JOINING: Columns = &[(Metric::JoinMedian, "median rank"), (Metric::JoinMax, "slowest")];
const MAIN: Columns = &[(Metric::FromMain, "first main to last end"), (Metric::RankMedian, "median rank")];
const EXEC: Columns = &[
    (Metric::FromExec, "exec to answer"),
    (Metric::AfterMain, "farthest main to answer"),
    (Metric::RankMedian, "median rank"),
];
/// The kinds, their columns, and whether the first column of others is shown as a ratio to the first scheme's.
const KINDS: [(&str, Columns, bool); 11] = [
    (PEERS, COUNTS, false),
    (SIMULATED, COUNTS, false),
    (HELD, HOLDS, false),
    (HELD_SIMULATED, HOLDS, false),
    (PAIR, BARRIERS, true),
    (AGENTS, BARRIERS, true),
    (JOINS, JOINING, true),
    (FROM_MAIN, MAIN, true),
    (FROM_EXEC, EXEC, true),
    (FROM_EXEC_CORES, EXEC, true),
    (SPINNING, BARRIERS, true),
];
/// The most columns of a kind, and those for the scheme, the ranks and the ratio or the rounds.
const WIDTH: usize = 8 + 4;

pub fn is_kind(exchange: &str) -> bool {
    KINDS.iter().any(|(kind, ..)| *kind == exchange)
}

pub fn tables(report: &Report) -> String {
    KINDS.iter().map(|(kind, columns, has_ratio)| of_kind(report, kind, columns, *has_ratio)).collect()
}

fn of_kind(report: &Report, kind: &str, columns: Columns, has_ratio: bool) -> String {
    let cells: Vec<&Cell> =
        report.cells.iter().filter(|cell| cell.key.exchange == kind && !cell.runs.is_empty()).collect();
    let Some(first) = cells.first() else { return String::new() };
    let shown: Vec<&(Metric, &str)> =
        columns.iter().filter(|(metric, _)| cells.iter().any(|cell| cell.median(*metric).is_some())).collect();
    let mut rows = vec![row(["scheme".into(), "ranks".into()], shown.iter().map(|(_, name)| (*name).to_owned()))];
    for cell in &cells {
        let values = shown.iter().map(|(metric, _)| show(cell, *metric));
        let mut row = row([cell.key.scheme.clone(), cell.key.place.job_size().to_string()], values);
        row[shown.len() + 2] = cell.runs.len().saturating_sub(usize::from(cell.runs.len() > 1)).to_string();
        if has_ratio && let Some((metric, _)) = shown.first() {
            let ratio = ratio(&cell.values(*metric), &first.values(*metric));
            row[shown.len() + 3] = ratio.map_or("-".into(), |ratio| format!("{ratio:.3}"));
        }
        rows.push(row);
    }
    rows[0][shown.len() + 2] = "rounds timed".into();
    if has_ratio {
        rows[0][shown.len() + 3] = format!("x {}", first.key.scheme);
    }
    let mut is_right = [true; WIDTH];
    is_right[0] = false;
    format!(
        "\n{kind}: values of {} bytes, {} ranks a node at most\n{}",
        first.key.lengths.value,
        ppn(&cells),
        align(&rows, &is_right)
    )
}

fn ppn(cells: &[&Cell]) -> u32 {
    cells.iter().map(|cell| cell.key.place.ppn).max().unwrap_or(0)
}

fn show(cell: &Cell, metric: Metric) -> String {
    cell.median(metric).map_or("-".into(), |value| metric.unit().show(value))
}

fn row(head: [String; 2], values: impl Iterator<Item = String>) -> [String; WIDTH] {
    let mut row: [String; WIDTH] = Default::default();
    for (place, value) in row.iter_mut().zip(head.into_iter().chain(values)) {
        *place = value;
    }
    row
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases::Place;
    use crate::machine::Machine;
    use crate::metric::Sample;
    use crate::startup::flags::Benchmark;
    use crate::startup::report::Key;
    use crate::startup::scheme::Lengths;

    #[test]
    fn each_kind_has_a_table_with_the_columns_that_have_figures() {
        assert!(KINDS.iter().all(|(_, columns, _)| columns.len() + 4 <= WIDTH));
        let mut report = Report::new(Benchmark::Exchange, Machine::look());
        let mut add = |exchange: &str, scheme: &str, metric, values: &[f64]| {
            report.cells.push(Cell {
                key: Key {
                    place: Place { node_count: 2, ppn: 1 },
                    exchange: exchange.into(),
                    scheme: scheme.into(),
                    lengths: Lengths { value: 18, key: 9 },
                },
                runs: values.iter().map(|value| Sample(vec![(metric, *value)])).collect(),
            });
        };
        add(PEERS, "group-barrier", Metric::Rounds, &[6.0]);
        add(PAIR, "barrier-peers", Metric::Time, &[9.0, 2e-5, 2e-5]);
        add(PAIR, "bare-8-bytes", Metric::Time, &[9.0, 1e-5, 1e-5]);
        add(JOINS, JOINS, Metric::JoinMax, &[]);
        let text = tables(&report);
        assert!(text.contains("rounds") && !text.contains("connections") && !text.contains(JOINS), "{text}");
        let bare = text.lines().find(|line| line.trim_start().starts_with("bare-8-bytes")).unwrap();
        assert_eq!(bare.split_whitespace().collect::<Vec<_>>(), ["bare-8-bytes", "2", "10.0", "us", "2", "0.500"]);
    }
}
