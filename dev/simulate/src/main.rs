//! The program `wireup-simulate`.

use std::process::ExitCode;

fn main() -> ExitCode {
    wireup_simulate::main(std::env::args_os().skip(1).collect()).into()
}
