//! Shows the current work of a benchmark, for a person at a terminal: `fence, 4 of 12 cases, round 2 of 5`.
//!
//! The line belongs to the thread that measures. A benchmark may do one thing for minutes, so each of its waits renews
//! the line.

use std::cell::RefCell;

use wireup_node::progress::Progress as Line;

use crate::samples::WARM_UP;

thread_local! {
    /// The line, and its new text, if the line on the terminal does not show it yet.
    static SHOWN: RefCell<(Line, Option<String>)> = RefCell::default();
}

pub fn show(text: String) {
    SHOWN.with_borrow_mut(|shown| shown.1 = Some(text));
    renew();
}

/// Writes the new text, as soon as it is due.
pub fn renew() {
    SHOWN.with_borrow_mut(|(line, text)| {
        if line.until_due().is_zero()
            && let Some(text) = text.take()
        {
            line.show(|| text);
        }
    });
}

/// Erases the line, so that other text can be printed; the next text shows it again.
pub fn hide() {
    SHOWN.with_borrow_mut(|(line, text)| {
        *text = None;
        line.end();
    });
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
