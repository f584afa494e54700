//! `wireup kill`: sends a signal to a job, or ends it, whichever user command started it.

use super::{SESSION, attach_to, name_of};
use crate::out;
use crate::words::signal_number;
use wireup_flags::{Command, Flag, Line, Section, Words};
use wireup_wire::ids::JobId;
use wireup_wire::talk::{Control, FromLauncher, ToLauncher};

const SIGNAL: Flag =
    Flag::value(&["--signal"], "SIGNAL", "Send this signal, such as TERM or SIGUSR1, by name or number.");

pub const COMMAND: Command = Command {
    name: "kill",
    purpose: "end a job of a session, or send it a signal, no matter who started it",
    intro: "
  wireup kill 7                 SIGTERM to its ranks, and SIGKILL after --kill-grace
  wireup kill --signal USR1 7
  wireup kill --session lab 7

wireup jobs lists the numbers.
",
    words: Words::Named(&["JOB"]),
    sections: &[Section { title: "Flags", flags: &[SIGNAL, SESSION] }],
    end: "",
};

pub fn run(line: &Line) -> Result<u8, String> {
    let name = name_of(line)?;
    let job = job(line)?;
    let signal = line.last(SIGNAL, |value| {
        let advice = "give the name of a signal, such as TERM or SIGUSR1, or its number";
        signal_number(&value.text()?).ok_or_else(|| value.refused(advice))
    })?;
    let mut session = attach_to(&name)?;
    kill(&mut session, job, signal, "wireup kill")?;
    if signal.is_none() {
        out::tell(&format!("ending job {job}"));
    }
    Ok(0)
}

/// Sends a signal to a job; without a signal, ends the job.
pub fn kill(
    session: &mut wireup_node::session::Attached,
    job: JobId,
    signal: Option<i32>,
    by: &str,
) -> Result<(), String> {
    let message = Control::FromLauncher(FromLauncher::KillJob { job, signal, by: by.to_owned() });
    let answer = session.ask(&message, None, |answer| match answer {
        Control::ToLauncher(ToLauncher::Decided(Ok(()))) => Some(Ok(())),
        Control::ToLauncher(ToLauncher::Decided(Err(problem))) => Some(Err(problem)),
        _ => None,
    });
    answer.map_err(|error| error.to_string())?
}

/// The job that the command names.
pub fn job(line: &Line) -> Result<JobId, String> {
    let word = line.words.first().map(|word| word.to_string_lossy().into_owned()).unwrap_or_default();
    word.parse().map(JobId).map_err(|_| format!("{word} is not a job number; see wireup jobs"))
}
