//! The PMI engine, driven by blocking reads and writes on `PMI_FD`.

use std::fmt;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use wireup_client::env::Env;
use wireup_client::escape::{double, halve};
use wireup_client::join::Join;
use wireup_client::memory::NoMemory;
use wireup_client::pipeline::{Answer, Broken};
use wireup_client::{Failure, Link};
use wireup_wire::pmi::{Command, Dialect, Problem, Reply, Request};

/// Why the conversation with the server ended early.
#[derive(Debug)]
pub enum SessionError {
    /// What was tried, and why it failed.
    Io(&'static str, io::Error),
    /// The server closed the link.
    Closed,
    /// The server refused a command of the handshake, or sent an unexpected answer to it.
    Start(Command),
    Broken(Broken),
    Refused(String),
    /// A put or get that this server or dialect does not support.
    Unsendable(String),
}

impl fmt::Display for SessionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SessionError::Io(tried, error) => write!(f, "{tried}: {error}"),
            SessionError::Closed => f.write_str("the launcher closed the PMI link"),
            SessionError::Start(command) => write!(f, "the launcher refused \"{}\" at start-up", command.name()),
            SessionError::Broken(Broken::Bytes(error)) => write!(f, "the launcher's bytes make no sense: {error}"),
            SessionError::Broken(Broken::Unasked) => f.write_str("the launcher sent a reply to no request"),
            SessionError::Broken(Broken::Refused) => f.write_str("the launcher refused one of its own commands"),
            SessionError::Refused(message) => write!(f, "the launcher refused: {message}"),
            SessionError::Unsendable(problem) => f.write_str(problem),
        }
    }
}

/// Bytes per read: enough for a reply with the longest value.
const READ_BYTES: usize = 8192;

/// The outcome of a request.
#[derive(Debug)]
pub enum Outcome<'a> {
    Done,
    Value(&'a [u8]),
    NotFound,
    /// PMI-1 only; -1 if the launcher does not know it.
    UniverseSize(i32),
    Failed(&'a str),
    /// Not an answer to the request.
    Strange(String),
}

pub struct Session {
    pub join: Join,
    /// The job's kvs (PMI-1) or the job's name (PMI-2).
    pub kvsname: Vec<u8>,
    link: Link<NoMemory>,
    socket: UnixStream,
    buffer: Box<[u8; READ_BYTES]>,
}

impl Session {
    /// Takes over the descriptor that the launcher left open.
    pub fn open(fd: i32, dialect: Dialect, env: Env) -> Result<Session, SessionError> {
        let socket = wireup_os::inherit::take(fd).map_err(|error| SessionError::Io("take PMI_FD", error))?;
        let job_id = std::env::var("PMI_JOBID").unwrap_or_default();
        Ok(Session {
            join: Join::new(env).job_id(job_id.into()),
            kvsname: Vec::new(),
            link: Link::new(dialect),
            socket: UnixStream::from(socket),
            buffer: Box::new([0; READ_BYTES]),
        })
    }

    pub fn dialect(&self) -> Dialect {
        self.link.dialect()
    }

    /// The name of the kvs, and the link, on which nothing is outstanding between two requests.
    pub fn into_parts(self) -> (Vec<u8>, UnixStream) {
        (self.kvsname, self.socket)
    }

    pub fn rank(&self) -> u32 {
        self.join.env.rank
    }

    pub fn size(&self) -> u32 {
        self.join.env.size
    }

    /// Performs the handshake in MPICH's order, after which rank, size and names are known.
    pub fn start(&mut self) -> Result<(), SessionError> {
        let mut last = Command::Init;
        loop {
            match self.join.ask(&mut self.link) {
                Ok(true) => {}
                Ok(false) => break,
                Err(_) => return Err(SessionError::Start(last)),
            }
            let mut join = self.join.clone();
            self.settle(&mut |answer| {
                last = answer.command;
                join.on_answer(answer.command, &answer.fields);
            })?;
            self.join = join;
        }
        let (question, field) = match self.dialect() {
            Dialect::Pmi1 => {
                let mut appnum = None;
                self.call(&Request::GetAppnum, |reply| {
                    appnum = if let Ok(Reply::Appnum(number)) = reply { Some(number) } else { None };
                })?;
                self.join.appnum = appnum;
                (Request::GetMyKvsname, Command::GetMyKvsname)
            }
            Dialect::Pmi2 => (Request::JobGetId, Command::JobGetId),
        };
        let name = self.call(&question, |reply| match reply {
            Ok(Reply::KvsName(name) | Reply::JobId(name)) => Some(name.to_vec()),
            _ => None,
        })?;
        self.kvsname = name.ok_or(SessionError::Start(field))?;
        Ok(())
    }

    /// Waits for all ranks.
    pub fn fence(&mut self) -> Result<(), SessionError> {
        self.link.begin_fence(None).or_else(|failure| self.failed(failure))?;
        self.flush()?;
        loop {
            if let Some(result) = self.link.take_fence_end() {
                return result.or_else(|failure| self.failed(failure));
            }
            self.receive(&mut |_| {})?;
        }
    }

    pub fn put(&mut self, key: &str, value: &[u8]) -> Result<(), SessionError> {
        let key = self.sendable("key", key.as_bytes(), self.join.maxes.key)?;
        let value = self.sendable("value", value, self.join.maxes.value)?;
        let kvsname = self.kvsname.clone();
        self.tell(&Request::Put { kvsname: Some(&kvsname), key: &key, value: &value })
    }

    /// Reads a pair; `source` is the rank that probably put it.
    pub fn get<T>(
        &mut self,
        key: &str,
        source: Option<u32>,
        on: impl FnOnce(Outcome<'_>) -> T,
    ) -> Result<T, SessionError> {
        let key = self.sendable("key", key.as_bytes(), self.join.maxes.key)?;
        let source = source.and_then(|rank| i32::try_from(rank).ok()).unwrap_or(-1);
        let kvsname = self.kvsname.clone();
        self.ask(&Request::Get { kvsname: Some(&kvsname), key: &key, source: Some(source) }, on)
    }

    /// Reads a job attribute, such as `PMI_process_mapping`.
    pub fn job_attr<T>(&mut self, key: &str, on: impl FnOnce(Outcome<'_>) -> T) -> Result<T, SessionError> {
        match self.dialect() {
            Dialect::Pmi1 => self.get(key, None, on),
            Dialect::Pmi2 => self.ask(&Request::GetJobAttr { key: key.as_bytes() }, on),
        }
    }

    /// Asks how many ranks could run at once.
    pub fn universe_size<T>(&mut self, on: impl FnOnce(Outcome<'_>) -> T) -> Result<T, SessionError> {
        match self.dialect() {
            Dialect::Pmi1 => self.ask(&Request::GetUniverseSize, on),
            Dialect::Pmi2 => self.job_attr("universeSize", on),
        }
    }

    /// Ends the job; this request has no answer.
    pub fn abort(&mut self, code: i32, message: &str) -> Result<(), SessionError> {
        let text: Vec<u8> = message.bytes().map(|byte| if byte < b' ' || byte == b';' { b' ' } else { byte }).collect();
        let asked = self.link.ask(&Request::Abort { code, message: &text, world: true });
        asked.or_else(|failure| self.failed(failure))?;
        self.flush()
    }

    pub fn finalize(&mut self) -> Result<(), SessionError> {
        self.tell(&Request::Finalize)
    }

    fn tell(&mut self, request: &Request<'_>) -> Result<(), SessionError> {
        self.ask(request, |outcome| match outcome {
            Outcome::Done => Ok(()),
            Outcome::Failed(message) => Err(SessionError::Refused(message.into())),
            Outcome::Strange(problem) => Err(SessionError::Refused(problem)),
            other => Err(SessionError::Refused(format!("{other:?}"))),
        })?
    }

    /// Sends a request and passes its outcome to `on`.
    fn ask<T>(&mut self, request: &Request<'_>, on: impl FnOnce(Outcome<'_>) -> T) -> Result<T, SessionError> {
        let dialect = self.dialect();
        self.call(request, |reply| {
            let mut plain = Vec::new();
            on(match reply {
                Ok(Reply::Value(value)) if dialect == Dialect::Pmi2 => Outcome::Value(halve(value, &mut plain)),
                Ok(Reply::Value(value)) => Outcome::Value(value),
                Ok(Reply::Done) => Outcome::Done,
                Ok(Reply::NotFound) => Outcome::NotFound,
                Ok(Reply::UniverseSize(size)) => Outcome::UniverseSize(size),
                Ok(Reply::Failed { message }) => Outcome::Failed(message),
                Ok(other) => Outcome::Strange(format!("{other:?}")),
                Err(problem) => Outcome::Strange(problem.to_string()),
            })
        })
    }

    /// Sends a request and passes the reply to `on`.
    fn call<T>(
        &mut self,
        request: &Request<'_>,
        on: impl FnOnce(Result<Reply<'_>, Problem>) -> T,
    ) -> Result<T, SessionError> {
        self.link.ask(request).or_else(|failure| match failure {
            Failure::Refused => {
                Err(SessionError::Unsendable(format!("this dialect has no {}", request.command().name())))
            }
            Failure::Broken => self.failed(failure),
        })?;
        let (mut on, mut result) = (Some(on), None);
        self.settle(&mut |answer| {
            result = on.take().map(|on| on(answer.fields.reply_to(answer.command)));
        })?;
        result.ok_or(SessionError::Closed)
    }

    /// Sends the requests and waits for all answers.
    fn settle(&mut self, take: &mut dyn FnMut(&Answer<'_>)) -> Result<(), SessionError> {
        self.flush()?;
        while self.link.awaited() > 0 {
            self.receive(take)?;
        }
        Ok(())
    }

    /// Takes one answer that has been received, or else reads.
    fn receive(&mut self, take: &mut dyn FnMut(&Answer<'_>)) -> Result<(), SessionError> {
        match self.link.next(take) {
            Ok(true) => return Ok(()),
            Ok(false) => {}
            Err(broken) => return Err(SessionError::Broken(broken)),
        }
        match self.socket.read(&mut self.buffer[..]) {
            Ok(0) => Err(SessionError::Closed),
            Ok(length) => self.link.push(&self.buffer[..length]).map_err(SessionError::Broken),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            Err(error) => Err(SessionError::Io("read from the PMI link", error)),
        }
    }

    fn flush(&mut self) -> Result<(), SessionError> {
        let written = self.socket.write_all(self.link.to_send());
        self.link.on_sent();
        written.map_err(|error| SessionError::Io("write to the PMI link", error))
    }

    fn failed<T>(&self, failure: Failure) -> Result<T, SessionError> {
        Err(match failure {
            Failure::Broken => SessionError::Closed,
            Failure::Refused => SessionError::Refused("no reason given".into()),
        })
    }

    /// The text as it goes over the wire.
    fn sendable(&self, what: &str, text: &[u8], max: u32) -> Result<Vec<u8>, SessionError> {
        let is_pmi1 = self.dialect() == Dialect::Pmi1;
        let problem = |problem: String| Err(SessionError::Unsendable(problem));
        if text.len() > max as usize {
            return problem(format!("the {what} is {} bytes long, the launcher takes {max}", text.len()));
        }
        let forbidden: &[u8] = if is_pmi1 { b" \n\\\0" } else { b"\0" };
        if text.iter().any(|byte| forbidden.contains(byte)) {
            return problem(format!("the {what} has a byte that this dialect cannot carry"));
        }
        let mut sendable = Vec::with_capacity(text.len());
        if is_pmi1 {
            sendable.extend_from_slice(text)
        } else {
            double(text, &mut sendable)
        }
        Ok(sendable)
    }
}
