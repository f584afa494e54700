//! The launcher's driver: a job's run from this process, with the root agent inside or in a standing session.

mod driver;
mod root;
mod stdin;
mod writer;

use crate::session::Attached;
use crate::session::spool::Spool;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use wireup_proto::launcher_io::Notice;
use wireup_wire::job::JobSpec;
use wireup_wire::peer::{Ended, SessionSpec, TracePart};

/// All that a run needs to know.
pub struct RunConfig {
    pub job: JobSpec,
    pub reach: Reach,
    pub timeout_ns: Option<u64>,
    /// Files `rank.N.out` and `rank.N.err` instead of standard output and error.
    pub output_dir: Option<PathBuf>,
    /// Instead of standard output and error, where the job is detached.
    pub spool: Option<Arc<Spool>>,
    /// `CLOCK_MONOTONIC` when the program began, and when its command line was understood (ns).
    pub process_start_ns: u64,
    pub resolved_ns: u64,
}

/// Where the root agent is.
pub enum Reach {
    /// In this very process: the session is the job's, and ends with it.
    OneShot {
        session: Box<SessionSpec>,
        /// Forked at the very beginning, so that it gets ready while the command line is read.
        keeper: Option<crate::keeper::Keeper>,
    },
    /// A standing session's.
    Session(Box<Attached>),
}

/// What a run came to.
#[derive(Debug)]
pub struct RunOutcome {
    /// What a shell script sees.
    pub code: u8,
    pub ended: Ended,
    pub traces: Vec<TracePart>,
    pub interrupted: bool,
    pub stamps: Stamps,
}

/// The launcher's own moments (`CLOCK_MONOTONIC`, ns; 0: never).
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
    #[error("{what}: {error}")]
    System { what: &'static str, error: io::Error },
    #[error("cannot create the output directory {path}: {error}")]
    OutputDir { path: PathBuf, error: io::Error },
    #[error(
        "{ranks} ranks here need about {needed} open files, the limit is {limit}; raise it with `ulimit -Hn`, or start fewer ranks per node"
    )]
    OpenFiles { ranks: u32, needed: u64, limit: u64 },
}

/// Runs a job to its end. `words` turns what happens into lines for standard error (empty: nothing to say).
pub fn run(config: RunConfig, words: &mut dyn FnMut(&Notice) -> String) -> Result<RunOutcome, RunError> {
    driver::LauncherDriver::new(config, words)?.run()
}
