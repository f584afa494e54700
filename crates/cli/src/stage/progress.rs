//! A line on a terminal that is written again and again while files travel.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// How long files travel before the line is shown for the first time (chosen).
const QUIET: Duration = Duration::from_secs(1);
/// The time between two updates of the line (chosen).
const REFRESH: Duration = Duration::from_millis(200);
/// Nodes whose names the line shows; further ones are only counted.
const NAMED: usize = 3;

pub struct Progress {
    due: Instant,
    is_shown: bool,
}

impl Progress {
    pub fn new() -> Progress {
        Progress { due: Instant::now() + QUIET, is_shown: false }
    }

    pub fn show(&mut self, text: impl FnOnce() -> String) {
        if Instant::now() < self.due || !std::io::stderr().is_terminal() {
            return;
        }
        self.due = Instant::now() + REFRESH;
        self.is_shown = true;
        // It is only for a person who waits.
        let _ = write!(std::io::stderr(), "\r\x1b[Kwireup: {}", text());
    }

    pub fn end(&mut self) {
        if std::mem::take(&mut self.is_shown) {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

/// `; waiting for n3, n7 and 2 more`; nothing without names.
pub fn waiting_for<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.collect();
    match names.len() {
        0 => String::new(),
        len @ ..=NAMED => format!("; waiting for {}", names[..len].join(", ")),
        len => format!("; waiting for {} and {} more", names[..NAMED].join(", "), len - NAMED),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_nodes_are_named() {
        let waiting = |names: &[&'static str]| waiting_for(names.iter().copied());
        assert_eq!(waiting(&[]), "");
        assert_eq!(waiting(&["n1", "n2"]), "; waiting for n1, n2");
        assert_eq!(waiting(&["a", "b", "c", "d", "e"]), "; waiting for a, b, c and 2 more");
    }
}
