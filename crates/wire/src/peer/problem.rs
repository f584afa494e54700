//! Why an agent is missing or lost: a text for the user, and the kind of problem, on which the advice depends.

use crate::ids::AgentId;
use alloc::borrow::ToOwned;
use alloc::string::String;
use core::fmt;
use core::ops::Deref;
use serde::{Deserialize, Serialize};

#[derive(Clone, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
pub struct Problem<K = ProblemKind> {
    pub words: String,
    pub kind: K,
}

/// What is wrong with a PMIx server process.
pub type PmixProblem = Problem<PmixFault>;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
pub enum ProblemKind {
    /// Nothing is known beyond the text.
    #[default]
    Other,
    /// The agent did not answer for too long.
    Silent,
    /// The agent, or the process that has started it, was killed.
    Killed,
    /// The agent's task of a step was killed. Why the whole step died may be reported later.
    TaskKilled,
    /// The agent's step was cancelled, by a user or by a limit of its batch system.
    StepCancelled,
    /// The text was written by the agent itself before it gave up its start, and already contains advice.
    Advised,
    /// The host runs commands, but wireup is missing there or has another version, and is not to be copied there.
    NotInstalled,
    /// The remote shell ended without an error and without having started the agent.
    NothingStarted,
    /// A system call failed with this `errno`.
    System(i32),
}

/// The kind of a problem with a PMIx server process, on which the advice depends.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
pub enum PmixFault {
    /// Nothing is known beyond the text.
    #[default]
    Other,
    /// There is no usable PMIx library; the text says what to do.
    Library,
    /// The process does not answer, or not in time.
    Silent,
    /// The file system in which the library shares data with its clients is full.
    NoRoom,
}

impl ProblemKind {
    pub fn with(self, words: impl Into<String>) -> Problem {
        Problem { words: words.into(), kind: self }
    }
}

impl PmixFault {
    pub fn with(self, words: impl Into<String>) -> PmixProblem {
        Problem { words: words.into(), kind: self }
    }
}

impl<K: Default> From<String> for Problem<K> {
    fn from(words: String) -> Problem<K> {
        Problem { words, kind: K::default() }
    }
}

impl<K: Default> From<&str> for Problem<K> {
    fn from(words: &str) -> Problem<K> {
        words.to_owned().into()
    }
}

/// The text for the user.
impl<K> Deref for Problem<K> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.words
    }
}

impl<K> PartialEq<str> for Problem<K> {
    fn eq(&self, words: &str) -> bool {
        self.words == words
    }
}

impl<K> PartialEq<&str> for Problem<K> {
    fn eq(&self, words: &&str) -> bool {
        self.words == *words
    }
}

impl<K> fmt::Display for Problem<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words)
    }
}

/// A missing agent: it could not be started, or did not link.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MissingAgent {
    pub agent: AgentId,
    pub problem: Problem,
}
