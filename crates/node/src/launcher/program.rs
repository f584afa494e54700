//! Code in this process that takes the place of the ranks' standard input and output.

use bytes::Bytes;
use wireup_proto::io::Stream;
use wireup_wire::ids::Rank;

/// The process's own code instead of the ranks' standard input and output. All ranks get the same input.
pub trait Program {
    /// The next input, at most `bytes_max` bytes. After `Next::Waits` it is asked for again when a rank has written
    /// something.
    fn input(&mut self, bytes_max: usize) -> Next;
    /// What a rank has written to its standard output.
    fn output(&mut self, rank: Rank, bytes: &[u8]);
    /// What a rank has written to its standard error. Returns whether the program takes the bytes; what it does not
    /// take is written to the standard error of this process.
    fn errors(&mut self, _rank: Rank, _bytes: &[u8]) -> bool {
        false
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Next {
    Bytes(Bytes),
    /// There is no input before ranks have written something.
    Waits,
    End,
}

/// A program, and how much input the job can take.
pub struct Talking<'p> {
    program: &'p mut dyn Program,
    bytes_max: usize,
    waits: bool,
}

impl<'p> Talking<'p> {
    pub fn new(program: &'p mut dyn Program) -> Talking<'p> {
        Talking { program, bytes_max: 0, waits: false }
    }

    /// The job can take this many bytes; 0: none for now.
    pub fn want(&mut self, bytes_max: usize) {
        self.bytes_max = bytes_max;
    }

    /// Whether [`Talking::take`] has something.
    pub fn is_ready(&self) -> bool {
        self.bytes_max > 0 && !self.waits
    }

    /// The next input; empty: the end.
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

    /// Passes on what a rank has written to one of its streams. Returns whether the program takes the bytes.
    pub fn take_output(&mut self, stream: Stream, rank: Rank, bytes: &[u8]) -> bool {
        if stream == Stream::Err {
            return self.program.errors(rank, bytes);
        }
        self.waits = false;
        self.program.output(rank, bytes);
        true
    }
}
