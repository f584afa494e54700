//! Makes named Unix sockets between processes of one user on this machine.
//!
//! All descriptors made here are close-on-exec.

use rustix::io::retry_on_intr;
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// Suffix of the name under which a socket is bound until it listens.
const UNHEARD: &str = ".new";

/// Number of connections to an abstract name that may wait to be accepted.
const ABSTRACT_BACKLOG: i32 = 64;

/// The process at the other end of a connection, as of the time when it called `listen` or `connect`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PeerProcess {
    /// Pid; 0: the process is not visible in this PID namespace.
    pub pid: u32,
    pub user: u32,
}

/// Makes a non-blocking stream socket that listens at `path`. The name appears only once the socket listens, so a
/// client that finds it can connect. The caller ensures that no other process creates a socket there at the same time.
///
/// # Errors
/// `AddrInUse`: the path exists. `InvalidFilename`: the path is longer than 103 bytes.
pub fn listen(path: &Path, backlog: i32) -> io::Result<OwnedFd> {
    if rustix::fs::lstat(path).is_ok() {
        return Err(rustix::io::Errno::ADDRINUSE.into());
    }
    let socket = stream()?;
    let mut unheard = path.as_os_str().to_owned();
    unheard.push(UNHEARD);
    let unheard = Path::new(&unheard);
    // A process that was killed before the rename may have left such a socket behind.
    let _ = std::fs::remove_file(unheard);
    net::bind(&socket, &SocketAddrUnix::new(unheard)?)?;
    let listening = rustix::fs::chmod(unheard, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR)
        .and_then(|()| net::listen(&socket, backlog))
        .and_then(|()| rustix::fs::rename(unheard, path));
    if let Err(error) = listening {
        let _ = std::fs::remove_file(unheard);
        return Err(error.into());
    }
    Ok(socket)
}

/// Connects to the socket at `path`; the returned socket is blocking.
///
/// # Errors
/// `ConnectionRefused`: no process listens there any more. `WouldBlock`: the queue of waiting connections is full.
pub fn connect(path: &Path) -> io::Result<OwnedFd> {
    let socket = stream()?;
    retry_on_intr(|| net::connect(&socket, &SocketAddrUnix::new(path)?))?;
    crate::files::set_nonblocking(&socket, false)?;
    Ok(socket)
}

/// Makes a non-blocking stream socket that listens at an abstract name, which vanishes when the socket is closed.
///
/// # Errors
/// `AddrInUse`: another socket of this network namespace has the name.
pub fn listen_abstract(name: &[u8]) -> io::Result<OwnedFd> {
    let socket = stream()?;
    net::bind(&socket, &SocketAddrUnix::new_abstract_name(name)?)?;
    net::listen(&socket, ABSTRACT_BACKLOG)?;
    Ok(socket)
}

/// Connects to the socket that listens at an abstract name; the returned socket is non-blocking.
///
/// # Errors
/// No socket of this network namespace listens at the name, or its queue of waiting connections is full (`WouldBlock`).
pub fn connect_abstract(name: &[u8]) -> io::Result<OwnedFd> {
    let socket = stream()?;
    net::connect(&socket, &SocketAddrUnix::new_abstract_name(name)?)?;
    Ok(socket)
}

/// Accepts the next waiting connection; the returned socket is non-blocking.
pub fn accept(listener: impl AsFd) -> io::Result<OwnedFd> {
    Ok(retry_on_intr(|| net::accept_with(&listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK))?)
}

pub fn peer(socket: impl AsFd) -> io::Result<PeerProcess> {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes, the size of `peer`. (rustix's function rejects a pid of 0.)
    let result = unsafe {
        let fd = socket.as_fd().as_raw_fd();
        libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_PEERCRED, (&raw mut peer).cast(), &raw mut length)
    };
    match result {
        0 => Ok(PeerProcess { pid: peer.pid as u32, user: peer.uid }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Makes a non-blocking socket for datagrams of processes of this machine. Its abstract name, which is also returned,
/// begins with `kind` and is unique.
pub fn mailbox(kind: &[u8]) -> io::Result<(OwnedFd, Vec<u8>)> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = net::socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None)?;
    sockopt::set_socket_passcred(&socket, true)?;
    let name = crate::socket::name(&socket, kind)?;
    Ok((socket, name))
}

/// A datagram that has arrived.
pub struct Letter {
    pub bytes: usize,
    /// The user whose process has sent the datagram.
    pub user: u32,
    /// The address of the sender, if it has one to which an answer can be sent.
    from: Option<SocketAddrUnix>,
}

/// Receives one datagram; descriptors that were sent with it are closed.
pub fn receive_letter(mailbox: impl AsFd, buffer: &mut [u8]) -> io::Result<Letter> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmCredentials(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut slices = [IoSliceMut::new(buffer)];
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let message = retry_on_intr(|| net::recvmsg(&mailbox, &mut slices, &mut control, flags))?;
    let user = control.drain().find_map(|part| match part {
        RecvAncillaryMessage::ScmCredentials(of) => Some(of.uid.as_raw()),
        _ => None,
    });
    let from = message.address.and_then(|address| SocketAddrUnix::try_from(address).ok());
    Ok(Letter { bytes: message.bytes, user: user.unwrap_or(u32::MAX), from })
}

/// Answers a datagram with bytes and descriptors. Never blocks.
///
/// # Errors
/// The sender's socket is closed, or has no room.
pub fn answer_letter(mailbox: impl AsFd, letter: &Letter, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let to = letter.from.as_ref().ok_or(io::ErrorKind::AddrNotAvailable)?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    retry_on_intr(|| net::sendmsg_addr(&mailbox, to, &[IoSlice::new(bytes)], &mut control, flags))?;
    Ok(())
}

fn stream() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_letter_tells_its_user_and_is_answered_with_a_descriptor() {
        let (here, name) = mailbox(b"test").unwrap();
        let (there, own_name) = mailbox(b"test").unwrap();
        assert!(name.starts_with(b"test") && name != own_name);
        let to = SocketAddrUnix::new_abstract_name(&name).unwrap();
        net::sendto(&there, b"hello", SendFlags::empty(), &to).unwrap();
        let mut buffer = [0; 16];
        let letter = receive_letter(&here, &mut buffer).unwrap();
        assert_eq!((&buffer[..letter.bytes], letter.user), (&b"hello"[..], rustix::process::geteuid().as_raw()));
        assert_eq!(receive_letter(&here, &mut buffer).err().unwrap().kind(), io::ErrorKind::WouldBlock);
        let (near, far) = crate::socket::pair().unwrap();
        answer_letter(&here, &letter, b"y", &[far.as_fd()]).unwrap();
        let mut fds = std::collections::VecDeque::new();
        assert_eq!(crate::socket::receive(&there, &mut buffer, &mut fds).unwrap(), 1);
        rustix::io::write(&near, b"through").unwrap();
        assert_eq!(rustix::io::read(&fds[0], &mut buffer).unwrap(), 7);
        drop(there);
        assert!(answer_letter(&here, &letter, b"y", &[]).is_err());
    }

    #[test]
    fn a_socket_path_is_reachable_only_while_listened_on() {
        let path = std::env::temp_dir().join(format!("wireup-local-{}", crate::process::own_pid()));
        let listener = listen(&path, 4).unwrap();
        assert_eq!(listen(&path, 4).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        assert_eq!(accept(&listener).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        let near = connect(&path).unwrap();
        let far = accept(&listener).unwrap();
        let own = PeerProcess { pid: crate::process::own_pid(), user: rustix::process::geteuid().as_raw() };
        assert_eq!((peer(&near).unwrap(), peer(&far).unwrap()), (own, own));
        drop(listener);
        assert_eq!(connect(&path).unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(connect(&path).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(listen(Path::new(&"x".repeat(120)), 4).unwrap_err().kind(), io::ErrorKind::InvalidFilename);
    }
}
