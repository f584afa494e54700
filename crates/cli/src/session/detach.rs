//! `wireup run --detach`: the launcher continues in the background, with the job's output in a file of the session.
//!
//! ```text
//!   foreground ──fork──► launcher: no terminal, output to the spool
//!   prints the job's number
//!   waits        ◄─────  "started", or the exit code of a job that did not start
//!   shows what went wrong
//! ```

use super::logs::{self, Step};
use crate::out;
use std::fs::File;
use std::io::{IoSlice, IsTerminal, Read, Write as _};
use std::sync::Arc;
use wireup_node::session::SessionDirectory;
use wireup_node::session::spool::{Reader, Spool};
use wireup_os::files;
use wireup_os::process::{self, Fork};
use wireup_proto::exit_code::OURS;
use wireup_proto::launcher_io::Notice;
use wireup_wire::ids::JobId;
use wireup_wire::peer::Cause;

const STARTED: u8 = b's';
const ENDED: u8 = b'e';

/// The background launcher's end of the connection to the foreground process.
pub struct Background {
    pub spool: Arc<Spool>,
    word: Option<File>,
    failed: bool,
}

/// The process in which [`detach`] returned.
pub enum Side {
    /// The foreground process: everything is done, and it exits with this code.
    Foreground {
        code: u8,
    },
    Background(Background),
}

/// Forks the launcher into two processes. Must be called while the process has one thread.
pub fn detach(session: &str, job: JobId, program: &str) -> Result<Side, String> {
    let place = SessionDirectory::find(session).map_err(|error| error.to_string())?;
    let place = place.ok_or_else(|| super::nobody(session))?;
    let spool = Spool::create(&place, job, program).map_err(|error| {
        format!("cannot create the file for the job's output in {}: {error}", place.path().display())
    })?;
    let system = |error: std::io::Error| format!("cannot start the launcher in the background: {error}");
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
    /// Passes on a notice for which the foreground process may be waiting.
    pub fn on_notice(&mut self, notice: &Notice) {
        match notice {
            Notice::Failed(failure) if failure.rank.is_some() && !matches!(failure.cause, Cause::Spawn(_)) => {
                // A rank has run, and ended before all ranks were reported as started.
                self.tell(&[STARTED]);
            }
            // If one program is not found, the others may still be reported as started.
            Notice::Failed(_) => self.failed = true,
            Notice::Started { .. } if !self.failed => self.tell(&[STARTED]),
            // A short job ends before it is reported as started.
            Notice::Ended(ended) if ended.failure.is_none() => self.tell(&[STARTED]),
            _ => {}
        }
    }

    fn tell(&mut self, word: &[u8]) {
        if let Some(mut pipe) = self.word.take() {
            // Fails if the waiting process was killed.
            let _ = pipe.write_all(word);
        }
    }

    /// Writes a line of wireup's own into the output of the job.
    pub fn note(&self, line: &str) {
        // If the line cannot be written, the exit code that follows at least shows that the job failed.
        let _ = self.spool.note(&[IoSlice::new(format!("wireup: {line}\n").as_bytes())]);
    }

    /// Reports that the job could not be launched at all; returns the exit code.
    pub fn fail(self, problem: &str) -> u8 {
        self.note(problem);
        self.end(OURS)
    }

    /// Writes the exit code of the completed job into its output and to the foreground process.
    pub fn end(mut self, code: u8) -> u8 {
        // An error, such as a full disk, was reported when it first occurred.
        let _ = self.spool.end(code);
        self.tell(&[ENDED, code]);
        code
    }
}

/// Prints the job's number and waits until the job has started, or shows why it did not. Ctrl-C ends only the waiting.
fn await_start(mut pipe: File, session: &str, job: JobId) -> u8 {
    out::print(&format!("{job}\n"));
    let mut word = Vec::new();
    let _ = pipe.read_to_end(&mut word);
    match word[..] {
        [STARTED] => {
            if std::io::stdout().is_terminal() {
                out::tell(&format!(
                    "job {job} is running in session {session}; to see its output: wireup logs -f {job}"
                ));
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

/// Shows the whole output of a finished job.
fn show(session: &str, job: JobId) {
    let Ok(Some(mut reader)) = Reader::open(session, job) else { return };
    while let Ok(Step::Shown) = logs::show_piece(&mut reader, job, &[]) {}
}
