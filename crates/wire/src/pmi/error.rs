//! The errors in a client's bytes, each described in one line.

use core::fmt;
use thiserror::Error;

/// The first bytes of an invalid message, kept short and printed with escapes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Excerpt {
    bytes: [u8; Self::LEN_MAX],
    len: u8,
    cut: bool,
}

impl Excerpt {
    /// Most bytes of a message in an excerpt: enough to recognise the program that sent the message.
    pub const LEN_MAX: usize = 40;

    /// The start of `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        let len = bytes.len().min(Self::LEN_MAX);
        let mut kept = [0; Self::LEN_MAX];
        kept[..len].copy_from_slice(&bytes[..len]);
        Excerpt { bytes: kept, len: len as u8, cut: bytes.len() > len }
    }
}

impl fmt::Display for Excerpt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dots = if self.cut { "…" } else { "" };
        write!(f, "\"{}{dots}\"", self.bytes[..usize::from(self.len)].escape_ascii())
    }
}

impl fmt::Debug for Excerpt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The framing is invalid: nothing that follows on this link can be read.
#[derive(Error, Clone, Copy, PartialEq, Eq, Debug)]
pub enum PmiError {
    #[error("a PMI-1 line of more than {limit} bytes without an end, it starts with {start}")]
    LineTooLong { limit: usize, start: Excerpt },
    #[error("no PMI message (it should start with \"cmd=\"): {start}")]
    NotACommand { start: Excerpt },
    #[error("a PMI-2 message's length should be six characters, a number padded with blanks: {header}")]
    BadLength { header: Excerpt },
    #[error("a PMI-2 message of {length} bytes, more than the limit of {limit}")]
    BodyTooLong { length: u32, limit: usize },
    #[error("a spawn request of more than {limit} bytes")]
    SpawnTooLong { limit: usize },
    #[error("inside a spawn request of several blocks another message starts: {start}")]
    SpawnInterrupted { start: Excerpt },
}

/// The fields of one message are invalid; the next message can still be read. A command is named as in
/// [`super::Command::name`].
#[derive(Error, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Problem {
    #[error("{command}: the field \"{field}\" is missing")]
    Missing { command: &'static str, field: &'static str },
    #[error("{command}: \"{field}\" should be a number in range, it is {value}")]
    BadNumber { command: &'static str, field: &'static str, value: Excerpt },
    #[error("{command}: \"{field}\" should be TRUE or FALSE, it is {value}")]
    BadFlag { command: &'static str, field: &'static str, value: Excerpt },
    #[error("{command}: \"{field}\" holds a zero byte: {value}")]
    ZeroByte { command: &'static str, field: &'static str, value: Excerpt },
    #[error("a reply to {expected} should follow, this came: {name}")]
    WrongReply { expected: &'static str, name: Excerpt },
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    #[test]
    fn excerpts_are_short_and_printable() {
        assert_eq!(Excerpt::of(b"a\n\0\xff\"").to_string(), "\"a\\n\\x00\\xff\\\"\"");
        let long = Excerpt::of(&[b'x'; 5000]).to_string();
        assert!(long.ends_with("x…\"") && long.len() < 60, "{long}");
    }

    #[test]
    fn a_problem_names_command_and_field() {
        let problem = Problem::Missing { command: "put", field: "key" };
        assert_eq!(problem.to_string(), "put: the field \"key\" is missing");
    }
}
