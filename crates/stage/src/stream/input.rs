//! The source of a stream, whose bytes are read in place.

use super::{BODY_LEN_MAX, HEAD_LEN};
use std::io::{self, Read};
use std::ops::Range;

/// Room for a few pieces, so that bytes are seldom moved to the beginning of the buffer.
const BUFFER_LEN: usize = 4 * (HEAD_LEN + BODY_LEN_MAX);
const READ_LEN_MIN: usize = 128 << 10;

pub trait Input {
    /// The bytes that have arrived and were not consumed.
    fn bytes(&self) -> &[u8];

    /// Marks this many of these bytes as consumed.
    fn consume(&mut self, count: usize);

    /// Waits for more bytes. `false`: the stream has ended.
    ///
    /// # Errors
    /// The stream cannot be read.
    fn wait(&mut self) -> io::Result<bool>;
}

/// An input that reads into a buffer of its own.
pub struct Buffered<R> {
    from: R,
    buffer: Vec<u8>,
    /// The part of the buffer that has been filled and not used.
    filled: Range<usize>,
}

impl<R: Read> Buffered<R> {
    pub fn new(from: R) -> Buffered<R> {
        Buffered { from, buffer: vec![0; BUFFER_LEN], filled: 0..0 }
    }

    #[cfg(test)]
    pub fn get_mut(&mut self) -> &mut R {
        &mut self.from
    }
}

impl<R: Read> Input for Buffered<R> {
    fn bytes(&self) -> &[u8] {
        &self.buffer[self.filled.clone()]
    }

    fn consume(&mut self, count: usize) {
        self.filled.start += count;
    }

    fn wait(&mut self) -> io::Result<bool> {
        if self.filled.is_empty() {
            self.filled = 0..0;
        } else if self.buffer.len() - self.filled.end < READ_LEN_MIN {
            self.buffer.copy_within(self.filled.clone(), 0);
            self.filled = 0..self.filled.len();
        }
        loop {
            match self.from.read(&mut self.buffer[self.filled.end..]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => {
                    let count = read?;
                    self.filled.end += count;
                    return Ok(count > 0);
                }
            }
        }
    }
}
