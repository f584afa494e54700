//! The benchmarks are a program of their own, so that the program that is sent to nodes contains none of them.

use std::process::ExitCode;

fn main() -> ExitCode {
    wireup_bench::main(std::env::args_os().skip(1).collect()).into()
}
