//! `wireup bench` with few rounds: all values are there, and nothing is left behind. Times are not checked.

mod launch;
mod page;
mod progress;
mod results;
mod stage;
mod values;

use std::ffi::OsStr;
use wireup_e2e::{Run, wireup};

/// Path of the benchmarks' program of this build.
const BENCH: &str = env!("CARGO_BIN_EXE_wireup-bench");

/// The command `wireup-bench WORDS --wireup PRODUCT`; `words` are split at blanks, without quotes.
fn bench(words: &str) -> Run {
    Run::tool(BENCH, words.split_whitespace()).args([OsStr::new("--wireup"), wireup().as_os_str()])
}
