//! Keeps TCP ports reserved for this process while programs that it starts listen on them, one after the other.
//!
//! A port has a listening socket, which is closed when its program has ended and is replaced for the next program.
//! `close` keeps the port bound: Linux resets the connections that nobody has accepted, and refuses later ones
//! (`shutdown` of a listening socket). `renew` makes a new socket that listens on the same port, so that a program gets
//! neither the connections of the previous program nor the options that it had set on its socket.
//!
//! `SO_REUSEADDR` is set while a socket listens, or is about to: two sockets of this process may then share the port
//! for a moment, and the kernel ignores old connections of the port (`TIME_WAIT`). A closed socket does not have the
//! option, so no other process can bind the port.

use crate::files;
use crate::socket::{listen, local_address};
use rustix::io::Errno;
use rustix::net::{self, Shutdown, sockopt};
use std::io;
use std::os::fd::OwnedFd;

/// Makes a socket that listens on the port of `closed`, which the caller can then drop. The new socket is blocking, as
/// programs expect for `accept`.
pub fn renew(closed: &OwnedFd, backlog: i32) -> io::Result<OwnedFd> {
    sockopt::set_socket_reuseaddr(closed, true)?;
    let socket = listen(local_address(closed)?, backlog)?;
    files::set_nonblocking(&socket, false)?;
    Ok(socket)
}

pub fn close(socket: &OwnedFd) -> io::Result<()> {
    sockopt::set_socket_reuseaddr(socket, false)?;
    match net::shutdown(socket, Shutdown::Both) {
        // The socket does not listen.
        Err(Errno::NOTCONN) => Ok(()),
        other => Ok(other?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::socket::{InARow, bind_in_a_row};
    use std::io::{ErrorKind, Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::time::Duration;

    #[test]
    fn a_closed_port_is_refused_to_all_and_renewed_without_the_past() {
        // Ports that no other test uses.
        let (port, mut sockets) = bind_in_a_row(1, 23_200..=23_209, 23_203, InARow::Listen(8)).unwrap();
        let mut socket = sockets.pop().unwrap();
        let port = ("127.0.0.1", port);
        let is_ours = || {
            let refused = TcpStream::connect(port).map_err(|error| error.kind()).err();
            // std sets `SO_REUSEADDR`.
            let taken = TcpListener::bind(port).map_err(|error| error.kind()).err();
            assert_eq!((refused, taken), (Some(ErrorKind::ConnectionRefused), Some(ErrorKind::AddrInUse)));
        };
        for _ in 0..3 {
            let given = TcpListener::from(socket.try_clone().unwrap());
            let mut near = TcpStream::connect(port).unwrap();
            let (mut far, _) = given.accept().unwrap();
            near.write_all(b"!").unwrap();
            far.read_exact(&mut [0]).unwrap();
            let mut pending = TcpStream::connect(port).unwrap();
            pending.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            // The option of this socket must not affect the next socket.
            given.set_nonblocking(true).unwrap();
            close(&socket).unwrap();
            assert_eq!(pending.read(&mut [0]).map_err(|error| error.kind()), Err(ErrorKind::ConnectionReset));
            assert!(given.accept().is_err());
            is_ours();
            close(&socket).unwrap();
            // The end that closes first keeps the port in `TIME_WAIT` for a while.
            drop(far);
            drop(near);
            socket = renew(&socket, 8).unwrap();
        }
        close(&socket).unwrap();
        drop(socket);
        TcpListener::bind(port).unwrap();
    }
}
