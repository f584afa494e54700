//! Sends standard output and error up the tree: lines are assembled here, and credit decides when they are sent.
//!
//! A job has one [`JobOutput`] on an agent, with an `OutputStream` for each stream. Every link has a separate window:
//! this agent sends no more than its parent granted, and grants its children as much as it has forwarded. So a reader
//! that stops blocks only its own sources: first the queues fill, then the agents stop reading the pipes, then the
//! ranks block in `write`. Memory limit: window + one chunk per child; `QUEUE_BYTES`, [`PARTIAL_BYTES`] and one read
//! for the node's own ranks.
//!
//! A chunk has whole lines of any ranks, with their labels, or a part of one line of one rank, without a label. The
//! launcher puts the parts of a line together again: it has the memory and the disk for long lines, and it alone sees
//! what other nodes write between the parts.

use crate::io::{Output, Stream};
use crate::job::cx::Cx;
use crate::job::facts::Facts;
use crate::job::ranks::Process;
use crate::time::Instant;
use bytes::{Bytes, BytesMut};
use std::collections::VecDeque;
use std::fmt;
use wireup_wire::frame::{DownFrame, Frame, UpFrame};
use wireup_wire::ids::{JobId, LocalRank, Rank};
use wireup_wire::job::StdinTarget;
use wireup_wire::limits::{LINE_PART_BYTES, PARTIAL_LINE_NS_MAX, STDIO_CHUNK_MAX, STDIO_WINDOW_BYTES};

/// Bytes of local output that may wait for credit. While more bytes wait, the output of the node's ranks is not read.
const QUEUE_BYTES: usize = STDIO_WINDOW_BYTES;

/// Bytes of partial lines of all local ranks; with more, long lines are shown in pieces. Chosen: a kilobyte for each of
/// a few thousand ranks.
const PARTIAL_BYTES: usize = 4 << 20;

/// Longest partial line (bytes) that is held back, and that is taken for a prompt.
const SHORT_LINE_BYTES: usize = 1024;

/// The `arg` of an output frame that belongs to no single rank.
pub const MIXED: u32 = u32::MAX;

/// What follows a part of a line: the high byte of the `stream` field of an output frame that belongs to one rank.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Next {
    /// The rest of the line follows, unless this part ends with a newline.
    #[default]
    Rest,
    /// The rest of the line follows, but this part is to be shown now: it may be a prompt.
    Answer,
    /// Nothing follows: the stream has ended.
    Nothing,
}

impl Next {
    /// The `stream` field of a frame.
    pub fn field(self, stream: Stream) -> u16 {
        stream as u16 | (self as u16) << 8
    }

    /// Reads the `stream` field of a frame; `None`: the value is one that no correct agent sends.
    pub fn of_field(field: u16) -> Option<(Stream, Next)> {
        let [stream, next] = field.to_le_bytes();
        let stream = [Stream::Out, Stream::Err].into_iter().find(|known| *known as u8 == stream)?;
        let next = [Next::Rest, Next::Answer, Next::Nothing].into_iter().find(|known| *known as u8 == next)?;
        Some((stream, next))
    }
}

/// A rank that has written something.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Origin {
    /// The rank's job, if a rank has asked for that job; `None`: the job that the user launched.
    pub job: Option<JobId>,
    pub rank: Rank,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.job {
            Some(job) => write!(f, "{job}:{}", self.rank),
            None => write!(f, "{}", self.rank),
        }
    }
}

/// The user's options for how output lines are shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Style {
    /// Prefix each line with its origin: `[rank] ` or `[job:rank] `.
    label: bool,
    /// The job that a label names; `None`: labels name only the rank.
    job: Option<JobId>,
    /// Whether each rank's output is kept separate, and its bytes are forwarded unchanged.
    split: bool,
    /// Whether a partial line is never shown, except at the end of the stream.
    whole_lines_only: bool,
}

/// Standard output and error of one job on one agent.
pub struct JobOutput {
    streams: [OutputStream; 2],
}

impl JobOutput {
    pub fn new(facts: &Facts) -> Self {
        let options = &facts.spec.options;
        let style = Style {
            label: options.stdio.label,
            job: facts.spec.shown_number(),
            split: options.stdio.split_output,
            whole_lines_only: options.stdio.line_buffered,
        };
        let stream = |stream| OutputStream::new(stream, style, facts.local_size() as usize);
        JobOutput { streams: [stream(Stream::Out), stream(Stream::Err)] }
    }

    /// A local rank wrote output, or the agent writes for it.
    pub fn on_bytes(&mut self, cx: &Cx<'_>, local: LocalRank, stream: Stream, bytes: &Bytes) {
        let Some(Process { rank, .. }) = cx.common.ranks.get(local.index()) else { return };
        let (rank, options) = (*rank, &cx.facts.spec.options);
        // A rank that reads the terminal may show a prompt; the lines of other ranks are shown whole.
        let options = &options.stdio;
        let prompt = options.stdin == StdinTarget::One(rank) || options.pty.is_some_and(|pty| pty.rank == rank);
        self.stream(stream).on_bytes(cx.now(), local, rank, bytes, prompt);
    }

    /// Handles the end of a rank's stream.
    pub fn on_ended(&mut self, (local, rank): (LocalRank, Rank), stream: Stream) {
        self.stream(stream).on_closed(local, rank);
    }

    /// Ends the streams of the local ranks, about which no more events are expected.
    pub fn give_ranks_up(&mut self, cx: &mut Cx<'_>) {
        for (local, stream) in cx.common.ranks.give_up() {
            self.on_ended((local, cx.rank(local)), stream);
        }
    }

    fn stream(&mut self, stream: Stream) -> &mut OutputStream {
        &mut self.streams[stream as usize - 1]
    }

    /// Handles a chunk of a child's output.
    pub fn on_child(&mut self, child: usize, frame: Frame) {
        if let Some((stream, next)) = Next::of_field(frame.stream) {
            self.stream(stream).on_child(child, frame.arg, next, frame.payload);
        }
    }

    pub fn on_credit(&mut self, frame: &Frame) {
        if let 1..=2 = frame.stream {
            self.streams[frame.stream as usize - 1].on_credit(frame.arg);
        }
    }

    /// Sends what the credit allows, grants the children credit for it, and starts or stops reading the ranks.
    pub fn flush(&mut self, cx: &mut Cx<'_>) {
        let facts = cx.facts;
        let job = facts.id();
        for output in &mut self.streams {
            let stream = output.stream;
            while let Some(ready) = output.poll_ready() {
                let granted = ready.bytes.len() as u32;
                let frame = facts.frame(UpFrame::Output, ready.next.field(stream), ready.arg, ready.bytes);
                cx.agent.links.send_job_up(cx.common.up, frame);
                if let Some(child) = ready.from {
                    let credit = facts.frame(DownFrame::OutputCredit, stream as u16, granted, Bytes::new());
                    cx.agent.links.send_peer(cx.facts.below[child], credit);
                }
            }
            if let Some(on) = output.poll_reading() {
                cx.output(Output::ReadStdio { job, stream, on });
            }
        }
    }

    /// Nobody reads the output any more: drop it.
    pub fn discard(&mut self) {
        self.streams.iter_mut().for_each(OutputStream::discard);
    }

    /// Whether no output waits here.
    pub fn is_flushed(&self) -> bool {
        self.streams.iter().all(OutputStream::is_empty)
    }

    pub fn on_tick(&mut self, cx: &Cx<'_>) {
        self.streams.iter_mut().for_each(|stream| stream.on_tick(cx.now(), |local| cx.rank(local)));
    }

    pub fn deadline(&self) -> Option<Instant> {
        self.streams.iter().filter_map(OutputStream::deadline).min()
    }

    /// Bytes of output buffered here, for the simulator's checkers.
    pub fn held_bytes(&self) -> usize {
        self.streams.iter().map(OutputStream::held_bytes).sum()
    }
}

/// One stream of a job's output on one agent.
struct OutputStream {
    stream: Stream,
    style: Style,
    credit: i64,
    queue: VecDeque<Chunk>,
    own_queued: usize,
    reading: bool,
    /// The partial line of each local rank.
    lines: Vec<Line>,
    /// Local ranks whose partial line waits to be shown, oldest first.
    waiting: VecDeque<(Instant, LocalRank)>,
    /// Complete lines that are sent together in one chunk.
    batch: BytesMut,
    partial_bytes: usize,
}

#[derive(Default, Clone)]
struct Line {
    partial: Vec<u8>,
    /// What follows the part of this line that was already sent; `None`: no part was sent.
    sent: Option<Next>,
    /// When the partial line started; `None`: it must not be shown early.
    since: Option<Instant>,
    /// Whether the line is in `OutputStream::waiting`.
    listed: bool,
}

struct Chunk {
    arg: u32,
    next: Next,
    bytes: Bytes,
    /// The child (by index) that gets credit for the chunk when it was sent; `None`: this node.
    from: Option<usize>,
}

impl OutputStream {
    fn new(stream: Stream, style: Style, local_size: usize) -> Self {
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
    fn on_bytes(&mut self, now: Instant, local: LocalRank, rank: Rank, bytes: &Bytes, prompt: bool) {
        if self.style.split {
            self.push_part(rank, bytes.clone(), Next::Rest);
            return;
        }
        let Some(end) = bytes.iter().rposition(|byte| *byte == b'\n') else {
            self.hold(now, local, rank, bytes, prompt);
            return;
        };
        let mut whole = bytes.slice(..end + 1);
        let line = &self.lines[local.index()];
        if line.sent.is_some() || !line.partial.is_empty() {
            let first = whole.iter().position(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            self.end_line(local, rank, &whole.split_to(first));
        }
        if !whole.is_empty() {
            self.emit_lines(rank, whole);
        }
        let rest = bytes.slice(end + 1..);
        if !rest.is_empty() {
            self.hold(now, local, rank, &rest, prompt);
        }
    }

    /// A local rank's stream ended: shows its last partial line; a labelled one is terminated.
    fn on_closed(&mut self, local: LocalRank, rank: Rank) {
        let line = &self.lines[local.index()];
        if self.style.label && line.sent.is_none() && !line.partial.is_empty() {
            self.end_line(local, rank, b"\n");
        } else if line.sent.is_some() || !line.partial.is_empty() {
            self.flush_partial(local, rank, Next::Nothing);
        }
        self.lines[local.index()] = Line::default();
    }

    /// Queues a chunk that a child has sent.
    fn on_child(&mut self, child: usize, arg: u32, next: Next, bytes: Bytes) {
        self.flush_batch();
        self.queue.push_back(Chunk { arg, next, bytes, from: Some(child) });
    }

    fn on_credit(&mut self, bytes: u32) {
        // The credit never exceeds a window.
        let credit = (self.credit.saturating_add(i64::from(bytes))).min(STDIO_WINDOW_BYTES as i64);
        self.credit = self.credit.max(credit);
    }

    /// Nobody reads the output any more: sends it without credit, so that it does not wait here.
    fn discard(&mut self) {
        self.credit = i64::MAX / 2;
    }

    /// Shows partial lines that have waited long enough. While output waits for a reader no time passes for them: the
    /// rest of such a line may lie unread in its pipe.
    fn on_tick(&mut self, now: Instant, rank_of: impl Fn(LocalRank) -> Rank) {
        let is_held_up = !self.reading || !self.is_empty();
        while let Some((since, local)) = self.waiting.front().copied() {
            if now < since + PARTIAL_LINE_NS_MAX {
                break;
            }
            self.waiting.pop_front();
            let line = &mut self.lines[local.index()];
            line.listed = false;
            if is_held_up && line.since.is_some() {
                line.since = Some(now);
            }
            match line.since {
                Some(since) if now >= since + PARTIAL_LINE_NS_MAX => {
                    self.flush_partial(local, rank_of(local), Next::Answer)
                }
                // The line that was in the list has ended, and the rank has begun a newer line.
                Some(since) => {
                    line.listed = true;
                    self.waiting.push_back((since, local));
                }
                None => {}
            }
        }
    }

    fn deadline(&self) -> Option<Instant> {
        self.waiting.front().map(|(since, _)| *since + PARTIAL_LINE_NS_MAX)
    }

    /// The next chunk that the credit allows.
    fn poll_ready(&mut self) -> Option<Chunk> {
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
        Some(chunk)
    }

    /// Whether the driver must read the output of the node's ranks; `None`: nothing changes.
    fn poll_reading(&mut self) -> Option<bool> {
        let wanted = match self.own_queued + self.batch.len() {
            queued if queued > QUEUE_BYTES => false,
            queued if queued <= QUEUE_BYTES / 2 => true,
            _ => self.reading,
        };
        (wanted != std::mem::replace(&mut self.reading, wanted)).then_some(wanted)
    }

    fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.batch.is_empty()
    }

    /// Bytes buffered here, for the simulator's checker.
    fn held_bytes(&self) -> usize {
        self.queue.iter().map(|chunk| chunk.bytes.len()).sum::<usize>() + self.batch.len() + self.partial_bytes
    }

    fn hold(&mut self, now: Instant, local: LocalRank, rank: Rank, bytes: &[u8], prompt: bool) {
        let line = &mut self.lines[local.index()];
        line.partial.extend_from_slice(bytes);
        self.partial_bytes += bytes.len();
        let crowded = self.partial_bytes > PARTIAL_BYTES && line.partial.len() >= SHORT_LINE_BYTES;
        if line.partial.len() >= LINE_PART_BYTES || crowded {
            self.flush_partial(local, rank, Next::Rest);
        } else if line.partial.len() > SHORT_LINE_BYTES || line.sent == Some(Next::Rest) {
            // Not a prompt: the partial line is longer than `SHORT_LINE_BYTES`, or continues a line whose beginning was
            // sent because of its length. It is sent when it is complete or reaches `LINE_PART_BYTES`.
            line.since = None;
        } else if prompt && !self.style.whole_lines_only {
            let since = *line.since.get_or_insert(now);
            if !std::mem::replace(&mut line.listed, true) {
                self.waiting.push_back((since, local));
            }
        }
    }

    /// Sends the rank's partial line.
    fn flush_partial(&mut self, local: LocalRank, rank: Rank, next: Next) {
        let partial = self.take_partial(local);
        self.lines[local.index()].sent = Some(next);
        self.push_part(rank, partial.into(), next);
    }

    /// Sends the rank's partial line together with its end.
    fn end_line(&mut self, local: LocalRank, rank: Rank, end: &[u8]) {
        let mut text = self.take_partial(local);
        text.extend_from_slice(end);
        match self.lines[local.index()].sent.take() {
            Some(_) => self.push_part(rank, text.into(), Next::Rest),
            None => self.emit_lines(rank, text.into()),
        }
    }

    fn take_partial(&mut self, local: LocalRank) -> Vec<u8> {
        let line = &mut self.lines[local.index()];
        line.since = None;
        self.partial_bytes -= line.partial.len();
        std::mem::take(&mut line.partial)
    }

    fn emit_lines(&mut self, rank: Rank, lines: Bytes) {
        if !self.style.label && lines.len() <= STDIO_CHUNK_MAX {
            return match self.batch.is_empty() {
                true => self.push_own(MIXED, Next::Rest, lines),
                false => self.append(b"", &lines),
            };
        }
        let origin = Origin { job: self.style.job, rank };
        let label = if self.style.label { format!("[{origin}] ") } else { String::new() };
        for line in lines.split_inclusive(|byte| *byte == b'\n') {
            match label.len() + line.len() <= STDIO_CHUNK_MAX {
                true => self.append(label.as_bytes(), line),
                false => self.push_part(rank, lines.slice_ref(line), Next::Rest),
            }
        }
    }

    /// Adds whole lines to the batch.
    fn append(&mut self, label: &[u8], lines: &[u8]) {
        if self.batch.len() + label.len() + lines.len() > STDIO_CHUNK_MAX {
            self.flush_batch();
        }
        self.batch.extend_from_slice(label);
        self.batch.extend_from_slice(lines);
        if self.batch.len() >= STDIO_CHUNK_MAX / 2 {
            self.flush_batch();
        }
    }

    fn flush_batch(&mut self) {
        if !self.batch.is_empty() {
            let bytes = self.batch.split().freeze();
            self.push_own(MIXED, Next::Rest, bytes);
        }
    }

    /// Queues bytes of one rank in frames of limited size, after what it wrote before.
    fn push_part(&mut self, rank: Rank, mut bytes: Bytes, next: Next) {
        self.flush_batch();
        while bytes.len() > STDIO_CHUNK_MAX {
            self.push_own(rank.0, Next::Rest, bytes.split_to(STDIO_CHUNK_MAX));
        }
        self.push_own(rank.0, next, bytes);
    }

    fn push_own(&mut self, arg: u32, next: Next, bytes: Bytes) {
        self.own_queued += bytes.len();
        self.queue.push_back(Chunk { arg, next, bytes, from: None });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn style(label: bool) -> Style {
        Style { label, job: None, split: false, whole_lines_only: true }
    }

    /// The stream of one rank, whose partial lines may be prompts.
    fn with_prompts(label: bool) -> OutputStream {
        OutputStream::new(Stream::Out, Style { whole_lines_only: false, ..style(label) }, 1)
    }

    /// Rank 0 writes at time `at`; a partial line may be a prompt.
    fn write(stream: &mut OutputStream, at: Instant, bytes: impl Into<Bytes>) {
        stream.on_bytes(at, LocalRank(0), Rank(0), &bytes.into(), true);
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
                    let lines = String::from_utf8_lossy(&lines);
                    let mine: String =
                        lines.split_inclusive('\n').filter_map(|line| line.strip_prefix(&mark)).collect();
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
        let mut stream = with_prompts(false);
        write(&mut stream, Instant(0), "first ");
        let due = stream.deadline().expect("it may be a prompt");
        write(&mut stream, Instant(due.0 - 1), "line\nsecond ");
        assert_eq!(drain(&mut stream), b"first line\n");
        stream.on_tick(due, |_| Rank(0));
        assert_eq!(drain(&mut stream), b"", "the second line is a nanosecond old");
        let later = stream.deadline().expect("it may be a prompt too");
        assert!(later > due);
        stream.on_tick(later, |_| Rank(0));
        assert_eq!(drain(&mut stream), b"second ");
    }

    #[test]
    fn a_line_is_not_taken_for_a_prompt_while_nobody_reads() {
        let mut stream = with_prompts(false);
        write(&mut stream, Instant(0), vec![b'\n'; STDIO_WINDOW_BYTES + 1]);
        write(&mut stream, Instant(0), "half a ");
        while stream.poll_ready().is_some() {}
        assert!(!stream.is_empty(), "the credit is used up");
        let due = stream.deadline().expect("it may be a prompt");
        stream.on_tick(due, |_| Rank(0));
        stream.on_credit(10);
        while stream.poll_ready().is_some() {}
        let later = stream.deadline().expect("it waits again");
        assert!(stream.is_empty() && later > due);
        stream.on_tick(later, |_| Rank(0));
        assert_eq!(drain(&mut stream), b"half a ", "now it may be one");
    }

    #[test]
    fn a_long_line_is_not_taken_for_a_prompt() {
        let mut stream = with_prompts(false);
        write(&mut stream, Instant(0), vec![b'x'; 100]);
        let due = stream.deadline().expect("it may be a prompt");
        write(&mut stream, Instant(0), vec![b'x'; SHORT_LINE_BYTES]);
        stream.on_tick(due, |_| Rank(0));
        assert!(stream.poll_ready().is_none(), "it waits for its end");
        write(&mut stream, Instant(0), vec![b'x'; LINE_PART_BYTES]);
        assert!(stream.poll_ready().is_some_and(|ready| ready.next == Next::Rest));
        write(&mut stream, Instant(0), vec![b'x'; 10]);
        assert_eq!(stream.deadline(), None, "the rest of a long line is no prompt");
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
        let mut stream = with_prompts(true);
        write(&mut stream, Instant(5), "name? ");
        assert!(stream.poll_ready().is_none());
        let due = stream.deadline().expect("a prompt waits");
        stream.on_tick(due, |_| Rank(0));
        let ready = stream.poll_ready().expect("the prompt is shown");
        assert_eq!((ready.arg, ready.next, &ready.bytes[..]), (0, Next::Answer, &b"name? "[..]));
        write(&mut stream, due, "ok\nnext\n");
        let ready = stream.poll_ready().expect("the rest of the line");
        assert_eq!((ready.arg, &ready.bytes[..]), (0, &b"ok\n"[..]));
        assert_eq!(drain(&mut stream), b"[0] next\n");
    }

    /// The parts of a long line carry their rank, so that they can be joined into a whole line for each rank.
    #[test]
    fn parts_of_long_lines_name_their_rank() {
        let mut stream = OutputStream::new(Stream::Out, style(true), 2);
        let (piece, end) = (Bytes::from(vec![b'x'; 50_000]), Bytes::from_static(b"x\nshort\n"));
        for _ in 0..4 {
            (0..2).for_each(|rank| stream.on_bytes(Instant(0), LocalRank(rank), Rank(rank.into()), &piece, false));
        }
        (0..2).for_each(|rank| stream.on_bytes(Instant(0), LocalRank(rank), Rank(rank.into()), &end, false));
        let mut lines = [Vec::new(), Vec::new()];
        let mut whole = Vec::new();
        while let Some(Chunk { arg, bytes, .. }) = stream.poll_ready() {
            stream.on_credit(bytes.len() as u32);
            assert!(bytes.len() <= STDIO_CHUNK_MAX);
            if arg == MIXED { &mut whole } else { &mut lines[arg as usize] }.extend_from_slice(&bytes);
        }
        for line in lines {
            assert!(line.len() == 200_002 && line.ends_with(b"xx\n"), "{}", line.len());
        }
        assert_eq!(whole, b"[0] short\n[1] short\n");
    }

    #[test]
    fn the_stream_field_of_a_frame_is_read_back() {
        for next in [Next::Rest, Next::Answer, Next::Nothing] {
            assert_eq!(Next::of_field(next.field(Stream::Err)), Some((Stream::Err, next)));
        }
        assert_eq!((Next::of_field(3), Next::of_field(0x301)), (None, None));
    }
}
