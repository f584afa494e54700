//! An established connection over datagrams: encrypts, numbers and acknowledges them.
//!
//! ```text
//! | 3 | to u64 | counter u64 | sealed: | next u64 | seen u128 | kind u8 | segment's number u64 | its bytes |
//! ```
//!
//! `to` is the receiver's number for the connection. No counter is used twice, because it is the nonce of the
//! encryption. Each datagram acknowledges what its sender has received (`next`, `seen`); a segment requests an answer.
//!
//! A rank that leaves says goodbye, as the last bytes of its stream. The other end acknowledges the goodbye as long as
//! it exists; then the leaving rank confirms (`done`), because the other end may want to leave too, and should not
//! while its acknowledgement may be lost.
//!
//! Silence means nothing: the rank computes, or its network is bad.

use crate::network::carrier::{Number, Word};
use crate::network::messages::{Unframed, framed, said};
use crate::network::proof::{Broken, SEAL_LEN};
use alloc::vec::Vec;
use snow::StatelessTransportState;
use wireup_group::datagrams::{Ack, Receiver, Replay, Sender};

const PREFIX_LEN: usize = 8 + 16 + 1;
const KIND_ACK: u8 = 0;
const KIND_SEGMENT: u8 = 1;
const KIND_DONE: u8 = 2;
/// Number of bytes by which a datagram is longer than its segment.
const EXTRA_LEN: usize = HEADER_LEN + PREFIX_LEN + 8 + SEAL_LEN;

/// How long after its latest datagram a peer that has said goodbye may still want an answer (ms). Chosen: several of
/// the peer's retransmissions.
const LEAVING_MS: u64 = 1_000;

pub struct Open {
    pub peer: u32,
    pub place: Vec<u8>,
    seals: Seals,
    sender: Sender,
    receiver: Receiver,
    unframed: Unframed,
    /// Whether arriving segments are dropped; the peer then retransmits them, at growing intervals.
    pub is_paused: bool,
    wants_answer: bool,
    pub parting: Parting,
}

/// The state of the goodbyes of both ends.
#[derive(Default)]
pub struct Parting {
    says_goodbye: bool,
    /// The peer has acknowledged this end's goodbye, and the confirmation of that (`KIND_DONE`) is to be sent.
    is_done: bool,
    /// When the latest datagram of a peer that has said goodbye arrived (ms); `None`: the peer has not said goodbye.
    /// After its goodbye, only answers are sent to it.
    pub left: Option<u64>,
    /// The peer has sent `KIND_DONE`: its goodbye needs no more answers.
    is_gone: bool,
}

impl Parting {
    /// Handles a datagram of this kind. `has_all`: the peer has acknowledged all that this end has sent.
    fn on_datagram(&mut self, now: u64, kind: u8, has_all: bool) {
        self.left = self.left.map(|_| now);
        self.is_gone |= kind == KIND_DONE;
        self.is_done |= self.says_goodbye && kind != KIND_DONE && has_all;
    }

    /// Whether the other end has left and may still wait for an answer to its goodbye.
    pub fn may_want_answer(&self, now: u64) -> bool {
        !self.is_gone && self.left.is_some_and(|at| now < at + LEAVING_MS)
    }
}

struct Opened<'a> {
    ack: Ack,
    kind: u8,
    rest: &'a [u8],
}

impl Open {
    pub fn new(peer: u32, place: Vec<u8>, seals: Seals, datagram_len: usize) -> Open {
        Open {
            peer,
            place,
            seals,
            sender: Sender::new(datagram_len.saturating_sub(EXTRA_LEN).max(1)),
            receiver: Receiver::default(),
            unframed: Unframed::default(),
            is_paused: false,
            wants_answer: false,
            parting: Parting::default(),
        }
    }

    pub fn send(&mut self, message: &[u8]) {
        self.sender.push(framed(message));
    }

    /// Queues a goodbye after all messages, once.
    pub fn say_goodbye(&mut self) {
        if !core::mem::replace(&mut self.parting.says_goodbye, true) {
            self.send(said(Word::Goodbye));
        }
    }

    pub fn has_left(&self) -> bool {
        self.parting.left.is_some()
    }

    /// Number of bytes of messages that the peer has not acknowledged.
    pub fn unacknowledged(&self) -> usize {
        if self.has_left() { 0 } else { self.sender.unacknowledged() }
    }

    /// Handles a datagram, and decrypts it into `plain`. Returns the messages that are complete now; `None`: the
    /// datagram comes from a stranger, or has arrived before.
    ///
    /// # Errors
    /// The other end violated the protocol.
    pub fn on_datagram(
        &mut self,
        now: u64,
        sealed: (u64, &[u8]),
        plain: &mut [u8],
    ) -> Option<Result<Vec<Vec<u8>>, Broken>> {
        let content = self.seals.open(sealed, plain)?;
        Some(opened(content).ok_or(Broken).and_then(|opened| self.on_opened(now, &opened)))
    }

    fn on_opened(&mut self, now: u64, opened: &Opened<'_>) -> Result<Vec<Vec<u8>>, Broken> {
        self.sender.on_ack(now, opened.ack);
        self.parting.on_datagram(now, opened.kind, self.sender.unacknowledged() == 0);
        if self.is_paused || opened.kind != KIND_SEGMENT {
            return Ok(Vec::new());
        }
        self.wants_answer = true;
        let (number, bytes) = opened.rest.split_first_chunk().ok_or(Broken)?;
        self.receiver.on_segment(u64::from_le_bytes(*number), bytes, &mut self.unframed.bytes);
        self.unframed.take_whole()
    }

    pub fn deadline(&self) -> Option<u64> {
        self.sender.deadline().filter(|_| !self.has_left())
    }

    pub fn on_tick(&mut self, now: u64) {
        self.sender.on_tick(now);
    }

    /// Writes the next datagram to `out`, which must be empty; `false`: there is nothing to send. `plain` is scratch
    /// space.
    pub fn transmit(&mut self, now: u64, plain: &mut Vec<u8>, out: &mut Vec<u8>) -> bool {
        let ack = self.receiver.ack();
        plain.clear();
        plain.extend_from_slice(&ack.next.to_le_bytes());
        plain.extend_from_slice(&ack.seen.to_le_bytes());
        if !self.has_left()
            && let Some((number, bytes)) = self.sender.poll(now)
        {
            plain.push(KIND_SEGMENT);
            plain.extend_from_slice(&number.to_le_bytes());
            plain.extend_from_slice(bytes);
        } else if core::mem::take(&mut self.parting.is_done) {
            plain.push(KIND_DONE);
        } else if self.wants_answer {
            plain.push(KIND_ACK);
        } else {
            return false;
        }
        self.wants_answer = false;
        self.seals.seal(plain, out)
    }
}

fn opened(plain: &[u8]) -> Option<Opened<'_>> {
    let (next, rest) = plain.split_first_chunk()?;
    let (seen, rest) = rest.split_first_chunk()?;
    let (kind, rest) = rest.split_first()?;
    let ack = Ack { next: u64::from_le_bytes(*next), seen: u128::from_le_bytes(*seen) };
    (*kind <= KIND_DONE).then_some(Opened { ack, kind: *kind, rest })
}

pub const DATA: u8 = 3;

const HEADER_LEN: usize = 1 + 8 + 8;

/// Encrypts the datagrams of a connection: each has a counter that is never used twice, because it is the nonce of the
/// encryption.
pub struct Seals {
    /// The number by which the peer names this connection.
    theirs: Number,
    state: StatelessTransportState,
    counter: u64,
    replay: Replay,
}

/// Splits a datagram into the receiver's number of the connection, the counter, and the encrypted part.
pub fn header(bytes: &[u8]) -> Option<(Number, u64, &[u8])> {
    let rest = bytes.strip_prefix(&[DATA])?;
    let (to, rest) = rest.split_first_chunk()?;
    let (counter, sealed) = rest.split_first_chunk()?;
    Some((u64::from_le_bytes(*to), u64::from_le_bytes(*counter), sealed))
}

impl Seals {
    pub fn new(theirs: Number, state: StatelessTransportState) -> Seals {
        Seals { theirs, state, counter: 0, replay: Replay::default() }
    }

    /// Writes the next datagram to `out`, which must be empty; `false`: it cannot be encrypted.
    pub fn seal(&mut self, plain: &[u8], out: &mut Vec<u8>) -> bool {
        out.push(DATA);
        out.extend_from_slice(&self.theirs.to_le_bytes());
        out.extend_from_slice(&self.counter.to_le_bytes());
        out.resize(HEADER_LEN + plain.len() + SEAL_LEN, 0);
        let is_sealed = self.state.write_message(self.counter, plain, &mut out[HEADER_LEN..]).is_ok();
        self.counter += 1;
        is_sealed
    }

    /// Decrypts a datagram into `plain`; returns its content. `None`: the datagram comes from a stranger, or has
    /// arrived before.
    pub fn open<'p>(&mut self, (counter, sealed): (u64, &[u8]), plain: &'p mut [u8]) -> Option<&'p [u8]> {
        if !self.replay.is_new(counter) || sealed.len() > plain.len() {
            return None;
        }
        let len = self.state.read_message(counter, sealed, plain).ok()?;
        self.replay.note(counter);
        Some(&plain[..len])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::proof::{Purpose, proved_pair};

    #[test]
    fn a_datagram_is_opened_once() {
        let [dialled, accepted] = proved_pair(Purpose::Messages { closed: 0 });
        let [mut one, mut other] = [(8, dialled), (9, accepted)]
            .map(|(theirs, proved)| Seals::new(theirs, proved.state.into_stateless_transport_mode().unwrap()));
        let sent = [0, 1, 2_u8].map(|number| {
            let mut out = Vec::new();
            assert!(one.seal(&[number; 9], &mut out));
            out
        });
        let mut plain = [0; 64];
        for at in [1, 0, 2] {
            let (to, counter, sealed) = header(&sent[at]).unwrap();
            assert_eq!((to, counter), (8, at as u64));
            assert_eq!(other.open((counter, sealed), &mut plain), Some(&[at as u8; 9][..]));
            assert_eq!(other.open((counter, sealed), &mut plain), None, "repeated");
        }
    }
}
