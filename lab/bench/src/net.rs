//! Helper functions about sockets and hosts.
use std::io;
use std::net::{Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, Timespec, poll};

pub fn address_of(host: &str) -> io::Result<Ipv4Addr> {
    // A user's name before `@` is only for the remote shell.
    let name = host.rsplit('@').next().unwrap_or(host);
    let found =
        (name, 0).to_socket_addrs().map_err(|error| io::Error::new(error.kind(), format!("{name}: {error}")))?;
    let ipv4 = |address: SocketAddr| if let SocketAddr::V4(address) = address { Some(*address.ip()) } else { None };
    found.filter_map(ipv4).next().ok_or_else(|| io::Error::other(format!("{name} has no IPv4 address")))
}

/// Waits until one of the descriptors is ready; returns whether that happened before `until`.
pub fn await_any(all: &mut [PollFd<'_>], until: Instant) -> io::Result<bool> {
    loop {
        let left = until.saturating_duration_since(Instant::now()).min(Duration::from_secs(3600));
        let limit = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
        match poll(all, Some(&limit)) {
            Ok(count) => return Ok(count > 0),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Random bytes, for secrets.
pub fn random<const LEN: usize>() -> io::Result<[u8; LEN]> {
    let mut bytes = [0; LEN];
    rustix::rand::getrandom(&mut bytes[..], rustix::rand::GetRandomFlags::empty())?;
    Ok(bytes)
}
