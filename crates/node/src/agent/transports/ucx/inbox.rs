//! Keeps messages that arrived for one link over UCX and have not been read.

use crate::transport::handshake;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use wireup_ucx::sys::Status;
use wireup_ucx::{Endpoint, Verdict, Worker};

/// Longest message; a longer piece is split. Chosen: the pieces of all but the largest exchanges fit, and arrive
/// without a copy.
pub(super) const MESSAGE_LEN_MAX: usize = 16 << 20;
/// The tag of openings, which no link has.
pub(super) const OPENING: u64 = u64::MAX;
/// Length of the longest handshake message, with its own length field.
const HANDSHAKE_LEN_MAX: usize = 2 + handshake::MESSAGE_LEN_MAX;

/// State that the transport shares with its carriers.
pub(super) struct Shared {
    pub worker: Worker,
    /// Messages that have arrived for each link, by tag.
    pub inboxes: BTreeMap<u64, Inbox>,
    /// Tags of links with events that were not reported yet.
    pub ready: BTreeSet<u64>,
}

#[derive(Default)]
pub struct Inbox {
    /// The link's token in the reactor's events.
    pub token: Option<u64>,
    /// The endpoint towards the peer, once there is one.
    pub endpoint: Option<Endpoint>,
    /// Whether the link needs an event when there is room for more.
    pub wants_room: bool,
    is_proved: bool,
    messages: VecDeque<Bytes>,
    /// Why no more messages arrive; `None`: more may arrive.
    problem: Option<String>,
}

impl Inbox {
    /// The inbox of a link that this agent dials.
    pub fn towards(endpoint: Endpoint) -> Inbox {
        Inbox { endpoint: Some(endpoint), ..Inbox::default() }
    }

    /// The inbox of a link that the peer has dialled, with its first message.
    pub fn with(message: Bytes) -> Inbox {
        Inbox { messages: VecDeque::from([message]), ..Inbox::default() }
    }

    /// What to do with a message for the link, of which only the length is known yet.
    pub fn judge(&mut self, len: usize) -> Verdict {
        let len_max = if self.is_proved { MESSAGE_LEN_MAX } else { HANDSHAKE_LEN_MAX };
        if len > len_max {
            self.fail(format!("a message of {len} bytes is too long"));
        }
        match (&self.problem, self.is_proved) {
            (Some(_), _) => Verdict::Drop,
            (None, true) => Verdict::Take,
            // The message may be the one that proves the secret; then the following ones may be longer.
            (None, false) => Verdict::TakeAlone,
        }
    }

    pub fn push(&mut self, message: Result<Bytes, Status>) {
        match message {
            Ok(bytes) if self.problem.is_none() => self.messages.push_back(bytes),
            Ok(_) => {}
            Err(status) => self.fail(format!("receiving a message failed (status {status})")),
        }
    }

    pub fn fail(&mut self, problem: String) {
        self.problem.get_or_insert(problem);
    }

    pub fn on_proved(&mut self) {
        self.is_proved = true;
    }

    pub fn has_more(&self) -> bool {
        !self.messages.is_empty() || self.problem.is_some()
    }

    /// The next message.
    ///
    /// # Errors
    /// No message has arrived (`WouldBlock`), or none will arrive any more.
    pub fn pop(&mut self) -> io::Result<Bytes> {
        match (self.messages.pop_front(), &self.problem) {
            (Some(bytes), _) => Ok(bytes),
            (None, Some(problem)) => Err(io::Error::other(problem.clone())),
            (None, None) => Err(io::ErrorKind::WouldBlock.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn before_authentication_messages_are_short_and_taken_one_by_one() {
        let mut inbox = Inbox::default();
        assert_eq!(inbox.judge(HANDSHAKE_LEN_MAX), Verdict::TakeAlone);
        inbox.on_proved();
        assert_eq!(inbox.judge(HANDSHAKE_LEN_MAX + 1), Verdict::Take);
        assert_eq!(inbox.judge(MESSAGE_LEN_MAX), Verdict::Take);
        assert!(!inbox.has_more());
        let mut inbox = Inbox::default();
        assert_eq!(inbox.judge(HANDSHAKE_LEN_MAX + 1), Verdict::Drop);
        assert_eq!(inbox.judge(1), Verdict::Drop, "a link that has lost a message is closed");
    }

    #[test]
    fn messages_before_a_problem_are_read_first() {
        let mut inbox = Inbox::with(Bytes::from_static(b"one"));
        inbox.on_proved();
        inbox.push(Ok(Bytes::from_static(b"two")));
        assert_eq!(inbox.judge(MESSAGE_LEN_MAX + 1), Verdict::Drop);
        inbox.push(Ok(Bytes::from_static(b"three")));
        assert_eq!((inbox.pop().unwrap(), inbox.pop().unwrap()), ("one".into(), "two".into()));
        let problem = inbox.pop().unwrap_err().to_string();
        assert!(inbox.has_more() && problem.contains("16777217 bytes is too long"), "{problem}");
    }
}
