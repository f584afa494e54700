//! A connection over datagrams that is proved: seals, numbers, acknowledges.
//!
//! ```text
//! | 3 | to u64 | counter u64 | sealed: | next u64 | seen u128 | kind u8 | segment's number u64 | its bytes |
//! ```
//!
//! `to` is the number that the receiver has given to the connection. No counter is used twice: it is the seal's nonce.
//! Each datagram tells what its sender has got (`next`, `seen`); a probe and a segment want an answer.
//!
//! A rank that leaves says goodbye, as the last bytes of its stream. The other end answers as long as it lives itself;
//! when the goodbye is acknowledged, the rank says so (`done`), since the other end may want to leave, too, and should
//! not while its answer may be lost.
//!
//! A rank is lost if its host says that its port is closed, which the kernel does when a process has ended; and says so
//! again to a datagram that was sent [`REFUSED_MS`] later, unless something has come from the rank. Anyone can send
//! such an error in the host's name (ICMP), so it counts only if it quotes the sealed bytes of one of the latest
//! datagrams: then it is of somebody who has seen it on its way. Silence says nothing: the rank computes, or its
//! network is bad. So that the host is asked at all, a connection on which nothing is under way is probed, after a
//! pause that doubles up to [`PROBE_MS_MAX`].

use crate::network::carrier::{Number, Word};
use crate::network::messages::{Broken, Unframed, framed, said};
use crate::network::proof::SEAL_LEN;
use alloc::vec::Vec;
use snow::StatelessTransportState;
use wireup_group::datagrams::{Ack, Receiver, Replay, Sender};

pub const DATA: u8 = 3;

/// How much of a datagram an error has to quote. Chosen: all hosts quote more, and nobody who has not seen the datagram
/// guesses it: it contains random bytes of a hello, or sealed ones.
pub const QUOTE_LEN: usize = 48;

const HEADER_LEN: usize = 1 + 8 + 8;
const PREFIX_LEN: usize = 8 + 16 + 1;
const KIND_ACK: u8 = 0;
const KIND_PROBE: u8 = 1;
const KIND_SEGMENT: u8 = 2;
const KIND_DONE: u8 = 3;
const _: () = assert!(QUOTED_LEN <= SEAL_LEN && HEADER_LEN + QUOTED_LEN <= QUOTE_LEN);
/// How much longer a datagram is than its segment.
const EXTRA_LEN: usize = HEADER_LEN + PREFIX_LEN + 8 + SEAL_LEN;

/// Pauses between probes (ms): the first soon after the last message, since a rank that waits wants to know; the
/// longest costs the other end's socket 15 datagrams a minute while it computes.
const PROBE_MS_MIN: u64 = 250;
const PROBE_MS_MAX: u64 = 4_000;
/// How long after its latest datagram (ms) an end that has left may still want an answer. Chosen: several of its
/// repetitions.
const LEAVING_MS: u64 = 1_000;
/// Two refusals that are nearer to each other (ms) count once.
const REFUSED_MS: u64 = 50;

/// Datagrams of which an error is believed. Chosen: more than are sent at once to a rank that does not answer.
const LATEST: usize = 32;
/// Sealed bytes that it must quote: nobody guesses them.
const QUOTED_LEN: usize = 16;

pub struct Open {
    pub peer: u32,
    /// The number by which the peer names this connection.
    pub theirs: Number,
    /// The place to which datagrams for the peer are sent.
    pub place: Vec<u8>,
    /// Whether `place` changes to where the peer's latest datagram came from: so at the end that was dialled. The end
    /// that has dialled keeps to the place that it knows. So a stranger who repeats datagrams from elsewhere before
    /// they arrive diverts answers, and only until the next datagram.
    follows: bool,
    seals: StatelessTransportState,
    counter: u64,
    /// The first sealed bytes of the latest datagrams, by counter modulo their number.
    latest: [[u8; QUOTED_LEN]; LATEST],
    replay: Replay,
    sender: Sender,
    receiver: Receiver,
    unframed: Unframed,
    /// Whether arriving segments are dropped, so that the peer sends them again, ever more rarely.
    pub is_paused: bool,
    wants_answer: bool,
    says_goodbye: bool,
    /// The peer has acknowledged this end's goodbye, and is to be told that this end knows.
    is_done: bool,
    /// When the latest datagram of a peer that has said goodbye arrived (ms); `None`: the peer has not said goodbye.
    left: Option<u64>,
    /// The peer has said that it is done: it needs no more answers to its goodbye.
    is_gone: bool,
    probes: Probes,
    /// When the peer's host first reported that the peer's port is closed (ms); `None`: a datagram of the peer has
    /// arrived since, or there was no such report.
    refused: Option<u64>,
}

struct Probes {
    is_due: bool,
    at: u64,
    pause: u64,
}

impl Probes {
    fn begin_again(&mut self, now: u64) {
        (self.at, self.pause) = (now + PROBE_MS_MIN, PROBE_MS_MIN);
    }
}

/// What was read of a datagram's sealed part.
struct Opened<'a> {
    ack: Ack,
    kind: u8,
    rest: &'a [u8],
}

/// The numbers in front of the sealed part: the connection's, and the datagram's.
pub fn header(bytes: &[u8]) -> Option<(Number, u64, &[u8])> {
    let rest = bytes.strip_prefix(&[DATA])?;
    let (to, rest) = rest.split_first_chunk()?;
    let (counter, sealed) = rest.split_first_chunk()?;
    Some((u64::from_le_bytes(*to), u64::from_le_bytes(*counter), sealed))
}

impl Open {
    pub fn new(
        now: u64,
        peer: u32,
        theirs: Number,
        (place, follows): (Vec<u8>, bool),
        seals: StatelessTransportState,
        datagram_len: usize,
    ) -> Open {
        let mut probes = Probes { is_due: false, at: 0, pause: 0 };
        probes.begin_again(now);
        Open {
            peer,
            theirs,
            place,
            follows,
            seals,
            counter: 0,
            latest: [[0; QUOTED_LEN]; LATEST],
            replay: Replay::default(),
            sender: Sender::new(datagram_len.saturating_sub(EXTRA_LEN).max(1)),
            receiver: Receiver::default(),
            unframed: Unframed::default(),
            is_paused: false,
            wants_answer: false,
            says_goodbye: false,
            is_done: false,
            left: None,
            is_gone: false,
            probes,
            refused: None,
        }
    }

    pub fn send(&mut self, message: &[u8]) {
        self.sender.push(framed(message));
    }

    /// Queues a goodbye behind all messages.
    pub fn say_goodbye(&mut self) {
        self.says_goodbye = true;
        self.send(said(Word::Goodbye));
    }

    /// The peer has said goodbye: from now on only answers are sent to it.
    pub fn on_goodbye(&mut self, now: u64) {
        self.left = Some(now);
    }

    pub fn has_left(&self) -> bool {
        self.left.is_some()
    }

    /// Whether the other end has left and may still wait for an answer to its goodbye.
    pub fn may_want_answer(&self, now: u64) -> bool {
        !self.is_gone && self.left.is_some_and(|at| now < at + LEAVING_MS)
    }

    /// Bytes of messages of which it is not known that they have arrived.
    pub fn unacknowledged(&self) -> usize {
        if self.has_left() { 0 } else { self.sender.unacknowledged() }
    }

    /// Takes a datagram, of which `plain` has room for the content; the messages that are whole now. `None`: a
    /// stranger's, or a repeated one.
    ///
    /// # Errors
    /// The other end broke the rules.
    pub fn on_datagram(
        &mut self,
        now: u64,
        from: &[u8],
        (counter, sealed): (u64, &[u8]),
        plain: &mut [u8],
    ) -> Option<Result<Vec<Vec<u8>>, Broken>> {
        if !self.replay.is_new(counter) || sealed.len() > plain.len() {
            return None;
        }
        let len = self.seals.read_message(counter, sealed, plain).ok()?;
        if self.follows && self.replay.is_latest(counter) && !from.is_empty() && from != self.place {
            self.place = from.to_vec();
        }
        self.replay.note(counter);
        self.refused = None;
        Some(opened(&plain[..len]).ok_or(Broken).and_then(|opened| self.on_opened(now, &opened)))
    }

    fn on_opened(&mut self, now: u64, opened: &Opened<'_>) -> Result<Vec<Vec<u8>>, Broken> {
        self.sender.on_ack(now, opened.ack);
        self.left = self.left.map(|_| now);
        self.is_gone |= opened.kind == KIND_DONE;
        self.is_done |= self.says_goodbye && opened.kind != KIND_DONE && self.sender.unacknowledged() == 0;
        if self.is_paused && opened.kind == KIND_SEGMENT {
            return Ok(Vec::new());
        }
        self.wants_answer |= [KIND_PROBE, KIND_SEGMENT].contains(&opened.kind);
        if opened.kind != KIND_SEGMENT {
            return Ok(Vec::new());
        }
        self.probes.begin_again(now);
        let (number, bytes) = opened.rest.split_first_chunk().ok_or(Broken)?;
        self.receiver.on_segment(u64::from_le_bytes(*number), bytes, &mut self.unframed.bytes);
        self.unframed.take()
    }

    /// Whether this is the beginning of one of the latest datagrams that were sent.
    pub fn has_sent(&self, quote: &[u8]) -> bool {
        let Some((number, counter, sealed)) = header(quote) else { return false };
        let is_recent = counter < self.counter && self.counter - counter <= LATEST as u64;
        number == self.theirs && is_recent && sealed.starts_with(&self.latest[counter as usize % LATEST])
    }

    /// The peer's host reports that the peer's port is closed. Returns whether the connection is over: there was such a
    /// report `REFUSED_MS` ago already, or the peer had said goodbye.
    pub fn on_refused(&mut self, now: u64) -> bool {
        let since = *self.refused.get_or_insert(now);
        if since == now {
            self.probes.at = now + REFUSED_MS;
        }
        self.has_left() || now >= since + REFUSED_MS
    }

    /// When to call [`Open::on_tick`].
    pub fn deadline(&self) -> Option<u64> {
        let next = self.sender.deadline().map_or(self.probes.at, |at| at.min(self.probes.at));
        (!self.has_left()).then_some(next)
    }

    pub fn on_tick(&mut self, now: u64) {
        self.sender.on_tick(now);
        if now < self.probes.at {
            return;
        }
        // What is under way is repeated, and asks as well.
        self.probes.is_due = self.refused.is_some() || self.sender.deadline().is_none();
        self.probes.pause = (self.probes.pause * 2).min(PROBE_MS_MAX);
        self.probes.at = now + self.probes.pause;
    }

    /// The next datagram, appended to `out`, which is empty; `false`: there is nothing to send. `plain` is used on the
    /// way.
    pub fn transmit(&mut self, now: u64, plain: &mut Vec<u8>, out: &mut Vec<u8>) -> bool {
        let ack = self.receiver.ack();
        plain.clear();
        plain.extend_from_slice(&ack.next.to_le_bytes());
        plain.extend_from_slice(&ack.seen.to_le_bytes());
        let is_probe = self.probes.is_due && !self.has_left();
        if !self.has_left()
            && let Some((number, bytes)) = self.sender.poll(now)
        {
            plain.push(KIND_SEGMENT);
            plain.extend_from_slice(&number.to_le_bytes());
            plain.extend_from_slice(bytes);
            self.probes.begin_again(now);
        } else if core::mem::take(&mut self.is_done) {
            plain.push(KIND_DONE);
        } else if is_probe {
            plain.push(KIND_PROBE);
        } else if self.wants_answer {
            plain.push(KIND_ACK);
        } else {
            return false;
        }
        (self.probes.is_due, self.wants_answer) = (false, false);
        out.push(DATA);
        out.extend_from_slice(&self.theirs.to_le_bytes());
        out.extend_from_slice(&self.counter.to_le_bytes());
        out.resize(HEADER_LEN + plain.len() + SEAL_LEN, 0);
        let is_sealed = self.seals.write_message(self.counter, plain, &mut out[HEADER_LEN..]).is_ok();
        // Each datagram has a seal, which is as long.
        self.latest[self.counter as usize % LATEST].copy_from_slice(&out[HEADER_LEN..HEADER_LEN + QUOTED_LEN]);
        self.counter += 1;
        is_sealed
    }
}

fn opened(plain: &[u8]) -> Option<Opened<'_>> {
    let (next, rest) = plain.split_first_chunk()?;
    let (seen, rest) = rest.split_first_chunk()?;
    let (kind, rest) = rest.split_first()?;
    let ack = Ack { next: u64::from_le_bytes(*next), seen: u128::from_le_bytes(*seen) };
    (*kind <= KIND_DONE).then_some(Opened { ack, kind: *kind, rest })
}
