//! Clients' bytes are acknowledged soon.
//!
//! The library's clients write each message by itself over TCP, with Nagle's algorithm on, and say several things in a row that nobody
//! answers: the kernel holds the last of them back until the first ones are acknowledged, and the server's kernel lets that wait for
//! 40 ms. Every `MPI_Finalize` of Open MPI 4 and 5 stands still for so long, as may a fence that follows a commit. Nothing can be
//! set at the clients, nor at the server once and for all; so whenever a client's bytes come, its socket is told to acknowledge what
//! it has (`TCP_QUICKACK`, which the kernel soon forgets again). Many clients at once cost one look each [`PAUSE`].

use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::net::sockopt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// From the first bytes to the acknowledgement. Chosen: short beside the 40 ms, long beside what a look costs (some microseconds).
const PAUSE: Duration = Duration::from_micros(200);
/// Free numbers above the highest known descriptor that are looked at: the library opens few at once.
const AHEAD: usize = 64;
/// Sockets of one look; the others have the next.
const EVENTS_MAX: usize = 256;

/// Set by the library's thread.
#[derive(Default)]
pub struct Newcomers(AtomicUsize);

impl Newcomers {
    /// A client has connected: its socket is to be found.
    pub fn add(&self) {
        self.0.fetch_add(1, Ordering::Release);
    }

    fn take(&self) -> usize {
        self.0.swap(0, Ordering::Acquire)
    }
}

/// The main thread's part.
pub struct Acks {
    /// Tells of each arrival once, whoever reads it (edge-triggered).
    epoll: OwnedFd,
    /// Connections that are watched, by number; some may be gone.
    known: Vec<bool>,
    due: Option<Instant>,
    events: Vec<epoll::Event>,
}

impl Acks {
    /// # Errors
    /// No descriptor is left.
    pub fn new() -> Result<Acks, Errno> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(Acks { epoll, known: Vec::new(), due: None, events: Vec::with_capacity(EVENTS_MAX) })
    }

    /// Readable when bytes have come; to be waited for unless a look is due anyway.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// Bytes have come.
    pub fn on_bytes(&mut self) {
        self.due.get_or_insert_with(|| Instant::now() + PAUSE);
    }

    /// How long until the next look, if one is due.
    pub fn timeout(&self) -> Option<Timespec> {
        let left = self.due?.saturating_duration_since(Instant::now());
        Some(Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() })
    }

    /// Finds new clients' sockets and acknowledges what has come, if it is time.
    pub fn settle(&mut self, newcomers: &Newcomers) {
        let count = newcomers.take();
        if count > 0 && self.watch_unknown() < count {
            // A number is in use again.
            self.known.clear();
            self.watch_unknown();
        }
        if self.due.is_some_and(|due| Instant::now() >= due) {
            self.due = None;
            self.acknowledge();
        }
    }

    fn acknowledge(&mut self) {
        loop {
            self.events.clear();
            let found = epoll::wait(&self.epoll, spare_capacity(&mut self.events), Some(&Timespec::default()));
            for event in &self.events {
                // A socket that is gone meanwhile needs none; a number that is another's now does it no harm.
                let _ = sockopt::set_tcp_quickack(borrow(event.data.u64() as RawFd), true);
            }
            if found.is_err() || self.events.len() < EVENTS_MAX {
                return;
            }
        }
    }

    /// Watches connections that are not watched yet; how many.
    fn watch_unknown(&mut self) -> usize {
        let (mut found, mut end, mut number) = (0, self.known.len() + AHEAD, 0);
        while number < end {
            if !self.known.get(number).copied().unwrap_or(false) && self.watch(number as RawFd) {
                if self.known.len() <= number {
                    self.known.resize(number + 1, false);
                    end = number + 1 + AHEAD;
                }
                self.known[number] = true;
                found += 1;
            }
            number += 1;
        }
        found
    }

    /// Watches a TCP connection, which sends at once from now on; `false` if this number is none.
    fn watch(&self, number: RawFd) -> bool {
        let fd = borrow(number);
        if rustix::net::getpeername(fd).is_err() || sockopt::set_tcp_nodelay(fd, true).is_err() {
            return false;
        }
        let data = epoll::EventData::new_u64(number as u64);
        // The library may have read what came before we look: then only `OUT`, which is always true, lets the arrival be told.
        let arrivals = epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::ET;
        // It may be watched already, or closed this moment.
        let _ = epoll::add(&self.epoll, fd, data, arrivals);
        true
    }
}

/// A descriptor of the library's, by its number.
fn borrow<'a>(number: RawFd) -> BorrowedFd<'a> {
    // SAFETY: the number goes to the kernel in one call and no further: the kernel says if it is none, and on a socket that is not a
    // client's the options that we set change nothing that anybody reads.
    unsafe { BorrowedFd::borrow_raw(number) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    /// A client with Nagle's algorithm, and the server's end.
    fn connection(listener: &TcpListener) -> (TcpStream, TcpStream) {
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (client, listener.accept().unwrap().0)
    }

    #[test]
    fn sockets_are_found_whatever_their_numbers() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (mut acks, newcomers) = (Acks::new().unwrap(), Newcomers::default());
        let heard = |acks: &Acks, wait| wireup_os::socket::wait(acks.fd(), true, false, Some(wait)).unwrap();
        let look = |acks: &mut Acks| {
            acks.on_bytes();
            assert!(acks.timeout().is_some());
            std::thread::sleep(PAUSE);
            acks.settle(&newcomers);
            assert!(acks.timeout().is_none());
            // What was said once is not said again.
            assert!(!heard(acks, Duration::ZERO));
        };
        for _ in 0..3 {
            // The second round has the numbers of the first again.
            let (mut client, mut server) = connection(&listener);
            // Both ends are this process': the server's may have a number that is known, and the client's a new one.
            newcomers.add();
            newcomers.add();
            acks.settle(&newcomers);
            assert_eq!(newcomers.take(), 0, "it is looked for once");
            // What came before is not known: it counts as bytes.
            assert!(heard(&acks, Duration::from_secs(5)));
            look(&mut acks);
            for _ in 0..2 {
                client.write_all(b"x").unwrap();
                // Read before anybody looked, and heard of all the same.
                server.read_exact(&mut [0]).unwrap();
                assert!(heard(&acks, Duration::from_secs(5)));
                look(&mut acks);
            }
        }
    }
}
