//! Makes sockets: pairs between processes of this machine, which can carry descriptors, and TCP between agents.
//!
//! All sockets made here are close-on-exec. TCP sockets are non-blocking with `TCP_NODELAY`: frames are written whole,
//! so waiting for more data would not help. An IPv4 address that an IPv6 socket reports as IPv4-mapped is converted to
//! a plain IPv4 address.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::sockopt;
use rustix::net::{self, AddressFamily, SocketFlags, SocketType};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};
use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

/// Most descriptors in one message: the kernel's `SCM_MAX_FD`.
pub const FDS_MAX: usize = 253;

/// A connected pair of Unix stream sockets, both blocking.
pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?)
}

/// A connected pair of Unix sockets for packets, whose boundaries are kept. The end of the connection is reported as
/// for a stream.
pub fn packet_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

/// Gives a Unix socket an abstract name that begins with `kind` and that the other end of the socket can read. Returns
/// the name. The rest of the name is random (64 bits), so that no other process can take it first.
///
/// # Errors
/// The kernel's random numbers are not initialised yet, or there is no memory.
pub fn name(socket: impl AsFd, kind: &[u8]) -> io::Result<Vec<u8>> {
    let mut random = [0; 8];
    // The kernel never returns only a part of so few bytes.
    rustix::rand::getrandom(&mut random[..], rustix::rand::GetRandomFlags::NONBLOCK)?;
    let own = format!("{:016x}", u64::from_ne_bytes(random));
    let name = [kind.strip_prefix(b"\0").unwrap_or(kind), own.as_bytes()].concat();
    net::bind(socket, &net::SocketAddrUnix::new_abstract_name(&name)?)?;
    Ok(name)
}

/// Sends bytes and, with the first of them, up to [`FDS_MAX`] descriptors. Returns how many bytes were sent; on success
/// all descriptors were sent. Never raises `SIGPIPE`, never blocks.
///
/// # Errors
/// `WouldBlock`: nothing was sent. `ETOOMANYREFS`: the user has too many descriptors in flight; try later.
pub fn send(socket: impl AsFd, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        assert!(control.push(SendAncillaryMessage::ScmRights(fds)), "a message carries at most FDS_MAX descriptors");
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    Ok(retry_on_intr(|| net::sendmsg(&socket, &[IoSlice::new(bytes)], &mut control, flags))?)
}

/// Receives bytes into `buffer` and appends the descriptors that came with them to `fds`. `Ok(0)` is the end of
/// the stream. Never blocks.
///
/// # Errors
/// `WouldBlock`: no data is available. `EMFILE`: descriptors were lost because this process is at its limit of
/// descriptors; the stream must not be used any more.
pub fn receive(socket: impl AsFd, buffer: &mut [u8], fds: &mut VecDeque<OwnedFd>) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let mut slices = [IoSliceMut::new(buffer)];
    let message = retry_on_intr(|| net::recvmsg(&socket, &mut slices, &mut control, flags))?;
    for part in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = part {
            fds.extend(rights);
        }
    }
    if message.flags.contains(ReturnFlags::CTRUNC) {
        return Err(Errno::MFILE.into());
    }
    Ok(message.bytes)
}

/// Waits until the descriptor is ready. `Ok(false)`: the timeout has passed.
pub fn wait(fd: impl AsFd, readable: bool, writable: bool, timeout: Option<Duration>) -> io::Result<bool> {
    let mut flags = PollFlags::empty();
    flags.set(PollFlags::IN, readable);
    flags.set(PollFlags::OUT, writable);
    let timeout = timeout.map(|t| Timespec { tv_sec: t.as_secs() as i64, tv_nsec: t.subsec_nanos().into() });
    let ready = retry_on_intr(|| poll(&mut [PollFd::new(&fd, flags)], timeout.as_ref()))?;
    Ok(ready > 0)
}

/// A TCP socket that listens on `address` (port 0: any). The unspecified IPv6 address also accepts IPv4.
///
/// # Errors
/// The address is not of this machine or is in use; the kernel does not support the family.
pub fn listen(address: SocketAddr, backlog: i32) -> io::Result<OwnedFd> {
    let socket = bound(address, true)?;
    net::listen(&socket, backlog)?;
    Ok(socket)
}

/// Binds a TCP socket. `reuse`: even to a port of other sockets, if these have `SO_REUSEADDR` and do not listen.
fn bound(address: SocketAddr, reuse: bool) -> io::Result<OwnedFd> {
    let socket = tcp(address)?;
    sockopt::set_socket_reuseaddr(&socket, reuse)?;
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, !address.ip().is_unspecified())?;
    }
    net::bind(&socket, &address)?;
    Ok(socket)
}

/// How sockets on consecutive ports will be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InARow {
    /// The sockets listen, with this backlog.
    Listen(i32),
    /// The sockets do not listen; no other socket can bind their ports until [`offer_port`] is called.
    Reserve,
}

/// The error that no run of consecutive ports is free.
#[derive(Debug)]
pub struct NoRow {
    /// The last port that could not be bound.
    pub port: Option<u16>,
    pub error: io::Error,
}

impl From<NoRow> for io::Error {
    fn from(NoRow { error, .. }: NoRow) -> io::Error {
        error
    }
}

/// Binds `count` sockets on all addresses and on consecutive ports within `ports`, for other programs, which will block
/// in `accept`; the search begins at `first`. Returns the lowest port.
///
/// Ports that other processes have reserved are not used. A port with old connections only (`TIME_WAIT`) looks the
/// same, so if no others are free, sockets that listen use such ports too.
///
/// # Errors
/// `AddrInUse`, `PermissionDenied`: no run of so many ports is free; or no descriptor is left.
pub fn bind_in_a_row(
    count: usize,
    ports: RangeInclusive<u16>,
    first: u16,
    kind: InARow,
) -> Result<(u16, Vec<OwnedFd>), NoRow> {
    let unused = in_a_row(count, ports.clone(), first, |port| bind_anywhere(port, kind, false));
    match (unused, kind) {
        (Err(NoRow { error, .. }), InARow::Listen(_)) if error.kind() == io::ErrorKind::AddrInUse => {
            in_a_row(count, ports, first, |port| bind_anywhere(port, kind, true))
        }
        (result, _) => result,
    }
}

fn in_a_row(
    count: usize,
    ports: RangeInclusive<u16>,
    first: u16,
    bind: impl Fn(u16) -> io::Result<OwnedFd>,
) -> Result<(u16, Vec<OwnedFd>), NoRow> {
    let all = usize::from(*ports.end()).saturating_sub(usize::from(*ports.start())) + 1;
    let (mut run, mut base) = (Vec::with_capacity(count), first);
    let mut refused = NoRow { port: None, error: Errno::ADDRINUSE.into() };
    // Each port is tried once; the ports at which the search began are tried a second time, for a run that spans them.
    for port in ports.clone().filter(|port| *port >= first).chain(ports).take(all + count) {
        if run.is_empty() || port < base {
            run.clear();
            base = port;
        }
        match bind(port) {
            Ok(socket) => {
                let blocking = crate::files::set_nonblocking(&socket, false);
                blocking.map_err(|error| NoRow { port: Some(port), error })?;
                run.push(socket);
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::AddrInUse | io::ErrorKind::PermissionDenied) => {
                run.clear();
                refused = NoRow { port: Some(port), error };
            }
            Err(error) => return Err(NoRow { port: Some(port), error }),
        }
        if run.len() >= count {
            return Ok((base, run));
        }
    }
    Err(refused)
}

/// Binds a socket to a port for IPv6 and IPv4, or for IPv4 alone if there is no IPv6.
fn bind_anywhere(port: u16, kind: InARow, reuse: bool) -> io::Result<OwnedFd> {
    let open = |address| {
        let socket = bound(address, reuse)?;
        if let InARow::Listen(backlog) = kind {
            net::listen(&socket, backlog)?;
            // The option is set only after `bind`, which might otherwise have succeeded at the port of another such
            // socket.
            sockopt::set_socket_reuseaddr(&socket, true)?;
        }
        Ok(socket)
    };
    open((Ipv6Addr::UNSPECIFIED, port).into()).or_else(|error: io::Error| match error.kind() {
        io::ErrorKind::AddrInUse | io::ErrorKind::PermissionDenied => Err(error),
        _ => open((Ipv4Addr::UNSPECIFIED, port).into()),
    })
}

/// Makes this socket's port available: another socket with `SO_REUSEADDR` that binds this port number gets it and may
/// listen there, as long as this socket does not listen. The kernel does not check which user's socket that is.
pub fn offer_port(socket: impl AsFd) -> io::Result<()> {
    Ok(sockopt::set_socket_reuseaddr(socket, true)?)
}

/// The address on which a socket listens, or the local address of its connection.
pub fn local_address(socket: impl AsFd) -> io::Result<SocketAddr> {
    Ok(plain(SocketAddr::try_from(net::getsockname(socket)?)?))
}

/// Turns an IPv4-mapped IPv6 address into the IPv4 address.
pub(crate) fn plain(address: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V6(v6) if v6.ip().to_ipv4_mapped().is_some() => {
            SocketAddr::new(address.ip().to_canonical(), address.port())
        }
        _ => address,
    }
}

/// Accepts the next connection waiting on a listening socket; returns it with the peer's address.
pub fn accept(listener: impl AsFd) -> io::Result<(OwnedFd, SocketAddr)> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (socket, peer) = retry_on_intr(|| net::acceptfrom_with(&listener, flags))?;
    // The error is ignored: without the option, small messages are only slower.
    let _ = sockopt::set_tcp_nodelay(&socket, true);
    let peer = peer.map(SocketAddr::try_from).ok_or(Errno::NOTCONN)??;
    Ok((socket, plain(peer)))
}

/// Starts to connect, from the address `source` if it is given. When the socket becomes writable, [`dial_result`]
/// returns the result.
///
/// # Errors
/// Errors that are known at once: no descriptor, no route; `source` is not an address of this machine.
pub fn dial(address: SocketAddr, source: Option<IpAddr>) -> io::Result<OwnedFd> {
    let socket = tcp(address)?;
    if let Some(source) = source {
        net::bind(&socket, &SocketAddr::new(source, 0))?;
    }
    match net::connect(&socket, &address) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
        Err(error) => Err(error.into()),
    }
}

/// The result of [`dial`], once the socket is writable.
pub fn dial_result(socket: impl AsFd) -> io::Result<()> {
    Ok(sockopt::socket_error(socket)??)
}

/// Longest idle time before the first probe that Linux accepts (`MAX_TCP_KEEPIDLE`, s).
const KEEPALIVE_S_MAX: u16 = 32_767;
/// Most probes that Linux accepts (`MAX_TCP_KEEPCNT`).
const PROBES_MAX: u64 = 127;

/// Makes an idle connection fail with `TimedOut` (or an error from the network) when the other end has not answered
/// probes for `timeout`.
///
/// An idle connection is probed after half of that time and then every second (less often if that would exceed the
/// number of probes that Linux accepts). Not for a socket that is still connecting. While sent bytes are
/// unacknowledged, the kernel does not probe, and would retransmit them for a quarter of an hour: see [`silence`].
/// `TCP_USER_TIMEOUT` is no alternative, since it also ends connections whose other end is alive but has no room, such
/// as a stopped process.
pub fn keep_alive(socket: impl AsFd, timeout: Duration) -> io::Result<()> {
    let timeout_s = timeout.as_secs_f64().ceil().clamp(1.0, f64::from(KEEPALIVE_S_MAX)) as u64;
    let idle_s = (timeout_s / 2).max(1);
    let probed_s = (timeout_s - idle_s).max(1);
    let interval_s = probed_s.div_ceil(PROBES_MAX);
    sockopt::set_tcp_keepidle(&socket, Duration::from_secs(idle_s))?;
    sockopt::set_tcp_keepintvl(&socket, Duration::from_secs(interval_s))?;
    sockopt::set_tcp_keepcnt(&socket, probed_s.div_ceil(interval_s) as u32)?;
    sockopt::set_socket_keepalive(&socket, true)?;
    Ok(())
}

/// The state of sent bytes that the peer has not acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unacknowledged {
    Nothing,
    /// Bytes are waiting, and the peer answers: it has no room, or the bytes have only just been sent.
    Answered,
    /// Segments or probes are unanswered; the last acknowledgement arrived this long ago.
    Silent(Duration),
}

/// Whether the peer acknowledges the bytes written to a connection.
pub fn silence(socket: impl AsFd) -> io::Result<Unacknowledged> {
    let fd = socket.as_fd().as_raw_fd();
    let mut waiting: libc::c_int = 0;
    // SAFETY: the kernel writes one int.
    if unsafe { libc::ioctl(fd, libc::TIOCOUTQ as _, &raw mut waiting) } < 0 {
        return Err(io::Error::last_os_error());
    }
    if waiting == 0 {
        return Ok(Unacknowledged::Nothing);
    }
    let info = tcp_info(fd)?;
    let silent = info.retransmits > 0 || info.probes > 0;
    let since = Duration::from_millis(info.last_ack_recv_ms.into());
    Ok(if silent { Unacknowledged::Silent(since) } else { Unacknowledged::Answered })
}

/// Whether a TCP connection is established: neither end has closed or reset it.
pub fn is_established(socket: impl AsFd) -> io::Result<bool> {
    Ok(tcp_info(socket.as_fd().as_raw_fd())?.state == TCP_ESTABLISHED)
}

/// `TCP_ESTABLISHED` of the kernel's `tcp_states.h`.
pub(crate) const TCP_ESTABLISHED: u8 = 1;

fn tcp_info(fd: RawFd) -> io::Result<TcpInfo> {
    let mut info = TcpInfo::default();
    let mut length = size_of::<TcpInfo>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes, and any bytes are a valid `TcpInfo`.
    let result =
        unsafe { libc::getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_INFO, (&raw mut info).cast(), &raw mut length) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(info) }
}

/// The beginning of the kernel's `struct tcp_info`, which only grows at its end.
#[derive(Default)]
#[repr(C)]
struct TcpInfo {
    state: u8,
    congestion_state: u8,
    /// Number of times that the oldest segment was sent again; `probes`: number of unanswered probes of a closed
    /// window.
    retransmits: u8,
    probes: u8,
    options: [u8; 4],
    timers: [u32; 4],
    segments: [u32; 5],
    last_data_sent_ms: u32,
    last_ack_sent_ms: u32,
    last_data_recv_ms: u32,
    last_ack_recv_ms: u32,
}

fn tcp(address: SocketAddr) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = net::socket_with(family, SocketType::STREAM, flags, None)?;
    // The error is ignored: without the option, small messages are only slower.
    let _ = sockopt::set_tcp_nodelay(&socket, true);
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::pipe;

    #[test]
    fn the_other_end_of_a_pair_reads_its_name() {
        let (one, other) = pair().unwrap();
        let (another, _end) = pair().unwrap();
        name(&one, b"\0kind").unwrap();
        name(&another, b"\0kind").unwrap();
        assert!(name(&one, b"\0kind").is_err());
        let seen: net::SocketAddrUnix = net::getpeername(&other).unwrap().unwrap().try_into().unwrap();
        assert!(seen.abstract_name().unwrap().starts_with(b"kind"));
        assert_eq!(send(&other, b"x", &[]).unwrap(), 1);
    }

    #[test]
    fn descriptors_arrive_with_the_first_byte() {
        let (here, there) = pair().unwrap();
        let (reader, writer) = pipe().unwrap();
        let many: Vec<BorrowedFd> = std::iter::repeat_n(writer.as_fd(), FDS_MAX).collect();
        assert_eq!(send(&here, b"abc", &many).unwrap(), 3);
        let mut fds = VecDeque::new();
        let mut buffer = [0u8; 2];
        assert_eq!(receive(&there, &mut buffer, &mut fds).unwrap(), 2);
        assert_eq!(fds.len(), FDS_MAX);
        drop(writer);
        rustix::io::write(&fds[FDS_MAX - 1], b"!").unwrap();
        assert_eq!(rustix::io::read(&reader, &mut buffer[..]).unwrap(), 1);
        assert_eq!(receive(&there, &mut buffer, &mut fds).unwrap(), 1);
        assert_eq!(receive(&there, &mut buffer, &mut fds).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        net::shutdown(&here, net::Shutdown::Write).unwrap();
        assert_eq!(receive(&there, &mut buffer, &mut fds).unwrap(), 0);
    }

    #[test]
    fn sockets_in_a_row_skip_ports_in_use_and_begin_again_at_the_lowest() {
        let port = |socket: &OwnedFd| local_address(socket).unwrap().port();
        // Ports that no other test uses.
        let range = 23_100..=23_119;
        let busy = listen("[::]:23110".parse().unwrap(), 1).unwrap();
        let (base, run) = bind_in_a_row(4, range.clone(), 23_108, InARow::Listen(8)).unwrap();
        assert_eq!((base, run.iter().map(port).collect()), (23_111, vec![23_111, 23_112, 23_113, 23_114]));
        let (base, below) = bind_in_a_row(6, range.clone(), 23_116, InARow::Listen(8)).unwrap();
        assert_eq!((base, below.len()), (23_100, 6));
        for kind in [InARow::Listen(8), InARow::Reserve] {
            let error = bind_in_a_row(6, range.clone(), 23_100, kind).unwrap_err();
            assert!(error.port.is_some() && error.error.kind() == io::ErrorKind::AddrInUse, "{error:?}");
        }
        drop((busy, run, below));
    }

    #[test]
    fn a_reserved_port_is_nobodys_before_it_is_offered_to_those_who_ask_for_it_by_number_and_reuse_addresses() {
        let range = 23_120..=23_129;
        let (base, reserved) = bind_in_a_row(5, range.clone(), 23_120, InARow::Reserve).unwrap();
        assert_eq!((base, reserved.len()), (23_120, 5));
        let own: SocketAddr = "127.0.0.1:23121".parse().unwrap();
        for reuse in [false, true] {
            assert_eq!(bound(own, reuse).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        }
        reserved.iter().for_each(|socket| offer_port(socket).unwrap());
        assert_eq!(bound(own, false).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        // A search for free ports skips the offered port, and connections to it are refused.
        for kind in [InARow::Listen(8), InARow::Reserve] {
            assert_eq!(bind_in_a_row(5, range.clone(), 23_120, kind).unwrap().0, 23_125);
        }
        let refused = dial(own, None).and_then(|socket| {
            wait(&socket, false, true, None)?;
            dial_result(&socket)
        });
        assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
        // A library listens on the port by its number.
        let listening = listen(own, 8).unwrap();
        let dialled = dial(own, None).unwrap();
        assert!(wait(&listening, true, false, None).unwrap());
        accept(&listening).unwrap();
        assert!(listen(own, 8).is_err(), "one listens there");
        drop((reserved, dialled));
    }

    #[test]
    fn a_dialled_connection_is_accepted() {
        let listener = listen("127.0.0.1:0".parse().unwrap(), 8).unwrap();
        let dialled = dial(local_address(&listener).unwrap(), None).unwrap();
        assert!(wait(&listener, true, false, None).unwrap());
        let (accepted, peer) = accept(&listener).unwrap();
        assert!(wait(&dialled, false, true, None).unwrap());
        dial_result(&dialled).unwrap();
        assert_eq!(peer, local_address(&dialled).unwrap());
        assert!(sockopt::tcp_nodelay(&accepted).unwrap());
        assert_eq!(accept(&listener).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn a_refused_connection_is_an_error() {
        let listener = listen("127.0.0.1:0".parse().unwrap(), 8).unwrap();
        let address = local_address(&listener).unwrap();
        drop(listener);
        let refused = dial(address, None).and_then(|socket| {
            wait(&socket, false, true, None)?;
            dial_result(&socket)
        });
        assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
    }

    #[test]
    fn one_listener_accepts_ipv4_and_ipv6() {
        let listener = match listen("[::]:0".parse().unwrap(), 8) {
            Ok(listener) => listener,
            Err(error) => return eprintln!("skipped: no IPv6 here: {error}"),
        };
        let port = local_address(&listener).unwrap().port();
        for to in ["127.0.0.1", "::1"] {
            let to = SocketAddr::new(to.parse().unwrap(), port);
            let dialled = dial(to, Some(to.ip())).unwrap();
            assert!(wait(&listener, true, false, None).unwrap());
            let (accepted, peer) = accept(&listener).unwrap();
            assert_eq!(peer, local_address(&dialled).unwrap());
            assert_eq!(local_address(&accepted).unwrap(), to);
        }
    }

    #[test]
    fn a_peer_with_a_full_buffer_still_answers_probes() {
        let listener = listen("127.0.0.1:0".parse().unwrap(), 8).unwrap();
        let dialled = dial(local_address(&listener).unwrap(), None).unwrap();
        assert!(wait(&listener, true, false, None).unwrap());
        let (accepted, _) = accept(&listener).unwrap();
        assert!(wait(&dialled, false, true, None).unwrap());
        assert_eq!(silence(&dialled).unwrap(), Unacknowledged::Nothing);
        let chunk = vec![0u8; 1 << 16];
        while let Ok(1..) = rustix::io::write(&dialled, &chunk) {}
        // The kernel sends the first probe of the closed window after a fifth of a second, and it is answered.
        std::thread::sleep(Duration::from_millis(500));
        assert_eq!(silence(&dialled).unwrap(), Unacknowledged::Answered);
        drop(accepted);
    }

    #[test]
    fn keepalive_probes_fit_the_timeout() {
        let socket = tcp("127.0.0.1:0".parse().unwrap()).unwrap();
        for (timeout_ms, idle_s, interval_s, count) in
            [(30_000, 15, 1, 15), (1_000, 1, 1, 1), (250, 1, 1, 1), (600_000, 300, 3, 100), (7_500, 4, 1, 4)]
        {
            keep_alive(&socket, Duration::from_millis(timeout_ms)).unwrap();
            assert!(sockopt::socket_keepalive(&socket).unwrap());
            assert_eq!(sockopt::tcp_keepidle(&socket).unwrap().as_secs(), idle_s, "{timeout_ms}");
            assert_eq!(sockopt::tcp_keepintvl(&socket).unwrap().as_secs(), interval_s, "{timeout_ms}");
            assert_eq!(sockopt::tcp_keepcnt(&socket).unwrap(), count, "{timeout_ms}");
        }
        keep_alive(&socket, Duration::MAX).unwrap();
    }
}
