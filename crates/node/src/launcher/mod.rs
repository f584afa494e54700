//! The launcher's driver: runs a job whose root agent is in this process or belongs to a standing session.

mod driver;
mod stdin;
mod terminal;
mod writer;

use crate::remedy::Advised;
use crate::session::Attached;
use crate::session::spool::Spool;
pub use driver::{Next, Program, run, run_with};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use wireup_proto::{Growth, SpawnNode};
use wireup_wire::job::JobSpec;
use wireup_wire::peer::{Ended, SessionSpec, TracePart};
use wireup_wire::session::NodeState;
pub use writer::{Output, Pattern};

/// The settings of a run.
pub struct RunConfig {
    pub job: JobSpec,
    pub reach: Reach,
    /// The nodes on which ranks of spawned jobs may run.
    pub places: Vec<SpawnNode>,
    pub growth: Growth,
    pub timeout_ns: Option<u64>,
    /// Whether the user is shown in which calls the ranks wait, before the time limit ends the job.
    pub explains_timeout: bool,
    pub output: Output,
    /// Shows a person which nodes are still starting, until the job has started.
    pub starting: Option<ShowStarting>,
    /// The file that receives the output of a detached job, instead of standard output and error.
    pub spool: Option<Arc<Spool>>,
    /// Time at which the program began (`CLOCK_MONOTONIC`, ns). `resolved_ns`: when its command line had been parsed.
    pub process_start_ns: u64,
    pub resolved_ns: u64,
}

/// The line that the user sees while a job starts.
#[derive(Clone, Copy, Debug)]
pub enum Starting<'a> {
    Nodes(&'a [NodeState]),
    /// Erase the line: other text is about to be shown.
    Nothing,
}

pub type ShowStarting = Box<dyn FnMut(Starting<'_>)>;

/// Where the root agent runs.
pub enum Reach {
    /// The root agent runs in this process: its session serves only this job and ends with it.
    OneShot(Box<SessionSpec>),
    /// The root agent belongs to a standing session.
    Session(Box<Attached>),
}

/// The result of a run.
#[derive(Debug)]
pub struct RunOutcome {
    /// The exit code for the shell.
    pub code: u8,
    pub ended: Ended,
    pub traces: Vec<TracePart>,
    pub interrupted: bool,
    /// Whether standard output ends within a line; `None`: output is still unwritten, because nobody reads standard
    /// output.
    pub has_open_line: Option<bool>,
    pub stamps: Stamps,
}

/// Time stamps of the launcher itself (`CLOCK_MONOTONIC`, ns; 0: never).
#[derive(Clone, Copy, Debug, Default)]
pub struct Stamps {
    pub process_ns: u64,
    pub resolved_ns: u64,
    pub begun_ns: u64,
    pub started_ns: u64,
    pub ended_ns: u64,
    pub left_ns: u64,
}

#[derive(thiserror::Error, Debug)]
pub enum RunError {
    #[error(transparent)]
    Begin(#[from] crate::agent::driver::BeginError),
    #[error("{what} failed: {}", Advised(.error))]
    System { what: &'static str, error: io::Error },
    #[error("cannot create the output directory {path}: {}", Advised(.error))]
    OutputDir { path: PathBuf, error: io::Error },
    #[error(
        "{path} has the output of an earlier run ({first}{}); name another folder, or add --overwrite, which replaces \
         the files of this job's ranks and keeps all others",
        others(*.count)
    )]
    OutputTaken { path: PathBuf, count: usize, first: String },
    #[error(
        "{ranks} ranks here need about {needed} open files, but the limit is {limit}; raise the hard limit \
         (ulimit -Hn), or start fewer ranks per node"
    )]
    OpenFiles { ranks: u32, needed: u64, limit: u64 },
}

fn others(count: usize) -> String {
    if count > 1 { format!(" and {} more", count - 1) } else { String::new() }
}
