//! What to stage, what to leave out and what to tell the user about it.

use std::path::PathBuf;
use thiserror::Error;
use wireup_stage::set::Listings;

/// Why something is not staged.
#[derive(Error, Clone, PartialEq, Eq, Debug)]
pub enum LeftOut {
    #[error("in a system folder on a local disk: every node has its own")]
    OfTheNode,
    /// The file has such a permission bit: `set-user-ID` or `set-group-ID`.
    #[error("{0}: a copy would not have its rights")]
    Rights(&'static str),
    #[error("{0}")]
    Other(String),
}

impl From<&str> for LeftOut {
    fn from(why: &str) -> LeftOut {
        LeftOut::Other(why.to_owned())
    }
}

/// Something that the user may want to know.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Remark {
    pub text: String,
    /// Whether the ranks will lack something that they need.
    pub is_lack: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum NeedKind {
    File,
    /// A folder with everything below it.
    Folder,
    /// A symbolic link itself, not its target.
    Link,
}

/// One thing to stage.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Need {
    /// Absolute; no component but the last is a symbolic link, and the last only for `NeedKind::Link`.
    pub path: PathBuf,
    pub kind: NeedKind,
    /// For messages: `the program`, `library of app`.
    pub why: String,
}

/// What to stage, and what to tell the user. Each list is sorted and has each entry once.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Needs {
    /// What to stage. Nothing in this list lies below a folder in the list.
    pub needs: Vec<Need>,
    /// What is not staged, and why.
    pub left_out: Vec<(PathBuf, LeftOut)>,
    /// Libraries that are not found, programs that cannot be examined.
    pub remarks: Vec<Remark>,
    /// The contents of the folders that were read, so that nobody has to read them again.
    pub listings: Listings,
}

#[derive(Error, Clone, PartialEq, Eq, Debug)]
pub enum Error {
    #[error("{0}: there is no such file")]
    NoMatch(String),
    #[error("{pattern}: {reason}")]
    Pattern { pattern: String, reason: String },
    #[error("{}: more than 40 symbolic links on the way", .0.display())]
    Links(PathBuf),
}

impl Error {
    /// The message for a user who gave the paths and patterns as values of `flag`: it names the flag if one of them is
    /// wrong.
    pub fn with_flag(&self, flag: &str) -> String {
        match self {
            Error::NoMatch(_) | Error::Pattern { .. } => format!("{flag} {self}"),
            Error::Links(_) => self.to_string(),
        }
    }
}
