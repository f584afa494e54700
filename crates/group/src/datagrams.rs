//! A reliable stream of bytes to one peer, over datagrams that may be lost, repeated or reordered.
//!
//! ```text
//!   push ──► cut into numbered segments ──► in flight, WINDOW at most ──► datagrams
//!                      ▲ again: when three later ones have arrived, or nothing for a while
//!   Ack: all before `next` have arrived, and which of the WINDOW after it
//!                      ▼
//!   bytes in order ◄── held until the gap before them is filled ◄── segments
//! ```
//!
//! [`Sender`] and [`Receiver`] are the two halves of a connection's end; [`Replay`] tells repeated datagrams apart by
//! their counters. None of them knows what a datagram looks like, or has a clock: times come in with the input, in
//! milliseconds.
//!
//! The congestion control is that of TCP Reno: one segment more per acknowledged segment at first, later one more per
//! round trip; half as many after a loss; one after a silence. A peer that computes does not answer. It is not lost:
//! the pause between repetitions doubles up to [`PAUSE_MS_MAX`], without end.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

/// Maximum number of segments in flight; `Ack::seen` has a bit for each. Chosen: with segments of 1.2 KB, this allows
/// 150 KB per round trip.
pub const WINDOW: usize = 128;
/// The pause before a retransmission (ms): as long as no round trip was measured; at least, because a process that
/// shares its core may answer late; at most, which bounds how long a peer that has lost segments while it computed
/// waits for them.
const PAUSE_MS_FIRST: u64 = 100;
const PAUSE_MS_MIN: u64 = 20;
pub const PAUSE_MS_MAX: u64 = 1_000;
/// The congestion window (segments) at the beginning, and its minimum after a loss.
const ROOM_FIRST: usize = 16;
const ROOM_MIN: usize = 2;
/// A segment counts as lost once another that was sent this many transmissions later has arrived.
const REORDERED_MAX: u64 = 3;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ack {
    /// All segments before this one have arrived.
    pub next: u64,
    /// Bit `n`: segment `next + 1 + n` has arrived.
    pub seen: u128,
}

impl Ack {
    fn has(&self, number: u64) -> bool {
        match number.checked_sub(self.next) {
            None => true,
            Some(0) => false,
            Some(after) => after <= WINDOW as u64 && self.seen >> (after - 1) & 1 == 1,
        }
    }
}

/// The sending half of a stream: cuts bytes into segments, and retransmits those that are lost.
#[derive(Default)]
pub struct Sender {
    segment_len: usize,
    /// Pieces that are not cut into segments yet; `cut` bytes of the first piece already are.
    queue: VecDeque<Vec<u8>>,
    cut: usize,
    /// The number of the first segment of `flight`.
    first: u64,
    flight: VecDeque<Segment>,
    /// Number of unacknowledged bytes in `queue` and `flight`.
    unacknowledged: usize,
    /// The congestion window (segments); below `threshold` it grows fast (slow start).
    room: usize,
    threshold: usize,
    /// Segments acknowledged since `room` last grew.
    credit: usize,
    /// Number of transmissions so far. A loss of a transmission below `recovery` does not reduce `room` again.
    transmissions: u64,
    recovery: u64,
    /// The round-trip time (ms, times 8): its mean and its deviation, as in RFC 6298.
    round_trip: Option<(u64, u64)>,
    /// Number of consecutive timeouts without an acknowledgement.
    silences: u32,
    /// Time at which the current wait for an acknowledgement began (ms); `None`: every segment that was sent has been
    /// acknowledged.
    waits_since: Option<u64>,
}

struct Segment {
    bytes: Vec<u8>,
    state: State,
    is_repeated: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    ToSend,
    Sent { at_ms: u64, transmission: u64 },
    Arrived,
}

impl Sender {
    /// `segment_len`: maximum length of a segment, in bytes, which must not be 0.
    pub fn new(segment_len: usize) -> Sender {
        Sender { segment_len, room: ROOM_FIRST, threshold: WINDOW, ..Sender::default() }
    }

    pub fn push(&mut self, bytes: Vec<u8>) {
        if !bytes.is_empty() {
            self.unacknowledged += bytes.len();
            self.queue.push_back(bytes);
        }
    }

    pub fn unacknowledged(&self) -> usize {
        self.unacknowledged
    }

    /// The segment to send now, with its number; `None`: nothing can be sent.
    pub fn poll(&mut self, now: u64) -> Option<(u64, &[u8])> {
        let is_sent = |segment: &&Segment| matches!(segment.state, State::Sent { .. });
        if self.flight.iter().filter(is_sent).count() >= self.room {
            return None;
        }
        let at = match self.flight.iter().position(|segment| segment.state == State::ToSend) {
            Some(lost) => lost,
            None => self.cut_next()?,
        };
        self.waits_since.get_or_insert(now);
        let segment = &mut self.flight[at];
        segment.state = State::Sent { at_ms: now, transmission: self.transmissions };
        self.transmissions += 1;
        Some((self.first + at as u64, &segment.bytes))
    }

    pub fn deadline(&self) -> Option<u64> {
        self.waits_since.map(|since| since + self.pause())
    }

    /// If nothing was acknowledged by [`Sender::deadline`], marks all unacknowledged segments to be sent again, at
    /// first one at a time.
    pub fn on_tick(&mut self, now: u64) {
        if self.deadline().is_none_or(|due| now < due) {
            return;
        }
        if self.silences == 0 {
            self.threshold = (self.room / 2).max(ROOM_MIN);
        }
        self.silences += 1;
        (self.room, self.credit, self.recovery) = (1, 0, self.transmissions);
        self.waits_since = Some(now);
        self.flight.iter_mut().for_each(Segment::lose);
    }

    pub fn on_ack(&mut self, now: u64, ack: Ack) {
        if ack.next < self.first || ack.next > self.first + self.flight.len() as u64 {
            return;
        }
        let (mut count, mut latest, mut sample) = (0, None, None);
        for (number, segment) in (self.first..).zip(&mut self.flight) {
            if segment.state == State::Arrived || !ack.has(number) {
                continue;
            }
            if let State::Sent { at_ms, transmission } = segment.state
                && latest.is_none_or(|latest| transmission > latest)
            {
                latest = Some(transmission);
                sample = (!segment.is_repeated).then(|| now.saturating_sub(at_ms));
            }
            segment.state = State::Arrived;
            count += 1;
        }
        if count == 0 {
            return;
        }
        while self.flight.front().is_some_and(|segment| segment.state == State::Arrived) {
            self.unacknowledged -= self.flight.pop_front().map_or(0, |segment| segment.bytes.len());
            self.first += 1;
        }
        self.silences = 0;
        self.waits_since = (!self.flight.is_empty()).then_some(now);
        if let Some(sample) = sample {
            self.measure(sample * 8);
        }
        self.grow(count);
        if let Some(latest) = latest {
            self.find_losses(latest);
        }
    }

    fn cut_next(&mut self) -> Option<usize> {
        if self.flight.len() >= WINDOW || self.queue.is_empty() {
            return None;
        }
        let mut bytes = Vec::new();
        while let Some(piece) = self.queue.front() {
            let rest = &piece[self.cut..];
            let len = rest.len().min(self.segment_len - bytes.len());
            bytes.extend_from_slice(&rest[..len]);
            if len < rest.len() {
                self.cut += len;
                break;
            }
            self.cut = 0;
            self.queue.pop_front();
        }
        self.flight.push_back(Segment { bytes, state: State::ToSend, is_repeated: false });
        Some(self.flight.len() - 1)
    }

    /// `sample`: the time of a round trip (ms, times 8).
    fn measure(&mut self, sample: u64) {
        self.round_trip = Some(match self.round_trip {
            None => (sample, sample / 2),
            Some((mean, deviation)) => ((mean * 7 + sample) / 8, (deviation * 3 + mean.abs_diff(sample)) / 4),
        });
    }

    fn pause(&self) -> u64 {
        let measured = self.round_trip.map_or(PAUSE_MS_FIRST, |(mean, deviation)| (mean + 4 * deviation) / 8);
        (measured.clamp(PAUSE_MS_MIN, PAUSE_MS_MAX) << self.silences.min(10)).min(PAUSE_MS_MAX)
    }

    fn grow(&mut self, count: usize) {
        self.credit += count;
        let step = if self.room < self.threshold { 1 } else { self.room };
        self.room = (self.room + self.credit / step).min(WINDOW);
        self.credit %= step;
    }

    /// Marks as lost the segments that were sent at least [`REORDERED_MAX`] transmissions before `latest`, which has
    /// arrived.
    fn find_losses(&mut self, latest: u64) {
        let mut last = None;
        for segment in &mut self.flight {
            if let State::Sent { transmission, .. } = segment.state
                && transmission + REORDERED_MAX <= latest
            {
                segment.lose();
                last = last.max(Some(transmission));
            }
        }
        if last.is_some_and(|last| last >= self.recovery) {
            self.room = (self.room / 2).max(ROOM_MIN);
            (self.threshold, self.credit, self.recovery) = (self.room, 0, self.transmissions);
        }
    }
}

impl Segment {
    fn lose(&mut self) {
        if let State::Sent { .. } = self.state {
            (self.state, self.is_repeated) = (State::ToSend, true);
        }
    }
}

/// The receiving half of a stream: puts segments in order.
#[derive(Default)]
pub struct Receiver {
    /// Number of the next segment to deliver; all segments before it were delivered.
    next: u64,
    /// Segments that arrived out of order, by number; fewer than [`WINDOW`].
    held: BTreeMap<u64, Vec<u8>>,
}

impl Receiver {
    /// Handles a segment, and appends to `out` the bytes that are in order now. A segment that has arrived before, or
    /// is not in the window, is ignored.
    pub fn on_segment(&mut self, number: u64, bytes: &[u8], out: &mut Vec<u8>) {
        let Some(ahead) = number.checked_sub(self.next).filter(|ahead| *ahead < WINDOW as u64) else { return };
        if ahead > 0 {
            self.held.entry(number).or_insert_with(|| bytes.to_vec());
            return;
        }
        out.extend_from_slice(bytes);
        self.next += 1;
        while let Some(bytes) = self.held.remove(&self.next) {
            out.extend_from_slice(&bytes);
            self.next += 1;
        }
    }

    pub fn ack(&self) -> Ack {
        let seen = self.held.keys().fold(0, |seen, number| seen | 1 << (number - self.next - 1));
        Ack { next: self.next, seen }
    }
}

/// How far a counter may be below the highest one. Chosen: several windows of segments and their acknowledgements.
const BEHIND_MAX: u64 = 1024;
const WORDS: usize = (BEHIND_MAX / 64) as usize;

/// Replay protection: records which datagram counters have been accepted, so that none is accepted twice.
#[derive(Default)]
pub struct Replay {
    /// All counters from this one on have not been seen yet.
    end: u64,
    /// One bit for each of the last [`BEHIND_MAX`] counters, at index `counter % BEHIND_MAX`.
    seen: [u64; WORDS],
}

impl Replay {
    pub fn is_new(&self, counter: u64) -> bool {
        let is_old = counter < self.end && (self.end - counter > BEHIND_MAX || self.bit(counter));
        !is_old && counter < u64::MAX
    }

    /// Records the counter of a datagram that is accepted: the datagram was authenticated, and [`Replay::is_new`] has
    /// returned `true` for its counter.
    pub fn note(&mut self, counter: u64) {
        if counter >= self.end {
            let fresh = (counter + 1 - self.end).min(BEHIND_MAX);
            (0..fresh).for_each(|back| self.put(counter - back, false));
            self.end = counter + 1;
        }
        self.put(counter, true);
    }

    fn bit(&self, counter: u64) -> bool {
        self.seen[(counter % BEHIND_MAX / 64) as usize] >> (counter % 64) & 1 == 1
    }

    fn put(&mut self, counter: u64, is_seen: bool) {
        let word = &mut self.seen[(counter % BEHIND_MAX / 64) as usize];
        *word = *word & !(1 << (counter % 64)) | u64::from(is_seen) << (counter % 64);
    }
}

#[cfg(test)]
mod tests;
