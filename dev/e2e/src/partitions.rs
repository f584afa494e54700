//! Makes hosts of a testbed unable to reach each other.

use super::machines::Machines;

/// The addresses of a host in the testbed's network: IPv4 and IPv6.
fn addresses(machines: &Machines, host: u16) -> [String; 2] {
    ["-4", "-6"].map(|family| {
        let show = format!("ip {family} -o address show dev eth0 scope global | sed 's/.*inet6* //; s,/.*,,'");
        machines.ask(host, &show).trim().to_owned()
    })
}

/// Makes host `to` unreachable from host `from`: connecting fails at once.
pub fn wall(machines: &Machines, from: u16, to: u16) {
    let [ip, ipv6] = addresses(machines, to);
    machines.ask(from, &format!("ip route add unreachable {ip}/32 && ip -6 route add unreachable {ipv6}/128"));
}

/// Makes packets from host `from` to host `to` get lost, so that connecting times out.
pub fn drop_silently(machines: &Machines, from: u16, to: u16) {
    for address in addresses(machines, to) {
        // No interface has the Ethernet address to which the packets are sent.
        machines.ask(from, &format!("ip neighbour replace {address} lladdr 02:00:5e:00:53:99 nud permanent dev eth0"));
    }
}

/// Makes host `at` refuse IPv4 connections that host `from` opens; `at` can still connect to `from`.
pub fn firewall(machines: &Machines, from: u16, at: u16) {
    let [ip, _] = addresses(machines, from);
    let rules = "add table ip firewall; add chain ip firewall in { type filter hook input priority 0; }; \
        add rule ip firewall in ip saddr";
    let begins = "tcp flags & (syn | ack) == syn reject with tcp reset";
    machines.ask(at, &format!("PATH=$PATH:/usr/sbin nft '{rules} {ip} {begins}'"));
}
