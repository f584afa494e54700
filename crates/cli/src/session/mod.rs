//! `wireup up`, `down`, `status`, `jobs`, `kill`, `attach`: standing sessions, and how a run finds one.

mod attach;
mod down;
mod find;
mod jobs;
mod kill;
mod status;
mod up;

pub mod detach;
pub mod help;

pub use find::{Found, find, session_nodes};

use crate::flags::FlagError;
use crate::flags::command::{Command, Own, Typed};
use crate::out;
use std::ffi::OsString;
use wireup_node::session::{Attached, Calling, DEFAULT_NAME};

/// The flag that names the session.
const SESSION: Own = Own { name: "session", value: Some("NAME") };
const JSON: Own = Own { name: "json", value: None };

/// Runs one of the commands; `args` are the words after its name.
pub fn main(command: &str, args: impl Iterator<Item = OsString>, process_ns: u64) -> u8 {
    let run: fn(&Typed, u64) -> Result<u8, String> = match command {
        "up" => up::run,
        "down" => |typed, _| down::run(typed),
        "status" => |typed, _| status::run(typed),
        "jobs" => |typed, _| jobs::run(typed),
        "kill" => |typed, _| kill::run(typed),
        "attach" => |typed, _| attach::run(typed),
        other => panic!("{other} is not a command for sessions"),
    };
    let Some(line) = [up::COMMAND, down::COMMAND, status::COMMAND, jobs::COMMAND, kill::COMMAND, attach::COMMAND]
        .into_iter()
        .find(|line: &Command| line.name == command)
    else {
        panic!("{command} has no flags")
    };
    match line.parse(args) {
        Ok(None) => {
            out::print(&help::of(command));
            0
        }
        Ok(Some(typed)) => run(&typed, process_ns).unwrap_or_else(|problem| out::fail(&problem)),
        Err(error) => out::fail(&error.to_string()),
    }
}

/// The name of the session.
fn name(typed: &Typed) -> Result<String, FlagError> {
    Ok(typed.text(SESSION.name)?.unwrap_or_else(|| DEFAULT_NAME.to_owned()))
}

/// Connects to the session, which must exist.
fn attach_to(name: &str) -> Result<Attached, String> {
    let calling = Calling::begin(name).map_err(|error| error.to_string())?;
    let calling = calling.ok_or_else(|| nobody(name))?;
    calling.finish().map_err(|error| error.to_string())
}

/// The error message if there is no session of that name.
fn nobody(name: &str) -> String {
    let others = wireup_node::session::Place::names();
    let hint = match others.iter().map(String::as_str).filter(|other| *other != name).collect::<Vec<_>>()[..] {
        [] => String::new(),
        ref others => format!("; running sessions: {}", others.join(", ")),
    };
    format!("there is no session {name}{hint}; to start one: wireup up")
}
