//! The reasons why a command can fail, and the exit code for each reason.

use crate::machine::MachineError;
use crate::plan::ranks_on_nodes;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use wireup_flags::{Error, JsonTo};
use wireup_os::files::take_stdout;

/// Exit codes: `EXIT_USAGE`: the command line, a file's name or a machine file is wrong; `EXIT_FAILED`: the simulation
/// failed; `EXIT_INTERRUPTED`: the user has interrupted it.
const EXIT_USAGE: u8 = 2;
const EXIT_FAILED: u8 = 125;
pub const EXIT_INTERRUPTED: u8 = 130;

/// The reason why a command fails.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    #[error(transparent)]
    Flags(#[from] Error),
    #[error(transparent)]
    Machine(#[from] MachineError),
    #[error("{path}: {error}")]
    File { path: String, error: io::Error },
    #[error(
        "a simulation of {} needs about {wanted} of memory, and this machine has \
         {available} free: simulate fewer ranks, or add --force",
        ranks_on_nodes(*ranks, *nodes)
    )]
    Memory { ranks: u32, nodes: u32, wanted: String, available: String },
    #[error("the simulation failed: {0}")]
    Failed(String),
    #[error("interrupted")]
    Interrupted,
    #[error("{0}")]
    Io(#[from] io::Error),
}

impl Problem {
    /// # Errors
    /// If `result` is an error: the problem with the file `path`.
    pub fn of_file<T>(path: &Path, result: io::Result<T>) -> Result<T, Problem> {
        result.map_err(|error| Problem::File { path: path.display().to_string(), error })
    }

    /// Creates the file of results before the run, so that a file that cannot be written is reported at once.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn create(path: PathBuf) -> Result<(PathBuf, File), Problem> {
        let file = Problem::of_file(&path, File::create(&path))?;
        Ok((path, file))
    }

    /// Prepares the destination that `--json` names, as [`Problem::create`] does for a file. If the destination is
    /// standard output, all other output goes to standard error.
    ///
    /// # Errors
    /// The destination cannot be written.
    pub fn create_json(to: JsonTo) -> Result<(PathBuf, File), Problem> {
        match to {
            JsonTo::Stdout => Ok(("standard output".into(), take_stdout()?)),
            JsonTo::File(path) => Problem::create(path),
        }
    }

    pub fn exit_code(&self) -> u8 {
        match self {
            Problem::Flags(_) | Problem::Machine(_) | Problem::File { .. } => EXIT_USAGE,
            Problem::Interrupted => EXIT_INTERRUPTED,
            Problem::Memory { .. } | Problem::Failed(_) | Problem::Io(_) => EXIT_FAILED,
        }
    }
}
