//! Puts together lines that agents have sent in parts, and keeps lines of different ranks apart.
//!
//! A line is shown when it is complete. An incomplete line is shown if the line is a prompt, if its stream has ended,
//! if the line is longer than [`LINE_BYTES_MAX`], or if there is no room for the line. If another rank writes next,
//! that rank's output begins on a new line. If the new line cuts an unfinished line, both sides of the cut are marked.

use super::files::{Output, Pattern, Places};
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use wireup_proto::{Next, Origin};
use wireup_wire::ids::Rank;
use wireup_wire::limits::{HELD_LINES_FILE_MAX, HELD_LINES_MEMORY_MAX, LINE_BYTES_MAX, STDIO_CHUNK_MAX};

/// The mark at the end of a cut line. `REST`: the mark before the continuation of the line.
const CUT: &str = "[wireup: line cut]\n";
const REST: &str = "[wireup: rest of a line] ";

/// Writes bytes of a rank's output.
type Write<'w, E> = dyn FnMut(Origin, &[u8]) -> Result<(), E> + 'w;

/// How lines are shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LineStyle {
    /// Whether each line begins with its rank.
    pub label: bool,
    /// Whether the launched job has only one rank, so that only ranks of spawned jobs can write between the parts of a
    /// line.
    pub alone: bool,
}

pub struct Lines {
    style: LineStyle,
    held: HashMap<Origin, Held>,
    room: Room,
    /// The unfinished line at the end of the stream; `None`: the stream ends with a newline.
    open: Option<Open>,
    /// Ranks whose unfinished line was cut because another rank wrote.
    cut: HashSet<Origin>,
    line_max: u64,
    decoration: Option<Arc<Decoration>>,
}

/// The unfinished line at the end of the stream.
#[derive(Clone, Copy)]
struct Open {
    rank: Origin,
    /// The reason why the line was written before it was complete.
    reason: Reason,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Reason {
    Prompt,
    StreamEnded,
    TooLong,
}

impl Lines {
    /// `decoration`: a text before each line.
    pub fn new(style: LineStyle, decoration: Option<Arc<Decoration>>) -> Lines {
        let (held, cut) = Default::default();
        Lines { style, held, room: Room::new(), open: None, cut, line_max: LINE_BYTES_MAX, decoration }
    }

    pub fn has_labels(&self) -> bool {
        self.style.label
    }

    /// Whether the stream ends within a line.
    pub fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Text that ends the unfinished line of another rank before a new line is shown.
    pub fn break_before(&mut self) -> Option<(Origin, &'static str)> {
        let Open { rank, reason } = self.open.take()?;
        if reason == Reason::TooLong {
            self.cut.insert(rank);
            return Some((rank, CUT));
        }
        Some((rank, "\n"))
    }

    /// Handles a part of a rank's line.
    pub fn on_part<E: From<std::io::Error>>(
        &mut self,
        (rank, next): (Origin, Next),
        part: &[u8],
        write: &mut Write<'_, E>,
    ) -> Result<(), E> {
        let held = self.held.entry(rank).or_default();
        let is_full = self.room.add(held, part).is_err();
        let reason = match next {
            Next::Rest if part.ends_with(b"\n") => None,
            Next::Rest if is_full || self.style.alone || held.len() >= self.line_max => Some(Reason::TooLong),
            Next::Rest => return Ok(()),
            Next::Answer => Some(Reason::Prompt),
            Next::Nothing => Some(Reason::StreamEnded),
        };
        self.show(rank, reason, write)
    }

    /// Shows the unfinished lines of ranks whose nodes were lost, since nothing follows.
    pub fn finish<E: From<std::io::Error>>(&mut self, write: &mut Write<'_, E>) -> Result<(), E> {
        let mut ranks: Vec<Origin> = self.held.keys().copied().collect();
        ranks.sort();
        ranks.into_iter().try_for_each(|rank| self.show(rank, Some(Reason::TooLong), write))
    }

    /// Shows the parts of a rank's line that have arrived. `reason`: the reason why the line is shown before its end.
    fn show<E: From<std::io::Error>>(
        &mut self,
        rank: Origin,
        reason: Option<Reason>,
        write: &mut Write<'_, E>,
    ) -> Result<(), E> {
        let held = self.held.remove(&rank).unwrap_or_default();
        let goes_on = self.open.is_some_and(|open| open.rank == rank && open.reason != Reason::StreamEnded);
        if held.len() > 0 && !goes_on {
            if let Some((other, end)) = self.break_before() {
                write(other, end.as_bytes())?;
            }
            let mut begin = String::new();
            match &self.decoration {
                Some(decoration) => begin += &decoration.line_start(rank, self.style.label),
                None if self.style.label => begin += &format!("[{rank}] "),
                None => {}
            }
            begin += if self.cut.remove(&rank) { REST } else { "" };
            if !begin.is_empty() {
                write(rank, begin.as_bytes())?;
            }
        }
        if held.len() > 0 || goes_on {
            self.open = reason.map(|reason| Open { rank, reason });
        }
        self.room.pass_on(held, |part| write(rank, part))?;
        if self.style.label && reason == Some(Reason::StreamEnded) && self.open.is_some_and(|open| open.rank == rank) {
            self.open = None;
            write(rank, b"\n")?;
        }
        if reason == Some(Reason::StreamEnded) {
            self.cut.remove(&rank);
        }
        Ok(())
    }
}

/// Bytes of a block. Chosen: as large as the largest part that an agent sends.
const BLOCK_BYTES: usize = STDIO_CHUNK_MAX;

/// The parts of one line so far: first the parts in blocks, then the parts in memory.
#[derive(Default)]
pub struct Held {
    blocks: Vec<Block>,
    memory: Vec<u8>,
    file_bytes: u64,
}

struct Block {
    number: u64,
    bytes: usize,
}

/// Storage for the parts of all unfinished lines of a stream: memory up to a bound, then a file without a name, which
/// consists of blocks, each with at most [`BLOCK_BYTES`] of one line. Blocks of lines that have been shown are reused.
pub struct Room {
    memory_bytes: usize,
    memory_max: usize,
    /// File of blocks, created at its first use in the folder for temporary files, without a name, so that the file
    /// vanishes when its descriptor is closed.
    file: Option<File>,
    blocks: u64,
    free: Vec<u64>,
}

impl Held {
    pub fn len(&self) -> u64 {
        self.file_bytes + self.memory.len() as u64
    }
}

impl Room {
    pub fn new() -> Room {
        Room { memory_bytes: 0, memory_max: HELD_LINES_MEMORY_MAX, file: None, blocks: 0, free: Vec::new() }
    }

    /// Adds a part to a line.
    ///
    /// # Errors
    /// There is no room for more parts: this part has been added, but the line must be shown now.
    pub fn add(&mut self, held: &mut Held, part: &[u8]) -> io::Result<()> {
        held.memory.extend_from_slice(part);
        self.memory_bytes += part.len();
        if self.memory_bytes > self.memory_max { self.spill(held) } else { Ok(()) }
    }

    /// Moves a line's parts from memory to the file. After an error the parts that could not be moved are still in
    /// memory.
    fn spill(&mut self, held: &mut Held) -> io::Result<()> {
        let mut moved = 0;
        let result = held.memory.chunks(BLOCK_BYTES).try_for_each(|part| {
            let number = self.store(part)?;
            held.blocks.push(Block { number, bytes: part.len() });
            moved += part.len();
            Ok(())
        });
        held.memory = held.memory.split_off(moved);
        held.file_bytes += moved as u64;
        self.memory_bytes -= moved;
        result
    }

    /// Writes a block; returns its number.
    fn store(&mut self, part: &[u8]) -> io::Result<u64> {
        let number = self.free.last().copied().unwrap_or(self.blocks);
        let at = number * BLOCK_BYTES as u64;
        if at >= HELD_LINES_FILE_MAX {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(tempfile::tempfile()?),
        };
        file.write_all_at(part, at)?;
        if self.free.pop().is_none() {
            self.blocks += 1;
        }
        Ok(number)
    }

    /// Passes a line's parts to `write` in order, and frees their storage.
    pub fn pass_on<E: From<io::Error>>(
        &mut self,
        held: Held,
        mut write: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        self.memory_bytes -= held.memory.len();
        self.free.extend(held.blocks.iter().map(|block| block.number));
        let mut buffer = Vec::new();
        for block in &held.blocks {
            let Some(file) = &self.file else { break };
            buffer.resize(block.bytes, 0);
            file.read_exact_at(&mut buffer, block.number * BLOCK_BYTES as u64)?;
            write(&buffer)?;
        }
        if held.memory.is_empty() { Ok(()) } else { write(&held.memory) }
    }
}

/// Puts a text at the beginning of each line of output that agents cannot add: a label made from a pattern instead of
/// `[rank]`, or the time.
pub struct Decoration {
    label: Option<Pattern>,
    timestamp: bool,
    places: Arc<Places>,
}

impl Decoration {
    /// The decoration of a run's output; `None`: lines are shown as they arrive.
    pub fn new(output: &Output, places: &Arc<Places>) -> Option<Decoration> {
        let is_needed = output.timestamp || output.label.is_some();
        is_needed.then(|| Decoration {
            label: output.label.clone(),
            timestamp: output.timestamp,
            places: Arc::clone(places),
        })
    }

    /// The beginning of a line of this rank. `labelled`: whether lines have labels.
    pub fn line_start(&self, origin: Origin, labelled: bool) -> String {
        let mut text = self.time();
        match &self.label {
            // The nodes of other jobs' ranks are not known here, so the pattern cannot be filled in for them.
            Some(pattern) if origin.job.is_none() => text += &pattern.of(origin.rank, &self.places),
            _ if labelled => text += &format!("[{origin}] "),
            Some(_) | None => {}
        }
        text
    }

    /// Decorates whole lines, to which agents have added their labels.
    pub fn lines(&self, lines: &[u8], labelled: bool) -> Vec<u8> {
        let mut text = Vec::with_capacity(lines.len());
        for line in lines.split_inclusive(|byte| *byte == b'\n') {
            match label_of(line).filter(|_| labelled) {
                Some((rank, rest)) => {
                    text.extend_from_slice(self.line_start(Origin { job: None, rank }, true).as_bytes());
                    text.extend_from_slice(rest);
                }
                None => {
                    text.extend_from_slice(self.time().as_bytes());
                    text.extend_from_slice(line);
                }
            }
        }
        text
    }

    fn time(&self) -> String {
        let since = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        if self.timestamp { stamp(since()) } else { String::new() }
    }
}

/// The rank and the text of a line `[12] text`.
fn label_of(line: &[u8]) -> Option<(Rank, &[u8])> {
    let rest = line.strip_prefix(b"[")?;
    let end = rest.iter().position(|&byte| byte == b']')?;
    let rank = std::str::from_utf8(&rest[..end]).ok()?.parse().ok()?;
    Some((Rank(rank), rest[end + 1..].strip_prefix(b" ")?))
}

/// The time since 1970 as text, in UTC: `2026-11-26T09:38:57.123Z `.
fn stamp(since: Duration) -> String {
    let (days, seconds) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
    let (year, month, day) = date(days);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{year}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z ", since.subsec_millis())
}

/// The Gregorian date of a day, counted from 1970-01-01. Years begin in March here, so that a leap day is the last day
/// of a year.
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;
    use wireup_wire::ids::Rank;

    /// Lines of at most 8 bytes, and the text that was shown.
    struct Shown {
        lines: Lines,
        text: String,
    }

    impl Shown {
        fn new(style: LineStyle) -> Shown {
            Shown { lines: Lines { line_max: 8, ..Lines::new(style, None) }, text: String::new() }
        }

        fn part(&mut self, rank: u32, next: Next, part: &str) -> &mut Shown {
            let mut write = |_: Origin, bytes: &[u8]| {
                self.text += std::str::from_utf8(bytes).unwrap();
                io::Result::Ok(())
            };
            self.lines.on_part((Origin { job: None, rank: Rank(rank) }, next), part.as_bytes(), &mut write).unwrap();
            self
        }

        fn whole(&mut self, lines: &str) -> &mut Shown {
            self.text += self.lines.break_before().map_or("", |(_, end)| end);
            self.text += lines;
            self
        }

        fn finish(&mut self) -> &str {
            let mut write = |_: Origin, bytes: &[u8]| {
                self.text += std::str::from_utf8(bytes).unwrap();
                io::Result::Ok(())
            };
            self.lines.finish(&mut write).unwrap();
            &self.text
        }
    }

    const PLAIN: LineStyle = LineStyle { label: false, alone: false };
    const LABEL: LineStyle = LineStyle { label: true, alone: false };

    #[test]
    fn parts_of_different_ranks_become_whole_lines() {
        for (style, expected) in [(PLAIN, "other\ncdCD\nabAB\n"), (LABEL, "other\n[1] cdCD\n[0] abAB\n")] {
            let mut shown = Shown::new(style);
            shown.part(0, Next::Rest, "ab").part(1, Next::Rest, "cd").whole("other\n");
            shown.part(1, Next::Rest, "CD\n").part(0, Next::Rest, "AB\n");
            assert_eq!(shown.finish(), expected);
        }
    }

    #[test]
    fn a_line_that_is_too_long_is_marked_where_other_output_cuts_it() {
        let mut shown = Shown::new(LABEL);
        shown.part(0, Next::Rest, "12345678").part(0, Next::Rest, "9\n");
        shown.part(0, Next::Rest, "abcdefgh").part(0, Next::Rest, "ij").whole("[1] x\n").part(0, Next::Rest, "k\n");
        let expected = "[0] 123456789\n[0] abcdefgh[wireup: line cut]\n[1] x\n[0] [wireup: rest of a line] ijk\n";
        assert_eq!(shown.finish(), expected);
    }

    #[test]
    fn unfinished_lines_of_different_ranks_do_not_share_a_line() {
        let mut shown = Shown::new(PLAIN);
        shown.part(0, Next::Nothing, "no end").part(1, Next::Nothing, "none");
        assert_eq!(shown.finish(), "no end\nnone", "the bytes of a single writer stay as they are");
        assert!(shown.lines.is_open() && !shown.whole("x\n").lines.is_open());
        let mut shown = Shown::new(PLAIN);
        shown.part(0, Next::Answer, "name? ").whole("x\n").part(0, Next::Rest, "hello\n");
        assert_eq!(shown.finish(), "name? \nx\nhello\n");
        let mut shown = Shown::new(PLAIN);
        shown.part(0, Next::Answer, "name? ").part(0, Next::Rest, "hello\n");
        assert_eq!(shown.finish(), "name? hello\n");
    }

    #[test]
    fn a_labelled_line_ends_with_its_stream() {
        let mut shown = Shown::new(LABEL);
        shown.part(0, Next::Rest, "ab").part(0, Next::Nothing, "").part(1, Next::Answer, "x").part(
            1,
            Next::Nothing,
            "",
        );
        assert_eq!(shown.finish(), "[0] ab\n[1] x\n");
    }

    #[test]
    fn one_rank_alone_is_shown_at_once_and_unchanged() {
        let mut shown = Shown::new(LineStyle { label: false, alone: true });
        shown.part(0, Next::Rest, "1234567890").part(0, Next::Rest, "12");
        assert_eq!(shown.text, "123456789012");
        assert_eq!(shown.part(0, Next::Nothing, "").finish(), "123456789012");
    }

    #[test]
    fn what_a_lost_node_has_sent_of_a_line_is_shown() {
        let mut shown = Shown::new(PLAIN);
        shown.part(1, Next::Rest, "b").part(0, Next::Rest, "a");
        assert_eq!(shown.finish(), "a[wireup: line cut]\nb");
    }

    fn text_of(room: &mut Room, held: Held) -> Vec<u8> {
        let mut text = Vec::new();
        let taken: io::Result<()> = room.pass_on(held, |part| {
            text.extend_from_slice(part);
            Ok(())
        });
        taken.unwrap();
        text
    }

    #[test]
    fn parts_of_many_lines_come_back_from_memory_and_from_the_file() {
        let mut room = Room { memory_max: 1000, ..Room::new() };
        for round in 0..3u8 {
            let mut lines: Vec<Held> = (0..10).map(|_| Held::default()).collect();
            let mut texts = vec![Vec::new(); lines.len()];
            for length in 1..300 {
                let (line, part) = (length % lines.len(), vec![length as u8 ^ round; length]);
                room.add(&mut lines[line], &part).unwrap();
                texts[line].extend_from_slice(&part);
                assert!(room.memory_bytes <= 1000, "{} bytes in memory", room.memory_bytes);
            }
            for (line, text) in lines.into_iter().zip(texts) {
                assert_eq!(line.len(), text.len() as u64);
                assert!(text_of(&mut room, line) == text);
            }
            assert_eq!(room.memory_bytes, 0);
        }
        assert!(room.blocks > 0 && room.free.len() as u64 == room.blocks, "blocks are used again");
    }

    #[test]
    fn a_full_file_leaves_the_line_complete() {
        let mut room = Room { memory_max: 0, blocks: HELD_LINES_FILE_MAX / BLOCK_BYTES as u64, ..Room::new() };
        let mut held = Held::default();
        assert!(room.add(&mut held, b"no room").is_err());
        assert_eq!(text_of(&mut room, held), b"no room");
    }

    #[test]
    fn a_file_that_gets_full_within_a_line_leaves_it_complete() {
        let last = HELD_LINES_FILE_MAX / BLOCK_BYTES as u64 - 1;
        let mut room = Room { memory_max: 2 * BLOCK_BYTES, blocks: last, ..Room::new() };
        let mut held = Held::default();
        let text: Vec<u8> = (0..3 * BLOCK_BYTES).map(|at| (at / 1000) as u8).collect();
        assert!(room.add(&mut held, &text[..2 * BLOCK_BYTES]).is_ok());
        assert!(room.add(&mut held, &text[2 * BLOCK_BYTES..]).is_err());
        assert_eq!((held.len(), room.memory_bytes), (text.len() as u64, 2 * BLOCK_BYTES));
        assert!(text_of(&mut room, held) == text, "each part once");
        assert_eq!((room.memory_bytes, room.free.as_slice()), (0, [last].as_slice()));
    }

    #[test]
    fn times_are_written_in_utc() {
        assert_eq!(stamp(Duration::from_millis(0)), "1970-01-01T00:00:00.000Z ");
        assert_eq!(stamp(Duration::from_millis(951_827_696_789)), "2000-02-29T12:34:56.789Z ");
        assert_eq!(stamp(Duration::from_secs(1_798_675_200)), "2026-12-31T00:00:00.000Z ");
    }

    #[test]
    fn labels_of_agents_are_recognised() {
        assert_eq!(label_of(b"[12] text\n"), Some((Rank(12), &b"text\n"[..])));
        for other in [&b"text"[..], b"[x] y", b"[1]y", b"[1"] {
            assert_eq!(label_of(other), None);
        }
    }
}
