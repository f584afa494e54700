//! The connected stream socket to the PMI server, without buffering.

use crate::mapping::Descriptor;
use alloc::vec::Vec;
use core::ffi::c_int;
use core::mem::MaybeUninit;
use wireup_wire::pmi::SERVER_NAME;

/// Bytes per read: most answers are shorter than a hundred bytes, and a batch of gets fits.
const ROOM: usize = 16 << 10;
/// The most descriptors in one message.
const DESCRIPTORS_MAX: usize = 32;
/// Room for the descriptors and the sender's credentials that come with a message.
// SAFETY: only computes numbers.
const CONTROL_BYTES: usize = unsafe {
    libc::CMSG_SPACE((DESCRIPTORS_MAX * size_of::<c_int>()) as u32) + libc::CMSG_SPACE(size_of::<libc::ucred>() as u32)
} as usize;
const HEADER_BYTES: usize = size_of::<libc::cmsghdr>();

/// An error: the peer has closed the connection, or the descriptor is not a connected stream socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Gone;

/// A descriptor; child processes may inherit it, as launchers and programs expect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Socket(c_int);

pub(crate) fn errno() -> c_int {
    // SAFETY: a variable of the calling thread.
    unsafe { *libc::__errno_location() }
}

impl Socket {
    /// Wraps a descriptor that is known to be a connected stream socket.
    pub fn inherited(fd: c_int) -> Self {
        Socket(fd)
    }

    /// Wraps a descriptor named by an environment variable, after a check: the descriptor may have been closed since,
    /// or may be a file of the program.
    pub fn named(fd: c_int) -> Result<Self, Gone> {
        let socket = Socket(fd);
        if socket.is_stream() && socket.peer_name().is_some() { Ok(socket) } else { Err(Gone) }
    }

    /// Marks the descriptor as taken, for all copies of these libraries in this process: no program that this process
    /// becomes gets it. `false`: it was marked before.
    pub fn claim(self) -> bool {
        // SAFETY: no memory is passed.
        unsafe {
            let flags = libc::fcntl(self.0, libc::F_GETFD);
            flags & libc::FD_CLOEXEC == 0 && libc::fcntl(self.0, libc::F_SETFD, libc::FD_CLOEXEC) == 0
        }
    }

    /// Whether the other end is a server of ours.
    pub fn is_of_our_server(self) -> bool {
        self.peer_name() == Some(SERVER_NAME)
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
        // SAFETY: an `addrinfo` of zeros means "any"; both texts end with a zero byte; the list is freed once, after
        // its last use.
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

    /// Sends all bytes, without SIGPIPE.
    pub fn write_all(self, mut bytes: &[u8]) -> Result<(), Gone> {
        while !bytes.is_empty() {
            // SAFETY: pointer and length are those of the slice.
            let sent = unsafe { libc::send(self.0, bytes.as_ptr().cast(), bytes.len(), libc::MSG_NOSIGNAL) };
            match usize::try_from(sent) {
                Ok(sent) => bytes = &bytes[sent..],
                Err(_) => self.retry(libc::POLLOUT)?,
            }
        }
        Ok(())
    }

    /// Sends as much as fits at once, which may be nothing.
    pub fn write_some(self, bytes: &[u8]) -> Result<usize, Gone> {
        loop {
            let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
            // SAFETY: pointer and length are those of the slice.
            let sent = unsafe { libc::send(self.0, bytes.as_ptr().cast(), bytes.len(), flags) };
            match usize::try_from(sent) {
                Ok(sent) => return Ok(sent),
                Err(_) => match errno() {
                    libc::EINTR => {}
                    libc::EAGAIN => return Ok(0),
                    _ => return Err(Gone),
                },
            }
        }
    }

    /// Waits until it can send or, if `or_read`, until there is something to read. Returns whether there is nothing to
    /// read.
    pub fn wait_for_room(self, or_read: bool) -> bool {
        let events = if or_read { libc::POLLOUT | libc::POLLIN } else { libc::POLLOUT };
        // No time limit: PMI calls wait as long as the server runs, whose end is noticed.
        self.poll(events, -1) & libc::POLLIN == 0
    }

    /// Waits for bytes and hands them to `take`.
    pub fn read(self, take: &mut dyn FnMut(&[u8])) -> Result<(), Gone> {
        let mut buffer = [const { MaybeUninit::<u8>::uninit() }; ROOM];
        loop {
            // SAFETY: `ROOM` bytes may be written.
            let got = unsafe { libc::read(self.0, buffer.as_mut_ptr().cast(), ROOM) };
            match usize::try_from(got) {
                Ok(0) => return Err(Gone),
                Ok(got) => {
                    // SAFETY: the kernel has written the first `got` bytes.
                    take(unsafe { core::slice::from_raw_parts(buffer.as_ptr().cast(), got) });
                    return Ok(());
                }
                Err(_) => self.retry(libc::POLLIN)?,
            }
        }
    }

    /// As [`Socket::read`]; received descriptors are appended to `descriptors`.
    pub fn receive(self, descriptors: &mut Vec<Descriptor>, take: &mut dyn FnMut(&[u8])) -> Result<(), Gone> {
        self.receive_with_sender(descriptors, take).map(drop)
    }

    /// As [`Socket::receive`]. Returns the user whose process has sent the message, as the kernel says; `None`: the
    /// socket does not ask for it (`SO_PASSCRED`).
    pub fn receive_with_sender(
        self,
        descriptors: &mut Vec<Descriptor>,
        take: &mut dyn FnMut(&[u8]),
    ) -> Result<Option<libc::uid_t>, Gone> {
        let mut buffer = [const { MaybeUninit::<u8>::uninit() }; ROOM];
        let mut control = [const { MaybeUninit::<libc::cmsghdr>::uninit() }; CONTROL_BYTES.div_ceil(HEADER_BYTES)];
        loop {
            let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: ROOM };
            // SAFETY: the structure consists of numbers and pointers.
            let mut message: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
            message.msg_iov = &raw mut part;
            message.msg_iovlen = 1;
            message.msg_control = control.as_mut_ptr().cast();
            message.msg_controllen = CONTROL_BYTES as _;
            // SAFETY: the message contains the lengths of both buffers.
            let got = unsafe { libc::recvmsg(self.0, &mut message, libc::MSG_CMSG_CLOEXEC) };
            let Ok(got) = usize::try_from(got) else {
                self.retry(libc::POLLIN)?;
                continue;
            };
            let before = descriptors.len();
            // SAFETY: the kernel has filled the message.
            let sender = unsafe { adopt(&message, descriptors) };
            // Descriptors were dropped: it is unknown which message the others belong to. The room for the sender holds
            // some, too.
            let are_too_many = descriptors.len() - before > DESCRIPTORS_MAX;
            if got == 0 || are_too_many || message.msg_flags & libc::MSG_CTRUNC != 0 {
                return Err(Gone);
            }
            // SAFETY: the kernel has written the first `got` bytes.
            take(unsafe { core::slice::from_raw_parts(buffer.as_ptr().cast(), got) });
            return Ok(sender);
        }
    }

    /// Whether [`Socket::read`] would return without waiting.
    pub fn is_readable(self) -> bool {
        self.poll(libc::POLLIN, 0) != 0
    }

    /// Waits for input, for at most `ms` milliseconds (negative: without limit). Returns whether there is any.
    pub fn await_input(self, ms: c_int) -> bool {
        self.poll(libc::POLLIN, ms) != 0
    }

    /// Handles the error of a system call: returns `Ok` when the call can be repeated, after waiting if necessary.
    fn retry(self, events: i16) -> Result<(), Gone> {
        match errno() {
            libc::EINTR => Ok(()),
            libc::EAGAIN => {
                // No time limit: PMI calls wait as long as the server runs, whose end is noticed.
                self.poll(events, -1);
                Ok(())
            }
            _ => Err(Gone),
        }
    }

    /// The events of `events` that have occurred.
    fn poll(self, events: i16, timeout_ms: c_int) -> i16 {
        let mut one = libc::pollfd { fd: self.0, events, revents: 0 };
        // SAFETY: `one` is a valid array of one entry.
        if unsafe { libc::poll(&mut one, 1, timeout_ms) } > 0 { one.revents } else { 0 }
    }

    fn is_stream(self) -> bool {
        let (mut kind, mut len): (c_int, _) = (0, size_of::<c_int>() as libc::socklen_t);
        // SAFETY: `len` bytes may be written.
        let asked =
            unsafe { libc::getsockopt(self.0, libc::SOL_SOCKET, libc::SO_TYPE, (&raw mut kind).cast(), &mut len) };
        asked == 0 && kind == libc::SOCK_STREAM
    }

    /// The beginning of the other end's address, as far as a [`SERVER_NAME`] is long; `None`: there is no other end.
    fn peer_name(self) -> Option<[u8; SERVER_NAME.len()]> {
        #[repr(C)]
        struct Address(libc::sa_family_t, [u8; SERVER_NAME.len()]);
        let mut address = Address(0, [0; SERVER_NAME.len()]);
        let mut len = size_of::<Address>() as libc::socklen_t;
        // SAFETY: at most `len` bytes are written; the kernel wants no alignment.
        let is_connected = unsafe { libc::getpeername(self.0, (&raw mut address).cast(), &mut len) == 0 };
        is_connected.then_some(address.1)
    }

    /// Ends the connection and closes the descriptor. If the program has closed it and opened a file with this number,
    /// that file stays open.
    pub fn close(self) {
        if self.is_stream() {
            // SAFETY: the caller does not use the descriptor afterwards.
            unsafe {
                libc::shutdown(self.0, libc::SHUT_RDWR);
                libc::close(self.0);
            }
        }
    }
}

/// Takes ownership of the descriptors in a message. Returns the user who has sent it, if the kernel says so.
///
/// # Safety
/// `recvmsg` has filled the message.
unsafe fn adopt(message: &libc::msghdr, descriptors: &mut Vec<Descriptor>) -> Option<libc::uid_t> {
    let mut sender = None;
    // SAFETY: by the caller's guarantee, the walk stays within the control buffer, and each header is followed by as
    // many bytes as it states. From here on this process owns the descriptors.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(message);
        while let Some(one) = header.as_ref() {
            // The type of `cmsg_len` depends on the C library.
            let length: usize = one.cmsg_len as _;
            let bytes = length - libc::CMSG_LEN(0) as usize;
            match (one.cmsg_level, one.cmsg_type) {
                (libc::SOL_SOCKET, libc::SCM_RIGHTS) => {
                    let numbers: *const c_int = libc::CMSG_DATA(header).cast();
                    let fds = (0..bytes / size_of::<c_int>()).map(|at| numbers.add(at).read_unaligned());
                    descriptors.extend(fds.map(Descriptor::new));
                }
                (libc::SOL_SOCKET, libc::SCM_CREDENTIALS) if bytes >= size_of::<libc::ucred>() => {
                    sender = Some(libc::CMSG_DATA(header).cast::<libc::ucred>().read_unaligned().uid);
                }
                _ => {}
            }
            header = libc::CMSG_NXTHDR(message, header);
        }
    }
    sender
}

/// The value of an environment variable.
pub fn variable(name: &str) -> Option<Vec<u8>> {
    let mut text = Vec::from(name);
    text.push(0);
    // SAFETY: the name ends with a zero byte; the value is copied before anything may change it.
    unsafe { crate::text::bytes(libc::getenv(text.as_ptr().cast())).map(<[u8]>::to_vec) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::os::fd::AsRawFd;
    use std::os::unix::net::{UnixDatagram, UnixStream};

    fn read(socket: Socket) -> Result<Vec<u8>, Gone> {
        let mut bytes = Vec::new();
        socket.read(&mut |part| bytes.extend_from_slice(part)).map(|()| bytes)
    }

    #[test]
    fn bytes_arrive_and_a_closed_peer_is_noticed() {
        let mut pair = [0; 2];
        // SAFETY: two descriptors are written.
        assert_eq!(unsafe { libc::socketpair(libc::AF_UNIX, libc::SOCK_STREAM, 0, pair.as_mut_ptr()) }, 0);
        let (here, there) = (Socket::inherited(pair[0]), Socket::inherited(pair[1]));
        assert!(!there.is_readable());
        here.write_all(b"hello").unwrap();
        assert!(there.is_readable());
        assert_eq!(read(there), Ok(b"hello".to_vec()));
        here.close();
        assert_eq!(read(there), Err(Gone));
        assert_eq!(there.write_some(b"x"), Err(Gone));
        assert_eq!(there.write_all(b"x"), Err(Gone));
        there.close();
        assert_eq!(there.write_all(b"x"), Err(Gone));
    }

    #[test]
    fn only_a_connected_stream_socket_is_accepted_as_a_server() {
        let (here, there) = UnixStream::pair().unwrap();
        let named = |fd: &dyn AsRawFd| Socket::named(fd.as_raw_fd());
        assert_eq!(named(&here), Ok(Socket(here.as_raw_fd())));
        assert_eq!(named(&UnixDatagram::pair().unwrap().0), Err(Gone));
        assert_eq!(named(&TcpListener::bind("127.0.0.1:0").unwrap()), Err(Gone));
        assert_eq!(named(&std::fs::File::open("/dev/null").unwrap()), Err(Gone));
        assert_eq!(Socket::named(-1), Err(Gone));
        drop(there);
    }

    #[test]
    fn our_own_server_is_known_by_its_name() {
        for (name, is_ours) in [(&SERVER_NAME[..], true), (b"\0wireup", false), (b"\0another1", false)] {
            let (here, there) = UnixStream::pair().unwrap();
            assert!(!Socket::named(here.as_raw_fd()).unwrap().is_of_our_server());
            let name = [name, &std::process::id().to_ne_bytes()].concat();
            let mut address = libc::sockaddr_un { sun_family: libc::AF_UNIX as libc::sa_family_t, sun_path: [0; 108] };
            address.sun_path.iter_mut().zip(&name).for_each(|(to, from)| *to = *from as libc::c_char);
            let len = (size_of::<libc::sa_family_t>() + name.len()) as libc::socklen_t;
            // SAFETY: pointer and length are those of the address.
            assert_eq!(unsafe { libc::bind(there.as_raw_fd(), (&raw const address).cast(), len) }, 0);
            assert_eq!(Socket::named(here.as_raw_fd()).unwrap().is_of_our_server(), is_ours, "{name:?}");
        }
    }

    #[test]
    fn a_file_is_neither_written_nor_closed() {
        let path = std::env::temp_dir().join(std::format!("wireup-capi-{}", std::process::id()));
        let file = std::fs::File::create(&path).unwrap();
        let socket = Socket(file.as_raw_fd());
        assert_eq!(socket.write_some(b"cmd=init\n"), Err(Gone));
        assert_eq!(socket.write_all(b"cmd=abort\n"), Err(Gone));
        socket.close();
        assert_eq!(file.metadata().unwrap().len(), 0);
        std::fs::remove_file(path).unwrap();
    }
}
