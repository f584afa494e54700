//! `wireup up`, `down`, `status`, `jobs`, `kill`, `logs`, `attach`, `why`: standing sessions, and how a run finds one.

mod find;

pub mod attach;
pub mod detach;
pub mod down;
pub mod jobs;
pub mod kill;
pub mod logs;
pub mod node_job;
pub mod own_session;
pub mod status;
pub mod up;
pub mod why;

pub use find::{find, session_nodes};

use crate::flags::table;
use crate::{configuration, out};
use std::time::{Duration, Instant};
use wireup_flags::{Flag, Line, Value};
use wireup_node::session::{Attached, Calling, DEFAULT_NAME, unended};

pub const SESSION: Flag = Flag {
    help: "Name of the session (default: WIREUP_SESSION, then that of a configuration file, then \"default\").",
    ..table::SESSION
};
/// The variable that names the session for all commands, as the flag does.
pub const VARIABLE: &str = "WIREUP_SESSION";

/// Connects to the session, which must exist.
pub fn attach_to(name: &str) -> Result<Attached, String> {
    let calling = Calling::call(name).map_err(|error| error.to_string())?;
    let calling = calling.ok_or_else(|| nobody(name))?;
    calling.finish(out::tell).map_err(|error| error.to_string())
}

/// The session that a command is about: the one that the flag names, else the variable, else a configuration file, else
/// the default.
pub fn name_of(line: &Line) -> Result<String, String> {
    let name = or_configured(line.last(SESSION, Value::text)?)?;
    Ok(name.unwrap_or_else(|| DEFAULT_NAME.to_owned()))
}

/// The session named by the command's argument or by `--session`, else by the variable, else by a configuration file.
///
/// # Errors
/// The line has both argument and flag; a file is wrong.
fn named(line: &Line) -> Result<Option<String>, String> {
    let word = line.words.first().map(|word| Value { flag: "the session's name".to_owned(), word: word.clone() });
    or_configured(match (word, line.last(SESSION, Value::text)?) {
        (Some(word), None) => Some(word.text()?),
        (Some(word), Some(_)) => Err(word.refused("--session also names a session; remove one of the two"))?,
        (None, flag) => flag,
    })
}

fn or_configured(typed: Option<String>) -> Result<Option<String>, String> {
    match typed.or_else(of_variable) {
        None => configuration::session(),
        name => Ok(name),
    }
}

/// Interval at which [`happens_within`] polls.
const LOOK: Duration = Duration::from_millis(2);

/// Polls until `has_happened` returns `true`; `false`: it did not within `limit`.
fn happens_within(limit: Duration, mut has_happened: impl FnMut() -> bool) -> bool {
    let until = Instant::now() + limit;
    while !has_happened() {
        if Instant::now() > until {
            return false;
        }
        std::thread::sleep(LOOK);
    }
    true
}

/// The session that the environment names.
pub fn of_variable() -> Option<String> {
    std::env::var(VARIABLE).ok().filter(|name| !name.is_empty())
}

/// The error message if there is no session of that name.
fn nobody(name: &str) -> String {
    // If the other sessions cannot be listed, the message has no hint.
    let others = wireup_node::session::SessionDirectory::names().unwrap_or_default();
    let hint = match others.iter().map(String::as_str).filter(|other| *other != name).collect::<Vec<_>>()[..] {
        [] => String::new(),
        ref others => format!("; running sessions: {}", others.join(", ")),
    };
    let up = if name == DEFAULT_NAME { String::new() } else { format!(" {name}") };
    let there = unended::story(name).unwrap_or_else(|| format!("there is no session {name}"));
    format!("{there}{hint}; to start one: wireup up{up}")
}
