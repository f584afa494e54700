//! The PMI engine, driven by blocking reads and writes on `PMI_FD`.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use wireup_client::env::Env;
use wireup_client::escape::{double, halve};
use wireup_client::join::Join;
use wireup_client::link::{Answer, Broken};
use wireup_client::memory::NoMemory;
use wireup_client::{Failure, Link};
use wireup_wire::pmi::{Command, Dialect, Problem, Reply, Request};

const CLOSED: &str = "the launcher closed the PMI link";

fn not_started(command: Command) -> String {
    format!("the launcher refused \"{}\" at start-up", command.name())
}

fn broken(broken: Broken) -> String {
    match broken {
        Broken::Bytes(error) => format!("the launcher's answer cannot be decoded: {error}"),
        Broken::Unasked => "the launcher sent a reply without a request".to_owned(),
        Broken::Refused => "the launcher refused one of its own commands".to_owned(),
    }
}

fn failed<T>(failure: Failure) -> Result<T, String> {
    Err(match failure {
        Failure::Broken => CLOSED.to_owned(),
        Failure::Refused => "the launcher refused: no reason given".to_owned(),
    })
}

/// Bytes per read: enough for a reply with the longest value.
const READ_BYTES: usize = 8192;

/// The outcome of a request.
#[derive(PartialEq, Eq, Debug)]
pub enum Outcome {
    Done,
    /// The value of a key or an attribute, or a number as text.
    Value(Vec<u8>),
    NotFound,
    /// The launcher refused the request, or sent no answer to it.
    Refused(String),
}

impl Outcome {
    /// The text of a value, or a word that says what came instead.
    pub fn into_text(self) -> String {
        match self {
            Outcome::Value(value) => String::from_utf8_lossy(&value).into_owned(),
            Outcome::NotFound => "none".into(),
            Outcome::Refused(message) => format!("refused:{message}"),
            Outcome::Done => "done".into(),
        }
    }
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
    pub fn open(fd: i32, dialect: Dialect, env: Env) -> Result<Session, String> {
        let socket = wireup_os::inherit::take(fd).map_err(|error| format!("take PMI_FD: {error}"))?;
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
    pub fn start(&mut self) -> Result<(), String> {
        let mut last = Command::Init;
        loop {
            match self.join.ask(&mut self.link) {
                Ok(true) => {}
                Ok(false) => break,
                Err(_) => return Err(not_started(last)),
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
        self.kvsname = name.ok_or_else(|| not_started(field))?;
        Ok(())
    }

    /// Performs a fence, which waits for all ranks.
    pub fn fence(&mut self) -> Result<(), String> {
        self.link.begin_fence(None).or_else(failed)?;
        self.flush()?;
        loop {
            if let Some(result) = self.link.take_fence_end() {
                return result.or_else(failed);
            }
            self.receive(&mut |_| {})?;
        }
    }

    pub fn put(&mut self, key: &str, value: &[u8]) -> Result<(), String> {
        let key = self.sendable("key", key.as_bytes(), self.join.maxes.key)?;
        let value = self.sendable("value", value, self.join.maxes.value)?;
        let kvsname = self.kvsname.clone();
        self.tell(&Request::Put { kvsname: Some(&kvsname), key: &key, value: &value })
    }

    /// Reads a pair; `source` is the rank that probably put it.
    pub fn get(&mut self, key: &str, source: Option<u32>) -> Result<Outcome, String> {
        let key = self.sendable("key", key.as_bytes(), self.join.maxes.key)?;
        let source = source.and_then(|rank| i32::try_from(rank).ok()).unwrap_or(-1);
        let kvsname = self.kvsname.clone();
        self.ask(&Request::Get { kvsname: Some(&kvsname), key: &key, source: Some(source) })
    }

    /// Reads a job attribute, such as `PMI_process_mapping`.
    pub fn job_attr(&mut self, key: &str) -> Result<Outcome, String> {
        match self.dialect() {
            Dialect::Pmi1 => self.get(key, None),
            Dialect::Pmi2 => self.ask(&Request::GetJobAttr { key: key.as_bytes() }),
        }
    }

    /// Asks how many ranks could run at once; in PMI-1 that is -1 if the launcher does not know it.
    pub fn universe_size(&mut self) -> Result<Outcome, String> {
        match self.dialect() {
            Dialect::Pmi1 => self.ask(&Request::GetUniverseSize),
            Dialect::Pmi2 => self.job_attr("universeSize"),
        }
    }

    /// Sends a request that ends the job; it has no answer.
    pub fn abort(&mut self, code: i32, message: &str) -> Result<(), String> {
        let text: Vec<u8> = message.bytes().map(|byte| if byte < b' ' || byte == b';' { b' ' } else { byte }).collect();
        let asked = self.link.ask(&Request::Abort { code, message: &text, world: true });
        asked.or_else(failed)?;
        self.flush()
    }

    pub fn finalize(&mut self) -> Result<(), String> {
        self.tell(&Request::Finalize)
    }

    fn tell(&mut self, request: &Request<'_>) -> Result<(), String> {
        match self.ask(request)? {
            Outcome::Done => Ok(()),
            Outcome::Refused(message) => Err(format!("the launcher refused: {message}")),
            other => Err(format!("the launcher refused: {other:?}")),
        }
    }

    fn ask(&mut self, request: &Request<'_>) -> Result<Outcome, String> {
        let dialect = self.dialect();
        self.call(request, |reply| match reply {
            Ok(Reply::Value(value)) if dialect == Dialect::Pmi2 => {
                Outcome::Value(halve(value, &mut Vec::new()).to_vec())
            }
            Ok(Reply::Value(value)) => Outcome::Value(value.to_vec()),
            Ok(Reply::Done) => Outcome::Done,
            Ok(Reply::NotFound) => Outcome::NotFound,
            Ok(Reply::UniverseSize(size)) => Outcome::Value(size.to_string().into()),
            Ok(Reply::Failed { message }) => Outcome::Refused(message.into()),
            Ok(other) => Outcome::Refused(format!("{other:?}")),
            Err(problem) => Outcome::Refused(problem.to_string()),
        })
    }

    /// Sends a request and passes the reply to `on`.
    fn call<T>(
        &mut self,
        request: &Request<'_>,
        on: impl FnOnce(Result<Reply<'_>, Problem>) -> T,
    ) -> Result<T, String> {
        self.link.ask(request).or_else(|failure| match failure {
            Failure::Refused => Err(format!("this dialect has no {}", request.command().name())),
            Failure::Broken => failed(failure),
        })?;
        let (mut on, mut result) = (Some(on), None);
        self.settle(&mut |answer| {
            result = on.take().map(|on| on(answer.fields.reply_to(answer.command)));
        })?;
        result.ok_or_else(|| CLOSED.to_owned())
    }

    /// Sends the queued requests and waits for all answers.
    fn settle(&mut self, take: &mut dyn FnMut(&Answer<'_>)) -> Result<(), String> {
        self.flush()?;
        while self.link.awaited() > 0 {
            self.receive(take)?;
        }
        Ok(())
    }

    /// Passes one buffered answer to `take`; if none is complete, reads once from the socket instead.
    fn receive(&mut self, take: &mut dyn FnMut(&Answer<'_>)) -> Result<(), String> {
        if self.link.next(take).map_err(broken)? {
            return Ok(());
        }
        match self.socket.read(&mut self.buffer[..]) {
            Ok(0) => Err(CLOSED.to_owned()),
            Ok(length) => self.link.push(&self.buffer[..length]).map_err(broken),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            Err(error) => Err(format!("read from the PMI link: {error}")),
        }
    }

    fn flush(&mut self) -> Result<(), String> {
        let written = self.socket.write_all(self.link.to_send());
        self.link.on_sent();
        written.map_err(|error| format!("write to the PMI link: {error}"))
    }

    /// The text in the encoding of the wire; an error if the server would not accept it.
    fn sendable(&self, what: &str, text: &[u8], max: u32) -> Result<Vec<u8>, String> {
        let is_pmi1 = self.dialect() == Dialect::Pmi1;
        if text.len() > max as usize {
            return Err(format!("the {what} is {} bytes long, but the launcher takes at most {max}", text.len()));
        }
        let forbidden: &[u8] = if is_pmi1 { b" \n\\\0" } else { b"\0" };
        if text.iter().any(|byte| forbidden.contains(byte)) {
            return Err(format!("the {what} has a byte that this dialect cannot carry"));
        }
        if is_pmi1 {
            return Ok(text.to_vec());
        }
        let mut sendable = Vec::with_capacity(text.len());
        double(text, &mut sendable);
        Ok(sendable)
    }
}
