//! Tables of command lines: how each ends and what it prints.
//!
//! A row is one line of text, `COMMAND => EXPECTATION`. A shell runs the command in the folder of the test, or in
//! `$FOLDER`. There `wireup` is the product, and `job` is `wireup run --pmi simple`: scripts would be offered PMIx as
//! well, and PMIx servers cost much more than what most rows do. A row with `EACH` is run on one node and with
//! `--virtual-nodes 2`. A test tries all rows and reports each that fails.

use super::{Outcome, Run};
use std::panic::{AssertUnwindSafe, catch_unwind};

const COMMANDS: &str =
    r#"wireup() { "$WIREUP" "$@"; }; job() { wireup run --pmi simple "$@"; }; cd "${FOLDER-$TMPDIR}"; "#;

/// Runs rows `COMMAND => LINE, LINE`: each command must end with code 0, print these lines in any order, and print
/// nothing on stderr.
pub fn prints(shell: impl Fn(&str) -> Run, table: &str) {
    each_row(shell, table, |outcome, expected| {
        let outcome = outcome.expect_code(0).expect_quiet();
        assert_eq!(outcome.sorted_lines().join(", "), expected, "{outcome}");
    });
}

/// Runs rows `COMMAND => CODE WORDS | WORDS`: each command must end with this code (`!0`: with any but 0), and print
/// nothing but one line on stderr, which contains all of these words.
pub fn fails(shell: impl Fn(&str) -> Run, table: &str) {
    each_row(shell, table, |outcome, expected| {
        let (code, words) = expected.split_once(' ').expect("a code and words");
        assert_eq!(outcome.out(), "", "{outcome}");
        outcome.expect_one_line(code, &words.split(" | ").collect::<Vec<_>>());
    });
}

/// Runs rows `COMMAND => CODE WORDS | WORDS` like [`fails`], but stdout and other lines on stderr do not matter.
pub fn reports(shell: impl Fn(&str) -> Run, table: &str) {
    each_row(shell, table, |outcome, expected| {
        let (code, words) = expected.split_once(' ').expect("a code and words");
        outcome.expect_end(code).expect_err_line(&words.split(" | ").collect::<Vec<_>>());
    });
}

fn each_row(shell: impl Fn(&str) -> Run, table: &str, check: impl Fn(Outcome, &str)) {
    let mut failed = Vec::new();
    for row in table.lines().map(str::trim).filter(|row| !row.is_empty()) {
        let (command, expected) = row.split_once(" =>").unwrap_or_else(|| panic!("{row}: no expectation"));
        let nodes: &[&str] = if command.contains(" EACH") { &["", " --virtual-nodes 2"] } else { &[""] };
        for nodes in nodes {
            let command = command.replace(" EACH", nodes);
            let run = || check(shell(&format!("{COMMANDS}{command}")).finish(), expected.trim());
            if catch_unwind(AssertUnwindSafe(run)).is_err() {
                failed.push(command);
            }
        }
    }
    assert!(failed.is_empty(), "rows that fail, for the reasons above: {failed:#?}");
}

impl Outcome {
    /// Expects the exit code `code`; `!0` stands for any code but 0.
    fn expect_end(self, code: &str) -> Self {
        match code.parse() {
            Ok(code) => self.expect_code(code),
            Err(_) => {
                assert!(code == "!0" && self.code() != 0, "{self}\nexpected code {code}");
                self
            }
        }
    }

    /// Expects exactly one line on stderr, which contains all of `words`.
    fn expect_one_line(self, code: &str, words: &[&str]) {
        let outcome = self.expect_end(code);
        let line = outcome.expect_err_line(words);
        assert_eq!(outcome.err().trim_end(), line, "{outcome}\nmore than one line");
    }
}
