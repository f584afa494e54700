//! Sends and receives messages with descriptors over a Unix stream socket, without blocking.
//!
//! A message is its length (u32, little-endian) and its body in `postcard`. Descriptors are sent with the first byte of
//! the chunk that contains their message, so they have arrived when the message is complete; each message contains the
//! number of its descriptors. Many messages share a chunk: a thousand exits cost a few system calls.

use super::protocol::{KeeperEvent, Request};
use serde::{Serialize, de::DeserializeOwned};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::thread;
use std::time::{Duration, Instant};
use wireup_os::clock::monotonic_ns;
use wireup_os::reactor::{Interest, Reactor};
use wireup_os::socket;
use wireup_wire::peer::SpawnError;

/// Size of a chunk (bytes) above which it takes no further message.
const CHUNK_BYTES: usize = 64 << 10;
const LENGTH_BYTES: usize = 4;
/// Number of queued descriptors at which they are sent without waiting for more. It corresponds to about a dozen
/// processes.
const FREIGHT: usize = 48;
/// Number of unsent descriptors at which no further process is started until the agent has received some.
const FREIGHT_MAX: usize = 128;
/// Time for which a report waits for further reports, to be sent together with them, while processes remain to be
/// started (ns).
const REPORT_NS: u64 = 4_000_000;
/// Longest wait of a failing keeper for room in the socket for its last report. Its agent reads at once unless stopped.
const REPORT_MAX: Duration = Duration::from_secs(1);
/// Pause between two attempts to send the report of a failure.
const REPORT_PAUSE: Duration = Duration::from_millis(1);

/// Messages that wait to be written to the socket.
#[derive(Default)]
pub(super) struct Outbox {
    chunks: VecDeque<Chunk>,
    fds: usize,
}

#[derive(Default)]
struct Chunk {
    bytes: Vec<u8>,
    written: usize,
    fds: Vec<OwnedFd>,
}

/// The result of a flush.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Flushed {
    All,
    /// The socket is full: wait until it is writable.
    Full,
    /// The kernel's limit on this user's descriptors in flight is reached. No event reports room, so try again later.
    Later,
}

impl Outbox {
    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// The number of queued descriptors.
    pub fn fds(&self) -> usize {
        self.fds
    }

    /// # Panics
    /// If there are more than [`socket::FDS_MAX`] descriptors.
    pub fn push(&mut self, message: &impl Serialize, fds: Vec<OwnedFd>) {
        let body = postcard::to_allocvec(message).expect("plain structs always encode");
        self.fds += fds.len();
        let full = |chunk: &Chunk| {
            chunk.written > 0 || chunk.bytes.len() > CHUNK_BYTES || chunk.fds.len() + fds.len() > socket::FDS_MAX
        };
        if self.chunks.back().is_none_or(full) {
            self.chunks.push_back(Chunk::default());
        }
        if let Some(chunk) = self.chunks.back_mut() {
            chunk.bytes.extend_from_slice(&(body.len() as u32).to_le_bytes());
            chunk.bytes.extend_from_slice(&body);
            chunk.fds.extend(fds);
        }
    }

    /// Writes as much as the socket takes.
    ///
    /// # Errors
    /// The socket is closed at the other end.
    pub fn flush(&mut self, socket: impl AsFd) -> io::Result<Flushed> {
        while let Some(chunk) = self.chunks.front_mut() {
            let fds: Vec<_> = chunk.fds.iter().map(AsFd::as_fd).collect();
            match socket::send(&socket, &chunk.bytes[chunk.written..], &fds) {
                Ok(bytes) => {
                    self.fds -= chunk.fds.len();
                    chunk.fds.clear();
                    chunk.written += bytes;
                    if chunk.written == chunk.bytes.len() {
                        self.chunks.pop_front();
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Flushed::Full),
                Err(error) if error.raw_os_error() == Some(ETOOMANYREFS) => return Ok(Flushed::Later),
                Err(error) => return Err(error),
            }
        }
        Ok(Flushed::All)
    }
}

const ETOOMANYREFS: i32 = rustix::io::Errno::TOOMANYREFS.raw_os_error();

/// Bytes and descriptors that have been read from the socket and not yet taken as messages.
pub(super) struct Inbox {
    bytes: Vec<u8>,
    /// Position of the next message in `bytes`.
    start: usize,
    /// Descriptors that have arrived, in the order of their messages.
    pub fds: VecDeque<OwnedFd>,
    space: Box<[u8]>,
}

impl Inbox {
    pub fn new() -> Inbox {
        Inbox { bytes: Vec::new(), start: 0, fds: VecDeque::new(), space: vec![0; CHUNK_BYTES].into() }
    }

    /// Reads what is available. `false`: the other end of the socket is closed, and nothing will follow.
    ///
    /// # Errors
    /// Descriptors were lost (`EMFILE`); the channel must not be used any more.
    pub fn fill(&mut self, socket: impl AsFd) -> io::Result<bool> {
        loop {
            match socket::receive(&socket, &mut self.space, &mut self.fds) {
                Ok(0) => return Ok(false),
                Ok(bytes) => self.bytes.extend_from_slice(&self.space[..bytes]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(true),
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(false),
                Err(error) => return Err(error),
            }
        }
    }

    /// The next complete message.
    ///
    /// # Panics
    /// If a message cannot be decoded: the sender is a fork of this process, so that is a bug in wireup.
    pub fn next<T: DeserializeOwned>(&mut self) -> Option<T> {
        let rest = &self.bytes[self.start..];
        let (length, rest) = rest.split_first_chunk::<LENGTH_BYTES>().unwrap_or((&[0xff; LENGTH_BYTES], &[]));
        let length = u32::from_le_bytes(*length) as usize;
        if rest.len() < length {
            self.bytes.drain(..self.start);
            self.start = 0;
            return None;
        }
        self.start += LENGTH_BYTES + length;
        Some(postcard::from_bytes(&rest[..length]).expect("the other side runs the same program"))
    }
}

/// The keeper's end of the socket to its agent: requests come in, reports go out.
pub(super) struct AgentSocket {
    socket: Rc<OwnedFd>,
    /// The reactor's token of the socket.
    token: u64,
    inbox: Inbox,
    /// Reports that wait to be sent.
    pub outbox: Outbox,
    /// Whether the reactor watches the socket for room.
    watches_room: bool,
    flushed_ns: u64,
}

impl AgentSocket {
    pub fn new(socket: Rc<OwnedFd>, token: u64, reactor: &Reactor) -> io::Result<AgentSocket> {
        reactor.add(&*socket, token, Interest::READABLE)?;
        let (inbox, outbox) = (Inbox::new(), Outbox::default());
        Ok(AgentSocket { socket, token, inbox, outbox, watches_room: false, flushed_ns: 0 })
    }

    /// Reads the requests that have arrived; `false`: no further requests will arrive.
    pub fn receive(&mut self) -> bool {
        self.inbox.fill(&self.socket).unwrap_or(false)
    }

    /// The next request; for [`Request::Sockets`] also the sockets that came with it.
    pub fn next(&mut self) -> Option<(Request, Vec<OwnedFd>)> {
        let request = self.inbox.next::<Request>()?;
        let count = if let Request::Sockets { count } = request { count as usize } else { 0 };
        let sockets = self.inbox.fds.drain(..count.min(self.inbox.fds.len())).collect();
        Some((request, sockets))
    }

    /// Stops watching the socket, because the agent has ended.
    pub fn on_gone(&mut self, reactor: &Reactor) {
        let _ = reactor.remove(&self.socket);
    }

    /// Drops all reports, because the agent has ended. They may hold the agent's end of a process's socket, and that
    /// process exits only when the end is closed.
    pub fn drop_reports(&mut self) {
        self.outbox = Outbox::default();
    }

    pub fn push(&mut self, report: &KeeperEvent) {
        self.outbox.push(report, Vec::new());
    }

    /// Whether the agent has to receive descriptors before more processes are started.
    pub fn is_loaded(&self) -> bool {
        self.outbox.fds() >= FREIGHT_MAX
    }

    /// Whether queued reports must be sent again after a pause, because the reactor does not watch for room in the
    /// socket.
    pub fn waits_without_event(&self) -> bool {
        !(self.outbox.is_empty() || self.watches_room)
    }

    /// Sends the queued reports, unless more reports are expected soon. `false`: the agent has just ended.
    pub fn report(&mut self, more_follow: bool, reactor: &Reactor) -> io::Result<bool> {
        let now = monotonic_ns();
        let more = more_follow && self.outbox.fds() < FREIGHT && now - self.flushed_ns < REPORT_NS;
        if self.outbox.is_empty() || more {
            return Ok(true);
        }
        self.flushed_ns = now;
        let Ok(flushed) = self.outbox.flush(&self.socket) else { return Ok(false) };
        let full = flushed == Flushed::Full;
        if full != self.watches_room {
            let interest = if full { Interest::BOTH } else { Interest::READABLE };
            reactor.modify(&self.socket, self.token, interest)?;
            self.watches_room = full;
        }
        Ok(true)
    }

    /// Reports that the keeper fails.
    pub fn report_failure(self, problem: SpawnError) -> SpawnError {
        report_failure(self.outbox, &self.socket, problem)
    }
}

/// Sends the reports in `outbox`, then a report that the keeper fails. If the error cannot be sent, the agent notices
/// only that the keeper has exited.
pub(super) fn report_failure(mut outbox: Outbox, socket: &OwnedFd, problem: SpawnError) -> SpawnError {
    outbox.push(&KeeperEvent::Failed { problem: problem.clone() }, Vec::new());
    let until = Instant::now() + REPORT_MAX;
    while outbox.flush(socket).is_ok_and(|flushed| flushed != Flushed::All) && Instant::now() < until {
        thread::sleep(REPORT_PAUSE);
    }
    problem
}

#[cfg(test)]
mod tests {
    use super::*;
    use wireup_os::files::null;

    #[test]
    fn messages_cross_a_full_socket_with_their_descriptors() {
        let (here, there) = socket::pair().unwrap();
        let (mut outbox, mut inbox) = (Outbox::default(), Inbox::new());
        assert_eq!(inbox.next::<(u32, Vec<u8>)>(), None);
        let large = vec![7u8; 3 << 20];
        outbox.push(&(1000u32, &large), vec![]);
        for number in 0..1000u32 {
            let fds = (0..number % 3).map(|_| null().unwrap()).collect();
            outbox.push(&(number, vec![1u8; 10]), fds);
        }
        assert!(outbox.chunks.len() < 10);
        assert_eq!(outbox.fds(), 999);
        let mut fulls = 0;
        let mut received = Vec::new();
        loop {
            let flushed = outbox.flush(&here).unwrap();
            assert!(inbox.fill(&there).unwrap());
            while let Some((number, bytes)) = inbox.next::<(u32, Vec<u8>)>() {
                assert_eq!(bytes.len(), if number == 1000 { large.len() } else { 10 });
                let fds = if number == 1000 { 0 } else { number % 3 };
                assert_eq!(inbox.fds.drain(..fds as usize).count() as u32, fds);
                received.push(number);
            }
            match flushed {
                Flushed::All => break,
                Flushed::Full | Flushed::Later => fulls += 1,
            }
        }
        assert!(fulls > 1);
        assert!(received.into_iter().eq([1000].into_iter().chain(0..1000)));
        assert_eq!((outbox.fds(), inbox.fds.len()), (0, 0));
        // Dropping `here` might not close the socket: another test may have forked with a copy of it.
        rustix::net::shutdown(&here, rustix::net::Shutdown::Write).unwrap();
        assert!(!inbox.fill(&there).unwrap());
    }

    #[test]
    fn reports_wait_for_others_unless_there_is_much_to_send_or_nothing_follows() {
        let (agent, keeper) = socket::pair().unwrap();
        let reactor = Reactor::new().unwrap();
        let mut keeper = AgentSocket::new(Rc::new(keeper), 0, &reactor).unwrap();
        let reports = |inbox: &mut Inbox| {
            assert!(inbox.fill(&agent).unwrap());
            std::iter::from_fn(|| inbox.next::<KeeperEvent>()).count()
        };
        let inbox = &mut Inbox::new();
        for (fds, more_follow, expected) in [(0, true, 0), (0, false, 2), (FREIGHT, true, 1)] {
            keeper.outbox.push(&KeeperEvent::Swept, (0..fds).map(|_| null().unwrap()).collect());
            keeper.flushed_ns = monotonic_ns();
            assert!(keeper.report(more_follow, &reactor).unwrap());
            assert_eq!(reports(inbox), expected);
        }
        keeper.outbox.push(&KeeperEvent::Swept, vec![null().unwrap()]);
        keeper.drop_reports();
        assert!(keeper.outbox.is_empty() && keeper.outbox.fds() == 0);
    }
}
