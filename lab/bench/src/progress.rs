//! Shows the current work of a benchmark, for a person at a terminal: `fence, 4 of 12 cases, round 2 of 5`.
//!
//! A thread writes the line, since a benchmark may do one thing for minutes. The thread exists only if there is a
//! terminal, and wakes only when the text changes.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use wireup_node::progress::Progress as Line;

use crate::samples::WARM_UP;

pub struct Progress(Option<Arc<Shared>>);

struct Shared {
    shown: Mutex<Shown>,
    changed: Condvar,
}

struct Shown {
    line: Line,
    /// The new text, if the line on the terminal does not show it yet.
    text: Option<String>,
    is_over: bool,
}

impl Progress {
    pub fn begin() -> Progress {
        Progress(Line::has_reader().then(|| {
            let shown = Mutex::new(Shown { line: Line::new(), text: None, is_over: false });
            let shared = Arc::new(Shared { shown, changed: Condvar::new() });
            let for_thread = shared.clone();
            thread::spawn(move || for_thread.write());
            shared
        }))
    }

    pub fn show(&self, text: impl FnOnce() -> String) {
        if let Some(shared) = &self.0 {
            shared.lock().text = Some(text());
            shared.changed.notify_one();
        }
    }

    /// Erases the line, so that other text can be printed; the next text shows it again.
    pub fn hide(&self) {
        if let Some(shared) = &self.0 {
            let mut shown = shared.lock();
            shown.text = None;
            shown.line.end();
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.hide();
        if let Some(shared) = &self.0 {
            shared.lock().is_over = true;
            shared.changed.notify_one();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Shown> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) {
        let mut shown = self.lock();
        while !shown.is_over {
            let pause = shown.line.until_due();
            shown = match shown.text.take() {
                None => self.changed.wait(shown).unwrap_or_else(PoisonError::into_inner),
                Some(text) if pause.is_zero() => {
                    shown.line.show(|| text);
                    shown
                }
                text => {
                    shown.text = text;
                    self.changed.wait_timeout(shown, pause).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_names_case_and_round() {
        assert_eq!(of_rounds(&of_cases("fence", 4, 12), 1, 5), "fence, 4 of 12 cases, round 2 of 5");
        assert_eq!(of_rounds(&of_cases("fence", 1, 1), WARM_UP, 5), "fence, warm-up");
    }
}
