//! The benchmarks, a program of their own: what a node receives contains none of them.

use std::process::ExitCode;

fn main() -> ExitCode {
    wireup_bench::main(std::env::args_os().skip(1).collect()).into()
}
