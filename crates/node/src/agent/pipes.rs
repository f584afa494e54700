//! Reads the output of one rank.

use bytes::Bytes;
use std::os::fd::OwnedFd;

/// Most bytes per read of a rank's output; a rank that copies a large file fills each read.
pub const READ_BYTES: usize = 64 << 10;
/// Maximum number of reads of one stream in one turn of the event loop, so that a rank with much output does not delay
/// other ranks.
const READS_PER_TURN: usize = 4;

/// A rank's standard output or error.
pub struct OutputPipe {
    pub fd: OwnedFd,
    /// Whether the stream is a pseudo-terminal, which ends with `EIO` and does not report reliably how many bytes it
    /// holds.
    pub terminal: bool,
    /// Once the rank has ended: the number of bytes that it left in the pipe. Output of a grandchild that still holds
    /// the pipe is not read.
    pub left: Option<usize>,
    /// Whether the pipe is removed from the reactor until the job's stream is read again.
    pub parked: bool,
}

/// The result of reading a pipe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pumped {
    /// As much has been read as one turn may read; the pipe may hold more.
    More,
    /// The pipe is empty for now; the reactor reports more.
    Later,
    /// The stream has ended.
    Closed,
}

impl OutputPipe {
    pub fn new(fd: OwnedFd, terminal: bool) -> Self {
        OutputPipe { fd, terminal, left: None, parked: false }
    }

    /// Notes that the rank has ended: from now on only the bytes that it left in the pipe are read.
    pub fn on_exit(&mut self) {
        if !self.terminal {
            self.left = Some(waiting_bytes(&self.fd));
        }
    }

    /// Fills the buffer. A read from a terminal returns at most 4 KiB, so terminals are read until the buffer is full
    /// or nothing is left.
    fn fill(&self, buffer: &mut [u8]) -> rustix::io::Result<usize> {
        let mut filled = rustix::io::read(&self.fd, &mut *buffer)?;
        while self.terminal && filled > 0 && filled < buffer.len() {
            match rustix::io::read(&self.fd, &mut buffer[filled..]) {
                Ok(read) if read > 0 => filled += read,
                // An end or an error here is not lost: the next read gets it again.
                _ => break,
            }
        }
        Ok(filled)
    }

    /// Reads at most [`READS_PER_TURN`] times.
    pub fn pump(&mut self, buffer: &mut [u8], mut give: impl FnMut(Bytes)) -> Pumped {
        for _ in 0..READS_PER_TURN {
            let length = self.left.unwrap_or(READ_BYTES).min(READ_BYTES);
            if length == 0 {
                return Pumped::Closed;
            }
            match self.fill(&mut buffer[..length]) {
                Ok(0) => return Pumped::Closed,
                Ok(read) => {
                    give(Bytes::copy_from_slice(&buffer[..read]));
                    if let Some(left) = &mut self.left {
                        *left -= read;
                    } else if read < length {
                        return Pumped::Later;
                    }
                }
                Err(rustix::io::Errno::AGAIN) if self.left.is_none() => return Pumped::Later,
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return Pumped::Closed,
            }
        }
        if self.left == Some(0) { Pumped::Closed } else { Pumped::More }
    }
}

/// The number of bytes waiting in a socket or pipe.
pub fn waiting_bytes(fd: &OwnedFd) -> usize {
    rustix::io::ioctl_fionread(fd).map_or(0, |bytes| bytes as usize)
}
