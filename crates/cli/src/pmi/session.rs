//! A PMI link driven by blocking reads and writes on `PMI_FD`.

use std::fmt;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use wireup_client::env::Env;
use wireup_client::{Event, LinkError, PmiLink, Unsendable};
use wireup_wire::pmi::Dialect;

/// Why the conversation with the server ended early.
#[derive(Debug)]
pub enum SessionError {
    /// What was tried, and why it failed.
    Io(&'static str, io::Error),
    /// The server closed the link.
    Closed,
    Link(LinkError),
    Refused(String),
    Unsendable(Unsendable),
}

impl fmt::Display for SessionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SessionError::Io(tried, error) => write!(f, "{tried}: {error}"),
            SessionError::Closed => f.write_str("the launcher closed the PMI link"),
            SessionError::Link(error) => fmt::Display::fmt(error, f),
            SessionError::Refused(message) => write!(f, "the launcher refused: {message}"),
            SessionError::Unsendable(error) => fmt::Display::fmt(error, f),
        }
    }
}

/// Bytes per read: enough for a reply with the longest value.
const READ_BYTES: usize = 8192;

pub struct Session {
    pub link: PmiLink,
    socket: UnixStream,
    out: Vec<u8>,
    buffer: Box<[u8; READ_BYTES]>,
}

impl Session {
    /// Takes over the descriptor that the launcher left open.
    pub fn open(fd: i32, dialect: Dialect, env: Env) -> Result<Session, SessionError> {
        let socket = wireup_os::inherit::take(fd).map_err(|error| SessionError::Io("take PMI_FD", error))?;
        Ok(Session {
            link: PmiLink::new(dialect, env),
            socket: UnixStream::from(socket),
            out: Vec::new(),
            buffer: Box::new([0; READ_BYTES]),
        })
    }

    /// Performs the handshake, after which rank, size and names are known.
    pub fn start(&mut self) -> Result<(), SessionError> {
        self.link.start(&mut self.out);
        self.answer(|_| ())
    }

    /// Waits for all ranks.
    pub fn fence(&mut self) -> Result<(), SessionError> {
        self.ask(|link, out| link.fence(out), done)?
    }

    pub fn put(&mut self, key: &str, value: &[u8]) -> Result<(), SessionError> {
        self.ask(|link, out| link.put(key.as_bytes(), value, out), done)?
    }

    pub fn finalize(&mut self) -> Result<(), SessionError> {
        self.ask(|link, out| link.finalize(out), done)?
    }

    /// Sends one request and passes its answer to `on`.
    pub fn ask<T>(
        &mut self,
        request: impl FnOnce(&mut PmiLink, &mut Vec<u8>) -> Result<(), Unsendable>,
        on: impl FnOnce(Event<'_>) -> T,
    ) -> Result<T, SessionError> {
        request(&mut self.link, &mut self.out).map_err(SessionError::Unsendable)?;
        self.answer(on)
    }

    /// Sends a request that has no answer.
    pub fn tell(
        &mut self,
        request: impl FnOnce(&mut PmiLink, &mut Vec<u8>) -> Result<(), Unsendable>,
    ) -> Result<(), SessionError> {
        request(&mut self.link, &mut self.out).map_err(SessionError::Unsendable)?;
        self.flush()
    }

    fn flush(&mut self) -> Result<(), SessionError> {
        let written = self.socket.write_all(&self.out);
        self.out.clear();
        written.map_err(|error| SessionError::Io("write to the PMI link", error))
    }

    fn answer<T>(&mut self, on: impl FnOnce(Event<'_>) -> T) -> Result<T, SessionError> {
        loop {
            self.flush()?;
            let length = match self.socket.read(&mut self.buffer[..]) {
                Ok(0) => return Err(SessionError::Closed),
                Ok(length) => length,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(SessionError::Io("read from the PMI link", error)),
            };
            if let Some(event) = self.link.handle(&self.buffer[..length], &mut self.out).map_err(SessionError::Link)? {
                return Ok(on(event));
            }
        }
    }
}

fn done(event: Event<'_>) -> Result<(), SessionError> {
    match event {
        Event::Failed { message } => Err(SessionError::Refused(message.into())),
        _ => Ok(()),
    }
}
