//! Reads the text that a process writes to a stream: all of it as it comes, or its last lines.

use std::os::fd::OwnedFd;
use wireup_os::reactor::{Interest, Reactor};

/// Most bytes per read of a stream.
const READ_BYTES: usize = 16 << 10;
/// Maximum number of reads of one stream before other descriptors are handled. Chosen: more than a pipe holds.
const READS_MAX: usize = 16;

/// The reading end of a stream.
#[derive(Default)]
pub struct Stream {
    fd: Option<OwnedFd>,
}

impl Stream {
    /// A stream that the reactor watches from now on; if it cannot be watched, it is not read.
    pub fn watched(fd: Option<OwnedFd>, token: u64, reactor: &Reactor) -> Stream {
        Stream { fd: fd.filter(|fd| reactor.add(fd, token, Interest::READABLE).is_ok()) }
    }

    /// Reads what is available.
    pub fn read(&mut self, reactor: &Reactor, mut take: impl FnMut(&[u8])) {
        let mut buffer = [0; READ_BYTES];
        for _ in 0..READS_MAX {
            let Some(fd) = &self.fd else { return };
            match rustix::io::read(fd, &mut buffer) {
                Ok(length @ 1..) => take(&buffer[..length]),
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => return,
                Ok(0) | Err(_) => self.close(reactor),
            }
        }
    }

    pub fn is_open(&self) -> bool {
        self.fd.is_some()
    }

    /// Stops reading.
    pub fn close(&mut self, reactor: &Reactor) {
        if let Some(fd) = self.fd.take() {
            let _ = reactor.remove(&fd);
        }
    }
}

/// The last bytes of a stream.
pub struct Tail {
    stream: Stream,
    bytes: Vec<u8>,
    bytes_max: usize,
    is_cut: bool,
}

impl Tail {
    /// An empty tail, which keeps at most `bytes_max` bytes and follows no stream yet.
    pub fn new(bytes_max: usize) -> Tail {
        Tail { stream: Stream::default(), bytes: Vec::new(), bytes_max, is_cut: false }
    }

    pub fn follow(&mut self, stream: Stream) {
        self.stream = stream;
    }

    /// Reads what is available; `see` gets all of it.
    pub fn read(&mut self, reactor: &Reactor, mut see: impl FnMut(&[u8])) {
        let Tail { stream, bytes, bytes_max, is_cut } = self;
        stream.read(reactor, |piece| {
            see(piece);
            bytes.extend_from_slice(piece);
            let excess = bytes.len().saturating_sub(*bytes_max);
            bytes.drain(..excess);
            *is_cut |= excess > 0;
        });
    }

    pub fn close(&mut self, reactor: &Reactor) {
        self.stream.close(reactor);
    }

    /// The kept text; if its beginning was cut off, it starts at the first whole line.
    pub fn text(&self) -> String {
        let line_end = self.bytes.iter().position(|byte| *byte == b'\n').filter(|_| self.is_cut);
        let begin = line_end.map_or(0, |end| end + 1);
        String::from_utf8_lossy(&self.bytes[begin..]).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn the_last_whole_lines_are_kept() {
        let reactor = Reactor::new().unwrap();
        let (ours, theirs) = wireup_os::socket::pair().unwrap();
        wireup_os::files::set_nonblocking(&ours, true).unwrap();
        let mut tail = Tail::new(20);
        tail.follow(Stream::watched(Some(ours), 7, &reactor));
        let mut theirs = std::fs::File::from(theirs);
        theirs.write_all(b"one\ntwo\n").unwrap();
        tail.read(&reactor, |_| ());
        assert_eq!(tail.text(), "one\ntwo\n");
        theirs.write_all(b"the third line\nthe last").unwrap();
        drop(theirs);
        let mut seen = Vec::new();
        tail.read(&reactor, |piece| seen.extend_from_slice(piece));
        assert_eq!(seen, b"the third line\nthe last");
        assert_eq!(tail.text(), "the last");
        assert!(tail.stream.fd.is_none(), "the stream has ended");
    }
}
