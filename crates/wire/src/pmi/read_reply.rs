//! Reads replies from a server's link.

use super::error::{Excerpt, PmiError, Problem};
use super::framing::Framer;
use super::pairs::Pairs;
use super::reply_fields::ReplyFields;
use super::value::RESPONSE;
use super::{Command, Dialect, Reply};

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
    /// Whether this answers `command`.
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
            return Err(Problem::WrongReply { expected: command, name: Excerpt::of(self.name()) });
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
