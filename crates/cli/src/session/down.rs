//! `wireup down`: ends a session.

use super::{LOOK, SESSION, happens_within, named, nobody};
use crate::out;
use crate::words::count;
use std::time::{Duration, Instant};
use wireup_flags::{Command, Flag, Line, Section, Words};
use wireup_node::session::{CallError, Calling, Claim, DEFAULT_NAME, SessionDirectory, crash_log, unended};
use wireup_os::process;
use wireup_wire::signal::SIGKILL;
use wireup_wire::talk::{Control, FromLauncher, ToLauncher};

const KILL: Flag = Flag::switch(&["--kill"], "Also kill its jobs.");

pub const COMMAND: Command = Command {
    name: "down",
    purpose: "end a session",
    intro: "
  wireup down                   unless it has jobs
  wireup down --kill            and kills its jobs
  wireup down lab               the session of that name

Returns when nothing of the session is left on this machine. Also removes what a killed session left behind.
",
    words: Words::Named(&["[NAME]"]),
    sections: &[Section { title: "Flags", flags: &[KILL, SESSION] }],
    end: "",
};

/// The time for the agents to end what runs and to wait for each other; then the time for the session's own process to
/// exit.
const AGENTS_MAX: Duration = Duration::from_secs(30);
const PROCESS_MAX: Duration = Duration::from_secs(10);
/// The time for the processes of a session to end by themselves when their root was killed.
const ALONE_MAX: Duration = Duration::from_secs(3);

pub fn run(line: &Line) -> Result<u8, String> {
    let name = named(line)?.unwrap_or_else(|| DEFAULT_NAME.to_owned());
    match end(&name, line.has(KILL))? {
        Some(jobs) => {
            let killed = if jobs > 0 { format!("; {} killed", count(jobs as u32, "job")) } else { String::new() };
            out::tell(&format!("session {name} ended{killed}"));
            Ok(0)
        }
        None => tidy(&name),
    }
}

/// Ends a session. Returns the number of its jobs; `None`: there is no such session.
///
/// # Errors
/// The session has jobs, and `kill` is `false`; or the session does not end.
pub fn end(name: &str, kill: bool) -> Result<Option<usize>, String> {
    let calling = match Calling::call(name) {
        Ok(Some(calling)) => calling,
        Ok(None) | Err(CallError::Stale { .. } | CallError::Crashed { .. }) => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    let place = SessionDirectory::find(name).map_err(|error| error.to_string())?;
    let pid = calling.pid();
    if kill && process::is_stopped(pid) {
        return force(name, pid, place.as_ref()).map(Some);
    }
    let mut session = match calling.finish(out::tell) {
        Err(CallError::Silent { .. }) if kill => return force(name, pid, place.as_ref()).map(Some),
        session => session.map_err(|error| error.to_string())?,
    };
    let mut jobs = 0;
    // Only the root knows whether there are jobs: others may be launched at this very moment.
    let granted = session.ask(&Control::FromLauncher(FromLauncher::EndSession { kill }), None, |answer| match answer {
        Control::ToLauncher(ToLauncher::JobList(listed)) => {
            jobs = listed.len();
            None
        }
        Control::ToLauncher(ToLauncher::Decided(Ok(()))) => Some(true),
        Control::ToLauncher(ToLauncher::Decided(Err(_))) => Some(false),
        _ => None,
    });
    match granted {
        Ok(false) => return Err(still_there(name, jobs)),
        // Somebody else has already ended the session.
        Ok(true) | Err(CallError::Ended { .. }) => unended::remove(name),
        Err(error) => return Err(error.to_string()),
    }
    match session.await_end(AGENTS_MAX) {
        Err(CallError::Silent { .. }) if kill => return force(name, pid, place.as_ref()).map(|_| Some(jobs)),
        Err(CallError::Silent { .. }) => return Err(not_ended(name, pid, AGENTS_MAX)),
        result => result.map_err(|error| error.to_string())?,
    }
    if place.is_some_and(|place| !happens_within(PROCESS_MAX, || place.is_free())) {
        return Err(not_ended(name, pid, PROCESS_MAX));
    }
    Ok(Some(jobs))
}

/// Kills the process that listens on the session's socket and does not answer. The other processes of the session then
/// end by themselves, unless they are stopped too or take too long. Nobody can say how many jobs there were.
fn force(name: &str, pid: u32, place: Option<&SessionDirectory>) -> Result<usize, String> {
    unended::remove(name);
    // Process id 0: the session's process is in another PID namespace and cannot be seen from here.
    let all = if pid == 0 { Vec::new() } else { process::tree(pid) };
    let Some(root) = all.first() else { return Err(not_ended(name, pid, PROCESS_MAX)) };
    out::tell(&format!("session {name} does not answer; killing its process {pid} and everything it started"));
    process::kill(root.pid, SIGKILL).map_err(|error| format!("cannot kill process {pid}: {error}"))?;
    let begun = Instant::now();
    loop {
        let left: Vec<_> = all.iter().filter(|process| process.is_running()).collect();
        if left.is_empty() {
            break;
        }
        if begun.elapsed() > PROCESS_MAX {
            return Err(not_ended(name, left[0].pid, PROCESS_MAX));
        }
        for process in left {
            if process::is_stopped(process.pid) || begun.elapsed() > ALONE_MAX {
                // The process may have exited in the meantime.
                let _ = process::kill(process.pid, SIGKILL);
            }
        }
        std::thread::sleep(LOOK);
    }
    if place.is_some_and(|place| !happens_within(PROCESS_MAX, || place.is_free())) {
        return Err(not_ended(name, pid, PROCESS_MAX));
    }
    // Normally a keeper removes the session's directory, but it may have been stopped.
    if let Ok((place, Claim::Ours)) = SessionDirectory::claim(name, false) {
        place.remove();
    }
    Ok(0)
}

fn still_there(name: &str, jobs: usize) -> String {
    let wait = if jobs == 1 { "wait until it ends, or kill it" } else { "wait until they end, or kill them" };
    let jobs = count(jobs as u32, "job");
    format!("session {name} still has {jobs} (see wireup jobs); {wait} with wireup down --kill")
}

fn not_ended(name: &str, pid: u32, waited: Duration) -> String {
    let kill = if pid == 0 { String::new() } else { format!("; to kill its process: kill -KILL {pid}") };
    format!("session {name} did not end within {} s; see wireup status for what remains{kill}", waited.as_secs())
}

/// There is no session; removes what a killed one may have left behind.
fn tidy(name: &str) -> Result<u8, String> {
    let story = unended::story(name);
    if SessionDirectory::find(name).map_err(|error| error.to_string())?.is_none() {
        let Some(story) = story else { return Err(nobody(name)) };
        unended::remove(name);
        out::tell(&story);
        return Ok(0);
    }
    match SessionDirectory::claim(name, false).map_err(|error| error.to_string())? {
        (place, Claim::Ours) => {
            let said = crash_log::read(&place).map(|said| format!(", unexpectedly ({said})")).unwrap_or_default();
            place.remove();
            unended::remove(name);
            out::tell(&format!("session {name} had already ended{said}; its remaining files were removed"));
            Ok(0)
        }
        (_, Claim::Taken) => Err(format!("session {name} is starting or ending at the moment; try again")),
    }
}
