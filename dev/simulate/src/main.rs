//! The program `wireup-simulate`.

use std::process::ExitCode;

fn main() -> ExitCode {
    // When the reader of the output has gone, as `head` does, the next write ends the program without a message.
    wireup_os::process::restore_write_errors(&[]);
    wireup_simulate::main(std::env::args_os().skip(1).collect()).into()
}
