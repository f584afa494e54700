//! Carries the bytes of one link: over a connected socket (TCP between machines, a Unix socket on this one), or between
//! two UCX endpoints.
//!
//! A carrier keeps bytes in order and loses none, or fails. A carrier never blocks. A carrier knows neither secrets nor
//! frames: [`super::link`] handles secrets and frames in the same way on every carrier.

use bytes::{Buf, Bytes};
use rustix::buffer::spare_capacity;
use rustix::io::retry_on_intr;
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;
use wireup_os::reactor::{Interest, Reactor};
use wireup_os::socket::{self, Unacknowledged};

/// The result of a read.
pub enum Came<'b> {
    /// Bytes that were read into the caller's buffer.
    Read(&'b [u8]),
    /// Bytes in a buffer that the carrier has allocated.
    Whole(Bytes),
    /// The peer has closed the link properly.
    End,
}

impl Came<'_> {
    /// The bytes that were read; empty at the end of the link.
    pub fn as_slice(&self) -> &[u8] {
        match self {
            Came::Read(bytes) => bytes,
            Came::Whole(bytes) => bytes,
            Came::End => &[],
        }
    }

    pub fn into_bytes(self) -> Bytes {
        match self {
            Came::Read(bytes) => Bytes::copy_from_slice(bytes),
            Came::Whole(bytes) => bytes,
            Came::End => Bytes::new(),
        }
    }
}

pub trait Carrier {
    /// Makes the reactor or the carrier's transport report events of the link with `token`. Called again when the
    /// interest changes.
    fn watch(&mut self, token: u64, interest: Interest, reactor: &Reactor) -> io::Result<()>;

    /// Stops events for the link.
    fn unwatch(&mut self, reactor: &Reactor);

    /// Handles an event: there may be room to write, or the attempt to connect has ended.
    fn on_writable(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Sends as many of these bytes as possible; returns the number of bytes sent.
    ///
    /// # Errors
    /// `WouldBlock`: there is no room now; an event follows when there is room. Other errors end the link.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize>;

    /// Sends as many of these pieces as possible and removes the bytes that were sent.
    fn write_pieces(&mut self, pieces: &mut VecDeque<Bytes>) -> io::Result<()>;

    /// Reads once.
    ///
    /// # Errors
    /// `WouldBlock`: nothing is available. Other errors end the link.
    fn read<'b>(&mut self, buffer: &'b mut [u8]) -> io::Result<Came<'b>>;

    /// Whether `read` must be called again before waiting, because no event will report data that has already arrived.
    fn has_more(&self) -> bool {
        false
    }

    /// Data, besides the terms, that both ends of the link know beforehand: the handshake proves that they agree on it.
    fn binding(&self) -> &[u8] {
        &[]
    }

    /// Notes that the peer has proved that it knows the secret.
    fn on_proved(&mut self) {}

    /// Makes the link fail if the peer sends no acknowledgement for the time `_patience`.
    fn keep_alive(&mut self, _patience: Duration) -> io::Result<()> {
        Ok(())
    }

    #[cfg(test)]
    fn is_kept_alive(&self) -> bool {
        false
    }

    /// Whether the peer acknowledges the written bytes, if the carrier knows this.
    fn silence(&self) -> Unacknowledged {
        Unacknowledged::Nothing
    }

    /// The address at this end of the link, if this end has an address.
    fn local_address(&self) -> Option<IpAddr> {
        None
    }
}

/// Most pieces in one `writev`. Chosen: above this the system call is a small part of the cost.
const WRITE_PIECES_MAX: usize = 64;
/// After a read of at least this many bytes, the next read uses a separately allocated buffer (chosen: a quarter of the
/// caller's buffer).
const LARGE: usize = 64 << 10;

pub struct Socket {
    fd: OwnedFd,
    connecting: bool,
    watched: bool,
    /// Buffer for the next read, if the last read was large.
    large: Option<Vec<u8>>,
    /// Whether both ends are on this machine.
    local: bool,
}

impl Socket {
    /// A carrier for a socket that was dialled and is not connected yet.
    pub fn dialled(fd: OwnedFd) -> Socket {
        Socket { connecting: true, ..Socket::accepted(fd) }
    }

    /// A carrier for a socket that was accepted.
    pub fn accepted(fd: OwnedFd) -> Socket {
        Socket { fd, connecting: false, watched: false, large: None, local: false }
    }

    /// A carrier for a socket to a process on this machine.
    pub fn local(fd: OwnedFd) -> Socket {
        Socket { local: true, ..Socket::accepted(fd) }
    }

    fn check_connected(&self) -> io::Result<()> {
        if self.connecting { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(()) }
    }
}

impl Carrier for Socket {
    fn watch(&mut self, token: u64, interest: Interest, reactor: &Reactor) -> io::Result<()> {
        if self.watched {
            return reactor.modify(&self.fd, token, interest);
        }
        reactor.add(&self.fd, token, interest)?;
        self.watched = true;
        Ok(())
    }

    fn unwatch(&mut self, reactor: &Reactor) {
        if std::mem::take(&mut self.watched) {
            let _ = reactor.remove(&self.fd);
        }
    }

    fn on_writable(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.connecting) {
            socket::dial_result(&self.fd)?;
        }
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.check_connected()?;
        Ok(retry_on_intr(|| rustix::io::write(&self.fd, bytes))?)
    }

    fn write_pieces(&mut self, pieces: &mut VecDeque<Bytes>) -> io::Result<()> {
        self.check_connected()?;
        let mut slices = [IoSlice::new(&[]); WRITE_PIECES_MAX];
        let count = pieces.len().min(WRITE_PIECES_MAX);
        for (slot, piece) in slices.iter_mut().zip(&*pieces) {
            *slot = IoSlice::new(piece);
        }
        let written = retry_on_intr(|| rustix::io::writev(&self.fd, &slices[..count]))?;
        advance(pieces, written);
        Ok(())
    }

    fn read<'b>(&mut self, buffer: &'b mut [u8]) -> io::Result<Came<'b>> {
        // After a large read, the next read uses a newly allocated buffer, which is passed on without a copy. A link on
        // which nothing arrives keeps no such buffer.
        let (length, own) = match self.large.take() {
            Some(mut own) => (rustix::io::read(&self.fd, spare_capacity(&mut own)), own),
            None => (rustix::io::read(&self.fd, &mut *buffer), Vec::new()),
        };
        let length = match length {
            Ok(0) => return Ok(Came::End),
            Ok(length) => length,
            Err(rustix::io::Errno::INTR) => return Err(io::ErrorKind::WouldBlock.into()),
            Err(error) => return Err(error.into()),
        };
        if length >= LARGE {
            self.large = Some(Vec::with_capacity(buffer.len()));
        }
        match own.len() {
            0 => Ok(Came::Read(&buffer[..length])),
            LARGE.. => Ok(Came::Whole(own.into())),
            _ => {
                buffer[..length].copy_from_slice(&own);
                Ok(Came::Read(&buffer[..length]))
            }
        }
    }

    fn keep_alive(&mut self, patience: Duration) -> io::Result<()> {
        if self.local {
            // No probes are needed: the kernel reports at once when a local peer has closed the socket.
            return Ok(());
        }
        socket::keep_alive(&self.fd, patience)
    }

    #[cfg(test)]
    fn is_kept_alive(&self) -> bool {
        rustix::net::sockopt::socket_keepalive(&self.fd).unwrap()
    }

    fn silence(&self) -> Unacknowledged {
        if self.local {
            return Unacknowledged::Nothing;
        }
        // If the kernel does not report the state, the link is treated as acknowledged, so that it does not fail.
        socket::silence(&self.fd).unwrap_or(Unacknowledged::Answered)
    }

    fn local_address(&self) -> Option<IpAddr> {
        if self.local {
            return None;
        }
        socket::local_address(&self.fd).ok().map(|address| address.ip())
    }
}

fn advance(pieces: &mut VecDeque<Bytes>, mut written: usize) {
    while let Some(piece) = pieces.front_mut() {
        if piece.len() > written {
            return piece.advance(written);
        }
        written -= piece.len();
        pieces.pop_front();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    #[test]
    fn pieces_leave_in_order_and_unsent_bytes_stay() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let mut socket = Socket::local(ours.into());
        socket.keep_alive(Duration::from_secs(1)).expect("keepalive is not set on a Unix socket");
        let sizes = [3, 0, 300_000, 1, 2_000_000];
        let whole: Vec<u8> = (0..sizes.iter().sum()).map(|byte: usize| (byte % 251) as u8).collect();
        let mut rest = Bytes::from(whole.clone());
        let mut pieces: VecDeque<Bytes> = sizes.iter().map(|size| rest.split_to(*size)).collect();
        let reader = std::thread::spawn(move || {
            let mut read = Vec::new();
            theirs.read_to_end(&mut read).map(|_| read)
        });
        while !pieces.is_empty() {
            if let Err(error) = socket.write_pieces(&mut pieces) {
                assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
                socket::wait(&socket.fd, false, true, None).unwrap();
            }
        }
        drop(socket);
        assert!(reader.join().unwrap().unwrap() == whole);
    }

    #[test]
    fn nothing_is_sent_before_the_connection_is_established() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut socket = Socket::dialled(socket::dial(listener.local_addr().unwrap(), None).unwrap());
        assert_eq!(socket.write(b"x").unwrap_err().kind(), io::ErrorKind::WouldBlock);
        socket::wait(&socket.fd, false, true, None).unwrap();
        socket.on_writable().unwrap();
        assert_eq!(socket.write(b"x").unwrap(), 1);
    }
}
