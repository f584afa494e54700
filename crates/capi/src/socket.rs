//! The connected stream socket to the PMI server, without a buffer.

use alloc::vec::Vec;
use core::ffi::c_int;
use core::mem::MaybeUninit;

/// The other end is gone, or the descriptor is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Gone;

/// A descriptor; the process may inherit it to children, as launchers and programs expect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Socket(c_int);

fn errno() -> c_int {
    // SAFETY: a thread's own variable.
    unsafe { *libc::__errno_location() }
}

impl Socket {
    /// An inherited descriptor.
    pub fn inherited(fd: c_int) -> Self {
        Socket(fd)
    }

    pub fn fd(self) -> c_int {
        self.0
    }

    /// Connects to `host:port`.
    pub fn connect(address: &[u8]) -> Result<Self, Gone> {
        let colon = address.iter().rposition(|byte| *byte == b':').ok_or(Gone)?;
        let (mut host, mut port) = (address[..colon].to_vec(), address[colon + 1..].to_vec());
        host.push(0);
        port.push(0);
        let mut found = core::ptr::null_mut();
        // SAFETY: `addrinfo` of zeros is "any"; both texts end with a zero byte; the list is freed once, after its last use.
        unsafe {
            let mut hints: libc::addrinfo = MaybeUninit::zeroed().assume_init();
            hints.ai_socktype = libc::SOCK_STREAM;
            if libc::getaddrinfo(host.as_ptr().cast(), port.as_ptr().cast(), &hints, &mut found) != 0 {
                return Err(Gone);
            }
            let mut next = found;
            let mut connected = Err(Gone);
            while let (Err(Gone), Some(info)) = (connected, next.as_ref()) {
                let fd = libc::socket(info.ai_family, info.ai_socktype, info.ai_protocol);
                if fd >= 0 && libc::connect(fd, info.ai_addr, info.ai_addrlen) == 0 {
                    let on: c_int = 1;
                    let len = size_of::<c_int>() as libc::socklen_t;
                    libc::setsockopt(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, (&raw const on).cast(), len);
                    connected = Ok(Socket(fd));
                } else if fd >= 0 {
                    libc::close(fd);
                }
                next = info.ai_next;
            }
            libc::freeaddrinfo(found);
            connected
        }
    }

    /// Sends all of it, without SIGPIPE.
    pub fn write_all(self, mut bytes: &[u8]) -> Result<(), Gone> {
        while !bytes.is_empty() {
            // SAFETY: the slice is what is sent.
            let mut sent = unsafe { libc::send(self.0, bytes.as_ptr().cast(), bytes.len(), libc::MSG_NOSIGNAL) };
            if sent < 0 && errno() == libc::ENOTSOCK {
                // SAFETY: as above.
                sent = unsafe { libc::write(self.0, bytes.as_ptr().cast(), bytes.len()) };
            }
            match usize::try_from(sent) {
                Ok(sent) => bytes = &bytes[sent..],
                Err(_) => self.retry(libc::POLLOUT)?,
            }
        }
        Ok(())
    }

    /// Waits for bytes and hands them to `take`.
    pub fn read<R>(self, take: impl FnOnce(&[u8]) -> R) -> Result<R, Gone> {
        /// Most answers are shorter than a hundred bytes; a batch of gets fits.
        const ROOM: usize = 16 << 10;
        let mut buffer = [const { MaybeUninit::<u8>::uninit() }; ROOM];
        loop {
            // SAFETY: `ROOM` bytes may be written.
            let got = unsafe { libc::read(self.0, buffer.as_mut_ptr().cast(), ROOM) };
            match usize::try_from(got) {
                Ok(0) => return Err(Gone),
                // SAFETY: the kernel has written the first `got` bytes.
                Ok(got) => return Ok(take(unsafe { core::slice::from_raw_parts(buffer.as_ptr().cast(), got) })),
                Err(_) => self.retry(libc::POLLIN)?,
            }
        }
    }

    /// Whether [`Socket::read`] would return at once.
    pub fn is_readable(self) -> bool {
        self.poll(libc::POLLIN, 0)
    }

    /// After a failed call: waits where that helps.
    fn retry(self, events: i16) -> Result<(), Gone> {
        match errno() {
            libc::EINTR => Ok(()),
            libc::EAGAIN => {
                self.poll(events, -1);
                Ok(())
            }
            _ => Err(Gone),
        }
    }

    fn poll(self, events: i16, timeout_ms: c_int) -> bool {
        let mut one = libc::pollfd { fd: self.0, events, revents: 0 };
        // SAFETY: one entry, which is there.
        unsafe { libc::poll(&mut one, 1, timeout_ms) > 0 }
    }

    /// Ends the connection; the descriptor is free for others.
    pub fn close(self) {
        // SAFETY: the caller does not use the descriptor any more.
        unsafe {
            libc::shutdown(self.0, libc::SHUT_RDWR);
            libc::close(self.0);
        }
    }
}

/// A variable of the environment.
pub fn variable(name: &str) -> Option<Vec<u8>> {
    let mut text = Vec::from(name);
    text.push(0);
    // SAFETY: the name ends with a zero byte; the value is copied before anybody may change it.
    unsafe { crate::text::bytes(libc::getenv(text.as_ptr().cast())).map(<[u8]>::to_vec) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_go_there_and_the_end_is_seen() {
        let mut pair = [0; 2];
        // SAFETY: two descriptors are written.
        assert_eq!(unsafe { libc::socketpair(libc::AF_UNIX, libc::SOCK_STREAM, 0, pair.as_mut_ptr()) }, 0);
        let (here, there) = (Socket::inherited(pair[0]), Socket::inherited(pair[1]));
        assert!(!there.is_readable());
        here.write_all(b"hello").unwrap();
        assert!(there.is_readable());
        assert_eq!(there.read(<[u8]>::to_vec), Ok(b"hello".to_vec()));
        here.close();
        assert_eq!(there.read(<[u8]>::len), Err(Gone));
        assert_eq!(there.write_all(b"x"), Err(Gone));
        there.close();
        assert_eq!(there.write_all(b"x"), Err(Gone));
    }
}
