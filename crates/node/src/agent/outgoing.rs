//! Writes to one rank, without blocking: to its standard input, to its PMI socket (replies with descriptors of shared
//! memory), or to a connection that the agent carries.

use super::memory::Shared;
use super::token::Token;
use bytes::{Buf, Bytes};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use wireup_os::reactor::{Interest, Reactor};
use wireup_os::shm::RingWriter;
use wireup_os::socket;

/// Most descriptors in one message: as many as our clients accept in one read.
pub const SHARES_PER_SEND_MAX: usize = 32;
/// Length of the shared memory through which a rank gets its standard input (bytes): four pieces of a set of staged
/// files.
const RING_LEN: usize = 1 << 20;

/// Bytes to be written to a rank.
#[derive(Default)]
pub struct Outgoing {
    pub fd: Option<OwnedFd>,
    queue: VecDeque<Piece>,
    /// Shared memory that carries the bytes; `fd` is then the socket that carries their counts. `None`: `fd` carries
    /// the bytes themselves.
    ring: Option<Box<RingWriter>>,
    /// Whether the descriptor is closed when the queue is empty.
    pub closing: bool,
    /// Events for which the reactor watches `fd`; `None`: it reports no event, not even a hangup.
    pub watched: Option<Interest>,
    /// Whether the reading end is permanently closed: bytes for it count as written.
    gone: bool,
}

/// Bytes, and memory whose descriptors are sent with the first of them.
struct Piece {
    bytes: Bytes,
    shares: Vec<Shared>,
}

/// The result of writing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wrote {
    pub bytes: usize,
    pub state: WriteState,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WriteState {
    /// Everything has been written.
    Idle,
    /// No more can be written before the reading end has read something.
    Full,
    /// The user has too many descriptors in flight; nothing signals when there is room again.
    FdLimit,
    /// The reading end is closed, or everything is written and closing was requested; queued bytes count as written.
    Closed,
}

impl Piece {
    /// Writes what fits, and removes it from `bytes`: when `bytes` is empty, the piece is done.
    fn write(&mut self, fd: &OwnedFd) -> Result<usize, Errno> {
        if self.shares.is_empty() {
            let written = rustix::io::write(fd, &self.bytes)?;
            self.bytes.advance(written);
            return Ok(written);
        }
        let count = self.shares.len().min(SHARES_PER_SEND_MAX);
        let fds: Vec<BorrowedFd<'_>> = self.shares[..count].iter().map(AsFd::as_fd).collect();
        // If there are more descriptors than one message takes, each message but the last carries one byte. A reply is
        // long enough for that, so the descriptors arrive in time.
        let bytes = if count < self.shares.len() { &self.bytes[..1] } else { &self.bytes[..] };
        let written = socket::send(fd, bytes, &fds).map_err(errno)?;
        self.shares.drain(..count);
        self.bytes.advance(written);
        Ok(written)
    }

    fn write_to(&mut self, ring: &mut RingWriter, fd: &OwnedFd) -> Result<usize, Errno> {
        let written = ring.write(fd, &self.bytes).map_err(errno)?;
        self.bytes.advance(written);
        Ok(written)
    }
}

fn errno(error: io::Error) -> Errno {
    match error.kind() {
        io::ErrorKind::WouldBlock => Errno::AGAIN,
        _ => Errno::from_io_error(&error).unwrap_or(Errno::IO),
    }
}

impl Outgoing {
    pub fn to(fd: OwnedFd, interest: Interest, token: Token, reactor: &Reactor) -> io::Result<Outgoing> {
        let mut out = Outgoing::default();
        out.adopt(fd, interest, token, reactor)?;
        Ok(out)
    }

    /// Takes over the descriptor, which the reactor watches from now on.
    pub fn adopt(&mut self, fd: OwnedFd, interest: Interest, token: Token, reactor: &Reactor) -> io::Result<()> {
        reactor.add(&fd, token.pack(), interest)?;
        (self.fd, self.watched) = (Some(fd), Some(interest));
        Ok(())
    }

    /// Writes through memory that the rank maps, or over the socket if no such memory can be made.
    pub fn by_memory() -> Self {
        Outgoing { ring: RingWriter::new(RING_LEN).ok().map(Box::new), ..Outgoing::default() }
    }

    /// The event of `fd` that reports room for more bytes.
    pub fn room(&self) -> Interest {
        if self.ring.is_some() { Interest::READABLE } else { Interest::WRITABLE }
    }

    /// Makes the reactor watch the descriptor for these events only.
    pub fn watch(&mut self, wanted: Interest, token: Token, reactor: &Reactor) {
        if let Some(fd) = &self.fd {
            reactor.watch(fd, token.pack(), &mut self.watched, wanted);
        }
    }

    pub fn close(&mut self, reactor: &Reactor) {
        if let Some(fd) = self.fd.take()
            && self.watched.take().is_some()
        {
            let _ = reactor.remove(fd);
        }
    }

    /// Closes the descriptor because the reading end is permanently closed.
    pub fn vanish(&mut self, reactor: &Reactor) {
        self.close(reactor);
        *self = Outgoing { gone: true, ..Outgoing::default() };
    }

    /// Whether nothing is queued.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub fn push(&mut self, bytes: Bytes) {
        self.push_with(bytes, Vec::new());
    }

    /// Queues bytes, and memory whose descriptors are sent with the first of them.
    pub fn push_with(&mut self, bytes: Bytes, shares: Vec<Shared>) {
        self.queue.push_back(Piece { bytes, shares });
    }

    /// Writes what fits. Before there is a descriptor everything is queued; after `gone` everything is discarded.
    pub fn flush(&mut self) -> Wrote {
        let mut bytes = 0;
        if self.gone {
            bytes = self.queue.drain(..).map(|piece| piece.bytes.len()).sum();
        }
        let Some(fd) = &self.fd else {
            return Wrote { bytes, state: WriteState::Idle };
        };
        while let Some(front) = self.queue.front_mut() {
            let wrote = match &mut self.ring {
                Some(ring) => front.write_to(ring, fd),
                None => front.write(fd),
            };
            match wrote {
                Ok(written) => {
                    bytes += written;
                    if front.bytes.is_empty() {
                        self.queue.pop_front();
                    }
                }
                Err(Errno::AGAIN) => return Wrote { bytes, state: WriteState::Full },
                Err(Errno::TOOMANYREFS) => return Wrote { bytes, state: WriteState::FdLimit },
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
