//! Carries bytes and descriptors between a rank and its PMI server, unchanged and in order.

use crate::observer::Observer;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::Shutdown;
use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use wireup_os::clock::monotonic_ns;
use wireup_os::socket;

/// Size of the buffer of each direction: most bytes that are read at once, and held while the receiver reads nothing.
const CHUNK_BYTES: usize = 16 << 10;

/// One direction of a link: what one end has sent and the other end has not taken yet.
struct Way {
    buffer: Box<[u8]>,
    /// The range of bytes of `buffer` that have not been written yet.
    held: Range<usize>,
    fds: VecDeque<OwnedFd>,
    /// Whether the sender has closed, or the receiver takes nothing any more.
    is_over: bool,
    /// Whether the end of the stream was passed on to the receiver, or the receiver has closed.
    is_closed: bool,
}

impl Way {
    fn new() -> Way {
        Way { buffer: vec![0; CHUNK_BYTES].into(), held: 0..0, fds: VecDeque::new(), is_over: false, is_closed: false }
    }

    fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    fn may_read(&self) -> bool {
        self.is_empty() && !self.is_over
    }

    /// Reads available bytes; called only when the previous ones have been written.
    fn read(&mut self, from: BorrowedFd<'_>, see: impl FnOnce(&[u8])) {
        match socket::receive(from, &mut self.buffer, &mut self.fds) {
            Ok(0) => self.is_over = true,
            Ok(count) => {
                self.held = 0..count;
                see(&self.buffer[..count]);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => self.is_over = true,
        }
    }

    /// Writes as many bytes as the receiver takes.
    fn write(&mut self, to: BorrowedFd<'_>) {
        let fds: Vec<BorrowedFd<'_>> = self.fds.iter().map(AsFd::as_fd).collect();
        match socket::send(to, &self.buffer[self.held.clone()], &fds) {
            Ok(count) => {
                self.held.start += count;
                self.fds.clear();
            }
            Err(error) if may_repeat(&error) => {}
            // The receiver has closed, so bytes that it has not read are dropped.
            Err(_) => {
                self.is_over = true;
                self.held = 0..0;
                self.fds.clear();
            }
        }
    }

    /// Whether all bytes of the sender were delivered, and the end of the stream must now be passed on to the receiver.
    fn is_to_be_closed(&self) -> bool {
        self.is_over && self.is_empty() && !self.is_closed
    }
}

/// A link between a rank and its server, with the observer of its bytes.
pub struct Relay {
    rank: OwnedFd,
    server: OwnedFd,
    up: Way,
    down: Way,
    pub observer: Observer,
    has_spoken: bool,
    /// Whether one end has closed; dropping the relay closes the other end.
    has_ended: bool,
}

impl Relay {
    pub fn new(rank: OwnedFd, server: OwnedFd, observer: Observer) -> Relay {
        Relay { rank, server, up: Way::new(), down: Way::new(), observer, has_spoken: false, has_ended: false }
    }

    /// The events to poll for at the rank's end and at the server's; an end without flags must not be polled. `None`:
    /// the link has closed.
    pub fn interest(&self) -> Option<[(BorrowedFd<'_>, PollFlags); 2]> {
        if self.has_ended || (self.up.is_closed && self.down.is_closed) {
            return None;
        }
        let flags = |inwards: &Way, outwards: &Way| {
            let mut flags = PollFlags::empty();
            flags.set(PollFlags::IN, inwards.may_read());
            flags.set(PollFlags::OUT, !outwards.is_empty());
            flags
        };
        Some([(self.rank.as_fd(), flags(&self.up, &self.down)), (self.server.as_fd(), flags(&self.down, &self.up))])
    }

    /// Whether the rank has sent bytes that the server has not taken yet.
    pub fn holds_requests(&self) -> bool {
        !self.up.is_empty()
    }

    pub fn fds(&self) -> [BorrowedFd<'_>; 2] {
        [self.rank.as_fd(), self.server.as_fd()]
    }

    /// Carries bytes after `poll` has reported events. Returns whether the rank has sent its first bytes.
    pub fn step(&mut self, rank: PollFlags, server: PollFlags) -> bool {
        let before = self.has_spoken;
        let can_read = PollFlags::IN | PollFlags::HUP | PollFlags::ERR;
        let observer = &mut self.observer;
        if rank.intersects(can_read) && self.up.may_read() {
            let now_ns = monotonic_ns();
            self.up.read(self.rank.as_fd(), |bytes| observer.on_sent(bytes, now_ns));
            self.has_spoken |= !self.up.is_empty();
            if self.has_spoken && !before {
                observer.page.first(now_ns);
            }
        }
        if server.intersects(can_read) && self.down.may_read() {
            let now_ns = monotonic_ns();
            self.down.read(self.server.as_fd(), |bytes| observer.on_received(bytes, now_ns));
        }
        if !self.up.is_empty() {
            self.up.write(self.server.as_fd());
        }
        if !self.down.is_empty() {
            self.down.write(self.rank.as_fd());
        }
        self.close();
        !before && self.has_spoken
    }

    /// Passes on the end of a stream in the same form, since servers distinguish a closed socket from `shutdown`.
    fn close(&mut self) {
        let ends = [(&mut self.up, &self.rank, &self.server), (&mut self.down, &self.server, &self.rank)];
        for (way, from, to) in ends {
            if !way.is_to_be_closed() {
                continue;
            }
            way.is_closed = true;
            if has_hung_up(from) {
                self.has_ended = true;
            } else {
                // An error is ignored: the receiver may have closed already.
                let _ = rustix::net::shutdown(to, Shutdown::Write);
            }
        }
    }
}

/// Whether the other end of a Unix socket is closed, or another socket has been closed in both directions.
fn has_hung_up(fd: &OwnedFd) -> bool {
    let mut ends = [PollFd::new(fd, PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut ends, Some(&now)).is_ok() && ends[0].revents().intersects(PollFlags::HUP | PollFlags::ERR)
}

/// Whether a failed send may succeed later. `ETOOMANYREFS`: the user has too many descriptors in flight in sockets.
fn may_repeat(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock || error.raw_os_error() == Some(Errno::TOOMANYREFS.raw_os_error())
}

/// Whether this descriptor is a stream socket, which can be relayed.
pub fn is_stream(fd: impl AsFd) -> Result<bool, Errno> {
    match rustix::net::sockopt::socket_type(fd) {
        Ok(kind) => Ok(kind == rustix::net::SocketType::STREAM),
        Err(Errno::NOTSOCK) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whether the socket's other end has an abstract name that begins with `beginning`.
pub fn has_name(fd: impl AsFd, beginning: &[u8]) -> bool {
    let Ok(Some(address)) = rustix::net::getpeername(fd) else { return false };
    let name = rustix::net::SocketAddrUnix::try_from(address);
    // `abstract_name` returns the name without its leading zero.
    name.is_ok_and(|name| {
        name.abstract_name().is_some_and(|name| name.starts_with(beginning.get(1..).unwrap_or_default()))
    })
}
