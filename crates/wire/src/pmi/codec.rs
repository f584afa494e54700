//! Writes and reads the messages of one conversation: requests from a client to its server, replies back.
//!
//! A reader holds at most a partially read message and, for a spawn, all blocks before its last one.

use super::error::{Excerpt, PmiError, Problem};
use super::framing::Framer;
use super::pairs::{Pairs, ReplyFields};
use super::spawn::{self, PartialSpawn};
use super::table::THREAD_FIELD;
use super::value::{MessageWriter, RESPONSE, write_number};
use super::{Command, Dialect, Reply, ReplyKind, Request};
use alloc::vec::Vec;
use core::ops::Range;
use thiserror::Error;

/// The dialect has no such request.
#[derive(Error, Clone, Copy, PartialEq, Eq, Debug)]
#[error("{dialect:?} has no request \"{command}\"", command = .command.name())]
pub struct NotInDialect {
    pub dialect: Dialect,
    pub command: Command,
}

/// Longest message of a failed reply: clients read it into buffers of 256 bytes or more.
const FAILURE_LEN_MAX: usize = 200;

/// `init` and its reply are PMI-1 lines, whatever dialect follows.
fn dialect_of(command: Command, dialect: Dialect) -> Dialect {
    if command == Command::Init { Dialect::Pmi1 } else { dialect }
}

/// Appends a request. The caller must make sure that no text contains its terminator: blanks and line ends in PMI-1, a
/// single `;` in PMI-2.
pub fn encode_request(
    dialect: Dialect,
    request: &Request<'_>,
    thread: Option<&[u8]>,
    out: &mut Vec<u8>,
) -> Result<(), NotInDialect> {
    let command = request.command();
    let dialect = dialect_of(command, dialect);
    let name = match request {
        Request::Unknown { name } => *name,
        Request::Malformed { .. } => return Err(NotInDialect { dialect, command }),
        _ => command.request_name(dialect).ok_or(NotInDialect { dialect, command })?.as_bytes(),
    };
    if let (Request::Spawn(request), Dialect::Pmi1) = (request, dialect) {
        spawn::encode_pmi1(request, out);
        return Ok(());
    }
    let mut writer = MessageWriter::new(dialect, (name, ""), out);
    write_thread(dialect, thread, &mut writer);
    match request {
        Request::Spawn(request) => spawn::encode_pmi2(request, &mut writer),
        _ => request.encode_fields(dialect, &mut writer),
    }
    writer.end();
    Ok(())
}

/// Appends the reply `reply` to a request `to`; `thread`: the `thrid` that the request carried.
///
/// Nothing is appended for [`Command::Abort`], which is never answered. A [`Reply::Failed`] message may contain any
/// characters; terminators in it are replaced.
pub fn encode_reply(dialect: Dialect, to: Command, thread: Option<&[u8]>, reply: &Reply<'_>, out: &mut Vec<u8>) {
    let dialect = dialect_of(to, dialect);
    if to == Command::Abort {
        return;
    }
    let name = match dialect {
        Dialect::Pmi1 => (to.pmi1_reply_name().unwrap_or("unknown_result"), ""),
        Dialect::Pmi2 => (to.request_name(dialect).unwrap_or("unknown"), RESPONSE),
    };
    let name = (name.0.as_bytes(), name.1);
    encode_named(dialect, to, name, thread, reply, out);
}

/// Appends a refusal of a group's barrier. It contains the tag, since PMI 1.2 clients recognise the answer by it.
pub fn encode_barrier_refusal(tag: i32, message: &str, out: &mut Vec<u8>) {
    let (dialect, to) = (Dialect::Pmi1, Command::Barrier);
    let mut writer = MessageWriter::new(dialect, (to.pmi1_reply_name().unwrap_or_default().as_bytes(), ""), out);
    writer.raw("rc", b"-1");
    write_failure(dialect, to, message, &mut writer);
    Reply::BarrierOut { tag: Some(tag) }.encode_fields(dialect, &mut writer);
    writer.end();
}

/// Appends a refusal of a command that is not in the table, under that command's own name.
pub fn encode_unknown(dialect: Dialect, name: &[u8], thread: Option<&[u8]>, out: &mut Vec<u8>) {
    let name = match dialect {
        Dialect::Pmi1 => (name, "_result"),
        Dialect::Pmi2 => (name, RESPONSE),
    };
    encode_named(dialect, Command::Unknown, name, thread, &Reply::Failed { message: "unknown command" }, out);
}

fn encode_named(
    dialect: Dialect,
    to: Command,
    name: (&[u8], &str),
    thread: Option<&[u8]>,
    reply: &Reply<'_>,
    out: &mut Vec<u8>,
) {
    let mut writer = MessageWriter::new(dialect, name, out);
    write_thread(dialect, thread, &mut writer);
    match reply {
        Reply::Init { .. } => {}
        Reply::NotFound if dialect == Dialect::Pmi2 => writer.raw("rc", b"0"),
        Reply::NotFound if to == Command::GetByIdx => writer.raw("rc", b"-2"),
        Reply::NotFound | Reply::Failed { .. } => writer.raw("rc", b"-1"),
        _ => writer.raw("rc", b"0"),
    }
    match reply {
        Reply::NotFound => write_not_found(dialect, to, &mut writer),
        Reply::Failed { message } => write_failure(dialect, to, message, &mut writer),
        _ => write_success_words(dialect, to, &mut writer),
    }
    reply.encode_fields(dialect, &mut writer);
    writer.end();
    if let Reply::InitAck { size, rank, debug } = reply {
        for (name, number) in [("size", size), ("rank", rank), ("debug", debug)] {
            out.extend_from_slice(b"cmd=set ");
            out.extend_from_slice(name.as_bytes());
            out.push(b'=');
            write_number(i64::from(*number), out);
            out.push(b'\n');
        }
    }
}

fn write_thread(dialect: Dialect, thread: Option<&[u8]>, writer: &mut MessageWriter<'_>) {
    if let (Dialect::Pmi2, Some(thread)) = (dialect, thread) {
        writer.raw(THREAD_FIELD, thread);
    }
}

/// PMI-1's name service reports the result twice: Hydra's clients read `rc`, Slurm's `info`.
fn has_info_word(dialect: Dialect, to: Command) -> bool {
    dialect == Dialect::Pmi1 && matches!(to, Command::PublishName | Command::UnpublishName | Command::LookupName)
}

fn write_success_words(dialect: Dialect, to: Command, writer: &mut MessageWriter<'_>) {
    if has_info_word(dialect, to) {
        writer.raw("info", b"ok");
    }
    if dialect == Dialect::Pmi2 && to.reply_kind() == ReplyKind::Value {
        writer.raw("found", b"TRUE");
    }
}

fn write_not_found(dialect: Dialect, to: Command, writer: &mut MessageWriter<'_>) {
    match (dialect, to) {
        (Dialect::Pmi1, Command::Get) => {
            writer.raw("msg", b"key_not_found");
            writer.raw("value", b"unknown");
        }
        // This reply ends an iteration over all pairs by number.
        (Dialect::Pmi1, Command::GetByIdx) => writer.raw("reason", b"no_more_keyvals"),
        (Dialect::Pmi1, _) => writer.raw("msg", b"not_found"),
        (Dialect::Pmi2, _) => writer.raw("found", b"FALSE"),
    }
    if has_info_word(dialect, to) {
        writer.raw("info", b"fail");
    }
}

fn write_failure(dialect: Dialect, to: Command, message: &str, writer: &mut MessageWriter<'_>) {
    let mut text = Vec::with_capacity(message.len().min(FAILURE_LEN_MAX));
    text.extend(message.bytes().take(FAILURE_LEN_MAX).map(|byte| match (dialect, byte) {
        (_, 0..=31 | 127) | (Dialect::Pmi1, b' ' | b'=' | b'\\') => b'_',
        (Dialect::Pmi2, b';') => b',',
        _ => byte,
    }));
    writer.raw(if dialect == Dialect::Pmi1 { "msg" } else { "errmsg" }, &text);
    if has_info_word(dialect, to) {
        writer.raw("info", b"fail");
    }
}

/// One request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Envelope<'a> {
    pub request: Request<'a>,
    /// PMI-2's `thrid`: pass it to [`encode_reply`] unchanged.
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
