//! `wireup up`, `down`, `status`, `jobs`, `kill`, `attach`: standing sessions, and how a run finds one.

mod find;

pub mod attach;
pub mod detach;
pub mod down;
pub mod jobs;
pub mod kill;
pub mod status;
pub mod up;

pub use find::{Found, find, session_nodes};

use crate::flags::table;
use wireup_flags::Flag;
use wireup_node::session::{Attached, Calling, DEFAULT_NAME};

/// The flag that names the session.
pub const SESSION: Flag = Flag { help: "The name of the session.", ..table::SESSION }.or(DEFAULT_NAME);
const JSON: Flag = Flag::switch(&["--json"], "For programs.");

/// Connects to the session, which must exist.
pub fn attach_to(name: &str) -> Result<Attached, String> {
    let calling = Calling::begin(name).map_err(|error| error.to_string())?;
    let calling = calling.ok_or_else(|| nobody(name))?;
    calling.finish().map_err(|error| error.to_string())
}

/// The error message if there is no session of that name.
fn nobody(name: &str) -> String {
    // What cannot be listed is no hint.
    let others = wireup_node::session::Place::names().unwrap_or_default();
    let hint = match others.iter().map(String::as_str).filter(|other| *other != name).collect::<Vec<_>>()[..] {
        [] => String::new(),
        ref others => format!("; running sessions: {}", others.join(", ")),
    };
    format!("there is no session {name}{hint}; to start one: wireup up")
}
