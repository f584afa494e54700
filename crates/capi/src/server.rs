//! The conversation with the PMI server, for blocking callers: the engine's [`Link`] driven over a connected stream
//! socket without buffering.
//!
//! A call costs one write and, if the answer arrives in one piece, one read. A fence may be started and its answer read
//! later; calls in between are answered meanwhile. Requests can be collected and sent with one write; their answers
//! then come in order ([`Server::settle`]). A put can be posted without waiting for its answer ([`Server::post`]); it
//! is sent with the next request.
//!
//! A write waits while the socket is full. Meanwhile, received data is read, since a server does not read from a client
//! that does not read from it.

mod own_requests;

use crate::mapping::{Descriptor, Shared};
use alloc::vec::Vec;
use core::ffi::c_int;
use core::mem::MaybeUninit;
pub use own_requests::{Address, Gather};
pub use wireup_client::Failure;
use wireup_client::Link;
use wireup_client::link::Answer;
use wireup_wire::pmi::{Dialect, ReplyFields, Request, SERVER_NAME};

impl From<Gone> for Failure {
    fn from(_: Gone) -> Self {
        Failure::Broken
    }
}

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
/// The most text of posted puts that is held back: some hundreds of short ones.
const HELD_BYTES_MAX: usize = 16 << 10;

/// A function that reads once from the socket.
type Receive = fn(Socket, &mut Vec<Descriptor>, &mut dyn FnMut(&[u8])) -> Result<(), Gone>;

pub struct Server {
    socket: Socket,
    receive: Receive,
    pub link: Link<Shared>,
    one_at_a_time: bool,
}

impl Server {
    pub fn new(socket: Socket, dialect: Dialect) -> Self {
        Server { socket, receive: |socket, _, take| socket.read(take), link: Link::new(dialect), one_at_a_time: false }
    }

    pub fn socket(&self) -> Socket {
        self.socket
    }

    /// Lets reads accept descriptors, which the server may send from now on.
    pub fn expect_descriptors(&mut self) {
        self.receive = Socket::receive;
    }

    /// For a server that loses a request that arrives before it has read the previous one: calls wait for the end of a
    /// fence.
    pub fn ask_one_at_a_time(&mut self) {
        self.one_at_a_time = true;
    }

    /// Adds a put without waiting for its answer. Makes a round trip when too much text is held back.
    pub fn post(&mut self, put: &Request<'_>) -> Result<(), Failure> {
        self.link.post(put)?;
        if self.link.to_send().len() > HELD_BYTES_MAX { self.drain() } else { Ok(()) }
    }

    /// Sends the collected requests and waits for all answers.
    pub fn settle(&mut self, take: &mut dyn FnMut(&Answer<'_>)) -> Result<(), Failure> {
        self.flush()?;
        while self.link.awaited() > 0 {
            if !self.take_answer(take)? {
                self.read()?;
            }
        }
        Ok(())
    }

    /// Sends the posted puts and waits for their answers.
    fn drain(&mut self) -> Result<(), Failure> {
        self.flush()?;
        while self.link.unanswered_posts() > 0 {
            self.advance(true)?;
        }
        Ok(())
    }

    /// Makes one request; its answer must be a success.
    pub fn call(&mut self, request: &Request<'_>, take: &mut dyn FnMut(&ReplyFields<'_>)) -> Result<(), Failure> {
        if self.one_at_a_time {
            while self.link.is_in_fence() {
                self.advance(true)?;
            }
        }
        self.link.ask(request)?;
        let command = request.command();
        let mut result = Err(Failure::Refused);
        self.settle(&mut |answer| {
            if !answer.fields.answers(command) {
                result = Err(Failure::Broken);
            } else if answer.fields.succeeded() {
                take(&answer.fields);
                result = Ok(());
            }
        })?;
        if result == Err(Failure::Broken) { Err(self.broke()) } else { result }
    }

    /// Makes one request of which only the success matters.
    pub fn tell(&mut self, request: &Request<'_>) -> Result<(), Failure> {
        self.call(request, &mut |_| {})
    }

    /// Makes one request and copies a field of its answer.
    pub fn question(&mut self, request: &Request<'_>, field: &str) -> Result<Option<Vec<u8>>, Failure> {
        let mut text = None;
        self.call(request, &mut |fields| text = fields.get(field).map(<[u8]>::to_vec))?;
        Ok(text)
    }

    /// Sends a fence after the collected requests.
    pub fn send_fence(&mut self, group: Option<&[u8]>) -> Result<(), Failure> {
        self.link.begin_fence(group)?;
        self.flush()
    }

    /// Waits until the fence in progress is complete.
    pub fn end_fence(&mut self) -> Result<(), Failure> {
        while self.link.is_in_fence() && self.advance(true).is_ok() {}
        self.link.take_fence_end().unwrap_or(Ok(()))
    }

    /// Processes an answer that no call waits for, or reads; `false` if it would have to wait and `wait` is false.
    pub fn advance(&mut self, wait: bool) -> Result<bool, Failure> {
        if self.take_unawaited()? {
            return Ok(true);
        }
        if !wait && !self.link.is_broken() && !self.socket.is_readable() {
            return Ok(false);
        }
        self.read().map(|()| true)
    }

    /// Takes an answer that has been read and that no call waits for; `false` if there is none.
    pub fn take_unawaited(&mut self) -> Result<bool, Failure> {
        let mut is_awaited = false;
        let is_taken = self.take_answer(&mut |_| is_awaited = true)?;
        // Any other answer is taken by the call that waits for it.
        if is_awaited { Err(self.broke()) } else { Ok(is_taken) }
    }

    /// Takes one answer; `false` if no complete answer has been received.
    fn take_answer(&mut self, take: &mut dyn FnMut(&Answer<'_>)) -> Result<bool, Failure> {
        self.link.next(take).map_err(|_| Failure::Broken)
    }

    #[cold]
    fn broke(&mut self) -> Failure {
        self.link.on_closed();
        Failure::Broken
    }

    /// Sends the collected requests, without waiting for their answers.
    pub fn flush(&mut self) -> Result<(), Failure> {
        let sent = self.send_all();
        self.link.on_sent();
        sent.map_err(|_| self.broke())
    }

    fn send_all(&mut self) -> Result<(), Failure> {
        let mut sent = 0;
        while sent < self.link.to_send().len() {
            if self.link.is_broken() {
                return Err(Failure::Broken);
            }
            match self.socket.write_some(&self.link.to_send()[sent..])? {
                0 => self.wait_for_room()?,
                more => sent += more,
            }
        }
        Ok(())
    }

    /// The socket is full: waits, and reads received data meanwhile, unless several calls wait for answers.
    fn wait_for_room(&mut self) -> Result<(), Failure> {
        // Only one request is outstanding: the one that is being sent.
        let may_read = self.link.awaited() <= 1;
        if !self.socket.wait_for_room(may_read) {
            while self.advance(false)? {}
        }
        Ok(())
    }

    fn read(&mut self) -> Result<(), Failure> {
        if self.link.is_broken() {
            return Err(Failure::Broken);
        }
        let (mut descriptors, mut pushed) = (Vec::new(), Ok(()));
        let link = &mut self.link;
        let read = (self.receive)(self.socket, &mut descriptors, &mut |bytes| {
            pushed = link.push(bytes).map_err(|_| Failure::Broken)
        });
        descriptors.into_iter().for_each(|descriptor| link.push_memory(Shared::new(descriptor)));
        if read.is_ok() { pushed } else { Err(self.broke()) }
    }
}

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
        struct PeerName(libc::sa_family_t, [u8; SERVER_NAME.len()]);
        let mut address = PeerName(0, [0; SERVER_NAME.len()]);
        let mut len = size_of::<PeerName>() as libc::socklen_t;
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

#[cfg(test)]
mod tests;
