//! TCP and UDP between the ranks of a job: non-blocking sockets and one epoll instance, behind safe calls.

mod datagrams;
mod timer;

use crate::server::errno;
use alloc::vec::Vec;
use core::ffi::c_int;
use core::mem::MaybeUninit;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

pub use crate::mapping::Descriptor;
pub use datagrams::Datagrams;
pub use timer::Timer;
pub use wireup_wire::rank_address::sockaddr as raw_address;

/// A failed system call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Errno(pub c_int);

type Result<T> = core::result::Result<T, Errno>;

impl Descriptor {
    /// Gives the descriptor of a socket to the program, which reads and writes in blocking mode.
    ///
    /// # Errors
    /// The kernel refuses; the descriptor is closed.
    pub fn into_blocking(self) -> Result<c_int> {
        // SAFETY: no memory is passed.
        checked(unsafe { libc::fcntl(self.fd(), libc::F_SETFL, 0) })?;
        Ok(self.into_raw())
    }
}

fn checked(result: c_int) -> Result<c_int> {
    if result < 0 { Err(Errno(errno())) } else { Ok(result) }
}

/// A socket address in the kernel's format.
struct Raw {
    storage: libc::sockaddr_storage,
    len: libc::socklen_t,
}

impl Raw {
    fn of(address: &SocketAddr) -> Raw {
        let bytes = raw_address(address);
        // SAFETY: all zeros are a valid value; the storage is large enough and aligned for every kind of address.
        let storage = unsafe {
            let mut storage: libc::sockaddr_storage = MaybeUninit::zeroed().assume_init();
            (&raw mut storage).cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
            storage
        };
        Raw { storage, len: bytes.len() as libc::socklen_t }
    }

    fn pointer(&self) -> *const libc::sockaddr {
        (&raw const self.storage).cast()
    }
}

/// The address that a pointer from the C library points to, if it is of a kind that ranks use.
///
/// # Safety
/// `raw` is null, or points to an address whose length fits its family.
unsafe fn ip(raw: *const libc::sockaddr) -> Option<IpAddr> {
    // SAFETY: guaranteed by the caller.
    unsafe {
        match c_int::from(raw.as_ref()?.sa_family) {
            libc::AF_INET => {
                let address = raw.cast::<libc::sockaddr_in>().read_unaligned();
                Some(IpAddr::V4(Ipv4Addr::from(address.sin_addr.s_addr.to_ne_bytes())))
            }
            libc::AF_INET6 => {
                let address = raw.cast::<libc::sockaddr_in6>().read_unaligned();
                Some(IpAddr::V6(Ipv6Addr::from(address.sin6_addr.s6_addr)))
            }
            _ => None,
        }
    }
}

fn option(fd: c_int, level: c_int, name: c_int, value: c_int) -> Result<()> {
    let len = size_of::<c_int>() as libc::socklen_t;
    // SAFETY: `len` bytes are read.
    checked(unsafe { libc::setsockopt(fd, level, name, (&raw const value).cast(), len) }).map(drop)
}

fn socket(family: c_int, kind: c_int) -> Result<Descriptor> {
    // SAFETY: no memory is passed.
    checked(unsafe { libc::socket(family, kind | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC, 0) }).map(Descriptor::new)
}

/// The port of a socket that is bound to an address of this family.
fn bound_port(socket: &Descriptor, any: &SocketAddr) -> Result<u16> {
    let mut bound = Raw::of(any);
    // SAFETY: at most `len` bytes are written, which the storage has.
    checked(unsafe { libc::getsockname(socket.fd(), (&raw mut bound.storage).cast(), &mut bound.len) })?;
    // SAFETY: the kernel has written an address of this family; the port is at the same place in both.
    let port = unsafe { (&raw const bound.storage).cast::<libc::sockaddr_in>().read().sin_port };
    Ok(u16::from_be(port))
}

/// Listens on a free port of all addresses; returns the port.
///
/// # Errors
/// The system has neither IPv6 nor IPv4, or no free port or descriptor.
pub fn listen() -> Result<(Descriptor, u16)> {
    let any: [IpAddr; 2] = [Ipv6Addr::UNSPECIFIED.into(), Ipv4Addr::UNSPECIFIED.into()];
    let mut failed = Errno(0);
    for (ip, family) in any.into_iter().zip([libc::AF_INET6, libc::AF_INET]) {
        match listen_at(family, SocketAddr::new(ip, 0)) {
            Ok(listening) => return Ok(listening),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

/// Whether this is a listening socket; the program may have made it one.
///
/// # Errors
/// The number is not that of a socket.
pub fn listens(fd: c_int) -> Result<bool> {
    let (mut listens, mut len): (c_int, _) = (0, size_of::<c_int>() as libc::socklen_t);
    // SAFETY: at most `len` bytes are written, which the number has.
    checked(unsafe {
        libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_ACCEPTCONN, (&raw mut listens).cast(), &raw mut len)
    })?;
    Ok(listens != 0)
}

/// The listening socket that this process was started with; it becomes non-blocking, and children do not get it.
///
/// # Errors
/// The number is not that of a listening socket.
pub fn inherited(fd: c_int) -> Result<Descriptor> {
    if !listens(fd)? {
        return Err(Errno(libc::EINVAL));
    }
    // SAFETY: no memory is passed.
    unsafe {
        checked(libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC))?;
        checked(libc::fcntl(fd, libc::F_SETFL, libc::O_NONBLOCK))?;
    }
    Ok(Descriptor::new(fd))
}

/// A connected socket that the server has sent; it becomes non-blocking.
///
/// # Errors
/// The kernel refuses; the descriptor is closed.
pub fn received(socket: Descriptor) -> Result<Descriptor> {
    // SAFETY: no memory is passed.
    checked(unsafe { libc::fcntl(socket.fd(), libc::F_SETFL, libc::O_NONBLOCK) })?;
    Ok(socket)
}

/// Most connections that wait to be accepted. A rank's neighbours in the graph connect within moments: twice as many as
/// the size of a job has bits, and as many again.
const BACKLOG: c_int = 128;

fn listen_at(family: c_int, any: SocketAddr) -> Result<(Descriptor, u16)> {
    let socket = socket(family, libc::SOCK_STREAM)?;
    if family == libc::AF_INET6 {
        // The IPv6 socket also accepts connections by IPv4.
        option(socket.fd(), libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 0)?;
    }
    let raw = Raw::of(&any);
    // SAFETY: pointer and length are those of the address.
    checked(unsafe { libc::bind(socket.fd(), raw.pointer(), raw.len) })?;
    // SAFETY: no memory is passed.
    checked(unsafe { libc::listen(socket.fd(), BACKLOG) })?;
    let port = bound_port(&socket, &any)?;
    Ok((socket, port))
}

/// Accepts a connection; `None`: none is waiting.
///
/// # Errors
/// There are no more descriptors.
pub fn accept(listening: &Descriptor) -> Result<Option<Descriptor>> {
    let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: the address of the other end is not wanted.
    match checked(unsafe { libc::accept4(listening.fd(), core::ptr::null_mut(), core::ptr::null_mut(), flags) }) {
        Ok(fd) => {
            // Failure is ignored: without the option messages are only late.
            let _ = option(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, 1);
            Ok(Some(Descriptor::new(fd)))
        }
        Err(Errno(libc::EAGAIN | libc::EINTR | libc::ECONNABORTED)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Begins to connect. The socket becomes writable when the attempt has ended; see [`outcome`]. `repetitions`: how often
/// the kernel repeats its request; `None`: the kernel's default.
///
/// # Errors
/// The attempt failed at once.
pub fn connect(address: &SocketAddr, repetitions: Option<c_int>) -> Result<Descriptor> {
    let socket = socket(if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 }, libc::SOCK_STREAM)?;
    let _ = option(socket.fd(), libc::IPPROTO_TCP, libc::TCP_NODELAY, 1);
    if let Some(repetitions) = repetitions {
        option(socket.fd(), libc::IPPROTO_TCP, libc::TCP_SYNCNT, repetitions)?;
    }
    let raw = Raw::of(address);
    // SAFETY: pointer and length are those of the address.
    match checked(unsafe { libc::connect(socket.fd(), raw.pointer(), raw.len) }) {
        Ok(_) | Err(Errno(libc::EINPROGRESS)) => Ok(socket),
        Err(error) => Err(error),
    }
}

/// The outcome of [`connect`], once the socket is writable.
///
/// # Errors
/// The connection could not be made.
pub fn outcome(socket: &Descriptor) -> Result<()> {
    let (mut error, mut len): (c_int, _) = (0, size_of::<c_int>() as libc::socklen_t);
    // SAFETY: `len` bytes may be written.
    checked(unsafe {
        libc::getsockopt(socket.fd(), libc::SOL_SOCKET, libc::SO_ERROR, (&raw mut error).cast(), &mut len)
    })?;
    if error == 0 { Ok(()) } else { Err(Errno(error)) }
}

/// Shuts down the sending side, which tells the other end that nothing follows.
///
/// # Errors
/// The other end is gone.
pub fn end_output(socket: &Descriptor) -> Result<()> {
    // SAFETY: no memory is passed.
    checked(unsafe { libc::shutdown(socket.fd(), libc::SHUT_WR) }).map(drop)
}

/// Sends as many bytes as fit into the socket's buffer, which may be none.
///
/// # Errors
/// The other end is gone.
pub fn write(socket: &Descriptor, bytes: &[u8]) -> Result<usize> {
    // SAFETY: pointer and length are those of the slice.
    let sent = unsafe { libc::send(socket.fd(), bytes.as_ptr().cast(), bytes.len(), libc::MSG_NOSIGNAL) };
    match usize::try_from(sent) {
        Ok(sent) => Ok(sent),
        Err(_) => match errno() {
            libc::EAGAIN | libc::EINTR => Ok(0),
            other => Err(Errno(other)),
        },
    }
}

/// The bytes of a TCP socket that the other end has not acknowledged, and those of them that the kernel has not
/// transmitted yet, because the other end has no room for them; zeros for every other socket.
pub fn unacknowledged(socket: &Descriptor) -> (c_int, c_int) {
    let count = |request: c_int| {
        let mut bytes: c_int = 0;
        // SAFETY: the kernel writes one number.
        let result = unsafe { libc::ioctl(socket.fd(), request as _, &raw mut bytes) };
        (result == 0).then_some(bytes)
    };
    count(libc::SIOCOUTQNSD as _).map_or((0, 0), |waiting| (count(libc::TIOCOUTQ as _).unwrap_or(0), waiting))
}

/// What was received.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Received {
    Bytes(usize),
    Nothing,
    End,
}

/// # Errors
/// The connection broke.
pub fn read(socket: &Descriptor, buffer: &mut [u8]) -> Result<Received> {
    // SAFETY: pointer and length are those of the slice.
    let got = unsafe { libc::recv(socket.fd(), buffer.as_mut_ptr().cast(), buffer.len(), 0) };
    match usize::try_from(got) {
        Ok(0) => Ok(Received::End),
        Ok(got) => Ok(Received::Bytes(got)),
        Err(_) => match errno() {
            libc::EAGAIN | libc::EINTR => Ok(Received::Nothing),
            other => Err(Errno(other)),
        },
    }
}

/// An epoll instance, for all descriptors that are watched.
pub struct Epoll(Descriptor);

/// What epoll reports about a watched descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Event {
    pub token: u64,
    pub is_readable: bool,
    pub is_writable: bool,
}

const EVENTS_MAX: usize = 32;

impl Epoll {
    /// # Errors
    /// There are no more descriptors.
    pub fn new() -> Result<Epoll> {
        // SAFETY: no memory is passed.
        checked(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) }).map(|fd| Epoll(Descriptor::new(fd)))
    }

    pub fn fd(&self) -> c_int {
        self.0.fd()
    }

    /// Watches a descriptor, until it is closed: always for input, and for room to write if so wished.
    ///
    /// # Errors
    /// The kernel has no memory for that.
    pub fn watch(&self, fd: c_int, token: u64, writes: bool, is_new: bool) -> Result<()> {
        let operation = if is_new { libc::EPOLL_CTL_ADD } else { libc::EPOLL_CTL_MOD };
        self.control(operation, fd, token, libc::EPOLLIN | if writes { libc::EPOLLOUT } else { 0 })
    }

    /// Stops watching a descriptor for input; `writes`: keeps watching it for room to write. The descriptor must be in
    /// the epoll set. If its connection breaks, epoll still reports it, as readable.
    ///
    /// # Errors
    /// The kernel has no memory for that.
    pub fn watch_output(&self, fd: c_int, token: u64, writes: bool) -> Result<()> {
        self.control(libc::EPOLL_CTL_MOD, fd, token, if writes { libc::EPOLLOUT } else { 0 })
    }

    fn control(&self, operation: c_int, fd: c_int, token: u64, events: c_int) -> Result<()> {
        let mut event = libc::epoll_event { events: events as u32, u64: token };
        // SAFETY: `event` is a valid event.
        checked(unsafe { libc::epoll_ctl(self.0.fd(), operation, fd, &mut event) }).map(drop)
    }

    /// Watches a descriptor no more.
    pub fn forget(&self, fd: c_int) {
        // SAFETY: no memory is passed. If the descriptor is not watched, nothing happens.
        unsafe { libc::epoll_ctl(self.0.fd(), libc::EPOLL_CTL_DEL, fd, core::ptr::null_mut()) };
    }

    /// Waits for at most `ms` milliseconds; a negative number means without limit.
    pub fn wait(&self, ms: c_int, events: &mut Vec<Event>) {
        let mut raw = [libc::epoll_event { events: 0, u64: 0 }; EVENTS_MAX];
        // SAFETY: at most `EVENTS_MAX` entries are written.
        let count = unsafe { libc::epoll_wait(self.0.fd(), raw.as_mut_ptr(), EVENTS_MAX as c_int, ms) };
        events.clear();
        for event in raw.iter().take(usize::try_from(count).unwrap_or(0)) {
            let bits = { event.events } as c_int;
            let is_over = bits & (libc::EPOLLERR | libc::EPOLLHUP) != 0;
            let (is_readable, is_writable) = (bits & libc::EPOLLIN != 0, bits & libc::EPOLLOUT != 0);
            let token = event.u64;
            events.push(Event { token, is_readable: is_readable | is_over, is_writable: is_writable | is_over });
        }
    }
}

/// The addresses of this host by which others may reach it; those of the loopback interface last, link-local ones not
/// at all.
pub fn addresses() -> Vec<IpAddr> {
    let mut first = core::ptr::null_mut();
    let mut all = Vec::new();
    // SAFETY: the list is freed once, after its last use; each entry is valid until then.
    unsafe {
        if libc::getifaddrs(&mut first) != 0 {
            return all;
        }
        let mut next = first;
        while let Some(entry) = next.as_ref() {
            if entry.ifa_flags & libc::IFF_UP as u32 != 0 {
                all.extend(ip(entry.ifa_addr));
            }
            next = entry.ifa_next;
        }
        libc::freeifaddrs(first);
    }
    all.retain(|ip| match ip {
        IpAddr::V4(ip) => !ip.is_link_local(),
        IpAddr::V6(ip) => !ip.is_unicast_link_local(),
    });
    all.sort_by_key(IpAddr::is_loopback);
    all
}

/// A number that is the same for all processes that reach each other by the loopback interface: of this boot and this
/// network namespace.
pub fn host_number() -> u64 {
    let mut number = 0xcbf2_9ce4_8422_2325;
    let mut add = |bytes: &[u8]| {
        for byte in bytes {
            number = (number ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        }
    };
    let mut buffer = [0; 64];
    // SAFETY: both paths end with a zero byte; the kernel writes at most the length of the buffer; all zeros are a
    // valid `stat`.
    unsafe {
        let fd = libc::open(c"/proc/sys/kernel/random/boot_id".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
        if fd >= 0 {
            let got = libc::read(fd, buffer.as_mut_ptr().cast(), buffer.len());
            add(&buffer[..usize::try_from(got).unwrap_or(0)]);
            libc::close(fd);
        }
        let mut stat: libc::stat = MaybeUninit::zeroed().assume_init();
        if libc::stat(c"/proc/self/ns/net".as_ptr(), &mut stat) == 0 {
            add(&stat.st_ino.to_le_bytes());
        }
    }
    number
}

/// Yields the core to other processes.
pub fn yield_core() {
    // SAFETY: it changes nothing.
    unsafe { libc::sched_yield() };
}

/// Milliseconds of a clock that never goes back.
pub fn now_ms() -> u64 {
    now_ns() / 1_000_000
}

/// Nanoseconds of the same clock as [`now_ms`].
pub fn now_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` may be written.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;

    #[test]
    fn addresses_are_those_of_the_c_library() {
        for text in ["10.1.2.3:4660", "[fd00::7:1]:4660"] {
            let address: SocketAddr = text.parse().unwrap();
            let raw = Raw::of(&address);
            // SAFETY: the address is complete.
            assert_eq!(unsafe { ip(raw.pointer()) }, Some(address.ip()));
            // SAFETY: the port is at the same place in both kinds.
            assert_eq!(unsafe { raw.pointer().cast::<libc::sockaddr_in>().read() }.sin_port, 4660_u16.to_be());
        }
        let len = |text: &str| raw_address(&text.parse().unwrap()).len();
        assert_eq!(len("1.2.3.4:5"), size_of::<libc::sockaddr_in>());
        assert_eq!(len("[::1]:5"), size_of::<libc::sockaddr_in6>());
    }

    #[test]
    fn a_connection_carries_bytes_both_ways() {
        let (listening, port) = listen().unwrap();
        assert!(accept(&listening).unwrap().is_none());
        let dialled = connect(&SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port), None).unwrap();
        let (epoll, mut events) = (Epoll::new().unwrap(), vec![]);
        epoll.watch(listening.fd(), 7, false, true).unwrap();
        epoll.watch(dialled.fd(), 8, true, true).unwrap();
        let mut seen = vec![];
        while seen.len() < 2 {
            epoll.wait(1000, &mut events);
            assert!(!events.is_empty());
            seen.extend(events.iter().map(|event| event.token));
            seen.sort_unstable();
            seen.dedup();
        }
        outcome(&dialled).unwrap();
        let accepted = accept(&listening).unwrap().unwrap();
        assert_eq!(write(&accepted, b"hello"), Ok(5));
        let mut buffer = [0; 9];
        epoll.watch(dialled.fd(), 8, false, false).unwrap();
        epoll.wait(1000, &mut events);
        assert_eq!(events, [Event { token: 8, is_readable: true, is_writable: false }]);
        assert_eq!(read(&dialled, &mut buffer), Ok(Received::Bytes(5)));
        assert_eq!(read(&dialled, &mut buffer), Ok(Received::Nothing));
        drop(accepted);
        epoll.wait(1000, &mut events);
        assert_eq!(read(&dialled, &mut buffer), Ok(Received::End));
    }

    #[test]
    fn the_kernel_reports_what_it_cannot_transmit() {
        let (listening, port) = listen().unwrap();
        let dialled = connect(&SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port), None).unwrap();
        let (epoll, mut events) = (Epoll::new().unwrap(), vec![]);
        epoll.watch(listening.fd(), 7, false, true).unwrap();
        epoll.wait(1000, &mut events);
        let accepted = accept(&listening).unwrap().unwrap();
        assert_eq!(unacknowledged(&accepted), (0, 0));
        while write(&accepted, &[0; 1 << 16]).unwrap() > 0 {}
        let (all, waiting) = unacknowledged(&accepted);
        assert!(0 < waiting && waiting <= all);
        while unacknowledged(&accepted) != (0, 0) {
            read(&dialled, &mut [0; 1 << 16]).unwrap();
        }
        assert_eq!(unacknowledged(&epoll.0), (0, 0), "not a socket");
    }

    #[test]
    fn this_host_has_addresses_and_a_number() {
        let all = addresses();
        assert!(all.contains(&IpAddr::V4(Ipv4Addr::LOCALHOST)), "{all:?}");
        assert_eq!(host_number(), host_number());
        assert!(now_ms() > 0);
    }

    #[test]
    fn a_port_where_nobody_listens_is_reported() {
        let (listening, port) = listen().unwrap();
        drop(listening);
        let outcome = connect(&SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port), None).and_then(|dialled| {
            let (epoll, mut events) = (Epoll::new().unwrap(), vec![]);
            epoll.watch(dialled.fd(), 1, true, true).unwrap();
            epoll.wait(1000, &mut events);
            outcome(&dialled)
        });
        assert_eq!(outcome, Err(Errno(libc::ECONNREFUSED)));
    }
}
