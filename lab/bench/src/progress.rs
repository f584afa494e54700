//! Shows the current work of a benchmark, for a person at a terminal: `fence, 4 of 12 cases, round 2 of 5`.
use std::io::{IsTerminal, Write, stderr};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::samples::WARM_UP;

const ERASE: &str = "\r\x1b[K";
/// Longest line (characters): most terminals have 80 columns, and a line that is broken cannot be erased.
const LINE_MAX: usize = 79;

static IS_SHOWN: AtomicBool = AtomicBool::new(false);

/// Shows the text in place of the last one, until `hide`.
pub fn show(text: &str) {
    IS_SHOWN.store(true, Ordering::Relaxed);
    write(&format!("{ERASE}{}", format!("wireup: {text}").chars().take(LINE_MAX).collect::<String>()));
}

/// Erases the line, so that other text can be printed.
pub fn hide() {
    if IS_SHOWN.swap(false, Ordering::Relaxed) {
        write(ERASE);
    }
}

/// Writes to standard error, if it is a terminal that can erase a line. Errors are ignored: the line is a convenience.
fn write(text: &str) {
    if stderr().is_terminal() && std::env::var_os("TERM").is_some_and(|term| term != "dumb") {
        let _ = stderr().write_all(text.as_bytes());
    }
}

/// The text for a case, with its number among all cases: `fence, 4 of 12 cases`.
pub fn of_cases(case: &str, number: usize, count: usize) -> String {
    if count == 1 { case.to_owned() } else { format!("{case}, {number} of {count} cases") }
}

/// The text for a round of a case; `round` counts from 0: `fence, round 2 of 5`.
pub fn of_rounds(case: &str, round: i64, count: u32) -> String {
    match round {
        WARM_UP => format!("{case}, warm-up"),
        _ => format!("{case}, round {} of {count}", round + 1),
    }
}
