//! Sockets that are made for one peer each, and their addresses: the values that processes exchange.
//!
//! In S4 a process creates a queue pair for each peer, and two processes are connected once each knows the number of
//! the other's queue pair. Here it creates a socket for each peer, and a connection is accepted only from the socket
//! that the peer has made for it. A *row* has a process's values for all others, without one for itself.
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::net::sockopt::set_socket_linger;
use rustix::net::{
    AddressFamily, SocketFlags, SocketType, accept_with, bind, connect, getpeername, getsockname, listen, socket_with,
};
use wireup_bench::command::await_any;

use super::wire::{WAIT_MAX, wrong};

/// Length of a value: an IPv4 address and a port (bytes).
pub const VALUE_LEN: usize = 6;

pub fn encode(values: impl IntoIterator<Item = SocketAddrV4>) -> Vec<u8> {
    let bytes = |value: SocketAddrV4| value.ip().octets().into_iter().chain(value.port().to_be_bytes());
    values.into_iter().flat_map(bytes).collect()
}

/// Decodes addresses; `None` if the length is wrong.
pub fn decode(bytes: &[u8]) -> Option<Vec<SocketAddrV4>> {
    let (values, []) = bytes.as_chunks::<VALUE_LEN>() else { return None };
    let value = |&[a, b, c, d, high, low]: &[u8; VALUE_LEN]| {
        SocketAddrV4::new(Ipv4Addr::new(a, b, c, d), u16::from_be_bytes([high, low]))
    };
    Some(values.iter().map(value).collect())
}

/// The position of the value for `peer` in the encoded row of `owner`.
pub fn place(owner: u16, peer: u16) -> std::ops::Range<usize> {
    let at = usize::from(if peer < owner { peer } else { peer - 1 }) * VALUE_LEN;
    at..at + VALUE_LEN
}

/// The values for `peer` in all rows, by owner (data reassembly). `rows`: the encoded row of each process.
pub fn reassembled(rows: &[Vec<u8>], peer: u16) -> Vec<u8> {
    let others = (0..rows.len() as u16).filter(|owner| *owner != peer);
    others.flat_map(|owner| rows[usize::from(owner)][place(owner, peer)].to_vec()).collect()
}

/// A socket that is not yet connected.
pub struct Half {
    socket: OwnedFd,
    calls: bool,
}

/// Creates sockets, one for each peer, with ports of the kernel's choice, and returns them with their addresses.
/// `calls`: for each peer, whether this process connects to it; otherwise the peer connects.
pub fn make_all(address: Ipv4Addr, calls: impl Iterator<Item = bool>) -> io::Result<(Vec<Half>, Vec<SocketAddrV4>)> {
    let make = |calls: bool| {
        let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        bind(&socket, &SocketAddrV4::new(address, 0))?;
        if !calls {
            // Only one peer should connect, but strangers may, too.
            listen(&socket, 8)?;
        }
        let value = SocketAddrV4::try_from(getsockname(&socket)?)?;
        Ok((Half { socket, calls }, value))
    };
    Ok(calls.map(make).collect::<io::Result<Vec<_>>>()?.into_iter().unzip())
}

/// Connects each socket with that of its peer. `launcher` becomes readable if there is no use in waiting.
pub fn connect_all(halves: Vec<Half>, peers: &[SocketAddrV4], launcher: &impl AsFd) -> io::Result<Vec<OwnedFd>> {
    // Connections complete before they are accepted, so processes do not wait for each other in a circle.
    for (half, peer) in halves.iter().zip(peers).filter(|(half, _)| half.calls) {
        connect(&half.socket, peer).map_err(|error| wrong(format!("connection to {peer}: {error}")))?;
    }
    let finished = halves.into_iter().zip(peers).map(|(half, peer)| match half.calls {
        true => Ok(half.socket),
        false => accept_from(&half.socket, *peer, launcher),
    });
    finished.collect()
}

/// Accepts the connection of this peer; connections of strangers are dropped.
fn accept_from(listener: &OwnedFd, peer: SocketAddrV4, launcher: &impl AsFd) -> io::Result<OwnedFd> {
    let until = Instant::now() + WAIT_MAX;
    loop {
        let mut ready = [PollFd::new(listener, PollFlags::IN), PollFd::new(launcher, PollFlags::IN)];
        if !await_any(&mut ready, until)? {
            return Err(wrong(format!("{peer} has not called")));
        }
        if ready[0].revents().is_empty() {
            return Err(wrong(format!("the job is over before {peer} has called")));
        }
        let socket = accept_with(listener, SocketFlags::CLOEXEC)?;
        let caller = getpeername(&socket).ok().flatten();
        if caller.and_then(|caller| SocketAddrV4::try_from(caller).ok()) == Some(peer) {
            return Ok(socket);
        }
    }
}

/// Closes sockets with a reset, so that the kernel does not keep thousands of ports for a minute.
pub fn close_all(sockets: Vec<OwnedFd>) {
    for socket in sockets {
        // Errors are ignored: the kernel then only keeps the port.
        let _ = set_socket_linger(&socket, Some(Duration::ZERO));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpStream;
    use std::os::unix::net::UnixStream;

    #[test]
    fn only_the_socket_of_the_peer_is_accepted() {
        let make = |calls| make_all(Ipv4Addr::LOCALHOST, std::iter::once(calls)).unwrap();
        let ((near, near_values), (far, far_values)) = (make(false), make(true));
        let stranger = TcpStream::connect(near_values[0]).unwrap();
        let (launcher, other) = UnixStream::pair().unwrap();
        let called = connect_all(far, &near_values, &launcher).unwrap();
        let accepted = connect_all(near, &far_values, &launcher).unwrap();
        let peer = |socket: &OwnedFd| SocketAddrV4::try_from(getpeername(socket).unwrap().unwrap()).unwrap();
        assert_eq!((peer(&accepted[0]), peer(&called[0])), (far_values[0], near_values[0]));
        drop((stranger, other));
        // Waits end with an error once the launcher has closed its connection.
        let error = connect_all(make(false).0, &near_values, &launcher).unwrap_err().to_string();
        assert!(error.contains("over before"), "{error}");
    }
}
