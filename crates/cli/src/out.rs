//! Text for the user. A closed stream is not an error.

use std::io::{self, Write};
use wireup_proto::exit_code::OURS;

/// Writes to standard output, unchanged.
pub fn print(text: &str) {
    let mut stdout = io::stdout().lock();
    let _ = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
}

/// Writes to standard error, unchanged.
pub fn print_err(text: &str) {
    let _ = io::stderr().write_all(text.as_bytes());
}

/// Writes one of wireup's own lines to standard error, in one write.
pub fn tell(line: &str) {
    print_err(&format!("wireup: {line}\n"));
}

/// Like [`tell`]; returns the exit code for wireup's own failures.
pub fn fail(line: &str) -> u8 {
    tell(line);
    OURS
}
