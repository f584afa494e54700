//! `wireup run --detach`: the launcher goes on in the background, with the job's output in a file of the session.
//!
//! ```text
//!   foreground ──fork──► launcher: no terminal, output to the spool
//!   says the job's number
//!   waits        ◄─────  "started", or the exit code of a job that never did
//!   shows what went wrong
//! ```

use crate::out;
use std::fs::File;
use std::io::{IoSlice, IsTerminal, Read, Write};
use std::sync::Arc;
use wireup_node::session::Place;
use wireup_node::session::spool::{Piece, Reader, Spool};
use wireup_os::files;
use wireup_os::process::{self, Fork};
use wireup_proto::exit_code::OURS;
use wireup_proto::io::Stream;
use wireup_proto::launcher_io::Notice;
use wireup_wire::ids::JobId;
use wireup_wire::peer::Cause;

const STARTED: u8 = b's';
const ENDED: u8 = b'e';

/// The launcher in the background, as the one in the foreground knows it.
pub struct Background {
    pub spool: Arc<Spool>,
    word: Option<File>,
    failed: bool,
}

/// Where [`detach`] returned.
pub enum Side {
    /// All is done here.
    Foreground {
        code: u8,
    },
    Background(Background),
}

/// Divides the launcher in two. To be called while the process has one thread.
pub fn detach(session: &str, job: JobId, program: &str) -> Result<Side, String> {
    let place = Place::find(session).map_err(|error| error.to_string())?;
    let place = place.ok_or_else(|| super::nobody(session))?;
    let spool = Spool::create(&place, job, program)
        .map_err(|error| format!("{}: keeping the job's output: {error}", place.path().display()))?;
    let system = |error: std::io::Error| format!("going into the background: {error}");
    let (reader, writer) = files::pipe().map_err(system)?;
    match process::fork().map_err(system)? {
        Fork::Parent { .. } => {
            drop((spool, writer));
            Ok(Side::Foreground { code: await_start(File::from(reader), session, job) })
        }
        Fork::Child => {
            drop(reader);
            leave_terminal().map_err(system)?;
            Ok(Side::Background(Background { spool: Arc::new(spool), word: Some(File::from(writer)), failed: false }))
        }
    }
}

fn leave_terminal() -> std::io::Result<()> {
    process::new_session()?;
    let null = files::null()?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    Ok(())
}

impl Background {
    /// Something that the foreground may wait for.
    pub fn on_notice(&mut self, notice: &Notice) {
        match notice {
            Notice::Failed(failure) if failure.rank.is_some() && !matches!(failure.cause, Cause::Spawn(_)) => {
                // A rank has run, and ended before all were told of.
                self.tell(&[STARTED]);
            }
            // All the others may be told to have started where one program is not found.
            Notice::Failed(_) => self.failed = true,
            Notice::Started { .. } if !self.failed => self.tell(&[STARTED]),
            // A short job ends before it was told to have started.
            Notice::Ended(ended) if ended.failure.is_none() => self.tell(&[STARTED]),
            _ => {}
        }
    }

    fn tell(&mut self, word: &[u8]) {
        if let Some(mut pipe) = self.word.take() {
            // Whoever waited may have been killed.
            let _ = pipe.write_all(word);
        }
    }

    /// The job could not even be asked for.
    pub fn fail(self, problem: &str) -> u8 {
        // Who waits is told at least that it failed.
        let _ = self.spool.note(&[IoSlice::new(format!("wireup: {problem}\n").as_bytes())]);
        self.end(OURS)
    }

    /// The job is over.
    pub fn end(mut self, code: u8) -> u8 {
        // A full disk was told of when it became one.
        let _ = self.spool.end(code);
        self.tell(&[ENDED, code]);
        code
    }
}

/// Says the job's number and waits until it has started; or shows why it never did. Ctrl-C ends the waiting alone.
fn await_start(mut pipe: File, session: &str, job: JobId) -> u8 {
    out::print(&format!("{job}\n"));
    let mut word = Vec::new();
    let _ = pipe.read_to_end(&mut word);
    match word[..] {
        [STARTED] => {
            if std::io::stdout().is_terminal() {
                out::tell(&format!("job {job} runs in session {session}; wireup attach {job} shows its output"));
            }
            0
        }
        [ENDED, code] => {
            show(session, job);
            code
        }
        _ => {
            show(session, job);
            out::tell("the launcher in the background was killed");
            OURS
        }
    }
}

/// All that a job that is over has said.
fn show(session: &str, job: JobId) {
    let Ok(Some(mut reader)) = Reader::open(session, job) else { return };
    while let Ok(Piece::Bytes(stream, bytes)) = reader.next_piece() {
        write(stream, &bytes);
    }
    reader.remove();
}

/// Where the job's output belongs.
pub fn write(stream: Stream, bytes: &[u8]) -> bool {
    match stream {
        Stream::Out => std::io::stdout().write_all(bytes).and_then(|()| std::io::stdout().flush()).is_ok(),
        Stream::Err => std::io::stderr().write_all(bytes).is_ok(),
    }
}
