//! Listens at an address that replaces the PMI server's in `PMI_PORT`, and connects to the server for each connection
//! of the rank.

use rustix::net::sockopt::set_tcp_nodelay;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;
use wireup_os::tcp_peer::PeerLookup;

/// Time limit for connecting to an address of the server. The tap waits meanwhile, as the rank does.
const DIAL_TIMEOUT: Duration = Duration::from_secs(10);

pub struct Port {
    listener: TcpListener,
    servers: Vec<SocketAddr>,
    lookup: PeerLookup,
}

impl Port {
    /// # Errors
    /// The server's address is invalid, no port is left, or the kernel does not report the users of connections.
    pub fn listen(server: &str) -> io::Result<Port> {
        let servers: Vec<SocketAddr> = server.to_socket_addrs()?.collect();
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        listener.set_nonblocking(true)?;
        let lookup = PeerLookup::tried().map_err(io::Error::other)?;
        Ok(Port { listener, servers, lookup })
    }

    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// The descriptors of the port, without those of links.
    pub fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.lookup.descriptor().into_iter().chain([self.listener()])
    }

    /// The descriptor that becomes readable when the rank connects.
    pub fn listener(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    /// Accepts a connection, and connects to the server for it. Returns the rank's socket and the server's. `None`: the
    /// rank has not connected, or the server cannot be reached; then the rank sees that its connection is closed.
    pub fn link(&mut self) -> Option<(OwnedFd, OwnedFd)> {
        let rank = self.accept()?;
        let dial = |address| TcpStream::connect_timeout(address, DIAL_TIMEOUT).ok();
        let server = self.servers.iter().find_map(dial)?;
        // Requests are small, and the rank waits for each answer, so they are sent without delay.
        let _ = set_tcp_nodelay(&rank, true).and_then(|()| set_tcp_nodelay(&server, true));
        Some((rank.into(), server.into()))
    }

    /// Accepts a connection. `None`: there is none, or it comes from another user.
    fn accept(&mut self) -> Option<TcpStream> {
        let (rank, _) = self.listener.accept().ok()?;
        self.lookup.check(&rank).is_ok().then_some(rank)
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
