//! The launcher's connection to the socket of a standing session.
//!
//! ```text
//! connect, header ──► │ other work of the launcher │ ──► header, Welcome ──► requests, or a job
//! ```
//!
//! Every wait has a time limit. If a session is stopped or overloaded, the error contains the session's name.

use super::crash_log;
use super::session_directory::{SessionDirectory, SessionDirectoryError};
use crate::remedy::Advised;
use crate::transport::link::Link;
use bytes::Bytes;
use rustix::buffer::spare_capacity;
use std::cell::Cell;
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};
use wireup_os::{files, local, process, socket};
use wireup_proto::control_frame;
use wireup_wire::attach::{ATTACH_LEN, AttachError, Spoken};
use wireup_wire::frame::{FrameKind, FrameReader};
use wireup_wire::ids::{AgentId, JobId};
use wireup_wire::peer;
use wireup_wire::session::{SeatRequest, Welcome};
use wireup_wire::talk::{Control, FromLauncher, ToLauncher};

/// The name of the socket in a session's directory.
pub const SOCKET: &str = "socket";
/// Longest time that a session may take to answer. Chosen: a session answers within a millisecond, or within seconds on
/// a machine that swaps.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// Time after which the user is told what this process waits for. Chosen: shorter waits go unnoticed.
const UNTOLD: Duration = Duration::from_secs(2);
/// Pause between two attempts to connect if too many other launchers wait.
const CROWDED_PAUSE: Duration = Duration::from_millis(5);
const READ_BYTES_MAX: usize = 64 << 10;

/// The reason why a session cannot be used, with advice for the user.
#[derive(thiserror::Error, Debug)]
pub enum CallError {
    #[error(transparent)]
    SessionDirectory(#[from] SessionDirectoryError),
    #[error(
        "session {name} ended unexpectedly and left {path} behind; wireup up starts it again, wireup down removes the \
         remains, --no-session runs without a session"
    )]
    Stale { name: String, path: String },
    #[error("session {name} ended unexpectedly ({said}); to start it again: wireup up")]
    Crashed { name: String, said: String },
    #[error(
        "the process that listens on {path} belongs to user {user}, not to you; remove the socket, and find out who \
         could create it"
    )]
    Foreign { path: String, user: u32 },
    #[error(
        "session {name} (process {pid}) was started by another version of wireup: {error}; end it with that version's \
         wireup down, or use --no-session"
    )]
    Version { name: String, pid: u32, error: AttachError },
    #[error("session {name} does not answer; {}--no-session runs without it", if_stopped(.pid))]
    Silent { name: String, pid: u32 },
    #[error("session {name} has too many connections; try again later, or use --no-session")]
    FdLimit { name: String },
    #[error("session {name} has ended; wireup up starts it again, --no-session runs without a session")]
    Ended { name: String },
    #[error("session {name} sent an invalid message; end it{} and start it again", by_kill(.pid))]
    Garbled { name: String, pid: u32 },
    #[error("{path}: {}", Advised(.error))]
    System { path: String, error: io::Error },
}

/// Advice about a process that may be stopped. Pid 0: the process is in another PID namespace and has no pid here.
fn if_stopped(pid: &u32) -> String {
    match pid {
        pid if process::is_stopped(*pid) => format!("{}, wireup down --kill ends it; ", stopped(*pid)),
        0 => "its process, which is not visible from here, may be stopped; ".to_owned(),
        _ => format!("if its process {pid} is stopped, continue it (kill -CONT {pid}) or end it (kill {pid}); "),
    }
}

fn stopped(pid: u32) -> String {
    format!("its process {pid} is stopped: kill -CONT {pid} continues it")
}

fn by_kill(pid: &u32) -> String {
    if *pid == 0 { String::new() } else { format!(" (kill {pid})") }
}

/// A connection to a session that has not answered yet.
pub struct Calling {
    call: Call,
}

/// An open connection to a session.
pub struct Call {
    name: String,
    pid: u32,
    place: SessionDirectory,
    socket: OwnedFd,
    reader: FrameReader,
    /// Bytes that have been read and not parsed.
    bytes: Bytes,
    /// Function that tells the user what this process waits for; called at most once.
    tell: Cell<Option<fn(&str)>>,
}

/// A connection to a session that has answered.
pub struct Attached {
    pub welcome: Welcome,
    call: Call,
}

impl Calling {
    /// Connects to a session; `None`: there is no session of that name.
    pub fn call(name: &str) -> Result<Option<Calling>, CallError> {
        let Some(place) = SessionDirectory::find(name)? else { return Ok(None) };
        let path = || place.path().join(SOCKET).display().to_string();
        let until = Instant::now() + ANSWER_MAX;
        let connected = loop {
            match local::connect(&place.inside(SOCKET)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && Instant::now() < until => {
                    std::thread::sleep(CROWDED_PAUSE);
                }
                connected => break connected,
            }
        };
        let socket = match connected {
            Ok(socket) => socket,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return match crash_log::read(&place) {
                    Some(said) => Err(CallError::Crashed { name: name.to_owned(), said }),
                    None => Ok(None),
                };
            }
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                return Err(CallError::Stale { name: name.to_owned(), path: path() });
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Err(CallError::FdLimit { name: name.to_owned() });
            }
            Err(error) => return Err(CallError::System { path: path(), error }),
        };
        let peer = local::peer(&socket).map_err(|error| CallError::System { path: path(), error })?;
        if peer.user != rustix::process::geteuid().as_raw() {
            return Err(CallError::Foreign { path: path(), user: peer.user });
        }
        let call = Call {
            name: name.to_owned(),
            pid: peer.pid,
            place,
            socket,
            reader: FrameReader::new(),
            bytes: Bytes::new(),
            tell: Cell::new(None),
        };
        call.write(&Spoken::OURS.encode())?;
        Ok(Some(Calling { call }))
    }

    /// The pid of the session's process.
    pub fn pid(&self) -> u32 {
        self.call.pid
    }

    /// Waits for the session's answer; if the answer takes long, `tell` is called with a line for the user.
    pub fn finish(self, tell: fn(&str)) -> Result<Attached, CallError> {
        let mut call = self.call;
        call.tell.set(Some(tell));
        let until = Instant::now() + ANSWER_MAX;
        let mut heard = Vec::new();
        let theirs = loop {
            let version = |error| CallError::Version { name: call.name.clone(), pid: call.pid, error };
            match Spoken::decode(&heard).map_err(version)? {
                Some(theirs) => break theirs,
                None => match call.read(until) {
                    Ok(bytes) => heard.extend_from_slice(&bytes),
                    Err(CallError::Ended { .. }) if !heard.is_empty() => {
                        return Err(call.version(AttachError::Cut(heard.len())));
                    }
                    Err(error) => return Err(error),
                },
            }
        };
        Spoken::OURS.agree(theirs).map_err(|error| call.version(error))?;
        call.bytes = Bytes::from(heard).slice(ATTACH_LEN..);
        match call.next(until)? {
            Control::ToLauncher(ToLauncher::Welcome(welcome)) => Ok(Attached { welcome, call }),
            _ => Err(call.garbled()),
        }
    }
}

impl Attached {
    /// The session's directory.
    pub fn place(&self) -> &SessionDirectory {
        &self.call.place
    }

    /// The pid of the session's process.
    pub fn pid(&self) -> u32 {
        self.call.pid
    }

    /// Sends a request and waits for the first answer that `take` accepts.
    pub fn ask<T>(
        &mut self,
        message: &Control,
        limit: Option<Duration>,
        mut take: impl FnMut(Control) -> Option<T>,
    ) -> Result<T, CallError> {
        self.send(message)?;
        if limit.is_some() {
            // The caller expects a long wait, so the user is not told about it.
            self.call.tell.set(None);
        }
        self.answer(Instant::now() + limit.unwrap_or(ANSWER_MAX), &mut take)
    }

    /// Sends `message` and waits for its answer up to `limit`. Meanwhile sends the question `meanwhile` at each
    /// `interval`, one at a time. `take` reads the answers to both; one answer is dropped for each `meanwhile` sent.
    pub fn ask_meanwhile<T>(
        &mut self,
        message: &Control,
        limit: Duration,
        (meanwhile, interval): (&Control, Duration),
        mut take: impl FnMut(Control) -> Option<T>,
    ) -> Result<T, CallError> {
        self.send(message)?;
        self.call.tell.set(None);
        let (until, mut is_asked) = (Instant::now() + limit, false);
        loop {
            let answer = self.answer(until.min(Instant::now() + interval), &mut |message| {
                let answer = take(message)?;
                (!std::mem::take(&mut is_asked)).then_some(answer)
            });
            match answer {
                Err(CallError::Silent { .. }) if Instant::now() < until => {
                    if !std::mem::replace(&mut is_asked, true) {
                        self.send(meanwhile)?;
                    }
                }
                answer => return answer,
            }
        }
    }

    fn send(&self, message: &Control) -> Result<(), CallError> {
        let frame = control_frame(JobId(0), message);
        self.call.write(&[&frame.header()[..], &frame.payload].concat())
    }

    /// Waits for the first message that `take` accepts.
    fn answer<T>(&mut self, until: Instant, take: &mut dyn FnMut(Control) -> Option<T>) -> Result<T, CallError> {
        loop {
            if let Some(answer) = take(self.call.next(until)?) {
                return Ok(answer);
            }
        }
    }

    /// Requests nodes for the job that this connection will launch.
    pub fn seats(&mut self, request: SeatRequest) -> Result<Vec<AgentId>, CallError> {
        let name = self.call.name.clone();
        self.ask(&Control::FromLauncher(FromLauncher::AskSeats(request)), None, |answer| match answer {
            Control::ToLauncher(ToLauncher::Seats(agents)) => Some(Ok(agents)),
            // The session is about to end.
            Control::ToLauncher(ToLauncher::Ended(_)) | Control::ToLauncher(ToLauncher::Decided(Err(_))) => {
                Some(Err(CallError::Ended { name: name.clone() }))
            }
            _ => None,
        })?
    }

    /// Waits until the session has ended.
    pub fn await_end(&mut self, limit: Duration) -> Result<(), CallError> {
        let until = Instant::now() + limit;
        loop {
            match self.call.next(until) {
                Ok(_) => {}
                Err(CallError::Ended { .. }) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    /// Turns the connection into a link for a job.
    pub(crate) fn into_link(self) -> io::Result<Link> {
        files::set_nonblocking(&self.call.socket, true)?;
        Ok(Link::local(self.call.socket, self.call.bytes))
    }
}

impl Call {
    fn write(&self, mut bytes: &[u8]) -> Result<(), CallError> {
        while !bytes.is_empty() {
            match socket::send(&self.socket, bytes, &[]) {
                Ok(written) => bytes = &bytes[written..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let ready = socket::wait(&self.socket, false, true, Some(ANSWER_MAX));
                    if !ready.map_err(|error| self.system(error))? {
                        return Err(self.silent());
                    }
                }
                // Not an error yet: the session's last messages must be read first.
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
                Err(error) => return Err(self.system(error)),
            }
        }
        Ok(())
    }

    /// Waits until bytes arrive, and returns them.
    fn read(&self, until: Instant) -> Result<Bytes, CallError> {
        let is_ready = |limit| socket::wait(&self.socket, true, false, Some(limit)).map_err(|error| self.system(error));
        let left = || until.saturating_duration_since(Instant::now());
        if !is_ready(left().min(UNTOLD))? {
            if let Some(tell) = self.tell.take().filter(|_| !left().is_zero()) {
                tell(&self.waits(left()));
            }
            if !is_ready(left())? {
                return Err(self.silent());
            }
        }
        let mut buffer = Vec::with_capacity(READ_BYTES_MAX);
        match rustix::io::retry_on_intr(|| rustix::io::read(&self.socket, spare_capacity(&mut buffer))) {
            Ok(0) | Err(rustix::io::Errno::CONNRESET) => Err(CallError::Ended { name: self.name.clone() }),
            Ok(_) => Ok(Bytes::from(buffer)),
            Err(error) => Err(self.system(error.into())),
        }
    }

    /// Waits for the next message.
    fn next(&mut self, until: Instant) -> Result<Control, CallError> {
        loop {
            match self.reader.next(&mut self.bytes) {
                Ok(Some(frame)) if frame.kind == FrameKind::Control => {
                    return peer::decode(&frame.payload).map_err(|_| self.garbled());
                }
                Ok(Some(_)) => {}
                Ok(None) => self.bytes = self.read(until)?,
                Err(_) => return Err(self.garbled()),
            }
        }
    }

    fn version(&self, error: AttachError) -> CallError {
        CallError::Version { name: self.name.clone(), pid: self.pid, error }
    }

    fn waits(&self, left: Duration) -> String {
        let why = match self.pid {
            pid if process::is_stopped(pid) => stopped(pid),
            0 => "its process is not visible from here".to_owned(),
            pid => format!("its process {pid} is busy, or waits for its agents"),
        };
        format!("waiting up to {} s for session {}; {why}", left.as_secs_f64().ceil(), self.name)
    }

    fn silent(&self) -> CallError {
        CallError::Silent { name: self.name.clone(), pid: self.pid }
    }

    fn garbled(&self) -> CallError {
        CallError::Garbled { name: self.name.clone(), pid: self.pid }
    }

    fn system(&self, error: io::Error) -> CallError {
        CallError::System { path: format!("session {}", self.name), error }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `kill 0` would end the shell of the user who types it.
    #[test]
    fn errors_suggest_kill_only_with_a_nonzero_process_id() {
        let words = |pid| {
            let name = || "s".to_owned();
            [CallError::Silent { name: name(), pid }, CallError::Garbled { name: name(), pid }].map(|e| e.to_string())
        };
        assert!(words(7).iter().all(|said| said.contains("kill 7")), "{:?}", words(7));
        assert!(words(0).iter().all(|said| !said.contains("kill")), "{:?}", words(0));
    }
}
