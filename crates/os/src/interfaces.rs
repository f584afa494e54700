//! Lists the network interfaces of this machine with their addresses.
//!
//! The list has one entry per address, in the kernel's order: by interface within a family, IPv4 before IPv6. The
//! caller decides which addresses to use.

use std::ffi::CStr;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// One address of one interface.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InterfaceAddress {
    /// Name of the interface, such as `eth0`.
    pub interface: String,
    pub ip: IpAddr,
    /// Number of leading bits that all addresses of this network share.
    pub prefix_len: u8,
    /// Whether the interface is switched on and, if it reports its carrier, has one.
    pub up: bool,
    pub loopback: bool,
}

/// The addresses of all interfaces of this network namespace.
pub fn addresses() -> io::Result<Vec<InterfaceAddress>> {
    let mut list = List(std::ptr::null_mut());
    // SAFETY: `list.0` is a valid place for the head of the list; if the call succeeds, `List` frees it.
    if unsafe { libc::getifaddrs(&mut list.0) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut addresses = Vec::new();
    let mut next = list.0;
    // SAFETY: `next` is null or an entry of the list, which stays allocated and unchanged until `list` is dropped.
    while let Some(entry) = unsafe { next.as_ref() } {
        next = entry.ifa_next;
        // SAFETY: each pointer is null or points to an address of the family that is named in it (getifaddrs(3)).
        let (ip, mask) = unsafe { (read_ip(entry.ifa_addr), read_ip(entry.ifa_netmask)) };
        let (Some(ip), Some(mask)) = (ip, mask) else {
            continue;
        };
        // SAFETY: the name is a zero-terminated string that lives as long as the list.
        let interface = unsafe { CStr::from_ptr(entry.ifa_name) }.to_string_lossy().into_owned();
        let has = |flag: libc::c_int| entry.ifa_flags & flag as libc::c_uint != 0;
        addresses.push(InterfaceAddress {
            interface,
            ip,
            prefix_len: leading_ones(mask),
            up: has(libc::IFF_UP) && has(libc::IFF_RUNNING),
            loopback: has(libc::IFF_LOOPBACK),
        });
    }
    Ok(addresses)
}

/// A list allocated by `getifaddrs`.
struct List(*mut libc::ifaddrs);

impl Drop for List {
    fn drop(&mut self) {
        if !self.0.is_null() {
            // SAFETY: the pointer came from `getifaddrs` and is freed once; nothing borrowed from the list is left.
            unsafe { libc::freeifaddrs(self.0) };
        }
    }
}

/// # Safety
/// `address` is null or points to a socket address of the length that its family implies.
unsafe fn read_ip(address: *const libc::sockaddr) -> Option<IpAddr> {
    if address.is_null() {
        return None;
    }
    // SAFETY: the caller guarantees that the address holds a family and the rest of that family's struct. The reads
    // assume no alignment.
    unsafe {
        match libc::c_int::from((&raw const (*address).sa_family).read_unaligned()) {
            libc::AF_INET => {
                let v4 = address.cast::<libc::sockaddr_in>().read_unaligned();
                Some(IpAddr::V4(Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr))))
            }
            libc::AF_INET6 => {
                let v6 = address.cast::<libc::sockaddr_in6>().read_unaligned();
                Some(IpAddr::V6(Ipv6Addr::from(v6.sin6_addr.s6_addr)))
            }
            _ => None,
        }
    }
}

fn leading_ones(mask: IpAddr) -> u8 {
    let bits = match mask {
        IpAddr::V4(mask) => mask.to_bits().leading_ones(),
        IpAddr::V6(mask) => mask.to_bits().leading_ones(),
    };
    bits as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_interface_is_listed() {
        let addresses = addresses().unwrap();
        let loopback = addresses.iter().find(|address| address.ip == Ipv4Addr::LOCALHOST).expect("127.0.0.1 is there");
        assert!(loopback.up && loopback.loopback && loopback.prefix_len == 8, "{loopback:?}");
        assert!(!loopback.interface.is_empty());
        assert!(addresses.iter().all(|address| address.loopback || !address.ip.is_loopback()), "{addresses:?}");
    }

    #[test]
    fn netmasks_become_prefix_lengths() {
        assert_eq!(leading_ones("255.255.240.0".parse().unwrap()), 20);
        assert_eq!(leading_ones("0.0.0.0".parse().unwrap()), 0);
        assert_eq!(leading_ones("ffff:ffff:ffff:ffff::".parse().unwrap()), 64);
    }
}
