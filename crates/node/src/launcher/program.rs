//! Code in this process that exchanges data with the ranks through their standard input and output.

use bytes::Bytes;
use wireup_proto::io::Stream;
use wireup_wire::ids::Rank;

/// Code that produces the ranks' standard input, the same for all ranks, and consumes their output.
pub trait Program {
    /// The next input, at most `bytes_max` bytes. After `Next::Waits`, `input` is called again when a rank has written
    /// something.
    fn input(&mut self, bytes_max: usize) -> Next;
    /// Handles what a rank has written to its standard output.
    fn output(&mut self, rank: Rank, bytes: &[u8]);
    /// Handles what a rank has written to its standard error. `false`: the program did not use the bytes, so they are
    /// written to the standard error of this process.
    fn errors(&mut self, _rank: Rank, _bytes: &[u8]) -> bool {
        false
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Next {
    Bytes(Bytes),
    /// There is no further input until a rank has written something.
    Waits,
    End,
}

/// A program, and the number of input bytes that the job can take.
pub struct Talking<'p> {
    program: &'p mut dyn Program,
    bytes_max: usize,
    waits: bool,
}

impl<'p> Talking<'p> {
    pub fn new(program: &'p mut dyn Program) -> Talking<'p> {
        Talking { program, bytes_max: 0, waits: false }
    }

    /// Sets the number of bytes that the job can take; 0: the job takes no bytes for now.
    pub fn want(&mut self, bytes_max: usize) {
        self.bytes_max = bytes_max;
    }

    /// Whether [`Talking::take`] can return input.
    pub fn is_ready(&self) -> bool {
        self.bytes_max > 0 && !self.waits
    }

    /// The next input of the job; empty: the input has ended.
    pub fn take(&mut self) -> Option<Bytes> {
        if !self.is_ready() {
            return None;
        }
        let next = self.program.input(self.bytes_max);
        match next {
            Next::Bytes(bytes) => {
                self.bytes_max = 0;
                Some(bytes)
            }
            Next::Waits => {
                self.waits = true;
                None
            }
            Next::End => {
                self.bytes_max = 0;
                Some(Bytes::new())
            }
        }
    }

    /// Passes on what a rank has written to one of its streams. `false`: the program did not use the bytes.
    pub fn take_output(&mut self, stream: Stream, rank: Rank, bytes: &[u8]) -> bool {
        if stream == Stream::Err {
            return self.program.errors(rank, bytes);
        }
        self.waits = false;
        self.program.output(rank, bytes);
        true
    }
}
