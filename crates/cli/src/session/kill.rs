//! `wireup kill`: sends a signal to a job, or ends it, whichever user command started it.

use super::{SESSION, attach_to, name};
use crate::flags::command::{Command, Own, Typed};
use crate::out;
use crate::words::signal_number;
use wireup_wire::ids::JobId;
use wireup_wire::peer::Control;

const SIGNAL: Own = Own { name: "signal", value: Some("SIGNAL") };

pub const COMMAND: Command = Command { name: "kill", shared: &[], own: &[SIGNAL, SESSION], words: &["JOB"] };

pub fn run(typed: &Typed) -> Result<u8, String> {
    let name = name(typed).map_err(|error| error.to_string())?;
    let job = job(typed)?;
    let signal = match typed.text(SIGNAL.name).map_err(|error| error.to_string())? {
        None => None,
        Some(text) => Some(signal_number(&text).ok_or_else(|| {
            format!("--signal {text}: give the name of a signal, such as TERM or SIGUSR1, or its number")
        })?),
    };
    let mut session = attach_to(&name)?;
    kill(&mut session, job, signal, "wireup kill")?;
    if signal.is_none() {
        out::tell(&format!("job {job} is being ended"));
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
    let message = Control::KillJob { job, signal, by: by.to_owned() };
    let answer = session.ask(&message, None, |answer| match answer {
        Control::Granted => Some(Ok(())),
        Control::Refused { problem } => Some(Err(problem)),
        _ => None,
    });
    answer.map_err(|error| error.to_string())?
}

/// The job that the command names.
pub fn job(typed: &Typed) -> Result<JobId, String> {
    let word = typed.words.first().map(|word| word.to_string_lossy().into_owned()).unwrap_or_default();
    word.parse().map(JobId).map_err(|_| format!("{word} is not a job number; see wireup jobs"))
}
