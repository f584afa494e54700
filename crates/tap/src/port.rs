//! In place of the server's address in `PMI_PORT`: each connection of the rank is connected on.

use crate::process;
use rustix::event::PollFlags;
use rustix::net::sockopt::set_tcp_nodelay;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};
use wireup_os::socket;

/// The server must answer within that time.
const DIAL_TIMEOUT: Duration = Duration::from_secs(10);

pub struct Port {
    listener: TcpListener,
    servers: Vec<SocketAddr>,
    dials: Vec<Dial>,
}

/// A connection of the rank, and one to the server that is being made.
struct Dial {
    rank: OwnedFd,
    server: OwnedFd,
    /// Addresses that were not tried yet.
    rest: Vec<SocketAddr>,
    deadline: Instant,
}

/// Both ends of a link: the rank's, the server's.
pub type Ends = (OwnedFd, OwnedFd);

impl Port {
    /// # Errors
    /// The server's address is none, or no port is left here.
    pub fn listen(server: &str) -> io::Result<Port> {
        let mut servers: Vec<SocketAddr> = server.to_socket_addrs()?.collect();
        // The first one is tried first.
        servers.reverse();
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        listener.set_nonblocking(true)?;
        Ok(Port { listener, servers, dials: Vec::new() })
    }

    /// # Errors
    /// Does not fail.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    pub fn listener(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    pub fn dials(&self) -> usize {
        self.dials.len()
    }

    /// What to wait for. `has_room`: one more connection may be taken.
    pub fn interest(&self, has_room: bool) -> Vec<(BorrowedFd<'_>, PollFlags)> {
        let dials = self.dials.iter().map(|dial| (dial.server.as_fd(), PollFlags::OUT));
        dials.chain(has_room.then(|| (self.listener.as_fd(), PollFlags::IN))).collect()
    }

    pub fn deadline(&self) -> Option<Instant> {
        self.dials.iter().map(|dial| dial.deadline).min()
    }

    /// Goes on, in the order of [`Port::interest`]. Returns the links that have been made.
    pub fn step(&mut self, happened: &[PollFlags]) -> Vec<Ends> {
        let now = Instant::now();
        let count = self.dials.len();
        let mut made = Vec::new();
        for (dial, flags) in std::mem::take(&mut self.dials).into_iter().zip(happened) {
            if flags.is_empty() && now < dial.deadline {
                self.dials.push(dial);
            } else if !flags.is_empty() && socket::dial_result(&dial.server).is_ok() {
                // Requests are small, and each waits for its answer.
                let _ = set_tcp_nodelay(&dial.rank, true).and_then(|()| set_tcp_nodelay(&dial.server, true));
                made.push((dial.rank, dial.server));
            } else {
                // Without a further address the rank sees that the connection is closed.
                self.dials.extend(begin(dial.rank, dial.rest));
            }
        }
        if happened.get(count).is_some_and(|flags| !flags.is_empty()) {
            self.dials.extend(self.accept().and_then(|rank| begin(rank.into(), self.servers.clone())));
        }
        made
    }

    fn accept(&self) -> Option<TcpStream> {
        let (rank, _) = self.listener.accept().ok()?;
        process::is_own_connection(&rank).then_some(rank)
    }
}

/// `None`: no address is left.
fn begin(rank: OwnedFd, mut rest: Vec<SocketAddr>) -> Option<Dial> {
    loop {
        let address = rest.pop()?;
        if let Ok(server) = socket::dial(address, None) {
            return Some(Dial { rank, server, rest, deadline: Instant::now() + DIAL_TIMEOUT });
        }
    }
}
