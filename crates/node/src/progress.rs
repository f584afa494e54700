//! A progress line on a terminal for a waiting user: shown after a second, updated in place, erased at the end.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// During the first second of a wait no line is shown (chosen).
const QUIET: Duration = Duration::from_secs(1);
/// The time between two updates of the line (chosen).
const REFRESH: Duration = Duration::from_millis(200);
const ERASE: &str = "\r\x1b[K";

pub struct Progress {
    begun: Instant,
    due: Instant,
    is_shown: bool,
}

impl Progress {
    pub fn new() -> Progress {
        let begun = Instant::now();
        Progress { begun, due: begun + QUIET, is_shown: false }
    }

    /// Whether standard error is a terminal that can erase a line, so that a person may see the line.
    pub fn has_reader() -> bool {
        std::io::stderr().is_terminal() && std::env::var_os("TERM").is_some_and(|term| term != "dumb")
    }

    /// Shows the text if a second has passed and the last update is not too recent.
    pub fn show(&mut self, text: impl FnOnce() -> String) {
        if !self.until_due().is_zero() || !Progress::has_reader() {
            return;
        }
        self.due = Instant::now() + REFRESH;
        self.is_shown = true;
        write(&format!("{ERASE}{}", cut(&format!("wireup: {}", text()), columns())));
    }

    /// Time until [`Progress::show`] may show or update the line.
    pub fn until_due(&self) -> Duration {
        self.due.saturating_duration_since(Instant::now())
    }

    /// Whole seconds since the waiting began.
    pub fn seconds(&self) -> u64 {
        self.begun.elapsed().as_secs()
    }

    /// Erases the line; the next `show` writes it again.
    pub fn end(&mut self) {
        if std::mem::take(&mut self.is_shown) {
            write(ERASE);
        }
    }
}

impl Default for Progress {
    fn default() -> Progress {
        Progress::new()
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.end();
    }
}

/// Writes to standard error, unless that would block because the user has stopped the terminal (Ctrl-S).
fn write(text: &str) {
    let stderr = rustix::stdio::stderr();
    if wireup_os::socket::wait(stderr, false, true, Some(Duration::ZERO)).unwrap_or(false) {
        // The error is ignored: the progress line is only a convenience.
        let _ = std::io::stderr().write_all(text.as_bytes());
    }
}

fn columns() -> usize {
    wireup_os::pty::size(rustix::stdio::stderr())
        .map_or(80, |(_, columns)| if columns == 0 { 80 } else { usize::from(columns).max(20) })
}

/// The part of the text that fits on one line of the terminal.
fn cut(text: &str, columns: usize) -> String {
    text.chars().take(columns - 1).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_fits_on_one_line() {
        assert_eq!(cut("wireup: starting", 8), "wireup:");
        assert_eq!(cut("wireup", 80), "wireup");
    }
}
