//! The testbed's program: owns a testbed, is its remote shell, runs one command in it for a person.
use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(wireup_testbed::command_line::main(std::env::args_os().collect()))
}
