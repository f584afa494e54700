//! Listens on the TCP socket to which an agent's children connect, and accepts guests: connections that have not
//! authenticated yet.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use wireup_os::reactor::{Interest, Reactor};
use wireup_os::socket;

/// Connections that may wait in the kernel. Chosen: more children than an agent has with any default fan-out.
const BACKLOG: i32 = 512;

pub struct Listener {
    socket: OwnedFd,
    offered: Vec<SocketAddr>,
    /// Whether guests that connected to an address other than those offered are refused.
    restricted: bool,
}

/// The result of accepting.
pub enum Accepted {
    Guest(OwnedFd),
    /// The connection was aborted, or was refused because it came to an address that is not offered. Another connection
    /// may wait.
    TurnedAway,
    NoneWaiting,
}

impl Listener {
    /// Listens on the loopback address, for children on this machine.
    pub fn local() -> io::Result<Listener> {
        let socket = socket::listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), BACKLOG)?;
        let address = socket::local_address(&socket)?;
        Ok(Listener { socket, offered: vec![address], restricted: false })
    }

    /// Listens for children on other machines, to which the addresses `offered` are sent. `restricted`: connections to
    /// any other address are refused.
    pub fn remote(offered: &[IpAddr], restricted: bool) -> io::Result<Listener> {
        let (socket, restricted) = match offered {
            [only] if restricted => (socket::listen(SocketAddr::new(*only, 0), BACKLOG)?, false),
            _ => (listen_everywhere()?, restricted),
        };
        let port = socket::local_address(&socket)?.port();
        let offered = offered.iter().map(|ip| SocketAddr::new(*ip, port)).collect();
        Ok(Listener { socket, offered, restricted })
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Addresses for a child to dial, best first.
    pub fn addresses(&self) -> Vec<String> {
        self.offered.iter().map(SocketAddr::to_string).collect()
    }

    /// The next guest, if a connection is waiting.
    pub fn accept(&self) -> io::Result<Accepted> {
        match socket::accept(&self.socket) {
            Ok((guest, _)) if self.takes(&guest) => Ok(Accepted::Guest(guest)),
            Ok(_) => Ok(Accepted::TurnedAway),
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock => Ok(Accepted::NoneWaiting),
                io::ErrorKind::ConnectionAborted => Ok(Accepted::TurnedAway),
                _ => Err(error),
            },
        }
    }

    fn takes(&self, guest: &OwnedFd) -> bool {
        let offered = |at: SocketAddr| self.offered.contains(&at);
        !self.restricted || socket::local_address(guest).is_ok_and(offered)
    }
}

/// Listens on all addresses: IPv6 and IPv4, or only the address family that the kernel supports.
fn listen_everywhere() -> io::Result<OwnedFd> {
    let everywhere = |ip: IpAddr| socket::listen(SocketAddr::new(ip, 0), BACKLOG);
    everywhere(Ipv6Addr::UNSPECIFIED.into()).or_else(|_| everywhere(Ipv4Addr::UNSPECIFIED.into()))
}

/// Length of a pause (ns). Chosen: other descriptors may have been closed by then, and the delay is not noticeable.
pub const PAUSE_NS: u64 = 100_000_000;

/// Time until which the reactor does not watch a listener, most likely because no descriptor is left.
#[derive(Default)]
pub struct Pause {
    until_ns: Option<u64>,
}

impl Pause {
    pub fn begin(&mut self, listener: impl AsFd, token: u64, now_ns: u64, reactor: &Reactor) {
        if reactor.modify(listener, token, Interest::NONE).is_ok() {
            self.until_ns = Some(now_ns + PAUSE_NS);
        }
    }

    /// Makes the reactor watch the listener again if the end of the pause has been reached.
    pub fn end_if_due(&mut self, listener: impl AsFd, token: u64, now_ns: u64, reactor: &Reactor) {
        if self.until_ns.is_some_and(|until_ns| until_ns <= now_ns)
            && reactor.modify(listener, token, Interest::READABLE).is_ok()
        {
            self.until_ns = None;
        }
    }

    pub fn deadline_ns(&self) -> Option<u64> {
        self.until_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a guest that dials this address is accepted.
    fn takes(listener: &Listener, to: IpAddr) -> Option<bool> {
        let port = listener.offered[0].port();
        let dialled = socket::dial(SocketAddr::new(to, port), None).ok()?;
        socket::wait(&dialled, false, true, None).unwrap();
        socket::dial_result(&dialled).ok()?;
        socket::wait(&listener.socket, true, false, None).unwrap();
        match listener.accept().unwrap() {
            Accepted::Guest(_) => Some(true),
            Accepted::TurnedAway => Some(false),
            Accepted::NoneWaiting => panic!("a connection is waiting"),
        }
    }

    #[test]
    fn a_listener_offers_its_port_at_every_address() {
        let ips: Vec<IpAddr> = vec!["127.0.0.1".parse().unwrap(), "::1".parse().unwrap()];
        let listener = Listener::remote(&ips, false).unwrap();
        let port = listener.offered[0].port();
        assert_eq!(listener.addresses(), [format!("127.0.0.1:{port}"), format!("[::1]:{port}")]);
        assert_eq!(takes(&listener, ips[0]), Some(true));
        assert_eq!(takes(&listener, "127.0.0.2".parse().unwrap()), Some(true), "not offered, not forbidden either");
    }

    #[test]
    fn a_restricted_listener_refuses_other_addresses() {
        let ips: Vec<IpAddr> = ["127.0.0.1", "127.0.0.2"].map(|ip| ip.parse().unwrap()).to_vec();
        let elsewhere = "127.0.0.3".parse().unwrap();
        let one = Listener::remote(&ips[..1], true).unwrap();
        assert_eq!(takes(&one, ips[0]), Some(true));
        assert_eq!(takes(&one, elsewhere), None, "no process listens there");
        let two = Listener::remote(&ips, true).unwrap();
        assert_eq!(takes(&two, ips[1]), Some(true));
        assert_eq!(takes(&two, elsewhere), Some(false), "it must be refused");
    }
}
