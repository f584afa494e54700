//! Sockets that are made for one peer each: their addresses are the values that processes exchange.
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::net::sockopt::set_socket_linger;
use rustix::net::{
    AddressFamily, SocketFlags, SocketType, accept_with, bind, connect, getsockname, listen, socket_with,
};

use wireup_bench::net::await_any;

use super::message::{WAIT_MAX, wrong};

/// A socket of this address; its port is the kernel's choice. It listens unless this process calls.
pub fn make(address: Ipv4Addr, calls: bool) -> io::Result<(OwnedFd, SocketAddrV4)> {
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    bind(&socket, &SocketAddrV4::new(address, 0))?;
    if !calls {
        // One peer calls; others may too.
        listen(&socket, 8)?;
    }
    let value = SocketAddrV4::try_from(getsockname(&socket)?)?;
    Ok((socket, value))
}

/// Sockets and their addresses, one for each of `peers`; this process calls those that `calls` says.
pub fn make_all(
    address: Ipv4Addr,
    peers: impl IntoIterator<Item = bool>,
) -> io::Result<(Vec<Half>, Vec<SocketAddrV4>)> {
    let made =
        peers.into_iter().map(|calls| make(address, calls).map(|(socket, value)| (Half { socket, calls }, value)));
    Ok(made.collect::<io::Result<Vec<_>>>()?.into_iter().unzip())
}

/// A socket that is not yet connected.
pub struct Half {
    socket: OwnedFd,
    calls: bool,
}

/// Connects each socket with its peer's. `launcher` is readable if there is no use in waiting.
pub fn connect_all(halves: Vec<Half>, peers: &[SocketAddrV4], launcher: &impl AsFd) -> io::Result<Vec<OwnedFd>> {
    // Connections complete before they are accepted, so nobody waits for one who waits.
    for (half, peer) in halves.iter().zip(peers).filter(|(half, _)| half.calls) {
        connect(&half.socket, peer).map_err(|error| wrong(format!("connection to {peer}: {error}")))?;
    }
    let finished = halves.into_iter().zip(peers).map(|(half, peer)| match half.calls {
        true => Ok(half.socket),
        false => accept_from(&half.socket, *peer, launcher),
    });
    finished.collect()
}

/// The connection of this peer; strangers are dropped.
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
        let caller = rustix::net::getpeername(&socket).ok().flatten();
        if caller.and_then(|caller| SocketAddrV4::try_from(caller).ok()) == Some(peer) {
            return Ok(socket);
        }
    }
}

/// Closes at once, so that the kernel does not keep thousands of ports for a minute.
pub fn close(socket: OwnedFd) {
    // If it fails, the port is kept.
    let _ = set_socket_linger(&socket, Some(Duration::ZERO));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpStream;
    use std::os::unix::net::UnixStream;

    #[test]
    fn only_the_socket_of_the_peer_is_accepted() {
        let local = Ipv4Addr::LOCALHOST;
        let (near, near_values) = make_all(local, [false]).unwrap();
        let (far, far_values) = make_all(local, [true]).unwrap();
        let stranger = TcpStream::connect(near_values[0]).unwrap();
        let (launcher, _other) = UnixStream::pair().unwrap();
        let called = connect_all(far, &near_values, &launcher).unwrap();
        let accepted = connect_all(near, &far_values, &launcher).unwrap();
        let peer =
            |socket: &OwnedFd| SocketAddrV4::try_from(rustix::net::getpeername(socket).unwrap().unwrap()).unwrap();
        assert_eq!((peer(&accepted[0]), peer(&called[0])), (far_values[0], near_values[0]));
        drop(stranger);
    }

    #[test]
    fn a_process_does_not_wait_once_its_launcher_is_gone() {
        let (near, _) = make_all(Ipv4Addr::LOCALHOST, [false]).unwrap();
        let (launcher, other) = UnixStream::pair().unwrap();
        drop(other);
        let error = connect_all(near, &[SocketAddrV4::new(Ipv4Addr::LOCALHOST, 1)], &launcher).unwrap_err();
        assert!(error.to_string().contains("over before"), "{error}");
    }
}
