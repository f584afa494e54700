//! Remembers sessions that have ended, but not by `wireup down`: a note is written when a session starts, and removed
//! when the user ends the session. So a later run, which would silently use this machine alone, can tell the user what
//! happened to the session.
//!
//! A note survives a reboot: the note is in `$XDG_STATE_HOME/wireup` (`~/.local/state/wireup`), with the host in its
//! name, since machines may share a home directory; or in `$WIREUP_RUNTIME_DIR` if that variable is set. A note that
//! cannot be written or read counts as missing.

use super::session_directory::given_base;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};
use wireup_os::process;
use wireup_wire::peer;

#[derive(Serialize, Deserialize)]
struct Note {
    /// Identity of the boot of the machine (`boot_id`).
    boot: String,
    /// Start of the session, in seconds since 1970.
    since_s: u64,
    /// Pid of the process whose end also ends the session, and the time at which that process started (`start_ticks`).
    owner: Option<(u32, Option<u64>)>,
}

/// Writes the note of a session that has started.
pub fn write(name: &str, owner: Option<u32>) {
    let Some(path) = path(name) else { return };
    let owner = owner.map(|pid| (pid, process::start_ticks(pid)));
    let note = Note { boot: boot(), since_s: now_s(), owner };
    if let Some(above) = path.parent() {
        let _ = fs::create_dir_all(above);
    }
    let _ = fs::write(path, peer::encode(&note));
}

/// Removes the note of a session that its user has ended.
pub fn remove(name: &str) {
    if let Some(path) = path(name) {
        let _ = fs::remove_file(path);
    }
}

/// The reason why the session of this name has ended, as a clause; `None`: there was no such session, or the user has
/// ended the session.
pub fn story(name: &str) -> Option<String> {
    let note: Note = peer::decode(&fs::read(path(name)?).ok()?).ok()?;
    let why = match note.owner {
        _ if note.boot != boot() => "this machine was restarted".to_owned(),
        Some((pid, born)) if process::start_ticks(pid) != born || born.is_none() => {
            format!("the login or script that started it (process {pid}) has ended")
        }
        Some(_) | None => "its process was killed".to_owned(),
    };
    let minutes = now_s().saturating_sub(note.since_s) / 60;
    let ago = match minutes {
        0..120 => format!("{minutes} min"),
        120..2880 => format!("{} h", minutes / 60),
        _ => format!("{} days", minutes / 1440),
    };
    Some(format!("session {name}, started {ago} ago, has ended: {why}"))
}

fn path(name: &str) -> Option<PathBuf> {
    if let Some(given) = given_base() {
        // With the leading dot, the name cannot be the name of a session.
        return Some(given.join(format!(".{name}")));
    }
    let state = crate::user_folder("XDG_STATE_HOME", ".local/state")?;
    let host = rustix::system::uname().nodename().to_string_lossy().replace('/', "_");
    Some(state.join("wireup").join(format!("session-{host}-{name}")))
}

fn boot() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default()
}

fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
