//! One rank's conversation with its PMI server.
//!
//! ```text
//!            start              reply 1            reply n
//!   Fresh ─────────► Starting(init) ──► Starting(…) ──► Idle ◄───────┐
//!                                                        │ request   │ reply
//!                                                        └─► Waiting(command) ──finalize──► Closed
//! ```
//!
//! Start-up is MPICH's order: PMI-1 asks `init`, `get_maxes`, `get_appnum`, `get_my_kvsname`; PMI-2 `init`,
//! `fullinit`, `job-getid`. One request is outstanding at a time. Bytes to send are appended to `out`; a value
//! with `;` is doubled for PMI-2 and halved again, as libpmi2 does.

use crate::env::Env;
use crate::escape::{double, halve};
use alloc::vec::Vec;
use thiserror::Error;
use wireup_wire::limits::{KEY_LEN_MAX, KVSNAME_LEN_MAX, VALUE_LEN_MAX};
use wireup_wire::pmi::{
    Command, Dialect, NotInDialect, PmiError, Problem, Reply, ReplyReader, Request, encode_request,
};

/// What a reply meant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event<'a> {
    /// Start-up is over: `rank`, `size` and the rest are known.
    Ready,
    /// The request was done (put, publish, …).
    Done,
    /// All ranks have entered the fence.
    Fenced,
    Value(&'a [u8]),
    /// No such key, or no such name.
    NotFound,
    /// Another shape of reply, to a request of the caller's own making.
    Other(Reply<'a>),
    /// The answer to [`PmiLink::universe_size`] in PMI-1, where Hydra's -1 means that it does not know; in PMI-2
    /// the answer is a `Value`.
    UniverseSize(i32),
    /// The server refused the request; the link goes on.
    Failed {
        message: &'a str,
    },
    /// Finalize was answered; nothing may be sent any more.
    Finalized,
}

/// The conversation cannot go on.
#[derive(Error, Clone, PartialEq, Eq, Debug)]
pub enum LinkError {
    #[error("the server's bytes make no sense: {0}")]
    Broken(#[from] PmiError),
    #[error("the server's reply makes no sense: {0}")]
    BadReply(#[from] Problem),
    #[error("the server refused \"{command}\" at start-up", command = .0.name())]
    Refused(Command),
    #[error("the server speaks PMI {version}.{subversion}, asked for {asked:?}")]
    WrongVersion { asked: Dialect, version: u32, subversion: u32 },
    #[error("the server sent a reply that nobody asked for")]
    Unasked,
}

/// A request that cannot be sent as it is.
#[derive(Error, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unsendable {
    #[error(transparent)]
    NotInDialect(#[from] NotInDialect),
    #[error("a {what} of {len} bytes, the server takes {limit}")]
    TooLong { what: &'static str, len: usize, limit: usize },
    #[error("a {what} with a byte that this dialect cannot carry")]
    BadByte { what: &'static str },
}

/// Longest texts that the server takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Maxes {
    pub kvsname: u32,
    pub key: u32,
    pub value: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Fresh,
    Starting(Command),
    Idle,
    Waiting(Command),
    Closed,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct PmiLink {
    dialect: Dialect,
    state: State,
    reader: ReplyReader,
    /// A value with its doubled `;` halved.
    plain: Vec<u8>,
    env: Env,
    appnum: i32,
    kvsname: Vec<u8>,
    maxes: Maxes,
    subversion: u32,
}

impl PmiLink {
    pub fn new(dialect: Dialect, env: Env) -> Self {
        let maxes = Maxes { kvsname: KVSNAME_LEN_MAX as u32, key: KEY_LEN_MAX as u32, value: VALUE_LEN_MAX as u32 };
        PmiLink {
            dialect,
            state: State::Fresh,
            reader: ReplyReader::new(),
            plain: Vec::new(),
            env,
            appnum: -1,
            kvsname: Vec::new(),
            maxes,
            subversion: 0,
        }
    }

    pub fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// From the environment; PMI-2's server has the last word.
    pub fn rank(&self) -> u32 {
        self.env.rank
    }

    pub fn size(&self) -> u32 {
        self.env.size
    }

    pub fn spawned(&self) -> bool {
        self.env.spawned
    }

    pub fn appnum(&self) -> i32 {
        self.appnum
    }

    /// The job's kvs (PMI-1) or the job's name (PMI-2).
    pub fn kvsname(&self) -> &[u8] {
        &self.kvsname
    }

    pub fn maxes(&self) -> Maxes {
        self.maxes
    }

    /// What the server answered to `init`.
    pub fn subversion(&self) -> u32 {
        self.subversion
    }

    /// Whether a request may be sent.
    pub fn is_idle(&self) -> bool {
        self.state == State::Idle
    }

    /// Asks for start-up; [`Event::Ready`] ends it.
    ///
    /// # Panics
    /// If it was called before.
    pub fn start(&mut self, out: &mut Vec<u8>) {
        assert!(self.state == State::Fresh, "a link starts once");
        let (version, subversion) = match self.dialect {
            Dialect::Pmi1 => (1, 1),
            Dialect::Pmi2 => (2, 0),
        };
        self.ask_at_start(&Request::Init { version, subversion, extension: None }, out);
    }

    /// Sends any request.
    ///
    /// # Panics
    /// If another one is unanswered, or the link is not ready.
    pub fn request(&mut self, request: &Request<'_>, out: &mut Vec<u8>) -> Result<(), Unsendable> {
        assert!(self.state == State::Idle, "one request at a time, after start-up: {:?}", self.state);
        encode_request(self.dialect, request, None, out)?;
        self.state = match request.command() {
            Command::Abort => State::Closed,
            command => State::Waiting(command),
        };
        Ok(())
    }

    /// Keeps a pair for the next fence.
    pub fn put(&mut self, key: &[u8], value: &[u8], out: &mut Vec<u8>) -> Result<(), Unsendable> {
        let key = self.sendable("key", key, self.maxes.key)?;
        let value = self.sendable("value", value, self.maxes.value)?;
        let kvsname = core::mem::take(&mut self.kvsname);
        let sent = self.request(&Request::Put { kvsname: Some(&kvsname), key: &key, value: &value }, out);
        self.kvsname = kvsname;
        sent
    }

    /// Reads a pair; `source` is the rank that is likely to have put it.
    pub fn get(&mut self, key: &[u8], source: Option<u32>, out: &mut Vec<u8>) -> Result<(), Unsendable> {
        let key = self.sendable("key", key, self.maxes.key)?;
        let source = source.and_then(|rank| i32::try_from(rank).ok()).unwrap_or(-1);
        let kvsname = core::mem::take(&mut self.kvsname);
        let sent = self.request(&Request::Get { kvsname: Some(&kvsname), key: &key, source: Some(source) }, out);
        self.kvsname = kvsname;
        sent
    }

    /// Waits for all ranks and publishes the puts.
    pub fn fence(&mut self, out: &mut Vec<u8>) -> Result<(), Unsendable> {
        self.request(&Request::Barrier { group: None }, out)
    }

    /// Reads what the server says about the job, `PMI_process_mapping` for one.
    pub fn job_attr(&mut self, key: &[u8], out: &mut Vec<u8>) -> Result<(), Unsendable> {
        match self.dialect {
            Dialect::Pmi1 => self.get(key, None, out),
            Dialect::Pmi2 => self.request(&Request::GetJobAttr { key }, out),
        }
    }

    /// Asks how many ranks could run at once.
    pub fn universe_size(&mut self, out: &mut Vec<u8>) -> Result<(), Unsendable> {
        match self.dialect {
            Dialect::Pmi1 => self.request(&Request::GetUniverseSize, out),
            Dialect::Pmi2 => self.job_attr(b"universeSize", out),
        }
    }

    /// Ends the job; never answered.
    pub fn abort(&mut self, code: i32, message: &str, out: &mut Vec<u8>) -> Result<(), Unsendable> {
        let text: Vec<u8> = message.bytes().map(|byte| if byte < b' ' || byte == b';' { b' ' } else { byte }).collect();
        self.request(&Request::Abort { code, message: &text, world: true }, out)
    }

    /// Leaves; [`Event::Finalized`] is the last one.
    pub fn finalize(&mut self, out: &mut Vec<u8>) -> Result<(), Unsendable> {
        self.request(&Request::Finalize, out)
    }

    /// Takes the server's bytes, cut anywhere. During start-up, `out` may get more to send. At most one event
    /// comes of one call, because one request is outstanding.
    ///
    /// # Errors
    /// [`LinkError`]: the conversation is over.
    pub fn handle(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<Option<Event<'_>>, LinkError> {
        self.reader.push(bytes)?;
        while let State::Starting(command) = self.state {
            if !self.on_start_reply(command, out)? {
                return Ok(None);
            }
            if self.state == State::Idle {
                return Ok(Some(Event::Ready));
            }
        }
        let asked = self.state;
        let Some(fields) = self.reader.next()? else {
            return Ok(None);
        };
        let State::Waiting(command) = asked else {
            return Err(LinkError::Unasked);
        };
        self.state = if command == Command::Finalize { State::Closed } else { State::Idle };
        if command == Command::GetUniverseSize
            && let Some(b"-1") = fields.get("size")
        {
            return Ok(Some(Event::UniverseSize(-1)));
        }
        Ok(Some(match fields.reply_to(command)? {
            Reply::Done if command == Command::Finalize => Event::Finalized,
            Reply::Done => Event::Done,
            Reply::BarrierOut { .. } => Event::Fenced,
            Reply::Value(value) if self.dialect == Dialect::Pmi2 => Event::Value(halve(value, &mut self.plain)),
            Reply::Value(value) => Event::Value(value),
            Reply::NotFound => Event::NotFound,
            Reply::UniverseSize(size) => Event::UniverseSize(i32::try_from(size).unwrap_or(i32::MAX)),
            Reply::Failed { message } => Event::Failed { message },
            other => Event::Other(other),
        }))
    }

    /// Reads one reply of the start-up and asks the next question; `false`: more bytes needed.
    fn on_start_reply(&mut self, command: Command, out: &mut Vec<u8>) -> Result<bool, LinkError> {
        let Some(fields) = self.reader.next()? else {
            return Ok(false);
        };
        let question = match fields.reply_to(command)? {
            Reply::Init { version, subversion, rc } => {
                let wanted = if self.dialect == Dialect::Pmi1 { 1 } else { 2 };
                if rc != 0 || version != wanted {
                    return Err(LinkError::WrongVersion { asked: self.dialect, version, subversion });
                }
                self.subversion = subversion;
                match self.dialect {
                    Dialect::Pmi1 => Some(Request::GetMaxes),
                    Dialect::Pmi2 => {
                        self.reader.switch_to_pmi2();
                        // Slurm's server wants all three fields, MPICH's only the rank.
                        Some(Request::FullInit { rank: Some(self.env.rank), job_id: Some(b""), threaded: false })
                    }
                }
            }
            Reply::Maxes { kvsname, key, value } => {
                self.maxes = Maxes { kvsname, key, value };
                Some(Request::GetAppnum)
            }
            Reply::Appnum(appnum) => {
                self.appnum = appnum;
                Some(Request::GetMyKvsname)
            }
            Reply::FullInit { rank, size, appnum, spawner, .. } => {
                self.env = Env { rank, size, spawned: spawner.is_some() };
                self.appnum = appnum;
                Some(Request::JobGetId)
            }
            Reply::KvsName(name) | Reply::JobId(name) => {
                self.kvsname = name.to_vec();
                None
            }
            _ => return Err(LinkError::Refused(command)),
        };
        match question {
            Some(request) => self.ask_at_start(&request, out),
            None => self.state = State::Idle,
        }
        Ok(true)
    }

    fn ask_at_start(&mut self, request: &Request<'_>, out: &mut Vec<u8>) {
        self.state = State::Starting(request.command());
        encode_request(self.dialect, request, None, out).expect("start-up asks only what its dialect has");
    }

    /// The text as it goes over the wire.
    fn sendable(&self, what: &'static str, text: &[u8], limit: u32) -> Result<Vec<u8>, Unsendable> {
        if text.len() > limit as usize {
            return Err(Unsendable::TooLong { what, len: text.len(), limit: limit as usize });
        }
        let forbidden: &[u8] = if self.dialect == Dialect::Pmi1 { b" \n\\\0" } else { b"\0" };
        if text.iter().any(|byte| forbidden.contains(byte)) {
            return Err(Unsendable::BadByte { what });
        }
        let mut sendable = Vec::with_capacity(text.len());
        match self.dialect {
            Dialect::Pmi1 => sendable.extend_from_slice(text),
            Dialect::Pmi2 => double(text, &mut sendable),
        }
        Ok(sendable)
    }
}

#[cfg(test)]
mod tests;
