//! What a driver tells a launcher, and what a launcher asks of its driver.

use crate::io::{LinkId, Stream};
use bytes::Bytes;
use wireup_wire::frame::Frame;
use wireup_wire::peer::{Ended, Failure, Note, StallReport, TracePart};

/// Something that happened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LauncherInput {
    LinkUp {
        link: LinkId,
    },
    LinkBytes {
        link: LinkId,
        bytes: Bytes,
    },
    LinkDown {
        link: LinkId,
        problem: String,
    },
    /// A signal for the launcher's process.
    Signal {
        signal: i32,
    },
    /// The terminal has another size.
    Resize {
        rows: u16,
        columns: u16,
    },
    /// Bytes of standard input; empty: its end.
    Stdin {
        bytes: Bytes,
    },
    /// `bytes` of a stream reached the terminal, pipe or file.
    Written {
        stream: Stream,
        bytes: u32,
    },
    /// Writing failed for good; what follows is dropped.
    WriteFailed {
        problem: String,
    },
    Tick,
}

/// Something to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LauncherOutput {
    Send {
        link: LinkId,
        frame: Frame,
    },
    /// Write to standard output or error (or the files of `--output-dir`, by `rank`).
    Write {
        stream: Stream,
        rank: Option<u32>,
        bytes: Bytes,
    },
    /// Read standard input, at most this many bytes before being asked again; 0: do not read.
    ReadStdin {
        bytes_max: u32,
    },
    /// Something for the person at the terminal.
    Notice(Notice),
    /// Stop this process as a terminal's `^Z` would (after the ranks were told).
    Suspend,
    /// All is over and written: leave with this exit code.
    Exit {
        code: u8,
    },
}

/// What a person is told, as data; the words are the command line's.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Notice {
    Started { ranks: u32 },
    Failed(Failure),
    Stall(StallReport),
    Note(Note),
    Interrupt { signal: i32, again: bool },
    Trace(Box<TracePart>),
    Ended(Ended),
}
