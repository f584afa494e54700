//! Waits for many descriptors at once with level-triggered `epoll`.
//!
//! Level-triggered, so that a reader may stop early and is notified again. A descriptor that is not
//! needed for a while is set to [`Interest::NONE`]; hang-ups are reported even then.

use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// Most events returned by one wait; the next wait finds the rest. Chosen: handling 1,024 ready descriptors
/// costs far more than a second system call.
const EVENTS_MAX: usize = 1024;
/// Number of events for which the first wait has room.
const EVENTS_FIRST: usize = 64;

/// The events to report for a descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Interest {
    pub readable: bool,
    pub writable: bool,
}

impl Interest {
    /// Only hang-ups and errors.
    pub const NONE: Interest = Interest { readable: false, writable: false };
    pub const READABLE: Interest = Interest { readable: true, writable: false };
    pub const WRITABLE: Interest = Interest { readable: false, writable: true };
    pub const BOTH: Interest = Interest { readable: true, writable: true };

    fn flags(self) -> epoll::EventFlags {
        let mut flags = epoll::EventFlags::empty();
        flags.set(epoll::EventFlags::IN, self.readable);
        flags.set(epoll::EventFlags::OUT, self.writable);
        flags
    }
}

/// A ready descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Event {
    /// The token passed to [`Reactor::add`].
    pub token: u64,
    pub readable: bool,
    pub writable: bool,
    /// Whether the peer has closed the connection, or the descriptor has an error. There may still be bytes to read.
    pub hangup: bool,
}

/// One `epoll` instance.
pub struct Reactor {
    epoll: OwnedFd,
    ready: Vec<epoll::Event>,
    events: Vec<Event>,
}

impl Reactor {
    pub fn new() -> io::Result<Reactor> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(Reactor { epoll, ready: Vec::with_capacity(EVENTS_FIRST), events: Vec::with_capacity(EVENTS_FIRST) })
    }

    /// Watches `fd`; its events contain `token`.
    ///
    /// # Errors
    /// `fd` is already watched, or cannot be watched (a regular file).
    pub fn add(&self, fd: impl AsFd, token: u64, interest: Interest) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, fd, epoll::EventData::new_u64(token), interest.flags())?)
    }

    pub fn modify(&self, fd: impl AsFd, token: u64, interest: Interest) -> io::Result<()> {
        Ok(epoll::modify(&self.epoll, fd, epoll::EventData::new_u64(token), interest.flags())?)
    }

    /// Watches `fd` only for `wanted`, or not at all if that is `NONE`. `watched`: what `fd` is watched for so far;
    /// `None`: `fd` is not watched, not even for hang-ups.
    pub fn watch(&self, fd: impl AsFd, token: u64, watched: &mut Option<Interest>, wanted: Interest) {
        let wanted = (wanted != Interest::NONE).then_some(wanted);
        // The descriptor is open and watched as `watched` states, so these calls succeed.
        let _ = match (std::mem::replace(watched, wanted), wanted) {
            (None, Some(wanted)) => self.add(fd, token, wanted),
            (Some(_), None) => self.remove(fd),
            (Some(before), Some(wanted)) if before != wanted => self.modify(fd, token, wanted),
            (Some(_), Some(_)) | (None, None) => Ok(()),
        };
    }

    /// Call this before closing a descriptor that was ever duplicated or sent to another process.
    pub fn remove(&self, fd: impl AsFd) -> io::Result<()> {
        Ok(epoll::delete(&self.epoll, fd)?)
    }

    /// Waits until a descriptor is ready or `timeout` has passed (`None`: forever). A wait interrupted by a signal
    /// returns no events.
    pub fn wait(&mut self, timeout: Option<Duration>) -> io::Result<&[Event]> {
        let timeout = timeout.map(|t| Timespec { tv_sec: t.as_secs() as i64, tv_nsec: t.subsec_nanos().into() });
        self.ready.clear();
        self.events.clear();
        match epoll::wait(&self.epoll, spare_capacity(&mut self.ready), timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        self.events.extend(self.ready.iter().map(|event| {
            let flags = event.flags;
            Event {
                token: event.data.u64(),
                readable: flags.intersects(epoll::EventFlags::IN),
                writable: flags.intersects(epoll::EventFlags::OUT),
                hangup: flags.intersects(epoll::EventFlags::HUP | epoll::EventFlags::ERR),
            }
        }));
        if self.ready.len() == self.ready.capacity() && self.ready.len() < EVENTS_MAX {
            self.ready.reserve_exact(self.ready.len() * 2);
        }
        Ok(&self.events)
    }
}

impl AsFd for Reactor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::pipe;

    #[test]
    fn readable_is_reported_until_read_and_then_hangup() {
        let (reader, writer) = pipe().unwrap();
        let mut reactor = Reactor::new().unwrap();
        reactor.add(&reader, 7, Interest::READABLE).unwrap();
        assert_eq!(reactor.wait(Some(Duration::ZERO)).unwrap(), []);
        rustix::io::write(&writer, b"x").unwrap();
        for _ in 0..2 {
            let event = reactor.wait(None).unwrap()[0];
            assert_eq!(event, Event { token: 7, readable: true, writable: false, hangup: false });
        }
        rustix::io::read(&reader, &mut [0u8; 8][..]).unwrap();
        reactor.modify(&reader, 8, Interest::NONE).unwrap();
        drop(writer);
        assert_eq!(reactor.wait(None).unwrap(), [Event { token: 8, readable: false, writable: false, hangup: true }]);
        reactor.remove(&reader).unwrap();
        assert_eq!(reactor.wait(Some(Duration::ZERO)).unwrap(), []);
    }

    #[test]
    fn the_event_buffer_grows_with_the_number_of_events() {
        let mut reactor = Reactor::new().unwrap();
        let pipes: Vec<_> = (0..200).map(|_| pipe().unwrap()).collect();
        for (token, (_, writer)) in pipes.iter().enumerate() {
            reactor.add(writer, token as u64, Interest::WRITABLE).unwrap();
        }
        assert_eq!(reactor.wait(None).unwrap().len(), EVENTS_FIRST);
        for _ in 0..2 {
            reactor.wait(None).unwrap();
        }
        assert_eq!(reactor.wait(None).unwrap().len(), 200);
    }
}
