//! Listens at an address that replaces the PMI server's in `PMI_PORT`, and connects to the server for each connection
//! of the rank.

use rustix::event::PollFlags;
use rustix::net::sockopt::set_tcp_nodelay;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};
use wireup_os::socket;
use wireup_os::tcp_peer::PeerLookup;

/// Time limit for connecting to the server.
const DIAL_TIMEOUT: Duration = Duration::from_secs(10);

pub struct Port {
    listener: TcpListener,
    servers: Vec<SocketAddr>,
    dials: Vec<Dial>,
    lookup: PeerLookup,
}

/// A connection of the rank, and the connection to the server that is being established for it.
struct Dial {
    rank: OwnedFd,
    server: OwnedFd,
    /// Addresses of the server that have not been tried yet.
    rest: Vec<SocketAddr>,
    deadline: Instant,
}

/// Both ends of a link: the rank's socket and the server's.
pub type Ends = (OwnedFd, OwnedFd);

impl Port {
    /// # Errors
    /// The server's address is invalid, no port is left, or the kernel does not report the users of connections.
    pub fn listen(server: &str) -> io::Result<Port> {
        let mut servers: Vec<SocketAddr> = server.to_socket_addrs()?.collect();
        // Addresses are taken from the end, so that the first one is tried first.
        servers.reverse();
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        listener.set_nonblocking(true)?;
        let lookup = PeerLookup::tried().map_err(io::Error::other)?;
        Ok(Port { listener, servers, dials: Vec::new(), lookup })
    }

    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// The descriptors that the port has before the first connection.
    pub fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.lookup.descriptor().into_iter().chain([self.listener.as_fd()])
    }

    pub fn dials(&self) -> usize {
        self.dials.len()
    }

    /// The descriptors and events to wait for. `has_room`: whether another connection may be accepted.
    pub fn interest(&self, has_room: bool) -> Vec<(BorrowedFd<'_>, PollFlags)> {
        let dials = self.dials.iter().map(|dial| (dial.server.as_fd(), PollFlags::OUT));
        dials.chain(has_room.then(|| (self.listener.as_fd(), PollFlags::IN))).collect()
    }

    pub fn deadline(&self) -> Option<Instant> {
        self.dials.iter().map(|dial| dial.deadline).min()
    }

    /// Continues after a wait; `happened`: events in the order of [`Port::interest`]. Returns links that are now
    /// complete.
    pub fn step(&mut self, happened: &[PollFlags]) -> Vec<Ends> {
        let now = Instant::now();
        let count = self.dials.len();
        let mut made = Vec::new();
        for (dial, flags) in std::mem::take(&mut self.dials).into_iter().zip(happened) {
            if flags.is_empty() && now < dial.deadline {
                self.dials.push(dial);
            } else if !flags.is_empty() && socket::dial_result(&dial.server).is_ok() {
                // Requests are small, and the rank waits for each answer, so they are sent without delay.
                let _ = set_tcp_nodelay(&dial.rank, true).and_then(|()| set_tcp_nodelay(&dial.server, true));
                made.push((dial.rank, dial.server));
            } else {
                // If no address is left, the rank's connection is dropped, so the rank sees that it is closed.
                self.dials.extend(dial_next(dial.rank, dial.rest));
            }
        }
        if happened.get(count).is_some_and(|flags| !flags.is_empty()) {
            let rank = self.accept();
            self.dials.extend(rank.and_then(|rank| dial_next(rank.into(), self.servers.clone())));
        }
        made
    }

    /// Accepts a connection. `None`: there is none, or it comes from another user.
    fn accept(&mut self) -> Option<TcpStream> {
        let (rank, _) = self.listener.accept().ok()?;
        self.lookup.check(&rank).is_ok().then_some(rank)
    }
}

/// Starts to connect to the next address. `None`: no address is left.
fn dial_next(rank: OwnedFd, mut rest: Vec<SocketAddr>) -> Option<Dial> {
    loop {
        let address = rest.pop()?;
        if let Ok(server) = socket::dial(address, None) {
            return Some(Dial { rank, server, rest, deadline: Instant::now() + DIAL_TIMEOUT });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::sockopt::set_socket_linger;

    #[test]
    fn a_connection_of_which_the_kernel_tells_nothing_is_not_taken() {
        let mut port = Port::listen("127.0.0.1:1").expect("a port");
        let connect = || TcpStream::connect(port.address().expect("an address")).expect("a connection");
        let (gone, stays) = (connect(), connect());
        set_socket_linger(&gone, Some(Duration::ZERO)).expect("an option");
        drop(gone);
        assert!(port.accept().is_none());
        assert_eq!(port.accept().map(|rank| rank.peer_addr().ok()), Some(stays.local_addr().ok()));
    }
}
