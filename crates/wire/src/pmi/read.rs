//! Reads requests from a client's link, and replies from a server's.
//!
//! A reader holds at most a partially read message and, for a spawn, all blocks before its last one.

use super::error::{Excerpt, PmiError, Problem};
use super::framing::Framer;
use super::pairs::Pairs;
use super::reply_fields::ReplyFields;
use super::spawn::{self, PartialSpawn};
use super::table::THREAD_FIELD;
use super::value::RESPONSE;
use super::{Command, Dialect, Reply, Request};
use core::ops::Range;

/// One request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Envelope<'a> {
    pub request: Request<'a>,
    /// PMI-2's `thrid`: pass it to [`super::encode_reply`] unchanged.
    pub thread: Option<&'a [u8]>,
}

/// Splits and decodes the requests of one client; starts in PMI-1.
#[derive(Clone, Debug, Default)]
pub struct RequestReader {
    framer: Framer,
    /// Blocks of a PMI-1 spawn that is not complete.
    spawn: Option<PartialSpawn>,
}

/// The result of reading one line or body.
enum Step {
    Message(Range<usize>),
    Spawn(Request<'static>),
}

impl RequestReader {
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds bytes from the client, split anywhere. Call [`RequestReader::next`] until `None` before the next push.
    ///
    /// # Errors
    /// [`PmiError`] if a message is longer than `limits` allows; the link cannot recover.
    pub fn push(&mut self, bytes: &[u8]) -> Result<(), PmiError> {
        self.framer.push(bytes)
    }

    /// The next whole request; `None`: more bytes are needed.
    ///
    /// # Errors
    /// [`PmiError`] if the bytes cannot be split into messages; the link cannot recover.
    #[allow(clippy::should_implement_trait)] // The result borrows from the reader; an iterator's item cannot.
    pub fn next(&mut self) -> Result<Option<Envelope<'_>>, PmiError> {
        match self.step()? {
            None => Ok(None),
            Some(Step::Spawn(request)) => Ok(Some(Envelope { request, thread: None })),
            Some(Step::Message(range)) => decode(self.dialect(), self.framer.message(range)).map(Some),
        }
    }

    /// The dialect in which the next message is read.
    pub fn dialect(&self) -> Dialect {
        if self.framer.is_counted() { Dialect::Pmi2 } else { Dialect::Pmi1 }
    }

    /// Reads all further bytes, also those already pushed, as PMI-2. Must be called once `init` of version 2 was
    /// answered.
    pub fn switch_to_pmi2(&mut self) {
        self.framer.switch_to_counted();
    }

    /// The number of bytes of unfinished messages: not 0 if a client closes in the middle of a message.
    pub fn held_bytes(&self) -> usize {
        self.framer.held() + self.spawn.as_ref().map_or(0, PartialSpawn::held_bytes)
    }

    fn step(&mut self) -> Result<Option<Step>, PmiError> {
        while let Some(range) = self.framer.next()? {
            if self.framer.is_counted() {
                return Ok(Some(Step::Message(range)));
            }
            let line = self.framer.message(range.clone());
            if let Some(spawn) = &mut self.spawn {
                if let Some(request) = spawn.line(line)? {
                    self.spawn = None;
                    return Ok(Some(Step::Spawn(request)));
                }
            } else if let Some(block) = line.trim_ascii_start().strip_prefix(b"mcmd=") {
                self.spawn = Some(PartialSpawn::new(block.trim_ascii_end() == b"spawn"));
            } else if !line.trim_ascii().is_empty() {
                return Ok(Some(Step::Message(range)));
            }
        }
        Ok(None)
    }
}

/// Decodes one message without its line end or length.
fn decode(dialect: Dialect, message: &[u8]) -> Result<Envelope<'_>, PmiError> {
    let mut pairs = Pairs::new(dialect, message);
    let Some((b"cmd", name)) = pairs.next() else {
        return Err(PmiError::NotACommand { start: Excerpt::of(message) });
    };
    let mut thread = None;
    let request = match Command::of_name(dialect, name) {
        // A PMI-1 spawn is a block of lines; no client sends it as a single line.
        Command::Spawn if dialect == Dialect::Pmi1 => Ok(Request::Unknown { name }),
        Command::Spawn => {
            thread = thread_of(dialect, pairs);
            spawn::decode_pmi2(pairs).map(Request::Spawn)
        }
        Command::Unknown => {
            thread = thread_of(dialect, pairs);
            Ok(Request::Unknown { name })
        }
        command => Request::decode(command, dialect, pairs, &mut thread)
            .or_else(|problem| Ok(Request::Malformed { command, problem })),
    };
    let request = request.unwrap_or_else(|problem| Request::Malformed { command: Command::Spawn, problem });
    Ok(Envelope { request, thread })
}

fn thread_of(dialect: Dialect, mut pairs: Pairs<'_>) -> Option<&[u8]> {
    match dialect {
        Dialect::Pmi1 => None,
        Dialect::Pmi2 => pairs.find(|(key, _)| *key == THREAD_FIELD.as_bytes()).map(|(_, value)| value),
    }
}

/// Splits and parses the replies of one server; starts in PMI-1.
#[derive(Clone, Debug, Default)]
pub struct ReplyReader {
    framer: Framer,
}

impl ReplyReader {
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds bytes from the server, split anywhere. Call [`ReplyReader::next`] until `None` before the next push.
    ///
    /// # Errors
    /// [`PmiError`] if a message is longer than `limits` allows.
    pub fn push(&mut self, bytes: &[u8]) -> Result<(), PmiError> {
        self.framer.push(bytes)
    }

    /// The next whole reply; `None`: more bytes are needed.
    ///
    /// # Errors
    /// [`PmiError`] if the bytes cannot be split into messages.
    #[allow(clippy::should_implement_trait)] // The result borrows from the reader; an iterator's item cannot.
    pub fn next(&mut self) -> Result<Option<ReplyFields<'_>>, PmiError> {
        let dialect = if self.framer.is_counted() { Dialect::Pmi2 } else { Dialect::Pmi1 };
        let Some(range) = self.framer.next()? else {
            return Ok(None);
        };
        let message = self.framer.message(range);
        let mut pairs = Pairs::new(dialect, message);
        match pairs.next() {
            Some((b"cmd", name)) => Ok(Some(ReplyFields::new(dialect, name, pairs))),
            _ => Err(PmiError::NotACommand { start: Excerpt::of(message) }),
        }
    }

    /// The number of bytes that were pushed and not yet returned.
    pub fn held_bytes(&self) -> usize {
        self.framer.held()
    }

    /// Reads all further bytes, also those already pushed, as PMI-2. Must be called after the answer to `init`.
    pub fn switch_to_pmi2(&mut self) {
        self.framer.switch_to_counted();
    }
}

impl<'a> ReplyFields<'a> {
    /// Whether this is a reply to `command`.
    pub fn answers(&self, command: Command) -> bool {
        match self.dialect() {
            Dialect::Pmi1 => command.pmi1_reply_name().is_some_and(|name| name.as_bytes() == self.name()),
            Dialect::Pmi2 => command
                .request_name(Dialect::Pmi2)
                .and_then(|name| self.name().strip_prefix(name.as_bytes()))
                .is_some_and(|rest| rest == RESPONSE.as_bytes()),
        }
    }

    /// Decodes this as the answer to `command`.
    ///
    /// # Errors
    /// [`Problem`] if it answers another command or lacks a field.
    pub fn reply_to(&self, command: Command) -> Result<Reply<'a>, Problem> {
        if !self.answers(command) {
            return Err(Problem::WrongReply { expected: command.name(), name: Excerpt::of(self.name()) });
        }
        let absent = self.get("found").is_some_and(|found| found.eq_ignore_ascii_case(b"false"));
        let gets_key = matches!(command, Command::Get | Command::GetByIdx | Command::LookupName);
        if absent || (self.dialect() == Dialect::Pmi1 && gets_key && !self.succeeded()) {
            return Ok(Reply::NotFound);
        }
        if !self.succeeded() && command != Command::Init {
            return Ok(Reply::Failed { message: self.message() });
        }
        Reply::decode(command.reply_kind(), command, self)
    }
}
