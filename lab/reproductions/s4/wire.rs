//! Messages between launcher, agents and processes, over channels that count what they send; and the secret with which
//! each connection to a launcher or an agent begins.
//!
//! ```text
//!   0     1     2        4          8
//!   ┌─────┬─────┬────────┬──────────┬───────
//!   │kind │  0  │  who   │  length  │ body        integers are little-endian
//!   └─────┴─────┴────────┴──────────┴───────
//! ```
//!
//! A receiver always knows which kinds may come and how long their bodies may be, so no message of a stranger makes it
//! allocate memory.
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::net::sockopt::{Timeout, set_socket_timeout, set_tcp_nodelay};
use wireup_bench::command::await_any;

/// Longest wait for a message (chosen: twice as long as the slowest initiation of 1,024 processes by ssh).
pub const WAIT_MAX: Duration = Duration::from_secs(300);
/// Time within which a process that connects must send the secret (chosen).
const HELLO_MAX: Duration = Duration::from_secs(2);
pub const HEADER_LEN: usize = 8;
pub const SECRET_LEN: usize = 16;

/// The secret of a launcher or of standing agents.
pub type Secret = [u8; SECRET_LEN];

/// A number of messages, and their bytes with headers.
pub type Count = [u64; 2];

/// The count of `messages` messages with bodies of `body_bytes` bytes each.
pub fn sent(messages: u64, body_bytes: u64) -> Count {
    [messages, messages * (HEADER_LEN as u64 + body_bytes)]
}

pub fn sum(counts: impl IntoIterator<Item = Count>) -> Count {
    counts.into_iter().fold([0, 0], |[messages, bytes], count| [messages + count[0], bytes + count[1]])
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The secret, sent by the side that has connected.
    Hello,
    /// Values of processes for others: to and from the launcher, around the ring or through the hypercube of processes,
    /// as a put, through the hypercube of agents.
    Values,
    /// A request to start processes.
    Launch,
    /// Sent by a process, and around the ring of agents: all processes so far are in the fence.
    Fence,
    /// Sent around the ring of agents, and to processes: the fence has completed.
    Released,
    Get,
    Value,
    /// All processes run: stops a clock of the launcher. This kind and those below are not counted: they belong to the
    /// measurement and not to a scheme.
    Started,
    /// Times and counts of a process, or of all processes of some agents.
    Report,
    /// All processes are connected and may exit.
    Leave,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    pub kind: Kind,
    /// The sender or subject: a rank, the number of an agent, or the number of a bit in one of these.
    pub who: u16,
    pub body: Vec<u8>,
}

/// One end of a connection, with blocking reads and writes.
pub struct Channel {
    file: File,
    /// Messages and bytes sent so far, without the kinds that are not counted.
    pub sent: Count,
}

impl Channel {
    /// A channel over a socket, or over a pipe that is only read.
    pub fn new(descriptor: impl Into<OwnedFd>) -> Channel {
        let channel = Channel { file: File::from(descriptor.into()), sent: [0, 0] };
        // Errors are ignored: a Unix socket has no such option, and a pipe has neither this option nor a time limit.
        let _ = set_tcp_nodelay(&channel, true);
        channel.wait_at_most(WAIT_MAX);
        channel
    }

    /// Sets the time limit of each of the waits that follow.
    pub fn wait_at_most(&self, limit: Duration) {
        let _ = (
            set_socket_timeout(&self.file, Timeout::Recv, Some(limit)),
            set_socket_timeout(&self.file, Timeout::Send, Some(limit)),
        );
    }

    pub fn send(&mut self, kind: Kind, who: u16, body: &[u8]) -> io::Result<()> {
        let mut bytes = vec![kind as u8, 0];
        bytes.extend(who.to_le_bytes());
        bytes.extend((body.len() as u32).to_le_bytes());
        bytes.extend(body);
        self.file.write_all(&bytes)?;
        if (kind as u8) < Kind::Started as u8 {
            self.sent = sum([self.sent, sent(1, body.len() as u64)]);
        }
        Ok(())
    }

    /// Receives a message, which must be of this kind, with a body of this length.
    pub fn receive(&mut self, kind: Kind, body_len: usize) -> io::Result<Message> {
        let message = self.receive_any(&[kind], body_len)?;
        match message.body.len() == body_len {
            true => Ok(message),
            false => Err(wrong(format!("{kind:?} of {} bytes, not {body_len}", message.body.len()))),
        }
    }

    /// Receives a message, which must be of one of these kinds, with a body of at most this length.
    pub fn receive_any(&mut self, kinds: &[Kind], body_len_max: usize) -> io::Result<Message> {
        let mut header = [0; HEADER_LEN];
        self.file.read_exact(&mut header)?;
        let [number, _, low, high, length @ ..] = header;
        let kind = kinds.iter().copied().find(|kind| *kind as u8 == number);
        let kind = kind.ok_or_else(|| wrong(format!("message {number}, expected {kinds:?}")))?;
        let length = u32::from_le_bytes(length) as usize;
        if length > body_len_max {
            return Err(wrong(format!("{kind:?} of {length} bytes, more than {body_len_max}")));
        }
        let mut body = vec![0; length];
        self.file.read_exact(&mut body)?;
        Ok(Message { kind, who: u16::from_le_bytes([low, high]), body })
    }

    /// Waits until the other end has closed the connection.
    pub fn await_end(&mut self) {
        let mut rest = [0; 64];
        // If a wait has reached the socket's time limit, it is repeated.
        while match self.file.read(&mut rest) {
            Ok(count) => count > 0,
            Err(error) => error.kind() == io::ErrorKind::WouldBlock,
        } {}
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Connects and sends the secret; `who`: number of this side, for the other side.
pub fn call(address: SocketAddrV4, secret: &Secret, who: u16) -> io::Result<Channel> {
    let mut channel = Channel::new(TcpStream::connect_timeout(&address.into(), WAIT_MAX)?);
    channel.send(Kind::Hello, who, secret)?;
    Ok(channel)
}

/// Accepts the next connection whose first message has the secret; returns the channel, and the number of the other
/// side.
///
/// # Errors
/// Nobody with the secret has connected in time.
pub fn await_caller(listener: &TcpListener, secret: &Secret, until: Instant) -> io::Result<(Channel, u16)> {
    while await_any(&mut [PollFd::new(listener, PollFlags::IN)], until)? {
        let mut channel = Channel::new(listener.accept()?.0);
        channel.wait_at_most(HELLO_MAX);
        let Ok(hello) = channel.receive(Kind::Hello, SECRET_LEN) else { continue };
        channel.wait_at_most(WAIT_MAX);
        // Compares in constant time, so that the duration does not show how many bytes are right.
        if hello.body.iter().zip(secret).fold(0, |differ, (theirs, own)| differ | (theirs ^ own)) == 0 {
            return Ok((channel, hello.who));
        }
    }
    Err(io::Error::new(io::ErrorKind::TimedOut, "nobody has called in time"))
}

pub fn wrong(what: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;
    use std::os::unix::net::UnixStream;
    use wireup_os::random;

    #[test]
    fn what_nobody_expects_is_refused() {
        for (bytes, why) in [
            (&[99, 0, 0, 0, 0, 0, 0, 0][..], "message 99, expected [Values]"),
            (&[1, 0, 0, 0, 255, 255, 255, 255], "more than 3"),
            (&[1, 0, 0, 0, 2, 0, 0, 0, 9, 9], "Values of 2 bytes, not 3"),
            (&[1, 0, 0], "fill"),
        ] {
            let (mut near, far) = UnixStream::pair().unwrap();
            near.write_all(bytes).unwrap();
            drop(near);
            let error = Channel::new(far).receive(Kind::Values, 3).unwrap_err().to_string();
            assert!(error.contains(why), "{bytes:?}: {error}");
        }
    }

    #[test]
    fn only_who_knows_the_secret_gets_in() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = SocketAddrV4::new(Ipv4Addr::LOCALHOST, listener.local_addr().unwrap().port());
        let secret = random::bytes().unwrap();
        let _stranger = call(address, &[7; SECRET_LEN], 1).unwrap();
        let _known = call(address, &secret, 300).unwrap();
        assert_eq!(await_caller(&listener, &secret, Instant::now() + WAIT_MAX).unwrap().1, 300);
    }
}
