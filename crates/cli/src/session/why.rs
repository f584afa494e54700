//! `wireup why`: which ranks of a job the others wait for, and the call stacks of all ranks.

use super::kill::job;
use super::{SESSION, attach_to, jobs, name_of};
use crate::out;
use crate::words::{Stalls, stack_lines};
use std::time::Duration;
use wireup_flags::{Command, Line, Section, Words};
use wireup_wire::limits::STACKS_WAIT_NS;
use wireup_wire::talk::{Control, FromLauncher, JobUp, ToLauncher};

pub const COMMAND: Command = Command {
    name: "why",
    purpose: "show where a job hangs: which ranks others wait for, and the call stacks of all ranks",
    intro: "
  wireup why 7

Ranks with the same call stack are shown together. The stacks are taken on the nodes by eu-stack (Debian: elfutils) or
gdb, and by py-spy for Python, where these are installed. The job goes on. wireup run shows the same for its own job
when it gets SIGALRM (kill -ALRM), and when --timeout ends the job.
",
    words: Words::Named(&["JOB"]),
    sections: &[Section { title: "Flags", flags: &[SESSION] }],
    end: "",
};

/// Longest wait for the session's answer: the time limit of the job's call stacks, plus 3 s for messages.
const ANSWER_MAX: Duration = Duration::from_nanos(STACKS_WAIT_NS + 3_000_000_000);

pub fn run(line: &Line) -> Result<u8, String> {
    let (name, job) = (name_of(line)?, job(line)?);
    let mut session = attach_to(&name)?;
    let known = jobs::list(&mut session)?;
    let nodes = known.iter().find(|entry| entry.job == job).map_or(0, |entry| entry.nodes.len() as u32);
    let mut stalls = Stalls::new(nodes);
    let ask = Control::FromLauncher(FromLauncher::Why { job });
    let stacks = session.ask(&ask, Some(ANSWER_MAX), |answer| match answer {
        Control::JobUp(JobUp::Stall(report)) => {
            stalls.lines(&report).iter().for_each(|line| out::print(&format!("{line}\n")));
            None
        }
        Control::JobUp(JobUp::Stacks(stacks)) => Some(Ok(stacks)),
        Control::ToLauncher(ToLauncher::Decided(Err(problem))) => Some(Err(problem)),
        _ => None,
    });
    let stacks = stacks.map_err(|error| error.to_string())??;
    stack_lines(&stacks).iter().for_each(|line| out::print(&format!("{line}\n")));
    Ok(0)
}
