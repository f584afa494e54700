//! One socket for datagrams to and from any process (UDP).
//!
//! The kernel keeps the errors that came back for datagrams in a queue of the socket: so a process learns that a peer
//! has exited, because the peer's host then answers "port unreachable".

use super::{Descriptor, Raw, Result, bound_port, checked, option, socket};
use crate::server::errno;
use core::ffi::c_int;
use core::mem::{MaybeUninit, size_of};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

pub struct Datagrams(Descriptor);

/// A buffer for the kernel's control messages about a datagram that came back.
#[repr(C, align(8))]
struct Control([u8; 512]);

impl Datagrams {
    /// Opens a socket at this port of all addresses (0: at a free one); returns the port.
    ///
    /// # Errors
    /// The system has neither IPv6 nor IPv4, the port is taken, or there is no free descriptor.
    pub fn open(port: u16) -> Result<(Datagrams, u16)> {
        let any = |ip| SocketAddr::new(ip, port);
        Datagrams::open_at(libc::AF_INET6, any(Ipv6Addr::UNSPECIFIED.into()))
            .or_else(|_| Datagrams::open_at(libc::AF_INET, any(Ipv4Addr::UNSPECIFIED.into())))
    }

    fn open_at(family: c_int, any: SocketAddr) -> Result<(Datagrams, u16)> {
        let socket = socket(family, libc::SOCK_DGRAM)?;
        if family == libc::AF_INET6 {
            // The IPv6 socket also sends and receives by IPv4.
            option(socket.fd(), libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 0)?;
            option(socket.fd(), libc::IPPROTO_IPV6, libc::IPV6_RECVERR, 1)?;
        }
        option(socket.fd(), libc::IPPROTO_IP, libc::IP_RECVERR, 1)?;
        let raw = Raw::of(&any);
        // SAFETY: pointer and length are those of the address.
        checked(unsafe { libc::bind(socket.fd(), raw.pointer(), raw.len) })?;
        let port = bound_port(&socket, &any)?;
        Ok((Datagrams(socket), port))
    }

    pub fn fd(&self) -> c_int {
        self.0.fd()
    }

    /// Sends a datagram. `false`: there is no room now. A datagram that cannot be sent at all counts as lost on its
    /// way.
    pub fn send(&self, to: &SocketAddr, bytes: &[u8]) -> bool {
        let raw = Raw::of(to);
        // The error of an earlier datagram may be reported first.
        for _ in 0..2 {
            // SAFETY: pointers and lengths are those of the slice and of the address.
            let sent = unsafe {
                libc::sendto(self.fd(), bytes.as_ptr().cast(), bytes.len(), libc::MSG_NOSIGNAL, raw.pointer(), raw.len)
            };
            match (sent, errno()) {
                (..0, libc::EAGAIN | libc::ENOBUFS) => return false,
                (..0, libc::ECONNREFUSED | libc::EINTR) => {}
                _ => break,
            }
        }
        true
    }

    /// The length of a datagram and its sender; `None`: there is none. What does not fit into the buffer is cut off.
    pub fn receive(&self, buffer: &mut [u8]) -> Option<(usize, SocketAddr)> {
        loop {
            let mut from = Raw::empty();
            // SAFETY: pointers and lengths are those of the buffer and of the address.
            let got = unsafe {
                libc::recvfrom(
                    self.fd(),
                    buffer.as_mut_ptr().cast(),
                    buffer.len(),
                    0,
                    from.pointer_mut(),
                    &mut from.len,
                )
            };
            match usize::try_from(got) {
                Ok(len) => match from.address() {
                    Some(from) => return Some((len, from)),
                    None => continue,
                },
                // The error belongs to a datagram that was sent before, and is in the socket's queue of errors.
                Err(_) if errno() == libc::ECONNREFUSED || errno() == libc::EHOSTUNREACH => {}
                Err(_) if errno() == libc::EINTR || errno() == libc::ENETUNREACH => {}
                Err(_) => return None,
            }
        }
    }

    /// The destination of a datagram that came back, because no process has that port; `None`: there are no more.
    /// Anyone can send such an error (ICMP).
    pub fn refused(&self) -> Option<SocketAddr> {
        let mut control = Control([0; 512]);
        loop {
            let mut to = Raw::empty();
            // SAFETY: all zeros are a valid header; its pointers and lengths are those of values that outlive the call.
            let is_refused = unsafe {
                let mut header: libc::msghdr = MaybeUninit::zeroed().assume_init();
                header.msg_name = to.pointer_mut().cast();
                header.msg_namelen = to.len;
                header.msg_control = control.0.as_mut_ptr().cast();
                header.msg_controllen = size_of::<Control>() as _;
                checked(libc::recvmsg(self.fd(), &mut header, libc::MSG_ERRQUEUE) as c_int).ok()?;
                is_refusal(&header)
            };
            if let (true, Some(to)) = (is_refused, to.address()) {
                return Some(to);
            }
        }
    }
}

/// Whether the host of the destination has answered that no process has the port.
///
/// # Safety
/// The kernel has filled in the header.
unsafe fn is_refusal(header: &libc::msghdr) -> bool {
    // SAFETY: the kernel has written whole control messages; each error is read from one that is long enough.
    unsafe {
        let mut next = libc::CMSG_FIRSTHDR(header);
        while let Some(message) = next.as_ref() {
            let is_error = matches!(
                (message.cmsg_level, message.cmsg_type),
                (libc::IPPROTO_IP, libc::IP_RECVERR) | (libc::IPPROTO_IPV6, libc::IPV6_RECVERR)
            );
            let len = libc::CMSG_LEN(size_of::<libc::sock_extended_err>() as u32);
            if is_error && message.cmsg_len >= len as _ {
                let error = libc::CMSG_DATA(next).cast::<libc::sock_extended_err>().read_unaligned();
                // `ee_origin`: the error came from the destination's host, not from this one.
                if error.ee_origin != libc::SO_EE_ORIGIN_LOCAL && error.ee_errno == libc::ECONNREFUSED as u32 {
                    return true;
                }
            }
            next = libc::CMSG_NXTHDR(header, next);
        }
    }
    false
}

impl Raw {
    fn empty() -> Raw {
        let mut raw = Raw::of(&SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0));
        raw.len = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
        raw
    }

    fn pointer_mut(&mut self) -> *mut libc::sockaddr {
        (&raw mut self.storage).cast()
    }

    /// The address in the form that programs expect: IPv4 also where an IPv6 socket has received by IPv4.
    fn address(&self) -> Option<SocketAddr> {
        // SAFETY: the storage is an address of the family that it names, and large enough for every kind.
        unsafe {
            match c_int::from(self.storage.ss_family) {
                libc::AF_INET => {
                    let raw = (&raw const self.storage).cast::<libc::sockaddr_in>().read();
                    let ip = Ipv4Addr::from(raw.sin_addr.s_addr.to_ne_bytes());
                    Some(SocketAddr::new(ip.into(), u16::from_be(raw.sin_port)))
                }
                libc::AF_INET6 => {
                    let raw = (&raw const self.storage).cast::<libc::sockaddr_in6>().read();
                    let ip = IpAddr::V6(Ipv6Addr::from(raw.sin6_addr.s6_addr)).to_canonical();
                    Some(SocketAddr::new(ip, u16::from_be(raw.sin6_port)))
                }
                _ => None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Epoll;
    use super::*;
    use std::vec;

    fn awaited(socket: &Datagrams) {
        let (epoll, mut events) = (Epoll::new().unwrap(), vec![]);
        epoll.watch(socket.fd(), 1, false, true).unwrap();
        epoll.wait(5_000, &mut events);
        assert_eq!(events.len(), 1);
    }

    #[test]
    fn datagrams_reach_the_other_and_tell_where_they_come_from() {
        let (one, one_port) = Datagrams::open(0).unwrap();
        let (other, port) = Datagrams::open(0).unwrap();
        assert!(Datagrams::open(port).is_err(), "the port is taken");
        let mut buffer = [0; 4];
        assert_eq!(other.receive(&mut buffer), None);
        for ip in [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)] {
            assert!(one.send(&SocketAddr::new(ip, port), b"hello"));
            awaited(&other);
            assert_eq!(other.receive(&mut buffer), Some((4, SocketAddr::new(ip, one_port))));
            assert_eq!(&buffer, b"hell");
        }
        assert_eq!((one.refused(), other.refused()), (None, None));
    }

    #[test]
    fn a_port_that_was_closed_is_reported_with_its_address() {
        let (one, _) = Datagrams::open(0).unwrap();
        for ip in [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)] {
            let (other, port) = Datagrams::open(0).unwrap();
            let to = SocketAddr::new(ip, port);
            drop(other);
            assert!(one.send(&to, b"hello"));
            awaited(&one);
            assert_eq!(one.receive(&mut [0; 9]), None);
            assert_eq!(one.refused(), Some(to));
            assert_eq!(one.refused(), None);
        }
    }
}
