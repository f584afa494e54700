//! Chooses the addresses that an agent offers to its children, and the order in which a child dials these addresses.
//!
//! An agent first offers the address at which the agent itself was reached, since that address is known to work, then
//! its other addresses. A child first dials the address from which its remote shell was started, then addresses on a
//! network that the child shares with its parent, then all other addresses. IPv4 and IPv6 addresses alternate (RFC
//! 8305, 4), so that a broken address family costs one wait, not many.
//!
//! Bridges and tunnels of containers and virtual machines have addresses that other machines cannot reach, often the
//! same addresses on each machine. Such an address is used only if the agent was reached at it, `--interface` names it,
//! or the machine has no other. Loopback is the last resort.

use std::fmt::{self, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use thiserror::Error;
use wireup_os::interfaces::InterfaceAddress;

/// Most addresses that are offered. Chosen: each unreachable one costs a child 250 ms; hypervisors have hundreds.
pub const OFFERED_MAX: usize = 16;

/// Prefixes of the names of interfaces that do not lead to other machines.
const VIRTUAL_PREFIXES: [&str; 26] = [
    "docker", "virbr", "vnet", "veth", "vmnet", "vboxnet", "cni", "flannel", "cali", "cilium", "weave", "kube-",
    "nerdctl", "podman", "lxc", "lxdbr", "incusbr", "tun", "tap", "wg", "zt", "tailscale", "vxlan", "gre", "sit",
    "ip6tnl",
];

/// The error that no address of this machine matches `--interface`.
#[derive(Error, Clone, PartialEq, Eq, Debug)]
#[error("no address of this machine matches --interface {filter}; it has {have}")]
pub struct NothingMatches {
    filter: String,
    have: String,
}

/// The two ends of the ssh connection by which an agent was started.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SshConnection {
    pub client: IpAddr,
    pub server: IpAddr,
}

impl SshConnection {
    /// Parses `SSH_CONNECTION`: client address, client port, server address, server port. `None` for any other text,
    /// and for link-local addresses, which are valid on one interface only.
    pub fn parse(text: &str) -> Option<SshConnection> {
        let words: Vec<&str> = text.split_ascii_whitespace().collect();
        let [client, _, server, _] = words[..] else {
            return None;
        };
        let read = |word: &str| word.parse::<IpAddr>().ok().map(|ip| ip.to_canonical());
        Some(SshConnection { client: read(client)?, server: read(server)? })
    }
}

/// The addresses that an agent offers to its children, best first. `reached_at` is the address at which the agent
/// itself was reached; an address of another machine is not used.
///
/// # Errors
/// No address matches the filter.
pub fn offered(
    own: &[InterfaceAddress],
    filter: Option<&Filter>,
    reached_at: Option<IpAddr>,
    local_only: bool,
) -> Result<Vec<IpAddr>, NothingMatches> {
    if local_only {
        return Ok(vec![IpAddr::V4(Ipv4Addr::LOCALHOST)]);
    }
    let usable: Vec<&InterfaceAddress> = own.iter().filter(|own| own.up && leads_out(own.ip)).collect();
    let chosen = match filter {
        Some(filter) => {
            let matching: Vec<_> = usable.into_iter().filter(|own| filter.takes(own)).collect();
            if matching.is_empty() {
                return Err(NothingMatches { filter: filter.to_string(), have: describe(own) });
            }
            matching
        }
        None => unfiltered(&usable, reached_at),
    };
    let reached = |own: &&InterfaceAddress| Some(own.ip) == reached_at && (!own.loopback || filter.is_some());
    let first = chosen.iter().copied().filter(reached);
    let mut ips: Vec<IpAddr> = Vec::new();
    for own in first.chain(chosen.iter().copied()) {
        if !ips.contains(&own.ip) {
            ips.push(own.ip);
        }
    }
    ips.truncate(OFFERED_MAX);
    Ok(ips)
}

/// The addresses of ordinary interfaces and the address at which the agent was reached; if there are none, the
/// addresses of virtual interfaces; if there are none, loopback.
fn unfiltered<'a>(usable: &[&'a InterfaceAddress], reached_at: Option<IpAddr>) -> Vec<&'a InterfaceAddress> {
    let pick = |wanted: &dyn Fn(&InterfaceAddress) -> bool| -> Vec<&'a InterfaceAddress> {
        usable.iter().copied().filter(|own| wanted(own)).collect()
    };
    let reached = |own: &InterfaceAddress| Some(own.ip) == reached_at;
    let ordinary = pick(&|own| !own.loopback && (!is_accidental(own) || reached(own)));
    if !ordinary.is_empty() {
        return ordinary;
    }
    let virtual_ones = pick(&|own| !own.loopback);
    if virtual_ones.is_empty() { pick(&|own| own.loopback) } else { virtual_ones }
}

/// The addresses that a child dials, best first. `ssh_client`: the address from which the child's remote shell was
/// started, if the parent itself started it.
pub fn dial_order(
    parent: &[SocketAddr],
    own: &[InterfaceAddress],
    ssh_client: Option<IpAddr>,
    filter: Option<&Filter>,
) -> Vec<SocketAddr> {
    let Some(port) = parent.first().map(SocketAddr::port) else {
        return Vec::new();
    };
    let mut offered: Vec<SocketAddr> = Vec::new();
    for &address in parent {
        let address = SocketAddr::new(address.ip().to_canonical(), address.port());
        if is_dialable(address) && !offered.contains(&address) {
            offered.push(address);
        }
    }
    let caller = ssh_client.map(|ip| SocketAddr::new(ip.to_canonical(), port)).filter(|caller| {
        let allowed = |filter: &Filter| filter.takes_remote(caller.ip(), own);
        is_dialable(*caller) && (offered.contains(caller) || filter.is_none_or(allowed))
    });
    offered.retain(|address| Some(*address) != caller);
    let near = |address: &SocketAddr| {
        own.iter().any(|own| own.up && !is_accidental(own) && Network::of(own).contains(address.ip()))
    };
    let (near, far): (Vec<_>, Vec<_>) = offered.into_iter().partition(near);
    let mut order: Vec<SocketAddr> = caller.into_iter().collect();
    take_turns(&mut order, near);
    take_turns(&mut order, far);
    order
}

/// Appends addresses so that IPv4 and IPv6 addresses alternate while addresses of both families are left.
fn take_turns(order: &mut Vec<SocketAddr>, addresses: Vec<SocketAddr>) {
    let first_is_v4 = addresses.first().is_some_and(SocketAddr::is_ipv4);
    let mut v4_next = order.last().map_or(first_is_v4, |last| !last.is_ipv4());
    let (v4, v6): (Vec<_>, Vec<_>) = addresses.into_iter().partition(SocketAddr::is_ipv4);
    let (mut v4, mut v6) = (v4.into_iter(), v6.into_iter());
    while let Some(address) = if v4_next { v4.next().or_else(|| v6.next()) } else { v6.next().or_else(|| v4.next()) } {
        v4_next = !address.is_ipv4();
        order.push(address);
    }
}

/// The source address of a link, if `--interface` is given and a matching interface is on the same network as
/// `destination`; `None`: the kernel chooses by its routes.
pub fn source_for(destination: IpAddr, own: &[InterfaceAddress], filter: Option<&Filter>) -> Option<IpAddr> {
    let filter = filter?;
    let straight = |own: &&InterfaceAddress| {
        own.up && leads_out(own.ip) && filter.takes(own) && Network::of(own).contains(destination)
    };
    own.iter().find(straight).map(|own| own.ip)
}

/// The name of the interface that has this address.
pub fn interface_of(ip: IpAddr, own: &[InterfaceAddress]) -> Option<&str> {
    if ip.is_loopback() {
        return Some("lo");
    }
    own.iter().find(|own| own.ip == ip).map(|own| own.interface.as_str())
}

/// Whether the address identifies one machine, independently of the interface.
pub fn leads_out(ip: IpAddr) -> bool {
    let link_local_v6 = matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local());
    !link_local_v6 && !ip.is_unspecified() && !ip.is_multicast()
}

fn is_dialable(address: SocketAddr) -> bool {
    address.port() != 0 && leads_out(address.ip())
}

/// Whether the address belongs to a bridge or tunnel, or is link-local IPv4: a server's network to its management
/// controller, for example, has the same addresses on every machine.
pub fn is_accidental(own: &InterfaceAddress) -> bool {
    is_virtual(&own.interface) || matches!(own.ip, IpAddr::V4(ip) if ip.is_link_local())
}

fn is_virtual(interface: &str) -> bool {
    // Docker names its networks `br-` and 12 hexadecimal digits; other names that begin with `br-` were chosen by
    // users.
    let docker = interface
        .strip_prefix("br-")
        .is_some_and(|rest| rest.len() == 12 && rest.bytes().all(|byte| byte.is_ascii_hexdigit()));
    docker || VIRTUAL_PREFIXES.iter().any(|prefix| interface.starts_with(prefix))
}

fn describe(own: &[InterfaceAddress]) -> String {
    let mut text = String::new();
    for InterfaceAddress { interface, ip, prefix_len, up, .. } in own {
        let down = if *up { "" } else { " (down)" };
        let comma = if text.is_empty() { "" } else { ", " };
        // Writing to a string cannot fail.
        let _ = write!(text, "{comma}{interface} {ip}/{prefix_len}{down}");
    }
    if text.is_empty() { "no addresses".into() } else { text }
}

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
mod tests;
