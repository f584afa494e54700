//! The seeds that a test runs: `WIREUP_SIM_SEEDS=1000..2000` (or a count), otherwise its own.

use std::ops::Range;

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
