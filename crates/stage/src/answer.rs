//! The answers of nodes to the launcher while the launcher sends them a set of staged files: one line of text per
//! answer.

use std::collections::BTreeSet;
use std::fmt::Write as _;

/// Bound of the numbers in an answer: a set has no more contents than entries.
const NUMBER_MAX: u32 = crate::set::ENTRIES_MAX as u32;

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// The node does not have the set.
    Lacks,
    /// The node does not have the contents with these numbers.
    Missing(BTreeSet<u32>),
    /// The node has the whole set.
    Kept,
    /// The node will not get the set, for this reason.
    Failed(String),
}

impl Answer {
    /// The answer as a line of text, with the newline.
    pub fn line(&self) -> String {
        match self {
            Answer::Missing(numbers) => format!("missing {}\n", ranges(numbers)),
            Answer::Lacks => "lacks\n".to_owned(),
            Answer::Kept => "kept\n".to_owned(),
            Answer::Failed(problem) => format!("failed {}\n", problem.replace('\n', " ")),
        }
    }

    /// Parses a line without its newline; `None`: the line is not an answer.
    pub fn read(line: &str) -> Option<Answer> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "missing" => numbers(rest).map(Answer::Missing),
            "lacks" if rest.is_empty() => Some(Answer::Lacks),
            "kept" if rest.is_empty() => Some(Answer::Kept),
            "failed" => Some(Answer::Failed(rest.to_owned())),
            _ => None,
        }
    }
}

/// Numbers as ranges: `0-3,7`.
fn ranges(numbers: &BTreeSet<u32>) -> String {
    let mut text = String::new();
    let mut left = numbers.iter().copied().peekable();
    while let Some(first) = left.next() {
        let mut last = first;
        while let Some(next) = left.next_if_eq(&(last + 1)) {
            last = next;
        }
        let comma = if text.is_empty() { "" } else { "," };
        // Writing to a string does not fail.
        let _ = if first == last { write!(text, "{comma}{first}") } else { write!(text, "{comma}{first}-{last}") };
    }
    text
}

fn numbers(text: &str) -> Option<BTreeSet<u32>> {
    let mut all = BTreeSet::new();
    for range in text.split(',').filter(|range| !range.is_empty()) {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        if first > last || last >= NUMBER_MAX {
            return None;
        }
        all.extend(first..=last);
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn answers_are_lines_of_text() {
        let missing = |numbers: &[u32]| Answer::Missing(numbers.iter().copied().collect());
        assert_eq!(missing(&[0, 1, 2, 7, 9, 10]).line(), "missing 0-2,7,9-10\n");
        assert_eq!(missing(&[]).line(), "missing \n");
        for answer in
            [missing(&[0, 1, 2, 7]), missing(&[]), Answer::Lacks, Answer::Kept, Answer::Failed("no room here".into())]
        {
            assert_eq!(Answer::read(answer.line().trim_end_matches('\n')), Some(answer));
        }
        for line in ["", "what", "missing x", "missing 3-1", "missing 0-4294967295", "kept 3"] {
            assert_eq!(Answer::read(line), None, "{line}");
        }
    }

    proptest! {
        #[test]
        fn any_numbers_survive(numbers in proptest::collection::btree_set(0u32..5_000, 0..300)) {
            let answer = Answer::Missing(numbers);
            prop_assert_eq!(Answer::read(answer.line().trim_end()), Some(answer));
        }

        #[test]
        fn any_line_is_read_or_refused(line in ".{0,80}") {
            let _ = Answer::read(&line);
        }
    }
}
