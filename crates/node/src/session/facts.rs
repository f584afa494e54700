//! What `wireup up` was told, for those who come later: beside the socket, and of no use to agents.

use super::place::Place;
use serde::{Deserialize, Serialize};
use std::io;
use wireup_wire::peer;

const FILE: &str = "facts";

#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Facts {
    /// The user said how many slots there are.
    pub slots_stated: bool,
    /// Limits that `--oversubscribe` does not lift, by agent.
    pub slots_max: Vec<Option<u32>>,
    /// What one would type to reach a node, before its name.
    pub shell: String,
    /// How long agents may take to start.
    pub start_timeout_ns: u64,
    /// The process whose end ends the session.
    pub owner: Option<u32>,
    /// Seconds since 1970.
    pub since_s: u64,
    /// Of wireup.
    pub version: String,
}

impl Facts {
    pub fn write(&self, place: &Place) -> io::Result<()> {
        std::fs::write(place.inside(FILE), peer::encode(self))
    }

    /// To be read after the session has said which version it speaks.
    ///
    /// # Errors
    /// They cannot be read, or another wireup wrote them.
    pub fn read(place: &Place) -> io::Result<Facts> {
        let bytes = std::fs::read(place.inside(FILE))?;
        peer::decode(&bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))
    }
}
