//! Where an agent's children dial in: one TCP socket, and the guests that have not proved anything yet.

use super::handshake::{Handshake, HandshakeError};
use super::link::Link;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use wireup_wire::peer::Secret;

/// Connections that may wait in the kernel. Chosen: more children than any default fan-out gives.
const BACKLOG: i32 = 512;

pub struct Listener {
    socket: OwnedFd,
    address: SocketAddr,
}

impl Listener {
    /// Listens for children on this machine.
    pub fn local() -> io::Result<Listener> {
        let socket = wireup_os::socket::listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), BACKLOG)?;
        let address = wireup_os::socket::local_address(&socket)?;
        Ok(Listener { socket, address })
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Addresses for a child to dial, best first.
    pub fn addresses(&self) -> Vec<String> {
        vec![self.address.to_string()]
    }

    /// The next guest, if one waits.
    pub fn accept(&self, secret: &Secret) -> Result<Option<Link>, AcceptError> {
        match wireup_os::socket::accept(&self.socket) {
            Ok((socket, _)) => Ok(Some(Link::accepted(socket, Handshake::listen(secret)?))),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

#[derive(thiserror::Error, Debug)]
pub enum AcceptError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Handshake(#[from] HandshakeError),
}
