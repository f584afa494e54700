//! What a session's process had said when it was killed or crashed: all that is kept of it, until the next one of that name begins.
//!
//! A keeper keeps it (`keeper/directories`), since the process cannot.

use super::place::Place;

/// The name of what its process says where nobody listens.
pub const LOG: &str = "log";
/// The name of what is kept of that.
pub const LAST_WORDS: &str = "last-words";

/// Lines that are told of it.
const LINES_MAX: usize = 3;
/// The first line of what a panic says.
const PANICKED: &str = "panicked at";

/// On one line: the last that the session's process said, if it crashed and nobody has removed that since.
pub fn read(place: &Place) -> Option<String> {
    let bytes = std::fs::read(place.inside(LAST_WORDS)).ok()?;
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
    fn a_panic_is_told_from_its_beginning() {
        let text = "warning\nthread 'main' panicked at a.rs:7:\nno \x1b room\nnote: run with\n  0: rust\n  1: rust\n";
        assert_eq!(shorten(text), "thread 'main' panicked at a.rs:7:; no   room; note: run with");
        assert_eq!(shorten("1\n\n2\n3\n4\n"), "2; 3; 4");
        assert_eq!(shorten("1"), "1");
    }
}
