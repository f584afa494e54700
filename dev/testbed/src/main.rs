//! The testbed's program: owns a testbed, is its remote shell, or runs one command of a user in it.
use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(wireup_testbed::command_line::main(std::env::args_os().collect()))
}
