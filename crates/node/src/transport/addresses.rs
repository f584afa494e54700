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

use super::filter::{Filter, Network};
use std::fmt::Write as _;
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

#[cfg(test)]
mod tests;
