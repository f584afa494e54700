//! `wireup kill`: sends a signal to a job, or ends it, whichever user command started it.

use super::{SESSION, attach_to, name_of};
use crate::out;
use crate::words::{count, signal_number};
use wireup_flags::{Command, Flag, Line, Section, Words};
use wireup_node::session::Attached;
use wireup_wire::ids::JobId;
use wireup_wire::talk::{Control, FromLauncher, ToLauncher};

const SIGNAL: Flag =
    Flag::value(&["--signal"], "SIGNAL", "Send this signal, such as TERM or SIGUSR1, by name or number.");

const ALL: Flag = Flag::switch(&["--all"], "All jobs of the session.");

pub const COMMAND: Command = Command {
    name: "kill",
    purpose: "end a job of a session, or send it a signal, no matter who started it",
    intro: "
  wireup kill 7                 SIGTERM to its ranks, and SIGKILL after --kill-grace
  wireup kill --signal USR1 7
  wireup kill --session lab 7
  wireup kill --all             all jobs of the session

wireup jobs lists the numbers.
",
    words: Words::Named(&["[JOB]"]),
    sections: &[Section { title: "Flags", flags: &[SIGNAL, ALL, SESSION] }],
    end: "",
};

pub fn run(line: &Line) -> Result<u8, String> {
    let name = name_of(line)?;
    let signal = line.last(SIGNAL, |value| {
        let advice = "give the name of a signal, such as TERM or SIGUSR1, or its number";
        signal_number(&value.text()?).ok_or_else(|| value.refused(advice))
    })?;
    let all = line.has(ALL);
    let one = match (all, line.words.is_empty()) {
        (true, false) => return Err("wireup kill: --all means every job; leave it out, or the job's number".to_owned()),
        (false, true) => {
            return Err("wireup kill: JOB is missing; give its number (see wireup jobs), or --all".to_owned());
        }
        (true, true) => None,
        (false, false) => Some(job(line)?),
    };
    let mut session = attach_to(&name)?;
    let Some(job) = one else { return kill_all(&mut session, &name, signal) };
    kill(&mut session, job, signal, BY)?;
    if signal.is_none() {
        out::tell(&format!("ending job {job}"));
    }
    Ok(0)
}

/// The text by which the job's launcher reports who has ended the job.
const BY: &str = "wireup kill";

fn kill_all(session: &mut Attached, name: &str, signal: Option<i32>) -> Result<u8, String> {
    let jobs = super::jobs::list(session)?;
    // A job that has ended meanwhile, perhaps with its parent, is refused.
    let answers: Vec<_> = jobs.iter().map(|entry| kill(session, entry.job, signal, BY)).collect();
    let reached = answers.iter().filter(|answer| answer.is_ok()).count();
    if reached == 0
        && let Some(Err(problem)) = answers.into_iter().next()
    {
        return Err(problem);
    }
    match (reached, signal) {
        (0, _) => out::tell(&format!("session {name} has no jobs")),
        (_, None) => out::tell(&format!("ending {}", count(reached as u32, "job"))),
        (_, Some(_)) => {}
    }
    Ok(0)
}

/// Sends a signal to a job; without a signal, ends the job.
pub fn kill(session: &mut Attached, job: JobId, signal: Option<i32>, by: &str) -> Result<(), String> {
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
