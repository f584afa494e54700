//! The results of a startup benchmark as tables for the terminal.
use std::fmt::Write as _;

use super::exchange::{JOIN, MEMORY};
use super::flags::Benchmark;
use super::groups;
use super::hydra::HYDRA;
use super::report::{Cell, Judged, Report};
use super::scheme::TEXT_GETS_RANKS_MAX;
use super::source;
use crate::metric::{Metric, Unit};
use crate::table::align;
use crate::verdict::Verdict;

/// The metrics that a table may have, in order.
const COLUMNS: [(Metric, &str); 18] = [
    (Metric::Overlap, "overlap"),
    (Metric::MpiInit, "MPI_Init"),
    (Metric::MpiExchange, "exchange"),
    (Metric::Time, "time"),
    (Metric::Whole, "whole"),
    (Metric::RankMedian, "rank median"),
    (Metric::RankMax, "rank max"),
    (Metric::ReadyMedian, "ready median"),
    (Metric::ReadyMax, "ready max"),
    (Metric::StartCpu, "start cpu"),
    (Metric::StartCpuMax, "worst"),
    (Metric::AgentCpu, "agents' cpu"),
    (Metric::InPerValue, "in/value, worst node"),
    (Metric::InPerValueMean, "mean"),
    (Metric::UpInPerValue, "gather"),
    (Metric::DownInPerValue, "broadcast"),
    (Metric::DirectInPerValue, "direct"),
    (Metric::FramesIn, "frames"),
];

/// The metrics that are shown for a benchmark, the first of which is compared, and the scheme that it is compared with.
fn shown(benchmark: Benchmark) -> (&'static [Metric], &'static str) {
    use Metric::{
        AgentCpu, DirectInPerValue, DownInPerValue, FramesIn, InPerValue, InPerValueMean, MpiExchange, MpiInit,
        Overlap, RankMax, RankMedian, ReadyMax, ReadyMedian, StartCpu, StartCpuMax, Time, UpInPerValue, Whole,
    };
    match benchmark {
        Benchmark::Exchange => (
            &[
                Time,
                Whole,
                StartCpu,
                StartCpuMax,
                AgentCpu,
                InPerValue,
                InPerValueMean,
                UpInPerValue,
                DownInPerValue,
                DirectInPerValue,
                FramesIn,
            ],
            "text-fence",
        ),
        Benchmark::Init => (&[ReadyMedian, ReadyMax, RankMedian, RankMax, MpiInit, MpiExchange], "text-fence"),
        Benchmark::Overlap => (&[RankMedian, RankMax, Overlap, AgentCpu], "fence"),
    }
}

/// A table for each job.
pub fn tables(report: &Report) -> String {
    let (metrics, base) = shown(report.benchmark);
    let mut text = String::new();
    let mut done: Vec<(u32, &str)> = Vec::new();
    for cell in report.cells.iter().filter(|cell| !groups::table::is_kind(&cell.key.exchange)) {
        let job = (cell.key.place.job_size(), &*cell.key.exchange);
        if !done.contains(&job) {
            done.push(job);
            text += &of_job(report, job, base, metrics);
        }
    }
    text
}

fn of_job(report: &Report, (job_size, exchange): (u32, &str), base: &str, metrics: &[Metric]) -> String {
    let cells: Vec<&Cell> = report
        .cells
        .iter()
        .filter(|cell| cell.key.place.job_size() == job_size && cell.key.exchange == exchange)
        .filter(|cell| cell.key.scheme != JOIN && cell.key.scheme != MEMORY)
        .filter(|cell| metrics.iter().any(|metric| cell.median(*metric).is_some()))
        .collect();
    let Some(first) = cells.first() else { return String::new() };
    let has_figures = |metric: &Metric| cells.iter().any(|cell| cell.median(*metric).is_some());
    let columns: Vec<&(Metric, &str)> =
        COLUMNS.iter().filter(|(metric, _)| metrics.contains(metric) && has_figures(metric)).collect();
    let mut head: [String; COLUMNS.len() + 4] = Default::default();
    head[0] = "scheme".into();
    for (place, (_, name)) in head[1..].iter_mut().zip(&columns) {
        *place = (*name).into();
    }
    let [ratio, rounds, source] = [1, 2, 3].map(|behind| columns.len() + behind);
    (head[ratio], head[rounds], head[source]) = (format!("x {base}"), "rounds".into(), "source".into());
    let mut rows = vec![head];
    let base_cell = report.find(job_size, base, &[exchange]);
    for cell in &cells {
        let mut row: [String; COLUMNS.len() + 4] = Default::default();
        row[0] = cell.key.scheme.clone();
        for (place, (metric, _)) in row[1..].iter_mut().zip(&columns) {
            *place = cell.median(*metric).map_or("-".into(), |value| metric.unit().show(value));
        }
        row[ratio] = base_cell
            .and_then(|base| crate::verdict::ratio(&cell.values(metrics[0]), &base.values(metrics[0])))
            .map_or("-".into(), |ratio| format!("{ratio:.3}"));
        row[rounds] = cell.values(metrics[0]).len().to_string();
        row[source] = published(cell, job_size);
        rows.push(row);
    }
    if report.benchmark == Benchmark::Exchange {
        rows.extend(extrapolated(report, job_size, exchange, &columns));
    }
    let key = &first.key;
    let lengths = match key.lengths.key {
        0 => format!("values of {} bytes, the rank as key", key.lengths.value),
        bytes => format!("values of {} bytes, keys of {bytes}", key.lengths.value),
    };
    let mut flush_right = [true; COLUMNS.len() + 4];
    (flush_right[0], flush_right[source]) = (false, false);
    format!("\n{job_size} ranks ({}), {exchange}: {lengths}\n{}", key.place, align(&rows, &flush_right))
}

/// The source's time or bytes for the same job.
fn published(cell: &Cell, job_size: u32) -> String {
    if cell.median(Metric::ReadyMax).is_some() && cell.median(Metric::Time).is_none() {
        return String::new();
    }
    let row = source::rows_of(&cell.key.scheme).iter().find(|row| row.job_size == job_size);
    let Some(row) = row else { return String::new() };
    match cell.median(Metric::InPerValue) {
        Some(_) => format!("{} B a value", row.bytes_per_value),
        None => format!(
            "{:.0} ms ({:.0} + {:.0} + {:.2})",
            row.total_ms, row.gather_ms, row.broadcast_ms, row.processing_ms
        ),
    }
}

/// Gets by message of all values by all ranks, for jobs larger than the largest one that ran them, extrapolated from
/// that job: P ranks with P gets each.
fn extrapolated(
    report: &Report,
    job_size: u32,
    exchange: &str,
    columns: &[&(Metric, &str)],
) -> Option<[String; COLUMNS.len() + 4]> {
    let time = extrapolated_time(report, job_size, exchange)?;
    let mut row: [String; COLUMNS.len() + 4] = Default::default();
    row[0] = "text-get-all".into();
    row[1..=columns.len()].fill("-".into());
    row[1] = format!("~{}", Unit::Seconds.show(time));
    row[columns.len() + 3] = format!("extrapolated from {TEXT_GETS_RANKS_MAX} ranks");
    Some(row)
}

pub fn extrapolated_time(report: &Report, job_size: u32, exchange: &str) -> Option<f64> {
    if job_size <= TEXT_GETS_RANKS_MAX {
        return None;
    }
    let median = |size, scheme| report.find(size, scheme, &[exchange])?.median(Metric::Time);
    let (all, fence) = (median(TEXT_GETS_RANKS_MAX, "text-get-all")?, median(TEXT_GETS_RANKS_MAX, "text-fence")?);
    let growth = (f64::from(job_size) / f64::from(TEXT_GETS_RANKS_MAX)).powi(2);
    Some(median(job_size, "text-fence")? + (all - fence).max(0.0) * growth)
}

/// `PMI2_Init` and memory of each job, and the verdicts.
pub fn tail(report: &Report) -> String {
    let mut text = String::new();
    for cell in &report.cells {
        let show = |metric: Metric| cell.median(metric).map_or("-".into(), |value| metric.unit().show(value));
        let size = cell.key.place.job_size();
        // Writing to a string cannot fail.
        let _ = match &*cell.key.scheme {
            JOIN => writeln!(
                text,
                "{size} ranks, {}: PMI2_Init {} (slowest {}); at rest: largest agent {}, client {}, shared {}",
                cell.key.exchange,
                show(Metric::JoinMedian),
                show(Metric::JoinMax),
                show(Metric::AgentMemory),
                show(Metric::ClientMemory),
                show(Metric::SharedMemory)
            ),
            MEMORY => writeln!(
                text,
                "{size} ranks on {}, put, fence, two gets: largest agent {}, with keepers {}, client {}, shared by a node {}; pairs {}",
                cell.key.place,
                show(Metric::AgentMemory),
                show(Metric::NodeMemory),
                show(Metric::ClientMemory),
                show(Metric::SharedMemory),
                show(Metric::PairBytes)
            ),
            HYDRA => writeln!(text, "{size} ranks under Hydra: put, fence, get-all {}", show(Metric::Time)),
            _ => Ok(()),
        };
    }
    if !text.is_empty() {
        text.insert(0, '\n');
    }
    for warning in &report.warnings {
        let _ = writeln!(text, "  ! {warning}");
    }
    if !report.judged.is_empty() {
        let _ = writeln!(text, "\ntargets\n{}", judged(&report.judged));
        let _ = writeln!(text, "source: {}", source::CITATION);
    }
    text
}

fn judged(all: &[Judged]) -> String {
    let head = ["figure", "source", "target", "verdict"].map(String::from);
    let rows = all.iter().map(|judged| {
        let verdict = match &judged.verdict {
            Verdict::Met(figure) => format!("pass: {figure}"),
            Verdict::Missed(figure) => format!("MISS: {figure}"),
            Verdict::NotJudged(why) => format!("not judged: {why}"),
        };
        [judged.what.clone(), judged.source.to_owned(), judged.target.clone(), verdict]
    });
    let rows: Vec<[String; 4]> = std::iter::once(head).chain(rows).collect();
    align(&rows, &[false; 4])
}
