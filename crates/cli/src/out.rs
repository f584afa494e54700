//! Text for people. A reader that is gone is no reason to fail.

use std::io::{self, Write};
use wireup_proto::exit_code::OURS;

/// To standard output, as it is.
pub fn print(text: &str) {
    let mut stdout = io::stdout().lock();
    let _ = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
}

/// To standard error, as it is.
pub fn print_err(text: &str) {
    let _ = io::stderr().write_all(text.as_bytes());
}

/// One line of ours to standard error, in one write.
pub fn tell(line: &str) {
    print_err(&format!("wireup: {line}\n"));
}

/// The same; gives the exit code of our own failures.
pub fn fail(line: &str) -> u8 {
    tell(line);
    OURS
}
