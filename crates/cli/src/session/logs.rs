//! `wireup logs`: shows the output of a detached job, as often as wanted. It reads a file, so the job is not affected.

use super::kill::job;
use super::{SESSION, attach_to, name_of};
use crate::out;
use std::io::{self, Write as _};
use wireup_flags::{Command, Flag, Line, Section, Words};
use wireup_node::session::spool::{Piece, Reader};
use wireup_os::socket::wait;
use wireup_proto::exit_code::{OURS, READER_GONE};
use wireup_proto::io::Stream;
use wireup_wire::ids::{JobId, Rank};

const FOLLOW: Flag =
    Flag::switch(&["--follow", "-f"], "Wait for more output until the job is over. Ctrl-C ends only the waiting.");
const RANK: Flag = Flag::value(&["--rank"], "R,..", "Show only the output of these ranks.");

pub const COMMAND: Command = Command {
    name: "logs",
    purpose: "show the output of a detached job",
    intro: "
  job=$(wireup run --detach -n 64 ./app)
  wireup logs $job              what the job has written so far
  wireup logs -f --rank 3 $job  follows the output of rank 3 until the job is over

Output is kept until the session ends: 32 MiB a job, 256 MiB and 32 finished jobs a session. The oldest finished jobs
make room for new ones. wireup run --output-dir keeps everything.
",
    words: Words::Named(&["JOB"]),
    sections: &[Section { title: "Flags", flags: &[FOLLOW, RANK, SESSION] }],
    end: "",
};

/// What [`show_piece`] has done.
pub enum Step {
    Shown,
    /// There is nothing to show at present.
    Later,
    /// Nothing is left to show; the job's exit code.
    Over(u8),
    /// Nobody reads what is shown.
    ReaderGone,
}

pub fn run(line: &Line) -> Result<u8, String> {
    let (name, job) = (name_of(line)?, job(line)?);
    let ranks = line.last(RANK, |value| value.list(|part| part.number().map(Rank)))?.unwrap_or_default();
    let follow = line.has(FOLLOW);
    let mut reader = open(&name, job)?;
    let unreadable = |error| unreadable(job, &error);
    loop {
        match show_piece(&mut reader, job, &ranks).map_err(unreadable)? {
            Step::Shown => {}
            // No time limit: a job may be silent for long, and the wait ends when its launcher exits.
            Step::Later if follow => drop(wait(&reader, true, false, None).map_err(unreadable)?),
            Step::ReaderGone => return Ok(READER_GONE),
            Step::Later | Step::Over(_) => return Ok(0),
        }
    }
}

pub fn open(session: &str, job: JobId) -> Result<Reader, String> {
    let reader = Reader::open(session, job).map_err(|error| error.to_string())?;
    reader.ok_or_else(|| no_spool(session, job))
}

pub fn unreadable(job: JobId, error: &io::Error) -> String {
    format!("cannot read the output of job {job}: {error}")
}

/// The reason why there is no output to show.
fn no_spool(name: &str, job: JobId) -> String {
    match attach_to(name).and_then(|mut session| super::jobs::list(&mut session)) {
        Err(problem) => problem,
        Ok(jobs) if jobs.iter().any(|entry| entry.job == job) => {
            format!("job {job} was not started with --detach; its output is shown by the wireup run that started it")
        }
        Ok(_) => {
            format!("session {name} has no output of a job {job}; wireup jobs lists the jobs whose output is kept")
        }
    }
}

/// Shows the next piece of output if one of these ranks has written it; without ranks, every piece.
pub fn show_piece(reader: &mut Reader, job: JobId, ranks: &[Rank]) -> io::Result<Step> {
    Ok(match reader.next_piece()? {
        // What wireup itself says, such as that output was dropped, concerns all ranks.
        Piece::Bytes { rank: Some(rank), .. } if !ranks.is_empty() && !ranks.contains(&rank) => Step::Shown,
        Piece::Bytes { stream, bytes, .. } if write(stream, &bytes).is_err() => Step::ReaderGone,
        Piece::Bytes { .. } => Step::Shown,
        Piece::End { code } => Step::Over(code),
        Piece::Lost => {
            out::tell(&format!("the launcher of job {job} was killed, which ended the job"));
            Step::Over(OURS)
        }
        Piece::Later => Step::Later,
    })
}

/// Writes bytes to the matching standard stream.
fn write(stream: Stream, bytes: &[u8]) -> io::Result<()> {
    match stream {
        Stream::Out => io::stdout().write_all(bytes).and_then(|()| io::stdout().flush()),
        Stream::Err => io::stderr().write_all(bytes),
    }
}
