//! Why an agent is missing or lost: in words for the user, and as far as it decides what to advise.

use alloc::borrow::ToOwned;
use alloc::string::String;
use core::fmt;
use core::ops::Deref;
use serde::{Deserialize, Serialize};

#[derive(Clone, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
pub struct Problem {
    pub words: String,
    pub kind: ProblemKind,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
pub enum ProblemKind {
    /// The words say all that is known.
    #[default]
    Other,
    /// The agent did not answer for too long.
    Silent,
    /// The agent, or the process that has called it, was killed.
    Killed,
    /// The agent's task of a step was killed. Why the whole step died may be reported later.
    TaskKilled,
    /// The agent's step was cancelled, by a user or by a limit of its batch system.
    StepCancelled,
}

impl ProblemKind {
    pub fn with(self, words: impl Into<String>) -> Problem {
        Problem { words: words.into(), kind: self }
    }
}

impl From<String> for Problem {
    fn from(words: String) -> Problem {
        ProblemKind::Other.with(words)
    }
}

impl From<&str> for Problem {
    fn from(words: &str) -> Problem {
        ProblemKind::Other.with(words.to_owned())
    }
}

/// The words.
impl Deref for Problem {
    type Target = str;

    fn deref(&self) -> &str {
        &self.words
    }
}

impl PartialEq<str> for Problem {
    fn eq(&self, words: &str) -> bool {
        self.words == words
    }
}

impl PartialEq<&str> for Problem {
    fn eq(&self, words: &&str) -> bool {
        self.words == *words
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words)
    }
}
