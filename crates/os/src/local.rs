//! Named Unix sockets between processes of one user on this machine.
//!
//! Everything made here is close-on-exec.

use rustix::io::retry_on_intr;
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

/// Suffix of a socket's temporary name until it listens.
const UNHEARD: &str = ".new";

/// The process at the other end of a connection, as of the moment when it listened or connected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PeerProcess {
    /// 0: the process is not visible in this PID namespace.
    pub pid: u32,
    pub user: u32,
}

/// Makes a non-blocking stream socket that listens at `path`. The name appears only once the socket listens, so a client that finds it
/// can connect. The caller ensures that no other process creates a socket there at the same time.
///
/// # Errors
/// `AddrInUse`: the path exists. `InvalidFilename`: the path is longer than 103 bytes.
pub fn listen(path: &Path, backlog: i32) -> io::Result<OwnedFd> {
    if rustix::fs::lstat(path).is_ok() {
        return Err(rustix::io::Errno::ADDRINUSE.into());
    }
    let socket = stream(SocketFlags::NONBLOCK)?;
    let mut unheard = path.as_os_str().to_owned();
    unheard.push(UNHEARD);
    let unheard = Path::new(&unheard);
    // Left behind by a process that was killed before the rename.
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

/// Connects; the socket blocks.
///
/// # Errors
/// `ConnectionRefused`: no process listens there any more. `WouldBlock`: the queue of waiting connections is full.
pub fn connect(path: &Path) -> io::Result<OwnedFd> {
    let socket = stream(SocketFlags::NONBLOCK)?;
    retry_on_intr(|| net::connect(&socket, &SocketAddrUnix::new(path)?))?;
    crate::files::set_nonblocking(&socket, false)?;
    Ok(socket)
}

/// Accepts the next waiting connection; the socket is non-blocking.
///
/// # Errors
/// `WouldBlock`: there is none.
pub fn accept(listener: impl AsFd) -> io::Result<OwnedFd> {
    Ok(retry_on_intr(|| net::accept_with(&listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK))?)
}

/// # Errors
/// `socket` is not a connected Unix socket.
pub fn peer(socket: impl AsFd) -> io::Result<PeerProcess> {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes, the size of `peer`. (rustix's version does not accept a pid of 0.)
    let result = unsafe {
        let fd = socket.as_fd().as_raw_fd();
        libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_PEERCRED, (&raw mut peer).cast(), &raw mut length)
    };
    match result {
        0 => Ok(PeerProcess { pid: peer.pid as u32, user: peer.uid }),
        _ => Err(io::Error::last_os_error()),
    }
}

fn stream(flags: SocketFlags) -> io::Result<OwnedFd> {
    Ok(net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC | flags, None)?)
}

#[cfg(test)]
mod tests {
    use super::*;

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
