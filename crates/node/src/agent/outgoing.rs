//! What goes into one rank: its standard input, or replies on its PMI socket with the memory that they share.

use super::memory::Shared;
use bytes::{Buf, Bytes};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use wireup_os::socket;

/// Descriptors of one message: what our clients have room for in one read.
pub const SHARES_PER_SEND_MAX: usize = 32;

/// Bytes on their way into a rank.
#[derive(Default)]
pub struct Outgoing {
    pub fd: Option<OwnedFd>,
    queue: VecDeque<Piece>,
    /// Close when the queue is empty.
    pub closing: bool,
    /// The reactor tells when there is room.
    pub watched: bool,
    /// The other end is gone for good: bytes for it count as written.
    gone: bool,
}

/// Bytes, and memory whose descriptors go with the first of them.
struct Piece {
    bytes: Bytes,
    shares: Vec<Shared>,
}

/// What writing came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wrote {
    pub bytes: usize,
    pub state: WriteState,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WriteState {
    /// All is out.
    Idle,
    /// The other end must read first.
    Full,
    /// The user has too many descriptors under way; there will be room, but nobody tells when.
    Crowded,
    /// The other end is gone, or all is out and the end was asked for; what was queued counts as written.
    Closed,
}

impl Piece {
    /// Writes what fits. Nothing is left when the bytes are empty.
    fn write(&mut self, fd: &OwnedFd) -> Result<usize, Errno> {
        if self.shares.is_empty() {
            let written = rustix::io::write(fd, &self.bytes)?;
            self.bytes.advance(written);
            return Ok(written);
        }
        let count = self.shares.len().min(SHARES_PER_SEND_MAX);
        let fds: Vec<BorrowedFd<'_>> = self.shares[..count].iter().map(AsFd::as_fd).collect();
        // More descriptors than one message takes: a byte for each message but the last. They are there in time then,
        // since a reply is longer than that.
        let bytes = if count < self.shares.len() { &self.bytes[..1] } else { &self.bytes[..] };
        let sent = socket::send(fd, bytes, &fds);
        let written = sent.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        self.shares.drain(..count);
        self.bytes.advance(written);
        Ok(written)
    }
}

impl Outgoing {
    /// One whose other end is gone for good.
    pub fn vanished() -> Self {
        Outgoing { gone: true, ..Outgoing::default() }
    }

    pub fn push(&mut self, bytes: Bytes) {
        self.queue.push_back(Piece { bytes, shares: Vec::new() });
    }

    /// Writes `bytes` at once if nothing waits, and queues what does not fit; `true`: all is out.
    pub fn write_now(&mut self, bytes: Bytes, shares: Vec<Shared>) -> bool {
        let mut piece = Piece { bytes, shares };
        if self.queue.is_empty()
            && let Some(fd) = &self.fd
            && piece.write(fd).is_ok()
            && piece.bytes.is_empty()
        {
            return true;
        }
        // Full, or gone: the flush that follows finds out.
        self.queue.push_back(piece);
        false
    }

    /// Writes what fits. Before there is a descriptor everything waits; after it everything vanishes.
    pub fn flush(&mut self) -> Wrote {
        let mut bytes = 0;
        if self.gone {
            bytes = self.queue.drain(..).map(|piece| piece.bytes.len()).sum();
        }
        let Some(fd) = &self.fd else {
            return Wrote { bytes, state: WriteState::Idle };
        };
        while let Some(front) = self.queue.front_mut() {
            match front.write(fd) {
                Ok(written) => {
                    bytes += written;
                    if front.bytes.is_empty() {
                        self.queue.pop_front();
                    }
                }
                Err(Errno::AGAIN) => return Wrote { bytes, state: WriteState::Full },
                Err(Errno::TOOMANYREFS) => return Wrote { bytes, state: WriteState::Crowded },
                Err(Errno::INTR) => {}
                Err(_) => {
                    bytes += self.queue.drain(..).map(|piece| piece.bytes.len()).sum::<usize>();
                    return Wrote { bytes, state: WriteState::Closed };
                }
            }
        }
        Wrote { bytes, state: if self.closing { WriteState::Closed } else { WriteState::Idle } }
    }
}

#[cfg(test)]
mod tests;
