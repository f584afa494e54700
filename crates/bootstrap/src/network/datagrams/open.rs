//! An established connection over datagrams: encrypts, numbers and acknowledges them.
//!
//! ```text
//! | 3 | to u64 | counter u64 | sealed: | next u64 | seen u128 | kind u8 | segment's number u64 | its bytes |
//! ```
//!
//! `to` is the receiver's number for the connection. No counter is used twice, because it is the nonce of the
//! encryption. Each datagram acknowledges what its sender has received (`next`, `seen`); a probe and a segment request
//! an answer.
//!
//! A rank that leaves says goodbye, as the last bytes of its stream. The other end acknowledges the goodbye as long as
//! it exists; then the leaving rank confirms (`done`), because the other end may want to leave too, and should not
//! while its acknowledgement may be lost.
//!
//! A rank counts as lost when its host reports its port as closed, as the kernel does after a process has exited, and
//! does so again for a datagram sent [`REFUSED_MS`] later, unless a datagram of the rank has arrived meanwhile. Anyone
//! can send such an error in the host's name (ICMP), so it counts only if it quotes the sealed bytes of one of the
//! latest datagrams: then its sender has seen that datagram. Silence means nothing: the rank computes, or its network
//! is bad. To trigger such errors, a connection on which nothing is in flight is probed, after a pause that doubles up
//! to [`PROBE_MS_MAX`].

use crate::network::carrier::{Number, Word};
use crate::network::messages::{Unframed, framed, said};
use crate::network::proof::{Broken, SEAL_LEN};
use alloc::vec::Vec;
use snow::StatelessTransportState;
use wireup_group::datagrams::{Ack, Receiver, Replay, Sender};

const PREFIX_LEN: usize = 8 + 16 + 1;
const KIND_ACK: u8 = 0;
const KIND_PROBE: u8 = 1;
const KIND_SEGMENT: u8 = 2;
const KIND_DONE: u8 = 3;
/// Number of bytes by which a datagram is longer than its segment.
const EXTRA_LEN: usize = HEADER_LEN + PREFIX_LEN + 8 + SEAL_LEN;

/// Pauses between probes (ms). The first is short, because a rank that waits wants to know whether its peer exists; the
/// longest costs the other end's socket 15 datagrams a minute while the other end computes.
const PROBE_MS_MIN: u64 = 250;
const PROBE_MS_MAX: u64 = 4_000;
/// How long after its latest datagram a peer that has said goodbye may still want an answer (ms). Chosen: several of
/// the peer's retransmissions.
const LEAVING_MS: u64 = 1_000;
/// Reports of a closed port that are less than this apart count once (ms).
const REFUSED_MS: u64 = 50;

pub struct Open {
    pub peer: u32,
    pub place: Vec<u8>,
    /// Whether `place` becomes the source of the peer's latest datagram: so at the end that was dialled. The end that
    /// has dialled keeps the place that it has dialled. So a stranger who forwards a datagram from another address
    /// before the original arrives diverts only the answers until the next datagram.
    follows: bool,
    pub seals: Seals,
    sender: Sender,
    receiver: Receiver,
    unframed: Unframed,
    /// Whether arriving segments are dropped; the peer then retransmits them, at growing intervals.
    pub is_paused: bool,
    wants_answer: bool,
    pub parting: Parting,
    probes: Probes,
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

/// Probes: datagrams that make the peer's host report a closed port if the peer's process has exited.
struct Probes {
    is_due: bool,
    at: u64,
    pause: u64,
    /// When the peer's host first reported that the peer's port is closed (ms); `None`: a datagram of the peer has
    /// arrived since, or there was no such report.
    refused: Option<u64>,
}

impl Probes {
    fn new(now: u64) -> Probes {
        Probes { is_due: false, at: now + PROBE_MS_MIN, pause: PROBE_MS_MIN, refused: None }
    }

    fn begin_again(&mut self, now: u64) {
        (self.at, self.pause) = (now + PROBE_MS_MIN, PROBE_MS_MIN);
    }

    /// Records a report of a closed port. Returns whether the first one came at least [`REFUSED_MS`] ago.
    fn on_refused(&mut self, now: u64) -> bool {
        let since = *self.refused.get_or_insert(now);
        if since == now {
            self.at = now + REFUSED_MS;
        }
        now >= since + REFUSED_MS
    }

    /// `is_busy`: segments are in flight, whose retransmissions serve as probes too.
    fn on_tick(&mut self, now: u64, is_busy: bool) {
        if now < self.at {
            return;
        }
        self.is_due = self.refused.is_some() || !is_busy;
        self.pause = (self.pause * 2).min(PROBE_MS_MAX);
        self.at = now + self.pause;
    }
}

struct Opened<'a> {
    ack: Ack,
    kind: u8,
    rest: &'a [u8],
}

impl Open {
    pub fn new(now: u64, peer: u32, (place, follows): (Vec<u8>, bool), seals: Seals, datagram_len: usize) -> Open {
        Open {
            peer,
            place,
            follows,
            seals,
            sender: Sender::new(datagram_len.saturating_sub(EXTRA_LEN).max(1)),
            receiver: Receiver::default(),
            unframed: Unframed::default(),
            is_paused: false,
            wants_answer: false,
            parting: Parting::default(),
            probes: Probes::new(now),
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
        from: &[u8],
        sealed: (u64, &[u8]),
        plain: &mut [u8],
    ) -> Option<Result<Vec<Vec<u8>>, Broken>> {
        let (content, is_latest) = self.seals.open(sealed, plain)?;
        if self.follows && is_latest && !from.is_empty() && from != self.place {
            self.place = from.to_vec();
        }
        self.probes.refused = None;
        Some(opened(content).ok_or(Broken).and_then(|opened| self.on_opened(now, &opened)))
    }

    fn on_opened(&mut self, now: u64, opened: &Opened<'_>) -> Result<Vec<Vec<u8>>, Broken> {
        self.sender.on_ack(now, opened.ack);
        self.parting.on_datagram(now, opened.kind, self.sender.unacknowledged() == 0);
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
        self.unframed.take_whole()
    }

    /// Handles a report by the peer's host that the peer's port is closed. Returns whether the connection has ended:
    /// the first such report came at least [`REFUSED_MS`] ago, or the peer had said goodbye.
    pub fn on_refused(&mut self, now: u64) -> bool {
        self.probes.on_refused(now) || self.has_left()
    }

    pub fn deadline(&self) -> Option<u64> {
        let next = self.sender.deadline().map_or(self.probes.at, |at| at.min(self.probes.at));
        (!self.has_left()).then_some(next)
    }

    pub fn on_tick(&mut self, now: u64) {
        self.sender.on_tick(now);
        self.probes.on_tick(now, self.sender.deadline().is_some());
    }

    /// Writes the next datagram to `out`, which must be empty; `false`: there is nothing to send. `plain` is scratch
    /// space.
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
        } else if core::mem::take(&mut self.parting.is_done) {
            plain.push(KIND_DONE);
        } else if is_probe {
            plain.push(KIND_PROBE);
        } else if self.wants_answer {
            plain.push(KIND_ACK);
        } else {
            return false;
        }
        (self.probes.is_due, self.wants_answer) = (false, false);
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

/// How much of a datagram an ICMP error has to quote (bytes). Chosen: all hosts quote more, and only whoever has seen
/// the datagram knows it: it contains random bytes of a hello, or encrypted ones.
pub const QUOTE_LEN: usize = 48;

pub const HEADER_LEN: usize = 1 + 8 + 8;
/// Number of latest datagrams that an ICMP error may quote. Chosen: more than are sent at once to a rank that does not
/// answer.
const LATEST: usize = 32;
/// Number of encrypted bytes that an ICMP error must quote, which a stranger cannot guess.
const QUOTED_LEN: usize = 16;
const _: () = assert!(QUOTED_LEN <= SEAL_LEN && HEADER_LEN + QUOTED_LEN <= QUOTE_LEN);

/// Encrypts the datagrams of a connection: each has a counter that is never used twice, because it is the nonce of the
/// encryption.
pub struct Seals {
    /// The number by which the peer names this connection.
    theirs: Number,
    state: StatelessTransportState,
    counter: u64,
    /// The first encrypted bytes of the latest datagrams, at index `counter % LATEST`.
    latest: [[u8; QUOTED_LEN]; LATEST],
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
        Seals { theirs, state, counter: 0, latest: [[0; QUOTED_LEN]; LATEST], replay: Replay::default() }
    }

    /// Writes the next datagram to `out`, which must be empty; `false`: it cannot be encrypted.
    pub fn seal(&mut self, plain: &[u8], out: &mut Vec<u8>) -> bool {
        out.push(DATA);
        out.extend_from_slice(&self.theirs.to_le_bytes());
        out.extend_from_slice(&self.counter.to_le_bytes());
        out.resize(HEADER_LEN + plain.len() + SEAL_LEN, 0);
        let is_sealed = self.state.write_message(self.counter, plain, &mut out[HEADER_LEN..]).is_ok();
        // The slice is long enough, because the authentication tag alone has as many bytes.
        self.latest[self.counter as usize % LATEST].copy_from_slice(&out[HEADER_LEN..HEADER_LEN + QUOTED_LEN]);
        self.counter += 1;
        is_sealed
    }

    /// Decrypts a datagram into `plain`; returns its content, and whether its counter is the highest so far. `None`:
    /// the datagram comes from a stranger, or has arrived before.
    pub fn open<'p>(&mut self, (counter, sealed): (u64, &[u8]), plain: &'p mut [u8]) -> Option<(&'p [u8], bool)> {
        if !self.replay.is_new(counter) || sealed.len() > plain.len() {
            return None;
        }
        let len = self.state.read_message(counter, sealed, plain).ok()?;
        Some((&plain[..len], self.replay.note(counter)))
    }

    /// Whether `quote` is the beginning of one of the latest datagrams that this end has sent.
    pub fn has_sent(&self, quote: &[u8]) -> bool {
        let Some((number, counter, sealed)) = header(quote) else { return false };
        let is_recent = counter < self.counter && self.counter - counter <= LATEST as u64;
        number == self.theirs && is_recent && sealed.starts_with(&self.latest[counter as usize % LATEST])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::proof::{Purpose, proved_pair};

    #[test]
    fn a_datagram_is_opened_once_and_an_error_must_quote_a_late_one() {
        let [dialled, accepted] = proved_pair(Purpose::Messages { closed: 0 });
        let [mut one, mut other] = [(8, dialled), (9, accepted)]
            .map(|(theirs, proved)| Seals::new(theirs, proved.state.into_stateless_transport_mode().unwrap()));
        let mut sent = Vec::new();
        for number in 0..=LATEST as u8 {
            let mut out = Vec::new();
            assert!(one.seal(&[number; 9], &mut out));
            sent.push(out);
        }
        let mut plain = [0; 64];
        for (at, is_latest) in [(1, true), (0, false), (2, true)] {
            let (to, counter, sealed) = header(&sent[at]).unwrap();
            assert_eq!((to, counter), (8, at as u64));
            assert_eq!(other.open((counter, sealed), &mut plain), Some((&[at as u8; 9][..], is_latest)));
            assert_eq!(other.open((counter, sealed), &mut plain), None, "repeated");
        }
        let quote = |at: usize| &sent[at][..QUOTE_LEN.min(sent[at].len())];
        assert_eq!([0, 1, LATEST].map(|at| one.has_sent(quote(at))), [false, true, true]);
        assert!(!one.has_sent(&quote(1)[..HEADER_LEN + QUOTED_LEN - 1]) && !other.has_sent(quote(1)));
    }
}
