//! The handle of a slow file system: starts its server, reads its log, ends it.
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::MemfdFlags;

use super::meter::{Line, Totals};
use super::{Spec, mounting};
use crate::testbed::StartError;

/// A server only has to unmount (chosen).
const TAKE_DOWN_LIMIT: Duration = Duration::from_secs(20);

pub struct SlowFs {
    server: Child,
    dialogue: Mutex<Option<Dialogue>>,
    log: File,
    mount: PathBuf,
}

/// The lines to and from the server's process.
struct Dialogue {
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl SlowFs {
    /// Mounts a slow file system and waits until it is served, by a process of its own.
    pub fn mount(spec: &Spec) -> Result<SlowFs, StartError> {
        let failed = |error: io::Error| StartError::Failed(format!("slow file system: {error}"));
        let log = match &spec.log {
            Some(path) => File::options().create(true).read(true).append(true).open(path).map_err(failed)?,
            None => rustix::fs::memfd_create("slowfs-log", MemfdFlags::CLOEXEC)
                .map_err(|error| failed(error.into()))?
                .into(),
        };
        let mut passed = spec.clone();
        // The server opens the same file, which has no other name if it is in memory.
        passed.log = Some(format!("/proc/{}/fd/{}", std::process::id(), log.as_raw_fd()).into());
        let mut command = Command::new(&spec.program);
        command.arg("slowfs-serve").args(passed.arguments()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut server = command.spawn().map_err(failed)?;
        let (Some(requests), Some(answers)) = (server.stdin.take(), server.stdout.take()) else {
            return Err(StartError::Failed("no pipes".into()));
        };
        let mut dialogue = Dialogue { requests, answers: BufReader::new(answers) };
        let said = dialogue.read_line();
        // This owns the server from here on, and ends it also if the start has failed.
        let slow = SlowFs { server, dialogue: Mutex::new(Some(dialogue)), log, mount: spec.mount.clone() };
        let said = said.map_err(failed)?;
        match said.split_once(' ').unwrap_or((&said, "")) {
            ("ready", _) => Ok(slow),
            ("unavailable", reason) => Err(StartError::Unavailable(reason.to_owned())),
            (_, reason) => Err(StartError::Failed(format!("slow file system: {reason}"))),
        }
    }

    /// Mounts a slow file system. If the machine does not allow it, prints a message and returns `None`.
    ///
    /// # Panics
    /// If the start fails for any other reason.
    pub fn mount_or_skip(spec: &Spec) -> Option<SlowFs> {
        match SlowFs::mount(spec) {
            Ok(slow) => Some(slow),
            Err(StartError::Unavailable(reason)) => {
                // Written directly to the stream, since a test's captured output is shown only if the test fails.
                let _ = writeln!(io::stderr(), "\nSKIPPED (no slow file system): {reason}\n");
                None
            }
            Err(failed) => panic!("{failed}"),
        }
    }

    /// The operations since the start or since [`SlowFs::clear`]. Each is here before it is answered. The kernel closes files and reads
    /// ahead on its own time, so that a `release`, a `releasedir` or a `read` may come later than the call that caused it.
    ///
    /// # Panics
    /// If the log cannot be read.
    pub fn log(&self) -> Vec<Line> {
        Line::parse_all(&self.read_log().unwrap_or_else(|error| panic!("the log of the slow file system: {error}")))
    }

    /// Empties the log.
    ///
    /// # Panics
    /// If that fails.
    pub fn clear(&self) {
        self.log.set_len(0).unwrap_or_else(|error| panic!("the log of the slow file system: {error}"));
    }

    /// What the server has done since its start.
    pub fn totals(&self) -> io::Result<Totals> {
        let mut dialogue = self.dialogue.lock().unwrap_or_else(PoisonError::into_inner);
        let dialogue = dialogue.as_mut().ok_or_else(gone)?;
        dialogue.requests.write_all(b"totals\n")?;
        Totals::parse(&dialogue.read_line()?).ok_or_else(gone)
    }

    /// The process that serves.
    pub fn pid(&self) -> u32 {
        self.server.id()
    }

    fn read_log(&self) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; self.log.metadata()?.len() as usize];
        let mut filled = 0;
        while filled < bytes.len() {
            match self.log.read_at(&mut bytes[filled..], filled as u64)? {
                0 => break,
                more => filled += more,
            }
        }
        bytes.truncate(filled);
        Ok(bytes)
    }
}

impl Dialogue {
    fn read_line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        if line.is_empty() { Err(gone()) } else { Ok(line.trim_end().to_owned()) }
    }
}

fn gone() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the server of the slow file system is gone")
}

impl Drop for SlowFs {
    fn drop(&mut self) {
        *self.dialogue.get_mut().unwrap_or_else(PoisonError::into_inner) = None;
        let end = Instant::now() + TAKE_DOWN_LIMIT;
        while matches!(self.server.try_wait(), Ok(None)) {
            if Instant::now() > end {
                let _ = self.server.kill();
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        // A server that was killed could not do this.
        let _ = mounting::clear(&self.mount);
    }
}
