//! `wireup attach`: shows a detached job's output from beginning to end and returns its exit code.
//!
//! It reads a file, so the job is not affected. Ctrl-C is passed on to the job, as in a foreground run; other signals
//! affect only this process.

use super::kill::{job, kill};
use super::{SESSION, attach_to, detach, name_of};
use crate::out;
use crate::words;
use wireup_flags::{Command, Line, Section, Words};
use wireup_node::session::spool::{Piece, Reader};
use wireup_os::process::SignalFd;
use wireup_os::reactor::{Interest, Reactor};
use wireup_proto::exit_code::{OURS, READER_GONE};
use wireup_wire::ids::JobId;
use wireup_wire::signal::SIGINT;

pub const COMMAND: Command = Command {
    name: "attach",
    purpose: "show all output of a detached job until it ends, and return its exit code",
    intro: "
  job=$(wireup run --detach -n 64 ./app)
  wireup attach $job

Ctrl-C is passed on to the job, a second one ends it; closing the terminal does not affect it. Up to 32 MiB of a job's
output are kept; wireup run --output-dir keeps everything. Output that was shown to its end is removed.
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
    let name = name_of(line)?;
    let job = job(line)?;
    let Some(reader) = Reader::open(&name, job).map_err(|error| error.to_string())? else {
        return Err(no_spool(&name, job));
    };
    show(reader, &name, job).map_err(|error| format!("cannot show the output of job {job}: {error}"))
}

/// The reason why there is no output to show.
fn no_spool(name: &str, job: JobId) -> String {
    let known = attach_to(name).and_then(|mut session| super::jobs::list(&mut session));
    match known {
        Err(problem) => problem,
        Ok(jobs) if jobs.iter().any(|entry| entry.job == job) => {
            format!("job {job} was not started with --detach; its output is shown by the wireup run that started it")
        }
        Ok(_) => format!("session {name} has no job {job}, or its output was already shown; see wireup jobs"),
    }
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
        match reader.next_piece()? {
            Piece::Bytes(stream, bytes) => {
                if !detach::write(stream, &bytes) {
                    return Ok(READER_GONE);
                }
            }
            Piece::End { code } => {
                reader.remove();
                return Ok(code);
            }
            Piece::Lost => {
                out::tell(&format!("the launcher of job {job} was killed, which ended the job"));
                reader.remove();
                return Ok(OURS);
            }
            Piece::Later => {
                // Without a limit: a job writes when it likes, and its end or the end of its launcher is noticed.
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
