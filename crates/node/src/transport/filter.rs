//! `--interface`: which addresses of a machine links may use.

use std::fmt;
use std::net::IpAddr;
use thiserror::Error;
use wireup_os::interfaces::InterfaceAddress;

/// The value of `--interface`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Filter {
    /// An interface, such as `ib0`.
    Interface(String),
    Address(IpAddr),
    /// A network, such as `10.1.0.0/16`.
    Network(Network),
}

/// Addresses with the same leading bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Network {
    base: IpAddr,
    prefix_len: u8,
}

#[derive(Error, Clone, PartialEq, Eq, Debug)]
pub enum FilterError {
    #[error("--interface needs a name")]
    Empty,
    #[error("{0} is not a network; write it as 10.1.0.0/16 or fd00:1::/64")]
    Network(String),
}

impl Filter {
    /// Parses the value: a text with a slash is a network, a text that parses as an address is an address, any other
    /// text is an interface name.
    ///
    /// # Errors
    /// The text is empty, or has a slash and is not a valid network.
    pub fn parse(text: &str) -> Result<Filter, FilterError> {
        let text = text.trim();
        if text.is_empty() {
            return Err(FilterError::Empty);
        }
        if text.contains('/') {
            return Network::parse(text).map(Filter::Network).ok_or_else(|| FilterError::Network(text.to_owned()));
        }
        let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
        Ok(bare.parse().map_or_else(|_| Filter::Interface(text.to_owned()), Filter::Address))
    }

    /// Whether links may use this address of this machine.
    pub fn takes(&self, own: &InterfaceAddress) -> bool {
        match self {
            Filter::Interface(name) => own.interface == *name,
            Filter::Address(ip) => own.ip == *ip,
            Filter::Network(network) => network.contains(own.ip),
        }
    }

    /// Whether links may connect to this address of another machine; `own` are the addresses of this machine.
    pub fn takes_remote(&self, ip: IpAddr, own: &[InterfaceAddress]) -> bool {
        match self {
            Filter::Interface(_) => own.iter().any(|own| self.takes(own) && Network::of(own).contains(ip)),
            Filter::Address(address) => *address == ip,
            Filter::Network(network) => network.contains(ip),
        }
    }
}

impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Filter::Interface(name) => f.write_str(name),
            Filter::Address(ip) => ip.fmt(f),
            Filter::Network(Network { base, prefix_len }) => write!(f, "{base}/{prefix_len}"),
        }
    }
}

impl Network {
    /// The network of an interface's address.
    pub fn of(own: &InterfaceAddress) -> Network {
        Network { base: own.ip, prefix_len: own.prefix_len }
    }

    pub fn contains(&self, ip: IpAddr) -> bool {
        // `checked_shr` fails for a shift by all bits, at prefix length 0: such a network contains every address.
        match (self.base, ip) {
            (IpAddr::V4(base), IpAddr::V4(ip)) => {
                (base.to_bits() ^ ip.to_bits()).checked_shr(32 - u32::from(self.prefix_len.min(32))).unwrap_or(0) == 0
            }
            (IpAddr::V6(base), IpAddr::V6(ip)) => {
                (base.to_bits() ^ ip.to_bits()).checked_shr(128 - u32::from(self.prefix_len.min(128))).unwrap_or(0) == 0
            }
            _ => false,
        }
    }

    fn parse(text: &str) -> Option<Network> {
        let (base, length) = text.split_once('/')?;
        let base: IpAddr = base.parse().ok()?;
        let prefix_len: u8 = length.parse().ok()?;
        let longest = if base.is_ipv4() { 32 } else { 128 };
        (prefix_len <= longest).then_some(Network { base, prefix_len })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(interface: &str, ip: &str, prefix_len: u8) -> InterfaceAddress {
        let ip = ip.parse().unwrap();
        InterfaceAddress { interface: interface.into(), ip, prefix_len, up: true, loopback: false }
    }

    #[test]
    fn filters_distinguish_names_addresses_and_networks() {
        assert_eq!(Filter::parse("ib0"), Ok(Filter::Interface("ib0".into())));
        assert_eq!(Filter::parse(" 10.1.2.3 "), Ok(Filter::Address("10.1.2.3".parse().unwrap())));
        assert_eq!(Filter::parse("[fd00::1]"), Filter::parse("fd00::1"));
        for network in ["10.1.0.0/16", "fd00::/8", "0.0.0.0/0"] {
            assert_eq!(Filter::parse(network).unwrap().to_string(), network);
        }
        for wrong in ["10.1.0.0/33", "eth0/16", "10.1/16", "10.1.0.0/", "fd00::/129", "/"] {
            assert_eq!(Filter::parse(wrong), Err(FilterError::Network(wrong.into())));
        }
        assert_eq!(Filter::parse("  "), Err(FilterError::Empty));
    }

    #[test]
    fn a_network_contains_addresses_with_its_leading_bits() {
        let contains = |network: &str, ip: &str| Network::parse(network).unwrap().contains(ip.parse().unwrap());
        assert!(contains("10.1.0.0/16", "10.1.255.255"));
        assert!(!contains("10.1.0.0/16", "10.2.0.0"));
        assert!(contains("10.1.2.3/32", "10.1.2.3") && !contains("10.1.2.3/32", "10.1.2.2"));
        assert!(contains("0.0.0.0/0", "255.1.2.3") && !contains("0.0.0.0/0", "::1"));
        assert!(contains("::/0", "fd00::1") && !contains("::/0", "10.0.0.1"));
        assert!(contains("fd00:1::/32", "fd00:1:ffff::1") && !contains("fd00:1::/32", "fd00:2::1"));
    }

    #[test]
    fn an_interface_filter_takes_the_networks_of_that_interface() {
        let mine = [own("eth0", "10.0.0.1", 24), own("ib0", "10.1.0.1", 24)];
        let filter = Filter::parse("ib0").unwrap();
        assert!(!filter.takes(&mine[0]) && filter.takes(&mine[1]));
        assert!(filter.takes_remote("10.1.0.9".parse().unwrap(), &mine));
        assert!(!filter.takes_remote("10.0.0.9".parse().unwrap(), &mine));
    }
}
