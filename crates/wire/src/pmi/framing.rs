//! Splits a client's byte stream into lines (PMI-1) or length-prefixed bodies (PMI-2).
//!
//! Holds the bytes that were pushed but not yet returned. A message longer than its limit is refused as soon as this is
//! detected, so a stream without line ends costs at most the limit plus one chunk.

use super::error::{Excerpt, PmiError};
use super::value::PMI2_HEADER_LEN;
use crate::limits::{PMI1_LINE_MAX, PMI2_BODY_MAX};
use alloc::vec::Vec;
use core::ops::Range;
use memchr::memchr;

/// An idle link keeps at most this buffer capacity: an agent may have thousands of links.
const IDLE_CAPACITY_BYTES: usize = 2048;

#[derive(Clone, Debug, Default)]
pub(super) struct Framer {
    buffer: Vec<u8>,
    /// Index of the first byte not yet returned.
    start: usize,
    /// Bytes after `start` known to contain no line end.
    scanned: usize,
    counted: bool,
}

impl Framer {
    /// Expects length prefixes instead of line ends from the next message on.
    pub(super) fn switch_to_counted(&mut self) {
        self.counted = true;
        self.scanned = 0;
    }

    pub(super) fn is_counted(&self) -> bool {
        self.counted
    }

    /// Adds bytes; all messages returned before become invalid.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Result<(), PmiError> {
        let limit = if self.counted { PMI2_BODY_MAX + PMI2_HEADER_LEN } else { PMI1_LINE_MAX };
        let held = self.buffer.len() - self.start;
        if held > limit {
            return Err(self.too_long());
        }
        self.compact(bytes.len());
        self.buffer.extend_from_slice(bytes);
        Ok(())
    }

    fn compact(&mut self, room: usize) {
        if self.start == 0 {
            return;
        }
        self.buffer.drain(..self.start);
        self.start = 0;
        if self.buffer.capacity() > IDLE_CAPACITY_BYTES && self.buffer.len() + room <= IDLE_CAPACITY_BYTES {
            self.buffer.shrink_to(IDLE_CAPACITY_BYTES);
        }
    }

    /// The range of the next message, without line end or length prefix; `None`: more bytes are needed.
    pub(super) fn next(&mut self) -> Result<Option<Range<usize>>, PmiError> {
        if self.counted { self.next_body() } else { self.next_line() }
    }

    /// The bytes of a message that [`Framer::next`] found.
    pub(super) fn message(&self, range: Range<usize>) -> &[u8] {
        &self.buffer[range]
    }

    /// The number of bytes not yet returned.
    pub(super) fn held(&self) -> usize {
        self.buffer.len() - self.start
    }

    fn next_line(&mut self) -> Result<Option<Range<usize>>, PmiError> {
        let from = self.start + self.scanned;
        let Some(found) = memchr(b'\n', &self.buffer[from..]) else {
            self.scanned = self.held();
            return if self.scanned > PMI1_LINE_MAX { Err(self.too_long()) } else { Ok(None) };
        };
        let range = self.start..from + found;
        if range.len() > PMI1_LINE_MAX {
            return Err(self.too_long());
        }
        self.start = range.end + 1;
        self.scanned = 0;
        Ok(Some(range))
    }

    fn next_body(&mut self) -> Result<Option<Range<usize>>, PmiError> {
        let Some((header, _)) = self.buffer[self.start..].split_first_chunk::<PMI2_HEADER_LEN>() else {
            return Ok(None);
        };
        let length = body_length(header)?;
        if length as usize > PMI2_BODY_MAX {
            return Err(PmiError::BodyTooLong { length, limit: PMI2_BODY_MAX });
        }
        let body = self.start + PMI2_HEADER_LEN..self.start + PMI2_HEADER_LEN + length as usize;
        if self.buffer.len() < body.end {
            return Ok(None);
        }
        self.start = body.end;
        Ok(Some(body))
    }

    fn too_long(&self) -> PmiError {
        PmiError::LineTooLong { limit: PMI1_LINE_MAX, start: Excerpt::of(&self.buffer[self.start..]) }
    }
}

/// Parses the length prefix of a PMI-2 body: digits preceded (MPICH) or followed (libpmi2) by blanks.
fn body_length(header: &[u8; PMI2_HEADER_LEN]) -> Result<u32, PmiError> {
    let digits = header.trim_ascii();
    let number =
        digits.iter().try_fold(0u32, |sum, digit| digit.is_ascii_digit().then(|| sum * 10 + u32::from(digit - b'0')));
    number.filter(|_| !digits.is_empty()).ok_or(PmiError::BadLength { header: Excerpt::of(header) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;

    #[test]
    fn lengths_may_be_left_or_right_justified() {
        for header in [b"    17", b"17    ", b"000017", b"  17  "] {
            assert_eq!(body_length(header), Ok(17), "{header:?}");
        }
        for header in [b"      ", b"-00017", b"1 7   ", b"0x1100", b"cmd=in"] {
            assert!(body_length(header).is_err(), "{header:?}");
        }
    }

    #[test]
    fn an_endless_line_is_refused_at_the_limit() {
        let mut framer = Framer::default();
        let mut pushed = 0;
        let error = loop {
            if let Err(error) = framer.push(&vec![b'x'; 4096]).and_then(|()| framer.next()) {
                break error;
            }
            pushed += 4096;
            assert!(pushed <= PMI1_LINE_MAX, "held {pushed} bytes of one line");
        };
        assert!(matches!(error, PmiError::LineTooLong { .. }));
    }

    #[test]
    fn an_idle_framer_releases_its_memory() {
        let mut framer = Framer::default();
        let mut line = vec![b'x'; 60_000];
        line.push(b'\n');
        framer.push(&line).unwrap();
        assert!(framer.next().unwrap().is_some());
        framer.push(b"cmd=finalize\n").unwrap();
        assert!(framer.buffer.capacity() <= IDLE_CAPACITY_BYTES, "{}", framer.buffer.capacity());
    }
}
