//! Stores the options given to `wireup up` in the session's directory, for later commands; agents do not need them.

use super::session_directory::SessionDirectory;
use serde::{Deserialize, Serialize};
use std::io;
use wireup_wire::peer;

const FILE: &str = "facts";

#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Facts {
    /// Whether the user stated the number of slots.
    pub slots_stated: bool,
    /// Limits on slots that `--oversubscribe` does not lift, by agent.
    pub slots_max: Vec<Option<u32>>,
    /// Modules that are imported once for all ranks of a job on a node.
    pub preload: Vec<String>,
    /// Command of the remote shell, without the node's name.
    pub shell: String,
    /// Time that agents may take to start (ns).
    pub start_timeout_ns: u64,
    /// Pid of the process whose end also ends the session; `None`: there is no such process.
    pub owner: Option<u32>,
    /// Start of the session, in seconds since 1970.
    pub since_s: u64,
    /// The version of wireup that started the session.
    pub version: String,
}

impl Facts {
    pub fn write(&self, place: &SessionDirectory) -> io::Result<()> {
        std::fs::write(place.inside(FILE), peer::encode(self))
    }

    /// Reads the facts. Call it after the session has reported its version.
    ///
    /// # Errors
    /// The file cannot be read, or another version of wireup wrote it.
    pub fn read(place: &SessionDirectory) -> io::Result<Facts> {
        let bytes = std::fs::read(place.inside(FILE))?;
        peer::decode(&bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))
    }
}
