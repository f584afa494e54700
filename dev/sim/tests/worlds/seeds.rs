//! The seeds that a test runs: those of `WIREUP_SIM_SEEDS=1000..2000` (or a count), otherwise the test's own seeds.

use std::ops::Range;
use wireup_sim::RunReport;

pub fn seeds(count: u64) -> Range<u64> {
    std::env::var("WIREUP_SIM_SEEDS").map_or(0..count, |text| parse(&text))
}

pub fn parse(text: &str) -> Range<u64> {
    let number = |text: &str| text.parse().unwrap_or_else(|_| panic!("seeds {text}: not a number or range"));
    match text.split_once("..") {
        Some((first, end)) => number(first)..number(end),
        None => 0..number(text),
    }
}

/// What is wrong with the runs of one seed without and with faults, if anything: a broken rule, a failure without
/// faults, or the problem `other`.
pub fn broken(seed: u64, calm: &RunReport, stormy: &RunReport, other: Option<&str>) -> Option<String> {
    let fails = (calm.code != Some(0)).then_some("fails").or(other);
    let mut problems = calm.checks.problems.iter().chain(&stormy.checks.problems).map(String::as_str).chain(fails);
    problems.next().map(|problem| format!("seed {seed}: {problem}; {:?}; {:?}", calm.notices, stormy.notices))
}

pub fn expect_none(broken: &[String]) {
    assert!(broken.is_empty(), "{} seeds:\n{}", broken.len(), broken[..broken.len().min(10)].join("\n"));
}
