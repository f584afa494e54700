//! Acknowledges clients' bytes early, which avoids a delay of 40 ms.
//!
//! The library's clients write each message separately over TCP with Nagle's algorithm on, and send several in a row that get no
//! reply. The client's kernel then holds the last one back until the first ones are acknowledged, and the server's kernel delays that
//! acknowledgement by 40 ms. This delays every `MPI_Finalize` of Open MPI 4 and 5, and sometimes a fence that follows a commit. No
//! permanent setting prevents it, on either side. So whenever bytes from a client arrive, its socket is told to acknowledge them
//! (`TCP_QUICKACK`, which the kernel soon clears again). With many clients this costs one pass over their sockets per [`PAUSE`].

use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::net::sockopt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Delay from the first bytes to the acknowledgement. Chosen: short compared with 40 ms, long compared with one pass (some microseconds).
const PAUSE: Duration = Duration::from_micros(200);
/// How many unused numbers above the highest known descriptor are checked: the library opens few at once.
const AHEAD: usize = 64;
/// Most events taken at once.
const EVENTS_MAX: usize = 256;

/// The number of new clients. Set by the library's thread.
#[derive(Default)]
pub struct Newcomers(AtomicUsize);

impl Newcomers {
    /// A client has connected; its socket must be found.
    pub fn add(&self) {
        self.0.fetch_add(1, Ordering::Release);
    }

    fn take(&self) -> usize {
        self.0.swap(0, Ordering::Acquire)
    }
}

/// The main thread's half.
pub struct Acks {
    /// Reports each arrival once, whether or not the bytes have been read (edge-triggered).
    epoll: OwnedFd,
    /// Watched connections, by descriptor number; some may be closed by now.
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

    /// Readable when bytes have arrived. Wait for it unless a pass is already due.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// Bytes have arrived.
    pub fn on_bytes(&mut self) {
        self.due.get_or_insert_with(|| Instant::now() + PAUSE);
    }

    /// When the next pass is due, if any.
    pub fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Finds the sockets of new clients and, if a pass is due, acknowledges what has arrived.
    pub fn settle(&mut self, newcomers: &Newcomers) {
        let count = newcomers.take();
        if count > 0 && self.watch_unknown() < count {
            // A known number must have been closed and used again.
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
                // A socket closed meanwhile needs no acknowledgement; if its number has been reused, the option does no harm.
                let _ = sockopt::set_tcp_quickack(borrow(event.data.u64() as RawFd), true);
            }
            if found.is_err() || self.events.len() < EVENTS_MAX {
                return;
            }
        }
    }

    /// Watches connections that are not watched yet; returns their number.
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

    /// Watches a TCP connection and turns off Nagle's algorithm on it; `false` if this number is not one.
    fn watch(&self, number: RawFd) -> bool {
        let fd = borrow(number);
        if rustix::net::getpeername(fd).is_err() || sockopt::set_tcp_nodelay(fd, true).is_err() {
            return false;
        }
        let data = epoll::EventData::new_u64(number as u64);
        // The library may have read the bytes before we watch the socket. `OUT`, which is always true, reports the arrival even then.
        let arrivals = epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::ET;
        // It may already be watched, or have been closed just now.
        let _ = epoll::add(&self.epoll, fd, data, arrivals);
        true
    }
}

/// A descriptor of the library, by its number.
fn borrow<'a>(number: RawFd) -> BorrowedFd<'a> {
    // SAFETY: the number is used in one system call only. The kernel reports an error if it is not open, and on a socket that is not a
    // client's the options that we set change no data.
    unsafe { BorrowedFd::borrow_raw(number) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    /// A client's end, with Nagle's algorithm on, and the server's end.
    fn connection(listener: &TcpListener) -> (TcpStream, TcpStream) {
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (client, listener.accept().unwrap().0)
    }

    #[test]
    fn new_client_sockets_are_found_even_with_reused_numbers() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (mut acks, newcomers) = (Acks::new().unwrap(), Newcomers::default());
        let heard = |acks: &Acks, wait| wireup_os::socket::wait(acks.fd(), true, false, Some(wait)).unwrap();
        let look = |acks: &mut Acks| {
            acks.on_bytes();
            assert!(acks.due().is_some());
            std::thread::sleep(PAUSE);
            acks.settle(&newcomers);
            assert!(acks.due().is_none());
            // The same arrival is not reported twice.
            assert!(!heard(acks, Duration::ZERO));
        };
        for _ in 0..3 {
            // Later rounds reuse the descriptor numbers of the first.
            let (mut client, mut server) = connection(&listener);
            // Both ends belong to this process: the server's may get a known number, and the client's a new one.
            newcomers.add();
            newcomers.add();
            acks.settle(&newcomers);
            assert_eq!(newcomers.take(), 0, "new clients are searched for once");
            // Bytes that arrived earlier cannot be told apart, so a new socket is reported once.
            assert!(heard(&acks, Duration::from_secs(5)));
            look(&mut acks);
            for _ in 0..2 {
                client.write_all(b"x").unwrap();
                // Read before the acknowledgement, and still reported.
                server.read_exact(&mut [0]).unwrap();
                assert!(heard(&acks, Duration::from_secs(5)));
                look(&mut acks);
            }
        }
    }
}
