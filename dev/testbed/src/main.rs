//! The testbed's program: owns a testbed, is its remote shell, or runs one command of a user in the testbed.
use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(wireup_testbed::command_line::main(std::env::args_os().collect()))
}
