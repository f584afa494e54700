//! Standard output and error on their way up: lines are assembled here, and credit decides when they are sent.
//!
//! One `OutputStream` per job and stream. Every link has a separate window: this agent sends no more than its parent granted, and grants
//! its children as much as it has forwarded. So a reader that stops blocks only its own sources: first the queues fill, then the agents
//! stop reading the pipes, then the ranks block in `write`. Memory limit: window + one chunk per child; `QUEUE_BYTES`, [`PARTIAL_BYTES`]
//! and one read for the node's own ranks.

use crate::io::Stream;
use crate::time::Instant;
use bytes::{Bytes, BytesMut};
use std::collections::VecDeque;
use wireup_wire::ids::{LocalRank, Rank};
use wireup_wire::limits::{LINE_LEN_MAX, PARTIAL_LINE_NS_MAX, STDIO_CHUNK_MAX, STDIO_WINDOW_BYTES};

/// Above this many own bytes waiting for credit, the node's ranks are no longer read.
const QUEUE_BYTES: usize = STDIO_WINDOW_BYTES;

/// Above this many bytes of partial lines of all ranks, long ones are shown in pieces. Chosen: a kilobyte for each of a few thousand ranks.
const PARTIAL_BYTES: usize = 4 << 20;

/// Partial lines up to this length are always held.
const SHORT_LINE_BYTES: usize = 1024;

/// The `arg` of an output frame that belongs to no single rank.
pub const MIXED: u32 = u32::MAX;

/// How to format lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Style {
    /// Prefix each line with `[rank] `.
    pub label: bool,
    /// Keep ranks separate, and forward bytes unchanged.
    pub split: bool,
    /// Never show a partial line, except at the end of the stream.
    pub whole_lines_only: bool,
}

pub struct OutputStream {
    pub stream: Stream,
    style: Style,
    credit: i64,
    queue: VecDeque<Chunk>,
    own_queued: usize,
    reading: bool,
    /// The partial line of each local rank.
    lines: Vec<Line>,
    /// Local ranks whose partial line waits to be shown, oldest first.
    waiting: VecDeque<(Instant, LocalRank)>,
    /// Bytes of complete lines that share a chunk.
    batch: BytesMut,
    /// Total bytes of all partial lines.
    partial_bytes: usize,
}

#[derive(Default, Clone)]
struct Line {
    partial: Vec<u8>,
    /// The label of this line was already written (the line is shown in pieces).
    continued: bool,
    /// When the partial line started, if it may be shown early.
    since: Option<Instant>,
    /// It is in the list of those waiting to be shown.
    listed: bool,
}

struct Chunk {
    arg: u32,
    bytes: Bytes,
    /// The child (by index) whose credit is returned; `None`: this node.
    from: Option<usize>,
}

/// A chunk that may be sent now.
pub struct Ready {
    pub arg: u32,
    pub bytes: Bytes,
    /// The child to be granted `bytes.len()` more.
    pub from: Option<usize>,
}

impl OutputStream {
    pub fn new(stream: Stream, style: Style, local_size: usize) -> Self {
        OutputStream {
            stream,
            style,
            credit: STDIO_WINDOW_BYTES as i64,
            queue: VecDeque::new(),
            own_queued: 0,
            reading: true,
            lines: vec![Line::default(); local_size],
            waiting: VecDeque::new(),
            batch: BytesMut::new(),
            partial_bytes: 0,
        }
    }

    /// A local rank wrote output. `prompt`: a partial line of this rank may be shown early.
    pub fn on_bytes(&mut self, now: Instant, local: LocalRank, rank: Rank, bytes: &Bytes, prompt: bool) {
        if self.style.split {
            self.push_own(rank.0, bytes.clone());
            return;
        }
        let Some(end) = bytes.iter().rposition(|byte| *byte == b'\n') else {
            self.hold(now, local, rank, bytes, prompt);
            return;
        };
        let (whole, rest) = bytes.split_at(end + 1);
        let line = &mut self.lines[local.index()];
        if !self.style.label && line.partial.is_empty() && self.batch.is_empty() {
            self.push_own(MIXED, bytes.slice(..end + 1));
        } else {
            self.emit(local, rank, whole);
        }
        self.lines[local.index()].continued = false;
        if !rest.is_empty() {
            self.hold(now, local, rank, rest, prompt);
        }
    }

    /// A local rank's stream ended: shows its last partial line; a labelled one is terminated.
    pub fn on_closed(&mut self, local: LocalRank, rank: Rank) {
        self.flush_partial(local, rank);
        if self.style.label && self.lines[local.index()].continued {
            self.emit(local, rank, b"\n");
        }
        self.lines[local.index()] = Line::default();
    }

    /// A child sent a chunk.
    pub fn on_child(&mut self, child: usize, arg: u32, bytes: Bytes) {
        self.flush_batch();
        self.queue.push_back(Chunk { arg, bytes, from: Some(child) });
    }

    pub fn on_credit(&mut self, bytes: u32) {
        // The credit never exceeds a window.
        let credit = (self.credit.saturating_add(i64::from(bytes))).min(STDIO_WINDOW_BYTES as i64);
        self.credit = self.credit.max(credit);
    }

    /// Nobody reads the output any more: it is sent without credit.
    pub fn discard(&mut self) {
        self.credit = i64::MAX / 2;
    }

    /// Shows partial lines that have waited long enough.
    pub fn on_tick(&mut self, now: Instant, rank_of: impl Fn(LocalRank) -> Rank) {
        while let Some((since, local)) = self.waiting.front().copied() {
            if now < since + PARTIAL_LINE_NS_MAX {
                break;
            }
            self.waiting.pop_front();
            let line = &mut self.lines[local.index()];
            line.listed = false;
            match line.since {
                Some(since) if now >= since + PARTIAL_LINE_NS_MAX => self.flush_partial(local, rank_of(local)),
                // The line that was listed has ended; this is a newer one.
                Some(since) => {
                    line.listed = true;
                    self.waiting.push_back((since, local));
                }
                None => {}
            }
        }
    }

    pub fn deadline(&self) -> Option<Instant> {
        self.waiting.front().map(|(since, _)| *since + PARTIAL_LINE_NS_MAX)
    }

    /// The next chunk that the credit allows.
    pub fn poll_ready(&mut self) -> Option<Ready> {
        if self.credit <= 0 {
            return None;
        }
        if self.queue.is_empty() {
            self.flush_batch();
        }
        let chunk = self.queue.pop_front()?;
        self.credit -= chunk.bytes.len() as i64;
        if chunk.from.is_none() {
            self.own_queued -= chunk.bytes.len();
        }
        Some(Ready { arg: chunk.arg, bytes: chunk.bytes, from: chunk.from })
    }

    /// Whether to read the node's ranks, if that has changed.
    pub fn poll_reading(&mut self) -> Option<bool> {
        let wanted = match self.own_queued + self.batch.len() {
            queued if queued > QUEUE_BYTES => false,
            queued if queued <= QUEUE_BYTES / 2 => true,
            _ => self.reading,
        };
        (wanted != std::mem::replace(&mut self.reading, wanted)).then_some(wanted)
    }

    pub fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.batch.is_empty()
    }

    /// Bytes buffered here, for the simulator's checker.
    pub fn held_bytes(&self) -> usize {
        self.queue.iter().map(|chunk| chunk.bytes.len()).sum::<usize>() + self.batch.len() + self.partial_bytes
    }

    fn hold(&mut self, now: Instant, local: LocalRank, rank: Rank, bytes: &[u8], prompt: bool) {
        let line = &mut self.lines[local.index()];
        line.partial.extend_from_slice(bytes);
        self.partial_bytes += bytes.len();
        let crowded = self.partial_bytes > PARTIAL_BYTES && line.partial.len() >= SHORT_LINE_BYTES;
        if line.partial.len() >= LINE_LEN_MAX || crowded {
            self.flush_partial(local, rank);
        } else if prompt && !self.style.whole_lines_only {
            let since = *line.since.get_or_insert(now);
            if !std::mem::replace(&mut line.listed, true) {
                self.waiting.push_back((since, local));
            }
        }
    }

    fn flush_partial(&mut self, local: LocalRank, rank: Rank) {
        if !self.lines[local.index()].partial.is_empty() {
            self.emit(local, rank, b"");
            self.lines[local.index()].continued = true;
        }
    }

    /// Moves the rank's partial line, followed by `bytes`, into the batch.
    fn emit(&mut self, local: LocalRank, rank: Rank, bytes: &[u8]) {
        let line = &mut self.lines[local.index()];
        line.since = None;
        let mut partial = std::mem::take(&mut line.partial);
        self.partial_bytes -= partial.len();
        if self.style.label {
            partial.extend_from_slice(bytes);
            let mut continued = line.continued;
            for piece in partial.split_inclusive(|byte| *byte == b'\n') {
                if !continued {
                    self.batch.extend_from_slice(format!("[{rank}] ").as_bytes());
                }
                self.batch.extend_from_slice(piece);
                continued = false;
            }
        } else {
            self.batch.extend_from_slice(&partial);
            self.batch.extend_from_slice(bytes);
        }
        if self.batch.len() >= STDIO_CHUNK_MAX / 2 {
            self.flush_batch();
        }
    }

    fn flush_batch(&mut self) {
        if !self.batch.is_empty() {
            let bytes = self.batch.split().freeze();
            self.push_own(MIXED, bytes);
        }
    }

    /// Queues bytes in frames of limited size, split after a line end if possible.
    fn push_own(&mut self, arg: u32, mut bytes: Bytes) {
        self.own_queued += bytes.len();
        while !bytes.is_empty() {
            let most = bytes.len().min(STDIO_CHUNK_MAX);
            let lines = bytes[..most].iter().rposition(|byte| *byte == b'\n').map_or(most, |at| at + 1);
            let chunk = bytes.split_to(if most == bytes.len() { most } else { lines });
            self.queue.push_back(Chunk { arg, bytes: chunk, from: None });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn style(label: bool) -> Style {
        Style { label, split: false, whole_lines_only: true }
    }

    fn drain(stream: &mut OutputStream) -> Vec<u8> {
        let mut seen = Vec::new();
        while let Some(ready) = stream.poll_ready() {
            seen.extend_from_slice(&ready.bytes);
            stream.on_credit(ready.bytes.len() as u32);
        }
        seen
    }

    proptest! {
        #[test]
        fn output_lines_stay_whole_and_complete(
            texts in proptest::collection::vec("[a-c\n]{0,30}", 3..4),
            cuts in proptest::collection::vec((0usize..3, 1usize..5), 0..60),
            label: bool,
        ) {
            let mut stream = OutputStream::new(Stream::Out, style(label), 3);
            let mut rests: Vec<Bytes> = texts.iter().map(|text| Bytes::from(text.clone())).collect();
            for (who, length) in cuts {
                let cut = length.min(rests[who].len());
                let bytes = rests[who].split_to(cut);
                stream.on_bytes(Instant(0), LocalRank(who as u16), Rank(who as u32), &bytes, false);
            }
            for (who, rest) in rests.iter().enumerate() {
                stream.on_bytes(Instant(0), LocalRank(who as u16), Rank(who as u32), &rest.clone(), false);
            }
            let lines = drain(&mut stream);
            prop_assert!(lines.is_empty() || lines.ends_with(b"\n"));
            if label {
                for (who, text) in texts.iter().enumerate() {
                    let mark = format!("[{who}] ");
                    let mine: String = String::from_utf8_lossy(&lines).split_inclusive('\n').filter_map(|line| line.strip_prefix(&mark).map(str::to_owned)).collect();
                    let whole = text.rfind('\n').map_or("", |end| &text[..=end]);
                    prop_assert_eq!(mine, whole);
                }
            }
            for who in 0..3u16 {
                stream.on_closed(LocalRank(who), Rank(u32::from(who)));
            }
            let total = lines.len() + drain(&mut stream).len();
            let sent: usize = texts.iter().map(String::len).sum();
            let whole = if label { total >= sent } else { total == sent };
            prop_assert!(whole);
        }
    }

    #[test]
    fn without_credit_no_output_is_sent_and_reading_stops() {
        let mut stream = OutputStream::new(Stream::Out, style(false), 1);
        let line = Bytes::from(vec![b'\n'; STDIO_CHUNK_MAX]);
        let mut sent = 0;
        for _ in 0..64 {
            stream.on_bytes(Instant(0), LocalRank(0), Rank(0), &line, false);
            while let Some(ready) = stream.poll_ready() {
                sent += ready.bytes.len();
            }
        }
        assert_eq!(sent, STDIO_WINDOW_BYTES);
        assert_eq!(stream.poll_reading(), Some(false));
        (0..4).for_each(|_| stream.on_credit(u32::MAX));
        let granted: usize = std::iter::from_fn(|| stream.poll_ready()).map(|ready| ready.bytes.len()).sum();
        assert_eq!(granted, STDIO_WINDOW_BYTES, "at most a window, whatever is granted");
        stream.discard();
        stream.on_credit(1);
        while stream.poll_ready().is_some() {}
        assert!(stream.is_empty(), "discarded output needs no credit");
        assert_eq!(stream.poll_reading(), Some(true));
    }

    #[test]
    fn a_recent_partial_line_is_not_shown_because_of_an_older_one() {
        let mut stream = OutputStream::new(Stream::Out, Style { whole_lines_only: false, ..style(false) }, 1);
        let write = |stream: &mut OutputStream, at, text: &'static str| {
            stream.on_bytes(Instant(at), LocalRank(0), Rank(0), &Bytes::from_static(text.as_bytes()), true);
        };
        write(&mut stream, 0, "first ");
        let due = stream.deadline().expect("it may be a prompt");
        write(&mut stream, due.0 - 1, "line\nsecond ");
        assert_eq!(drain(&mut stream), b"first line\n");
        stream.on_tick(due, |_| Rank(0));
        assert_eq!(drain(&mut stream), b"", "the second line is a nanosecond old");
        let later = stream.deadline().expect("it may be a prompt too");
        assert!(later > due);
        stream.on_tick(later, |_| Rank(0));
        assert_eq!(drain(&mut stream), b"second ");
    }

    #[test]
    fn partial_lines_are_bounded() {
        let ranks = 4096;
        let mut stream = OutputStream::new(Stream::Out, style(false), ranks);
        let piece = Bytes::from(vec![b'x'; 8 << 10]);
        for local in 0..ranks as u16 {
            stream.on_bytes(Instant(0), LocalRank(local), Rank(local.into()), &piece, false);
            drain(&mut stream);
        }
        assert!(stream.held_bytes() <= PARTIAL_BYTES + ranks * SHORT_LINE_BYTES, "{}", stream.held_bytes());
    }

    #[test]
    fn a_partial_line_is_shown_after_a_delay() {
        let mut stream = OutputStream::new(Stream::Out, Style { whole_lines_only: false, ..style(true) }, 1);
        stream.on_bytes(Instant(5), LocalRank(0), Rank(0), &Bytes::from_static(b"name? "), true);
        assert!(stream.poll_ready().is_none());
        let due = stream.deadline().expect("a prompt waits");
        stream.on_tick(due, |_| Rank(0));
        assert_eq!(drain(&mut stream), b"[0] name? ");
        stream.on_bytes(due, LocalRank(0), Rank(0), &Bytes::from_static(b"ok\n"), true);
        assert_eq!(drain(&mut stream), b"ok\n", "the label is not repeated within a line");
    }
}
