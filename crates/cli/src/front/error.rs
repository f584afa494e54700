//! What can be wrong with a command line of `mpiexec`, each reported on one line with the next step.

use crate::flags::FlagError;
use thiserror::Error;

#[derive(Error, Clone, PartialEq, Eq, Debug)]
pub enum FrontError {
    #[error("unknown option {option}; {}", suggestion(nearest))]
    Unknown { option: String, nearest: Option<&'static str> },
    #[error("{option} is not offered: {instead}")]
    Refused { option: String, instead: &'static str },
    #[error("{option} needs {wants}")]
    MissingValue { option: String, wants: String },
    #[error("{option} takes no value, remove \"={value}\"")]
    UnexpectedValue { option: String, value: String },
    #[error("{first} and {second} contradict each other; leave one of them out")]
    Contradiction { first: String, second: String },
    #[error("{file}: {problem}; name a file that can be read")]
    Unreadable { file: String, problem: String },
    #[error("{file}, line {line}: {problem}")]
    Line { file: String, line: usize, problem: Box<FrontError> },
    #[error("{0}")]
    Words(String),
    #[error(transparent)]
    Flags(#[from] FlagError),
}

impl From<wireup_flags::Error> for FrontError {
    fn from(error: wireup_flags::Error) -> FrontError {
        FrontError::Flags(error.into())
    }
}

fn suggestion(nearest: &Option<&str>) -> String {
    match nearest {
        Some(name) => format!("did you mean -{name}?"),
        None => "see mpiexec --help for the options".to_owned(),
    }
}
