//! `wireup attach`: follows the output of a detached job, as `wireup logs -f`, and returns the job's exit code.
//!
//! Ctrl-C is passed on to the job, as in a foreground run; other signals affect only this process.

use super::kill::{job, kill};
use super::logs::{self, Step};
use super::{SESSION, attach_to, name_of};
use crate::out;
use crate::words;
use wireup_flags::{Command, Line, Section, Words};
use wireup_node::session::spool::Reader;
use wireup_os::process::SignalFd;
use wireup_os::reactor::{Interest, Reactor};
use wireup_proto::exit_code::READER_GONE;
use wireup_wire::ids::JobId;
use wireup_wire::signal::SIGINT;

pub const COMMAND: Command = Command {
    name: "attach",
    purpose: "show all output of a detached job until it ends, and return its exit code",
    intro: "
  job=$(wireup run --detach -n 64 ./app)
  wireup attach $job

Ctrl-C is passed on to the job, a second one ends it; closing the terminal does not affect it. wireup logs only shows
the output.
",
    words: Words::Named(&["JOB"]),
    sections: &[Section { title: "Flags", flags: &[SESSION] }],
    end: "
Exit code: that of the job.
",
};

const SIGNALS: u64 = 0;
const CHANGES: u64 = 1;

pub fn run(line: &Line) -> Result<u8, String> {
    let (name, job) = (name_of(line)?, job(line)?);
    show(logs::open(&name, job)?, &name, job).map_err(|error| logs::unreadable(job, &error))
}

fn show(mut reader: Reader, session: &str, job: JobId) -> std::io::Result<u8> {
    let mut reactor = Reactor::new()?;
    let signals = SignalFd::new(&[SIGINT])?;
    reactor.add(&signals, SIGNALS, Interest::READABLE)?;
    reactor.add(&reader, CHANGES, Interest::READABLE)?;
    let mut interrupted = false;
    loop {
        while signals.read().is_some() {
            interrupt(session, job, std::mem::replace(&mut interrupted, true));
        }
        match logs::show_piece(&mut reader, job, &[])? {
            Step::Shown => {}
            Step::Over(code) => return Ok(code),
            Step::ReaderGone => return Ok(READER_GONE),
            Step::Later => {
                // No time limit: a job may write at any time, and the wait also ends when the job or its launcher does.
                reactor.wait(None)?;
            }
        }
    }
}

/// The first Ctrl-C is passed on; the second one ends the job.
fn interrupt(session: &str, job: JobId, again: bool) {
    let signal = (!again).then_some(SIGINT);
    let result = attach_to(session).and_then(|mut session| kill(&mut session, job, signal, "Ctrl-C in wireup attach"));
    match result {
        Ok(()) => out::tell(&words::interrupt(SIGINT, again.then_some(SIGINT), false)),
        Err(problem) => out::tell(&problem),
    }
}
