//! Text for the user.

use crate::progress::Progress;
use rustix::io::Errno;
use std::io::{self, Write};
use std::path::Path;
use std::sync::OnceLock;
use wireup_proto::exit_code::{OURS, READER_GONE};

static UNWRITTEN: OnceLock<Errno> = OnceLock::new();

/// Writes to standard output, unchanged. [`finish`] reports a failure.
pub fn print(text: &str) {
    let mut rest = text.as_bytes();
    // Rust's `stdout` would silently drop what is written to a closed descriptor.
    while !rest.is_empty() {
        match rustix::io::write(rustix::stdio::stdout(), rest) {
            Ok(written) => rest = &rest[written..],
            Err(Errno::INTR) => {}
            Err(error) => {
                UNWRITTEN.get_or_init(|| error);
                return;
            }
        }
    }
}

/// The exit code of a command, which fails if its text could not be written. A broken pipe gets no error message.
pub fn finish(code: u8) -> u8 {
    match UNWRITTEN.get() {
        Some(&Errno::PIPE) if code == 0 => READER_GONE,
        Some(&error) if code == 0 => fail(&format!("cannot write standard output: {}", io::Error::from(error))),
        _ => code,
    }
}

/// Writes to standard error, unchanged.
pub fn print_err(text: &str) {
    let _ = io::stderr().write_all(text.as_bytes());
}

/// Writes one of wireup's own lines to standard error, in one write.
pub fn tell(line: &str) {
    print_err(&format!("{}{}\n", prefix(false, has_colour()), without_errnos(line)));
}

/// Like [`tell`]; returns the exit code for wireup's own failures.
pub fn fail(line: &str) -> u8 {
    print_err(&format!("{}{}\n", prefix(true, has_colour()), without_errnos(line)));
    OURS
}

/// The error message for a file of results.
pub fn unwritable(path: &Path, error: &io::Error) -> String {
    format!("cannot write {}: {error}; choose a file that can be written", path.display())
}

/// A text without the numbers that Rust appends to the names of the kernel's errors: ` (os error 2)`.
pub fn without_errnos(text: &str) -> String {
    let mut parts = text.split(" (os error ");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + part.split_once(')').map_or(part, |(_, rest)| rest))
}

/// The prefix of each line that wireup itself writes. In colour, the prefix stands out from the output of the ranks.
pub fn prefix(is_failure: bool, in_colour: bool) -> &'static str {
    match (in_colour, is_failure) {
        (false, _) => "wireup: ",
        (true, false) => "\x1b[1mwireup:\x1b[0m ",
        (true, true) => "\x1b[1;31mwireup:\x1b[0m ",
    }
}

/// Whether standard error is a terminal that shows colours, and the user has not turned them off (no-color.org).
pub fn has_colour() -> bool {
    Progress::has_reader() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Rows of cells in columns. Each column is as wide as its widest cell; the last one is not padded.
pub fn table<const N: usize>(rows: &[[String; N]]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; N] = std::array::from_fn(width);
    let line = |row: &[String; N]| {
        let cells: Vec<String> = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        format!("{}\n", cells.join("  ").trim_end())
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_the_kernel_have_no_numbers() {
        let [first, second] = [2, 13].map(io::Error::from_raw_os_error);
        let text = without_errnos(&format!("a: {first}; b: {second}"));
        assert_eq!(text, "a: No such file or directory; b: Permission denied");
        assert_eq!(without_errnos("c (os x)"), "c (os x)");
    }

    #[test]
    fn columns_are_as_wide_as_their_cells() {
        let rows = [["job", "state"], ["7", "running"], ["12", "over"]].map(|row| row.map(str::to_owned));
        assert_eq!(table(&rows), "job  state\n7    running\n12   over\n");
    }
}
