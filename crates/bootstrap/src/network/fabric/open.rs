//! An established connection over libfabric: encrypts its messages, limits them by credit, and parts from the peer.
//!
//! ```text
//! | 3 | to u64 | sealed: | taken u64 | kind u8 | segment |
//! ```
//!
//! `to` is the receiver's number for the connection. The provider keeps the order of messages, so the nonce of the
//! encryption counts them, and is not sent: a message that is not the next one cannot be decrypted, whoever repeats,
//! or changes it. Such a message is dropped and the connection goes on, because a stranger may have sent it. If the
//! provider loses a message unnoticed, nothing after it is decrypted, and calls wait until the job is ended.
//!
//! The bytes of the stream are cut into segments. `taken` is the number of segments that the sender of the message has
//! received and given to its groups: this acknowledges them, and is the credit of the other end, which has at most
//! [`WINDOW`] more under way. So a peer that sends faster than this rank receives, or whose messages nobody wants, uses
//! no more of the provider's memory than that, and every call reads the endpoint, for all peers.
//!
//! A rank that leaves says goodbye, as the last segment. The other end acknowledges it; then the leaving rank confirms
//! (`done`), because the other end may want to leave too, and should not while its acknowledgement is under way.
//!
//! Silence means nothing: the rank computes.

use crate::network::carrier::{Number, Unsent, Word};
use crate::network::messages::{Unframed, framed, said};
use crate::network::proof::{Broken, SEAL_LEN};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use snow::TransportState;

pub const DATA: u8 = 3;
const HEADER_LEN: usize = 1 + 8;
const PREFIX_LEN: usize = 8 + 1;
const KIND_ACK: u8 = 0;
const KIND_SEGMENT: u8 = 1;
const KIND_DONE: u8 = 2;

/// Maximum number of segments of a connection that the peer has not acknowledged. Chosen: with segments of 8 KB, this
/// allows 256 KB per round trip.
pub const WINDOW: u64 = 32;
/// How long a peer that has said goodbye may want an answer (ms). Chosen: several round trips of a slow network.
const LEAVING_MS: u64 = 1_000;

pub struct Open {
    /// The number by which the peer names this connection.
    theirs: Number,
    keys: TransportState,
    segment_len: usize,
    /// Messages, of which the first `cut` bytes were sent.
    queue: VecDeque<Vec<u8>>,
    cut: usize,
    /// Number of segments sent to the peer, and of those that it has taken.
    sent: u64,
    taken: u64,
    /// Number of segments of the peer that have arrived, and how many this end has acknowledged.
    arrived: u64,
    acknowledged: u64,
    unframed: Unframed,
    /// Whether arriving segments are not acknowledged.
    pub is_paused: bool,
    goodbye: Goodbye,
    /// When the peer has said goodbye (ms); after that, only answers are sent to it.
    left: Option<u64>,
    /// The peer has left, and needs no more answers.
    is_gone: bool,
}

/// This end's goodbye.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Goodbye {
    No,
    /// The goodbye follows all messages.
    Due,
    Said,
    /// The peer has acknowledged the goodbye, and this end has confirmed that (`done`).
    Confirmed,
}

/// Splits a message into the receiver's number of the connection and the encrypted part.
pub fn header(bytes: &[u8]) -> Option<(Number, &[u8])> {
    let (to, sealed) = bytes.strip_prefix(&[DATA])?.split_first_chunk()?;
    Some((u64::from_le_bytes(*to), sealed))
}

impl Open {
    /// `message_len`: maximum length of a message of the provider, in bytes.
    pub fn new(theirs: Number, keys: TransportState, message_len: usize) -> Open {
        Open {
            theirs,
            keys,
            segment_len: message_len.saturating_sub(HEADER_LEN + PREFIX_LEN + SEAL_LEN).max(1),
            queue: VecDeque::new(),
            cut: 0,
            sent: 0,
            taken: 0,
            arrived: 0,
            acknowledged: 0,
            unframed: Unframed::default(),
            is_paused: false,
            goodbye: Goodbye::No,
            left: None,
            is_gone: false,
        }
    }

    pub fn send(&mut self, message: &[u8]) {
        self.queue.push_back(framed(message));
    }

    /// Queues a goodbye after all messages, once. Returns whether it is queued now.
    pub fn say_goodbye(&mut self) -> bool {
        let is_due = self.goodbye == Goodbye::No && !self.has_left();
        if is_due {
            self.goodbye = Goodbye::Due;
        }
        is_due
    }

    pub fn has_left(&self) -> bool {
        self.left.is_some()
    }

    /// Whether the peer has left and wants no more answers, or no longer waits for one.
    pub fn is_over(&self, now: u64) -> bool {
        self.is_gone || self.left.is_some_and(|at| now >= at + LEAVING_MS)
    }

    /// What the peer has not acknowledged; if it has said goodbye: whether it may still want an answer.
    pub fn unsent(&self, now: u64) -> Unsent {
        let goodbyes = u64::from(self.goodbye == Goodbye::Said);
        match self.left {
            Some(_) if !self.is_over(now) => Unsent::Goodbyes,
            Some(_) => Unsent::Nothing,
            None if !self.queue.is_empty() || self.sent - self.taken > goodbyes => Unsent::Messages,
            None if self.goodbye == Goodbye::Due || self.sent != self.taken => Unsent::Goodbyes,
            None => Unsent::Nothing,
        }
    }

    /// Handles a message, and decrypts it into `plain`. Returns the messages of the stream that are complete now;
    /// `None`: it comes from a stranger, or has arrived before.
    ///
    /// # Errors
    /// The other end violated the protocol.
    pub fn on_message(&mut self, now: u64, sealed: &[u8], plain: &mut [u8]) -> Option<Result<Vec<Vec<u8>>, Broken>> {
        let len = self.keys.read_message(sealed, plain).ok()?;
        Some(self.on_opened(now, &plain[..len]))
    }

    fn on_opened(&mut self, now: u64, plain: &[u8]) -> Result<Vec<Vec<u8>>, Broken> {
        let (taken, rest) = plain.split_first_chunk().ok_or(Broken)?;
        let taken = u64::from_le_bytes(*taken);
        if taken < self.taken || taken > self.sent {
            return Err(Broken);
        }
        self.taken = taken;
        match rest.split_first() {
            Some((&KIND_ACK, [])) => Ok(Vec::new()),
            Some((&KIND_DONE, [])) if self.has_left() => {
                self.is_gone = true;
                Ok(Vec::new())
            }
            Some((&KIND_SEGMENT, bytes)) if !self.has_left() && self.arrived - self.acknowledged < WINDOW => {
                self.arrived += 1;
                self.unframed.bytes.extend_from_slice(bytes);
                let messages = self.unframed.take_whole()?;
                self.left = messages.iter().any(|message| message == said(Word::Goodbye)).then_some(now);
                Ok(messages)
            }
            _ => Err(Broken),
        }
    }

    /// Writes the next message to `out`, which must be empty; `false`: there is nothing to send. `plain` is scratch
    /// space.
    pub fn transmit(&mut self, plain: &mut Vec<u8>, out: &mut Vec<u8>) -> bool {
        // What a peer that leaves has sent is here, even if nobody wants it yet.
        let acknowledged = if self.is_paused && !self.has_left() { self.acknowledged } else { self.arrived };
        plain.clear();
        plain.extend_from_slice(&acknowledged.to_le_bytes());
        plain.push(KIND_ACK);
        if !self.has_left() && self.sent - self.taken < WINDOW && self.cut_segment(plain) {
            plain[PREFIX_LEN - 1] = KIND_SEGMENT;
            self.sent += 1;
        } else if self.goodbye == Goodbye::Said && self.sent == self.taken {
            plain[PREFIX_LEN - 1] = KIND_DONE;
            self.goodbye = Goodbye::Confirmed;
        } else if acknowledged == self.acknowledged {
            return false;
        }
        self.acknowledged = acknowledged;
        out.push(DATA);
        out.extend_from_slice(&self.theirs.to_le_bytes());
        out.resize(HEADER_LEN + plain.len() + SEAL_LEN, 0);
        self.keys.write_message(plain, &mut out[HEADER_LEN..]).is_ok()
    }

    /// Appends the next segment to `out`: of messages or, after the last of them, the goodbye. `false`: there is none.
    fn cut_segment(&mut self, out: &mut Vec<u8>) -> bool {
        let end = out.len() + self.segment_len;
        if self.queue.is_empty() && self.goodbye == Goodbye::Due {
            self.goodbye = Goodbye::Said;
            out.extend_from_slice(&framed(said(Word::Goodbye)));
            return true;
        }
        let begin = out.len();
        while let Some(message) = self.queue.front().filter(|_| out.len() < end) {
            let rest = &message[self.cut..];
            let len = rest.len().min(end - out.len());
            out.extend_from_slice(&rest[..len]);
            self.cut += len;
            if len == rest.len() {
                self.queue.pop_front();
                self.cut = 0;
            }
        }
        out.len() > begin
    }
}
