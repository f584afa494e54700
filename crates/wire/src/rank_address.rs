//! The address at which a rank listens, as other ranks receive it.
//!
//! ```text
//! +--------+---------+---------------------------------------+   host: equal for ranks that reach each other by
//! | host   | port    | IP addresses: 4 or 16, and so many    |   loopback
//! | u64 LE | u16 LE  | bytes; up to 8 of them                |
//! +--------+---------+---------------------------------------+
//! ```

use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Most IP addresses in a rank's address. Chosen: enough for several networks, and the message of a neighbour stays
/// short.
const IPS_MAX: usize = 8;

/// The byte before an address that a rank announces to others, if the rank listens there for TCP connections.
pub const TCP: u8 = 1;

/// Longest address (bytes).
pub const LEN_MAX: usize = 10 + IPS_MAX * 17;

pub fn encode(host: u64, port: u16, ips: &[IpAddr]) -> Vec<u8> {
    let mut out = host.to_le_bytes().to_vec();
    out.extend_from_slice(&port.to_le_bytes());
    for ip in ips.iter().filter(|ip| !ip.is_loopback()).take(IPS_MAX) {
        match ip {
            IpAddr::V4(ip) => {
                out.push(4);
                out.extend_from_slice(&ip.octets());
            }
            IpAddr::V6(ip) => {
                out.push(16);
                out.extend_from_slice(&ip.octets());
            }
        }
    }
    out
}

/// The socket addresses to dial, best first; none if the bytes are no address. `own_host`: the caller's host.
pub fn candidates(bytes: &[u8], own_host: u64) -> Vec<SocketAddr> {
    read(bytes, own_host).unwrap_or_default()
}

/// The socket addresses that ranks on any host may dial, best first; those of the loopback interface only if there are
/// no others.
pub fn for_all(bytes: &[u8]) -> Vec<SocketAddr> {
    let host = host(bytes).unwrap_or_default();
    let mut all = candidates(bytes, !host);
    if all.is_empty() {
        all = candidates(bytes, host);
    }
    all
}

/// The host number in an address; equal numbers mean that ranks reach each other by loopback.
pub fn host(bytes: &[u8]) -> Option<u64> {
    bytes.first_chunk().map(|host| u64::from_le_bytes(*host))
}

pub fn port(bytes: &[u8]) -> Option<u16> {
    Some(u16::from_le_bytes(*bytes.get(8..)?.first_chunk()?))
}

/// The address of a rank whose port is `distance` higher; `None`: there is no such port, or the bytes are no address.
/// Zeros after the address are left out.
pub fn shift_port(bytes: &[u8], distance: u32) -> Option<Vec<u8>> {
    let mut len = 10;
    while let Some(ip_len @ 1..) = bytes.get(len) {
        len += 1 + usize::from(*ip_len);
    }
    let mut shifted = bytes.get(..len)?.to_vec();
    let port = shifted.get_mut(8..10)?;
    let number = u32::from(u16::from_le_bytes([port[0], port[1]])).checked_add(distance)?;
    port.copy_from_slice(&u16::try_from(number).ok()?.to_le_bytes());
    Some(shifted)
}

/// Encodes a socket address as a `struct sockaddr_in` or `sockaddr_in6` of Linux.
pub fn sockaddr(address: &SocketAddr) -> Vec<u8> {
    let port = address.port().to_be_bytes();
    match address {
        SocketAddr::V4(v4) => [&AF_INET.to_ne_bytes()[..], &port, &v4.ip().octets(), &[0; 8]].concat(),
        SocketAddr::V6(v6) => {
            let (flow, scope) = (v6.flowinfo().to_be_bytes(), v6.scope_id().to_ne_bytes());
            [&AF_INET6.to_ne_bytes()[..], &port, &flow, &v6.ip().octets(), &scope].concat()
        }
    }
}

const AF_INET: u16 = 2;
const AF_INET6: u16 = 10;

fn read(bytes: &[u8], own_host: u64) -> Option<Vec<SocketAddr>> {
    let (host, rest) = bytes.split_first_chunk()?;
    let (port, mut rest) = rest.split_first_chunk()?;
    let port = u16::from_le_bytes(*port);
    if u64::from_le_bytes(*host) == own_host {
        return Some([SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port)].into());
    }
    let mut all = Vec::new();
    while let Some((len, after)) = rest.split_first() {
        let ip: IpAddr = match len {
            0 => break,
            _ if all.len() == IPS_MAX => return None,
            4 => (<[u8; 4]>::try_from(after.get(..4)?).ok()?).into(),
            16 => (<[u8; 16]>::try_from(after.get(..16)?).ok()?).into(),
            _ => return None,
        };
        all.push(SocketAddr::new(ip, port));
        rest = &after[usize::from(*len)..];
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;

    #[test]
    fn ranks_of_a_host_use_loopback_and_others_its_addresses() {
        let ips: [IpAddr; 3] = ["10.0.0.1", "fd00::1", "127.0.0.1"].map(|text| text.parse().unwrap());
        let bytes = encode(7, 99, &ips);
        assert_eq!(candidates(&bytes, 7), ["127.0.0.1:99".parse().unwrap()]);
        let far: Vec<SocketAddr> = ["10.0.0.1:99", "[fd00::1]:99"].iter().map(|text| text.parse().unwrap()).collect();
        assert_eq!(candidates(&bytes, 8), far);
        assert_eq!(for_all(&bytes), far);
        assert_eq!(for_all(&encode(7, 99, &ips[2..])), ["127.0.0.1:99".parse().unwrap()]);
        for len in 0..bytes.len() {
            candidates(&bytes[..len], 8);
        }
        assert_eq!((port(&bytes), port(&bytes[..9])), (Some(99), None));
        assert!(candidates(&bytes[..12], 8).is_empty() && candidates(&[], 8).is_empty());
        let many = |count| [&bytes[..10], &[4, 10, 0, 0, 1].repeat(count)].concat();
        assert_eq!([8, 9].map(|count| candidates(&many(count), 8).len()), [8, 0], "no rank tells so many");
    }

    #[test]
    fn the_ports_of_a_nodes_ranks_follow_each_other() {
        let bytes = encode(7, 65_530, &[]);
        assert_eq!(
            shift_port(&bytes, 5).map(|bytes| (host(&bytes), candidates(&bytes, 7))),
            Some((Some(7), vec!["127.0.0.1:65535".parse().unwrap()]))
        );
        let padded = [encode(7, 1, &["10.0.0.1".parse().unwrap()]), vec![0; 20]].concat();
        assert_eq!(shift_port(&padded, 1).map(|bytes| bytes.len()), Some(15));
        assert_eq!(candidates(&padded, 8), candidates(&padded[..15], 8));
        assert_eq!(
            (shift_port(&bytes, 6), shift_port(&bytes[..9], 1), shift_port(&bytes, u32::MAX)),
            (None, None, None)
        );
    }
}
