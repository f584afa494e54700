//! Sockets: pairs between processes of this machine, with descriptors as freight, TCP between agents.
//!
//! Everything made here is close-on-exec. TCP sockets are non-blocking with `TCP_NODELAY`: frames are written
//! whole, there is nothing to wait for.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::sockopt;
use rustix::net::{self, AddressFamily, SocketFlags, SocketType};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};
use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// Most descriptors of one message: the kernel's `SCM_MAX_FD`.
pub const FDS_MAX: usize = 253;

/// A connected pair of Unix stream sockets, both blocking.
///
/// # Errors
/// No descriptor is left.
pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?)
}

/// Sends bytes, and with the first of them up to [`FDS_MAX`] descriptors. Returns how many bytes went; the
/// descriptors went if that is not an error. Never raises `SIGPIPE`, never blocks.
///
/// # Errors
/// `WouldBlock`: nothing was sent. `ETOOMANYREFS`: the user has too many descriptors under way; try later.
pub fn send(socket: impl AsFd, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        assert!(control.push(SendAncillaryMessage::ScmRights(fds)), "at most FDS_MAX descriptors a message");
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    Ok(retry_on_intr(|| net::sendmsg(&socket, &[IoSlice::new(bytes)], &mut control, flags))?)
}

/// Receives bytes into `buffer` and appends the descriptors that came with them to `fds`. `Ok(0)` is the end of
/// the stream. Never blocks.
///
/// # Errors
/// `WouldBlock`: nothing is there. `EMFILE`: descriptors were lost because this process may not hold so many;
/// the stream is of no use any more.
pub fn receive(socket: impl AsFd, buffer: &mut [u8], fds: &mut VecDeque<OwnedFd>) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let mut slices = [IoSliceMut::new(buffer)];
    let message = retry_on_intr(|| net::recvmsg(&socket, &mut slices, &mut control, flags))?;
    for part in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = part {
            fds.extend(rights);
        }
    }
    if message.flags.contains(ReturnFlags::CTRUNC) {
        return Err(Errno::MFILE.into());
    }
    Ok(message.bytes)
}

/// Waits for one descriptor. `Ok(false)`: the time is over.
///
/// # Errors
/// Those of `poll`.
pub fn wait(fd: impl AsFd, readable: bool, writable: bool, timeout: Option<Duration>) -> io::Result<bool> {
    let mut flags = PollFlags::empty();
    flags.set(PollFlags::IN, readable);
    flags.set(PollFlags::OUT, writable);
    let timeout = timeout.map(|t| Timespec { tv_sec: t.as_secs() as i64, tv_nsec: t.subsec_nanos().into() });
    let ready = retry_on_intr(|| poll(&mut [PollFd::new(&fd, flags)], timeout.as_ref()))?;
    Ok(ready > 0)
}

/// A TCP socket that listens on `address` (port 0: any).
///
/// # Errors
/// The address is not of this machine or in use.
pub fn listen(address: SocketAddr, backlog: i32) -> io::Result<OwnedFd> {
    let socket = tcp(address)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    net::bind(&socket, &address)?;
    net::listen(&socket, backlog)?;
    Ok(socket)
}

/// Where a socket listens or is connected from.
///
/// # Errors
/// `socket` is not a TCP socket.
pub fn local_address(socket: impl AsFd) -> io::Result<SocketAddr> {
    Ok(SocketAddr::try_from(net::getsockname(socket)?)?)
}

/// The next connection that waits on a listening socket, with its peer.
///
/// # Errors
/// `WouldBlock`: there is none.
pub fn accept(listener: impl AsFd) -> io::Result<(OwnedFd, SocketAddr)> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (socket, peer) = retry_on_intr(|| net::acceptfrom_with(&listener, flags))?;
    sockopt::set_tcp_nodelay(&socket, true)?;
    let peer = peer.map(SocketAddr::try_from).ok_or(Errno::NOTCONN)??;
    Ok((socket, peer))
}

/// Begins to connect. When the socket gets writable, [`dial_result`] says how it went.
///
/// # Errors
/// What can be told at once: no descriptor, no route.
pub fn dial(address: SocketAddr) -> io::Result<OwnedFd> {
    let socket = tcp(address)?;
    match net::connect(&socket, &address) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
        Err(error) => Err(error.into()),
    }
}

/// Whether a dialled socket that got writable is connected.
///
/// # Errors
/// Why it is not.
pub fn dial_result(socket: impl AsFd) -> io::Result<()> {
    Ok(sockopt::socket_error(socket)??)
}

fn tcp(address: SocketAddr) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = net::socket_with(family, SocketType::STREAM, flags, None)?;
    sockopt::set_tcp_nodelay(&socket, true)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::pipe;

    #[test]
    fn descriptors_arrive_with_the_first_byte() {
        let (here, there) = pair().unwrap();
        let (reader, writer) = pipe().unwrap();
        let many: Vec<BorrowedFd> = std::iter::repeat_n(writer.as_fd(), FDS_MAX).collect();
        assert_eq!(send(&here, b"abc", &many).unwrap(), 3);
        let mut fds = VecDeque::new();
        let mut buffer = [0u8; 2];
        assert_eq!(receive(&there, &mut buffer, &mut fds).unwrap(), 2);
        assert_eq!(fds.len(), FDS_MAX);
        drop(writer);
        rustix::io::write(&fds[FDS_MAX - 1], b"!").unwrap();
        assert_eq!(rustix::io::read(&reader, &mut buffer[..]).unwrap(), 1);
        assert_eq!(receive(&there, &mut buffer, &mut fds).unwrap(), 1);
        assert_eq!(receive(&there, &mut buffer, &mut fds).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        net::shutdown(&here, net::Shutdown::Write).unwrap();
        assert_eq!(receive(&there, &mut buffer, &mut fds).unwrap(), 0);
    }

    #[test]
    fn a_dialled_connection_is_accepted() {
        let listener = listen("127.0.0.1:0".parse().unwrap(), 8).unwrap();
        let dialled = dial(local_address(&listener).unwrap()).unwrap();
        assert!(wait(&listener, true, false, None).unwrap());
        let (accepted, peer) = accept(&listener).unwrap();
        assert!(wait(&dialled, false, true, None).unwrap());
        dial_result(&dialled).unwrap();
        assert_eq!(peer, local_address(&dialled).unwrap());
        assert!(sockopt::tcp_nodelay(&accepted).unwrap());
        assert_eq!(accept(&listener).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn a_refused_connection_says_so() {
        let listener = listen("127.0.0.1:0".parse().unwrap(), 8).unwrap();
        let address = local_address(&listener).unwrap();
        drop(listener);
        let refused = dial(address).and_then(|socket| {
            wait(&socket, false, true, None)?;
            dial_result(&socket)
        });
        assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
    }
}
