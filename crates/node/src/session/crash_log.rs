//! Reads the last output of a session's process that was killed or has crashed. The output is kept until the next
//! session of the same name starts.
//!
//! A keeper saves the output (`keeper/directories`), since a process that was killed cannot.

use super::session_directory::SessionDirectory;

/// The file that receives the process's standard error.
pub const LOG: &str = "log";
/// The file in which the end of the log is kept.
pub const CRASH_LOG: &str = "last-words";

/// Most lines that are shown.
const LINES_MAX: usize = 3;
/// Text that marks the first line of a panic's message.
const PANICKED: &str = "panicked at";

/// The last output of the session's process on one line, if it crashed and the file still exists.
pub fn read(place: &SessionDirectory) -> Option<String> {
    let bytes = std::fs::read(place.inside(CRASH_LOG)).ok()?;
    Some(shorten(&String::from_utf8_lossy(&bytes)))
}

fn shorten(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let panic = lines.iter().rposition(|line| line.contains(PANICKED));
    let first = panic.unwrap_or(lines.len().saturating_sub(LINES_MAX));
    let told = lines[first..].iter().take(LINES_MAX).copied().collect::<Vec<_>>().join("; ");
    told.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_shortened_to_its_panic_or_its_last_lines() {
        let text = "warning\nthread 'main' panicked at a.rs:7:\nno \x1b room\nnote: run with\n  0: rust\n  1: rust\n";
        assert_eq!(shorten(text), "thread 'main' panicked at a.rs:7:; no   room; note: run with");
        assert_eq!(shorten("1\n\n2\n3\n4\n"), "2; 3; 4");
        assert_eq!(shorten("1"), "1");
    }
}
