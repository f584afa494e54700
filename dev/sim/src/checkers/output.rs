//! Output: all lines that the ranks wrote reach the terminal, each line whole, once, in order.

use crate::spec::JobPlan;
use crate::workload::parse_line;
use std::collections::BTreeMap;
use wireup_proto::io::Stream;

/// The lines that have reached the terminal so far.
pub struct OutputCheck {
    /// The number of rank 0 among the ranks of all jobs, and the number of ranks.
    first: u32,
    size: u32,
    label: bool,
    /// Text of an unfinished line, by stream and, if output is split by rank, by rank.
    partial: BTreeMap<(u8, Option<u32>), Vec<u8>>,
    /// The number of the next expected line, by stream and rank.
    next: BTreeMap<(u8, u32), u32>,
    lossy: bool,
    pub bytes: u64,
}

impl OutputCheck {
    pub fn new(plan: &JobPlan, first: u32) -> Self {
        OutputCheck {
            first,
            size: plan.size(),
            label: plan.options.stdio.label && !plan.options.stdio.split_output,
            partial: BTreeMap::new(),
            next: BTreeMap::new(),
            lossy: false,
            bytes: 0,
        }
    }

    /// From now on output may be missing, since an agent or link that carried output is gone.
    pub fn expect_losses(&mut self) {
        self.lossy = true;
    }

    pub fn on_write(&mut self, stream: Stream, rank: Option<u32>, bytes: &[u8]) -> Result<(), String> {
        self.bytes += bytes.len() as u64;
        let mut text = self.partial.remove(&(stream as u8, rank)).unwrap_or_default();
        text.extend_from_slice(bytes);
        let end = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        for line in text[..end].split_inclusive(|byte| *byte == b'\n') {
            self.on_line(stream as u8, rank, &line[..line.len() - 1])?;
        }
        text.drain(..end);
        if !text.is_empty() {
            self.partial.insert((stream as u8, rank), text);
        }
        Ok(())
    }

    fn on_line(&mut self, stream: u8, rank: Option<u32>, line: &[u8]) -> Result<(), String> {
        let shown = || String::from_utf8_lossy(&line[..line.len().min(100)]).into_owned();
        let (label, text) = if self.label { split_label(line) } else { (None, line) };
        let parsed = parse_line(text).map(|(stream, id, number)| (stream, id.wrapping_sub(self.first), number));
        let Some((of_stream, of_rank, number)) = parsed else {
            // After the end of a line was lost with its node, another rank's line may follow in the same line.
            return if self.lossy { Ok(()) } else { Err(format!("broken line: {:?}", shown())) };
        };
        let named = rank.or(label).unwrap_or(of_rank);
        // The launcher's driver adds the labels of lines that come in parts, so such lines may lack labels here.
        let is_labelled = label.is_some() || !self.label || rank.is_some();
        if of_stream != stream || named != of_rank || of_rank >= self.size || !is_labelled {
            return Err(format!("line on stream {stream} for rank {rank:?} with label {label:?}: {:?}", shown()));
        }
        let next = self.next.entry((stream, of_rank)).or_default();
        if number != *next && !(self.lossy && number > *next) {
            return Err(format!("line {next} of rank {of_rank} expected: {:?}", shown()));
        }
        *next = number + 1;
        Ok(())
    }

    /// Checks that all `lines` of a rank arrived.
    pub fn check_end(&self, stream: u8, rank: u32, lines: u32) -> Result<(), String> {
        let seen = self.next.get(&(stream, rank)).copied().unwrap_or_default();
        if seen == lines || (self.lossy && seen < lines) {
            return Ok(());
        }
        Err(format!("{seen} of {lines} lines of rank {rank} arrived on stream {stream}"))
    }
}

/// Splits a line `[rank] text` into the rank and the text.
fn split_label(line: &[u8]) -> (Option<u32>, &[u8]) {
    let Some(end) = line.iter().position(|byte| *byte == b']').filter(|_| line[0] == b'[') else { return (None, line) };
    let rank = std::str::from_utf8(&line[1..end]).ok().and_then(|rank| rank.parse().ok());
    (rank, line.get(end + 2..).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{Script, line};

    /// The check of a job with two ranks, the first of which has number 10 among the ranks of all jobs.
    fn check(label: bool) -> OutputCheck {
        let mut plan = JobPlan::even([0], 2, Script::plain(&[]));
        plan.options.stdio.label = label;
        OutputCheck::new(&plan, 10)
    }

    #[test]
    fn lines_count_up_per_rank() {
        let mut check = check(false);
        let mut text = Vec::new();
        for (rank, number) in [(0, 0), (1, 0), (0, 1)] {
            line(1, 10 + rank, number, 20, &mut text);
        }
        for piece in text.chunks(7) {
            assert_eq!(check.on_write(Stream::Out, None, piece), Ok(()));
        }
        assert_eq!(check.check_end(1, 0, 2), Ok(()));
        assert!(check.check_end(1, 1, 2).is_err(), "one line is missing");
        assert!(check.on_write(Stream::Out, None, &text).is_err(), "a duplicate");
    }

    #[test]
    fn labels_name_the_writer() {
        assert_eq!(check(true).on_write(Stream::Err, None, b"[1] 2:11:0:..\n"), Ok(()));
        assert!(check(true).on_write(Stream::Err, None, b"[0] 2:11:0:..\n").is_err());
        assert!(check(true).on_write(Stream::Err, None, b"2:11:0:..\n").is_err());
        assert!(check(false).on_write(Stream::Out, None, b"1:11:0:.1:2\n").is_err(), "two lines in one");
        assert!(check(false).on_write(Stream::Out, None, b"1:12:0:..\n").is_err(), "another job's line");
    }
}
