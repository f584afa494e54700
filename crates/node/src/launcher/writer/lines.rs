//! Puts together lines that agents have sent in parts, and keeps lines of different ranks apart.
//!
//! A line is shown when it is complete. An incomplete line is shown if the line is a prompt, if its stream has ended,
//! if the line is longer than [`LINE_BYTES_MAX`], or if there is no room for the line. If another rank writes next,
//! that rank's output begins on a new line. If the new line cuts an unfinished line, both sides of the cut are marked.

use super::decoration::Decoration;
use super::held::{Held, Room};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use wireup_proto::{Next, Origin};
use wireup_wire::limits::LINE_BYTES_MAX;

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
    pub fn new(style: LineStyle) -> Lines {
        let (held, cut) = Default::default();
        Lines { style, held, room: Room::new(), open: None, cut, line_max: LINE_BYTES_MAX, decoration: None }
    }

    /// Adds a decoration, a text before each line.
    pub fn decorated(self, decoration: Option<Arc<Decoration>>) -> Lines {
        Lines { decoration, ..self }
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
            Shown { lines: Lines { line_max: 8, ..Lines::new(style) }, text: String::new() }
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
}
