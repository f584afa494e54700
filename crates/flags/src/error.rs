//! What can be wrong with a command line, reported on one line with the next step.

use std::borrow::Cow;
use thiserror::Error;

#[derive(Error, Clone, PartialEq, Eq, Debug)]
pub enum Error {
    #[error("unknown flag {flag}; {}", suggestion(nearest, command))]
    Unknown { flag: String, nearest: Option<&'static str>, command: &'static str },
    /// A flag that only other launchers have, with a hint what to use instead.
    #[error("unknown flag {flag}; {hint}")]
    Foreign { flag: String, hint: &'static str },
    #[error("{flag} needs a value: {flag} {wants}")]
    MissingValue { flag: String, wants: &'static str },
    /// A flag of the same command, where a value is expected.
    #[error("{flag} needs a value: {flag} {wants}, but {next} follows; if that is the value, write {flag}={next}")]
    FlagAsValue { flag: String, wants: &'static str, next: String },
    /// The name of a file that follows `--json` as a word, where it would be taken for a program.
    #[error("{flag} {word}: to write to this file, type {flag}={word}")]
    SeparateFile { flag: String, word: String },
    #[error("{flag} takes no value, remove \"={value}\"")]
    UnexpectedValue { flag: String, value: String },
    #[error("{flag} {value}: {problem}")]
    Value { flag: String, value: String, problem: Cow<'static, str> },
    /// What is wrong with the flag, whatever its value.
    #[error("{flag} {problem}")]
    Flag { flag: String, problem: &'static str },
    #[error("wireup {command}: {word} is missing; see wireup help {command}")]
    MissingWord { command: &'static str, word: &'static str },
    #[error("wireup {command} does not know {word}; it accepts {accepts}")]
    UnexpectedWord { command: &'static str, word: String, accepts: String },
    /// Flags that are valid one by one, but not together.
    #[error("{0}")]
    Together(String),
}

fn suggestion(nearest: &Option<&str>, command: &str) -> String {
    match nearest {
        Some(name) => format!("did you mean {name}?"),
        None => format!("see wireup help {command} for the flags"),
    }
}

/// The text of the error, for commands that only print it.
impl From<Error> for String {
    fn from(error: Error) -> String {
        error.to_string()
    }
}
