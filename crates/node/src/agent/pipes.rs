//! The pipes and sockets of one rank, seen from its agent.

use bytes::{Buf, Bytes};
use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;

/// One read of a rank's output; `cat` of a large file fills it.
pub const READ_BYTES: usize = 64 << 10;
/// Reads of one stream in one turn, so that one loud rank does not silence the others.
const READS_PER_TURN: usize = 4;

/// A rank's standard output or error.
pub struct OutputPipe {
    pub fd: OwnedFd,
    /// A pseudo-terminal ends by `EIO`, and says late how much it holds.
    pub terminal: bool,
    /// The rank is gone: what it left in the pipe, in bytes; a grandchild that holds the pipe is not read.
    pub left: Option<usize>,
    /// Taken out of the reactor until the job's stream is read again.
    pub parked: bool,
}

/// What reading a pipe came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pumped {
    /// Its share is read; there may be more.
    More,
    /// Nothing is left for now; the reactor will say when there is more.
    Later,
    /// The stream is over.
    Closed,
}

impl OutputPipe {
    pub fn new(fd: OwnedFd, terminal: bool) -> Self {
        OutputPipe { fd, terminal, left: None, parked: false }
    }

    /// The rank is gone: from now on only what it left is read.
    pub fn on_exit(&mut self) {
        if !self.terminal {
            self.left = Some(waiting_bytes(&self.fd));
        }
    }

    /// Reads a bounded share.
    pub fn pump(&mut self, buffer: &mut [u8], mut give: impl FnMut(Bytes)) -> Pumped {
        for _ in 0..READS_PER_TURN {
            let length = self.left.unwrap_or(READ_BYTES).min(READ_BYTES);
            if length == 0 {
                return Pumped::Closed;
            }
            match rustix::io::read(&self.fd, &mut buffer[..length]) {
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

/// Bytes on their way into a rank: its standard input, or replies on its PMI socket.
#[derive(Default)]
pub struct Outgoing {
    pub fd: Option<OwnedFd>,
    queue: VecDeque<Bytes>,
    /// Close when the queue is empty.
    pub closing: bool,
    /// The reactor tells when there is room.
    pub watched: bool,
    /// The other end is gone for good: bytes for it count as written.
    gone: bool,
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
    /// The other end is gone, or all is out and the end was asked for; what was queued counts as written.
    Closed,
}

impl Outgoing {
    /// One whose other end is gone for good.
    pub fn vanished() -> Self {
        Outgoing { gone: true, ..Outgoing::default() }
    }

    pub fn push(&mut self, bytes: Bytes) {
        self.queue.push_back(bytes);
    }

    /// Writes `bytes` at once if nothing waits, and queues what does not fit; `true`: all is out.
    pub fn write_now(&mut self, mut bytes: Bytes) -> bool {
        if self.queue.is_empty()
            && let Some(fd) = &self.fd
            && let Ok(written) = rustix::io::write(fd, &bytes)
        {
            bytes.advance(written);
            if bytes.is_empty() {
                return true;
            }
        }
        // Full, or gone: the flush that follows finds out.
        self.queue.push_back(bytes);
        false
    }

    /// Writes what fits. Before there is a descriptor everything waits; after it everything vanishes.
    pub fn flush(&mut self) -> Wrote {
        let mut bytes = 0;
        if self.gone {
            bytes = self.queue.drain(..).map(|piece| piece.len()).sum();
        }
        let Some(fd) = &self.fd else {
            return Wrote { bytes, state: WriteState::Idle };
        };
        while let Some(front) = self.queue.front_mut() {
            match rustix::io::write(fd, front) {
                Ok(written) => {
                    bytes += written;
                    front.advance(written);
                    if front.is_empty() {
                        self.queue.pop_front();
                    }
                }
                Err(rustix::io::Errno::AGAIN) => return Wrote { bytes, state: WriteState::Full },
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => {
                    bytes += self.queue.drain(..).map(|piece| piece.len()).sum::<usize>();
                    return Wrote { bytes, state: WriteState::Closed };
                }
            }
        }
        Wrote { bytes, state: if self.closing { WriteState::Closed } else { WriteState::Idle } }
    }
}

/// Bytes that wait in a socket or pipe.
pub fn waiting_bytes(fd: &OwnedFd) -> usize {
    rustix::io::ioctl_fionread(fd).map_or(0, |bytes| bytes as usize)
}

/// Reads a rank's PMI requests; `None`: nothing now; empty: closed.
pub fn read_requests(fd: &OwnedFd, buffer: &mut [u8]) -> io::Result<Option<Bytes>> {
    match rustix::io::read(fd, &mut buffer[..READ_BYTES]) {
        Ok(length) => Ok(Some(Bytes::copy_from_slice(&buffer[..length]))),
        Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
