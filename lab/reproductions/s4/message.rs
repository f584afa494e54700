//! Messages between launcher, agents and processes, over a channel that counts what it sends.
//!
//! ```text
//!   0     1     2        4          8
//!   ┌─────┬─────┬────────┬──────────┬───────
//!   │kind │ job │  who   │  length  │ body        integers are little-endian
//!   └─────┴─────┴────────┴──────────┴───────
//! ```
//!
//! A receiver always knows how long a body may be, so nothing that a stranger sends allocates memory.
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::net::sockopt::{Timeout, set_socket_timeout, set_tcp_nodelay};

use super::traffic::Count;

pub const HEADER_LEN: usize = 8;
/// The secret with which every connection to a launcher or an agent begins.
pub const SECRET_LEN: usize = 16;
/// The job of a launch request: scheme, size.
pub const JOB_LEN: usize = 4;
/// The slot of a value that is asked for, and whose it is.
pub const SLOT_LEN: usize = 4;
/// No process waits longer for a message (chosen: the slowest initiation of 1,024 processes by ssh takes half as long).
pub const WAIT_MAX: Duration = Duration::from_secs(300);

macro_rules! kinds {
    ($($(#[$attribute:meta])* $kind:ident = $number:literal,)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Kind {
            $($(#[$attribute])* $kind = $number,)*
        }

        impl Kind {
            fn of(number: u8) -> Option<Kind> {
                match number {
                    $($number => Some(Kind::$kind),)*
                    _ => None,
                }
            }
        }
    };
}

kinds! {
    /// The secret, from the one who has connected.
    Hello = 1,
    /// The values of a process for others.
    Mine = 2,
    /// The values of others for a process.
    Yours = 3,
    /// A row on its way around the ring of processes, or values on their way through the hypercube.
    Row = 4,
    /// A request to start processes.
    Launch = 5,
    Put = 6,
    Fence = 7,
    /// Around the ring of agents: all so far are in the fence.
    Gathered = 8,
    /// Around the ring of agents, and to processes: the fence is over.
    Released = 9,
    /// In the hypercube of agents: the values of half of them.
    Spread = 10,
    Get = 11,
    Value = 12,
    /// All processes run: for the launcher's clock.
    Started = 13,
    /// A process is connected to all others, or all of an agent's processes are.
    Report = 14,
    /// The end of a job; on its way it collects what was sent.
    Collect = 15,
}

impl Kind {
    /// Reports are not part of a scheme.
    fn is_counted(self) -> bool {
        !matches!(self, Kind::Started | Kind::Report | Kind::Collect)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    pub kind: Kind,
    /// Agents drop what belongs to an earlier job.
    pub job: u8,
    /// A rank, an agent, or a bit of these.
    pub who: u16,
    pub body: Vec<u8>,
}

impl Message {
    pub fn new(kind: Kind, who: u16, body: Vec<u8>) -> Message {
        Message { kind, job: 0, who, body }
    }

    pub fn encoded(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER_LEN + self.body.len());
        bytes.extend([self.kind as u8, self.job]);
        bytes.extend(self.who.to_le_bytes());
        bytes.extend((self.body.len() as u32).to_le_bytes());
        bytes.extend(&self.body);
        bytes
    }
}

/// One end of a connection. It blocks.
pub struct Channel {
    file: File,
    pub sent: Count,
}

impl Channel {
    /// Over a socket.
    pub fn new(socket: OwnedFd) -> io::Result<Channel> {
        // A socket of the machine itself has no such option.
        let _ = set_tcp_nodelay(&socket, true);
        let channel = Channel { file: socket.into(), sent: Count::default() };
        channel.wait_at_most(WAIT_MAX)?;
        Ok(channel)
    }

    pub fn wait_at_most(&self, limit: Duration) -> io::Result<()> {
        set_socket_timeout(&self.file, Timeout::Recv, Some(limit))?;
        set_socket_timeout(&self.file, Timeout::Send, Some(limit))?;
        Ok(())
    }

    pub fn send(&mut self, message: &Message) -> io::Result<()> {
        self.file.write_all(&message.encoded())?;
        if message.kind.is_counted() {
            self.sent += Count::of(1, message.body.len() as u64);
        }
        Ok(())
    }

    /// A message of this kind with a body of this length.
    pub fn receive(&mut self, kind: Kind, body_len: usize) -> io::Result<Message> {
        let message = self.receive_any(body_len)?;
        match (message.kind == kind, message.body.len() == body_len) {
            (true, true) => Ok(message),
            _ => Err(wrong(format!("{kind:?} of {body_len} bytes expected, not {:?}", message.kind))),
        }
    }

    pub fn receive_any(&mut self, body_len_max: usize) -> io::Result<Message> {
        let mut header = [0; HEADER_LEN];
        self.file.read_exact(&mut header)?;
        let [kind, job, low, high, length @ ..] = header;
        let kind = Kind::of(kind).ok_or_else(|| wrong("no message".into()))?;
        let length = u32::from_le_bytes(length) as usize;
        if length > body_len_max {
            return Err(wrong(format!("{kind:?} of {length} bytes, more than {body_len_max}")));
        }
        let mut body = vec![0; length];
        self.file.read_exact(&mut body)?;
        Ok(Message { kind, job, who: u16::from_le_bytes([low, high]), body })
    }

    /// Waits until the other end has closed.
    pub fn await_end(&mut self) {
        let mut rest = [0; 64];
        while self.file.read(&mut rest).is_ok_and(|count| count > 0) {}
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

pub fn wrong(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    fn pair() -> (Channel, Channel) {
        let (near, far) = UnixStream::pair().unwrap();
        (Channel::new(near.into()).unwrap(), Channel::new(far.into()).unwrap())
    }

    #[test]
    fn messages_arrive_and_are_counted_unless_they_are_reports() {
        let (mut near, mut far) = pair();
        let row = Message { job: 7, ..Message::new(Kind::Row, 300, vec![1, 2, 3]) };
        near.send(&row).unwrap();
        near.send(&Message::new(Kind::Report, 1, vec![0; 9])).unwrap();
        assert_eq!(far.receive(Kind::Row, 3).unwrap(), row);
        assert_eq!(far.receive(Kind::Report, 9).unwrap().who, 1);
        assert_eq!(near.sent, Count { messages: 1, bytes: 11 });
    }

    #[test]
    fn what_nobody_expects_is_refused() {
        for (bytes, why) in [
            (&[0, 0, 0, 0, 0, 0, 0, 0][..], "no message"),
            (&[4, 0, 0, 0, 255, 255, 255, 255], "more than 3"),
            (&[4, 0, 0, 0, 2, 0, 0, 0, 9, 9], "3 bytes expected"),
            (&[5, 0, 0, 0, 3, 0, 0, 0, 9, 9, 9], "not Launch"),
            (&[4, 0, 0], "fill"),
        ] {
            let (mut near, mut far) = pair();
            near.file.write_all(bytes).unwrap();
            drop(near);
            let error = far.receive(Kind::Row, 3).unwrap_err().to_string();
            assert!(error.contains(why), "{bytes:?}: {error}");
        }
    }
}
