//! The command line of `wireup run`, in two steps.
//!
//! `table` has a row for each flag: its names, its help, how its value is read (`values`), and the field that holds it.
//! Reading a command line by this table gives a `Parsed`. `resolved` resolves that with the surroundings (hosts, an
//! allocation, a session) into what the launcher runs: a job and a session, with every default applied and every
//! contradiction refused.

mod binding;
pub mod chosen;
pub mod mapping;
pub mod parsed;
pub mod placement;
mod programs;
pub mod rankfile;
pub mod remote_shell;
pub mod resolved;
pub mod session;
pub mod session_nodes;
pub mod table;
mod values;

use crate::out;
use std::ffi::OsString;
use wireup_flags::{Command, Line};

/// Parses the words after a command's name, then runs it, or shows its help if that was requested. Returns the exit
/// code.
pub fn run_command(
    command: &Command,
    args: impl IntoIterator<Item = OsString>,
    act: impl FnOnce(&Line) -> Result<u8, String>,
) -> u8 {
    match command.parse(args) {
        Ok(Err(help)) => {
            out::print(&command.help(help));
            0
        }
        Ok(Ok(line)) => act(&line).unwrap_or_else(|problem| out::fail(&problem)),
        Err(error) => out::fail(&error.to_string()),
    }
}
