//! A server in a process of its own: it reads requests and writes answers, one line each, and ends when its handle is
//! dropped.
use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::testbed::StartError;

/// Longest wait for the server's exit after its standard input has ended. Removing 128 nodes took well below a tenth of
/// this.
const TAKE_DOWN_LIMIT: Duration = Duration::from_secs(20);
const LOOK_STEP: Duration = Duration::from_millis(1);

pub struct Served {
    child: Child,
    what: &'static str,
    dialogue: Mutex<Option<Dialogue>>,
}

struct Dialogue {
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Served {
    /// Starts a server. `what`: its name, for messages.
    pub fn spawn(command: &mut Command, what: &'static str) -> Result<Served, StartError> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| StartError::Failed(format!("{}: {error}", command.get_program().display())))?;
        let pipes = child.stdin.take().zip(child.stdout.take());
        let dialogue = pipes.map(|(requests, answers)| Dialogue { requests, answers: BufReader::new(answers) });
        Ok(Served { child, what, dialogue: Mutex::new(dialogue) })
    }

    pub fn child(&self) -> &Child {
        &self.child
    }

    /// The next line that the server writes without being asked.
    pub fn line(&self) -> io::Result<String> {
        self.within(Dialogue::read_line)
    }

    pub fn ask(&self, request: &str) -> io::Result<String> {
        self.within(|dialogue| {
            dialogue.requests.write_all(format!("{request}\n").as_bytes())?;
            dialogue.read_line()
        })
    }

    pub fn gone(&self) -> io::Error {
        io::Error::new(io::ErrorKind::UnexpectedEof, format!("the process of the {} is gone", self.what))
    }

    fn within(&self, talk: impl FnOnce(&mut Dialogue) -> io::Result<String>) -> io::Result<String> {
        let mut dialogue = self.dialogue.lock().unwrap_or_else(PoisonError::into_inner);
        let line = talk(dialogue.as_mut().ok_or_else(|| self.gone())?)?;
        if line.is_empty() { Err(self.gone()) } else { Ok(line.trim_end().to_owned()) }
    }
}

impl Dialogue {
    fn read_line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        Ok(line)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        *self.dialogue.get_mut().unwrap_or_else(PoisonError::into_inner) = None;
        let end = Instant::now() + TAKE_DOWN_LIMIT;
        while matches!(self.child.try_wait(), Ok(None)) {
            if Instant::now() > end {
                let _ = self.child.kill();
            }
            std::thread::sleep(LOOK_STEP);
        }
    }
}

/// Returns what was started. If the machine does not allow it, prints a message and returns `None`.
///
/// # Panics
/// If the start has failed for any other reason.
pub fn or_skip<T>(started: Result<T, StartError>, what: &str) -> Option<T> {
    match started {
        Ok(started) => Some(started),
        Err(StartError::Unavailable(reason)) => {
            // Written directly to the stream, since a test's captured output is shown only if the test fails.
            let _ = writeln!(io::stderr(), "\nSKIPPED (no {what}): {reason}\n");
            None
        }
        Err(failed) => panic!("{failed}"),
    }
}
