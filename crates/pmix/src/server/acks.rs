//! Acknowledges clients' bytes early, which avoids a delay of 40 ms.
//!
//! The library's clients write each message separately over TCP with Nagle's algorithm on, and send several in a row
//! that get no reply. The client's kernel then holds the last one back until the first ones are acknowledged, and the
//! server's kernel delays that acknowledgement by 40 ms. The late acknowledgement delays every `MPI_Finalize` of Open
//! MPI 4 and 5, and sometimes a fence that follows a commit. No permanent setting prevents the delay, on either side.
//! So whenever bytes from a client arrive, this process makes the client's socket acknowledge them (`TCP_QUICKACK`,
//! which the kernel soon clears again). With many clients this costs one pass over their sockets per [`PAUSE`].

use super::guard::borrow;
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::net::sockopt;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

/// Delay from the first bytes to the acknowledgement. Chosen: short compared with 40 ms, long compared with one pass
/// (some microseconds).
const PAUSE: Duration = Duration::from_micros(200);
/// Maximum number of events read at once.
const EVENTS_MAX: usize = 256;

/// The main thread's list of the clients' sockets.
pub struct Acks {
    /// The epoll instance, which reports each arrival once, whether or not the bytes have been read (edge-triggered).
    epoll: OwnedFd,
    due: Option<Instant>,
    events: Vec<epoll::Event>,
}

impl Acks {
    pub fn new() -> Result<Acks, Errno> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(Acks { epoll, due: None, events: Vec::with_capacity(EVENTS_MAX) })
    }

    /// The descriptor that is readable when clients' bytes have arrived. While a pass is due, it need not be watched.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// Schedules an acknowledgement, because clients' bytes have arrived.
    pub fn on_bytes(&mut self) {
        self.due.get_or_insert_with(|| Instant::now() + PAUSE);
    }

    /// Time at which the next acknowledgement is due; `None`: no bytes have arrived.
    pub fn due(&self) -> Option<Instant> {
        self.due
    }

    /// If the time [`Acks::due`] has come, makes the kernel acknowledge the bytes that have arrived from all clients.
    pub fn settle(&mut self) {
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
                // A socket closed meanwhile needs no acknowledgement; if its number has been reused, the option does no
                // harm.
                let _ = sockopt::set_tcp_quickack(borrow(event.data.u64() as RawFd), true);
            }
            if found.is_err() || self.events.len() < EVENTS_MAX {
                return;
            }
        }
    }

    /// Watches a client's connection and turns off Nagle's algorithm on it. The library may have closed the connection
    /// already, and its number may belong to another descriptor, which neither setting harms.
    pub fn watch(&self, client: BorrowedFd<'_>) {
        if sockopt::set_tcp_nodelay(client, true).is_err() {
            return;
        }
        let data = epoll::EventData::new_u64(client.as_raw_fd() as u64);
        // The library may have read the bytes before we watch the socket. `OUT`, which is always true, reports the
        // arrival even then.
        let arrivals = epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::ET;
        // Errors are ignored, because the socket may have been closed just now.
        let _ = epoll::add(&self.epoll, client, data, arrivals);
    }
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
    fn bytes_of_watched_clients_are_reported_once_even_with_reused_numbers() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut acks = Acks::new().unwrap();
        let heard = |acks: &Acks, wait| wireup_os::socket::wait(acks.fd(), true, false, Some(wait)).unwrap();
        let look = |acks: &mut Acks| {
            acks.on_bytes();
            assert!(acks.due().is_some());
            std::thread::sleep(PAUSE);
            acks.settle();
            assert!(acks.due().is_none());
            // The same arrival is not reported twice.
            assert!(!heard(acks, Duration::ZERO));
        };
        for _ in 0..3 {
            // Later rounds reuse the descriptor numbers of the first.
            let (mut client, mut server) = connection(&listener);
            acks.watch(server.as_fd());
            // Bytes that arrived earlier cannot be told apart, so a new socket is reported once.
            assert!(heard(&acks, Duration::from_secs(5)));
            look(&mut acks);
            for _ in 0..2 {
                client.write_all(b"x").unwrap();
                // Bytes that were read before the acknowledgement are still reported.
                server.read_exact(&mut [0]).unwrap();
                assert!(heard(&acks, Duration::from_secs(5)));
                look(&mut acks);
            }
        }
    }
}
