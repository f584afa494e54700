use super::*;
use proptest::prelude::*;

fn own(interface: &str, ip: &str, prefix_len: u8) -> InterfaceAddress {
    let ip: IpAddr = ip.parse().unwrap();
    InterfaceAddress { interface: interface.into(), ip, prefix_len, up: true, loopback: ip.is_loopback() }
}

fn node() -> Vec<InterfaceAddress> {
    vec![
        own("lo", "127.0.0.1", 8),
        own("docker0", "172.17.0.1", 16),
        own("br-0123456789ab", "172.18.0.1", 16),
        own("usb0", "169.254.3.1", 24),
        own("eth0", "10.0.0.5", 24),
        own("ib0", "10.1.0.5", 16),
        InterfaceAddress { up: false, ..own("eth9", "10.9.0.5", 24) },
        own("lo", "::1", 128),
        own("eth0", "fd00::5", 64),
        own("eth0", "fe80::5", 64),
    ]
}

fn ips(texts: &[&str]) -> Vec<IpAddr> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn offer(filter: &str, reached_at: &str) -> Result<Vec<IpAddr>, NothingMatches> {
    let filter = (!filter.is_empty()).then(|| Filter::parse(filter).unwrap());
    offered(&node(), filter.as_ref(), reached_at.parse().ok(), false)
}

#[test]
fn ordinary_addresses_are_offered_with_the_reached_one_first() {
    assert_eq!(offer("", "").unwrap(), ips(&["10.0.0.5", "10.1.0.5", "fd00::5"]));
    assert_eq!(offer("", "10.1.0.5").unwrap(), ips(&["10.1.0.5", "10.0.0.5", "fd00::5"]));
    assert_eq!(offer("", "172.17.0.1").unwrap(), ips(&["172.17.0.1", "10.0.0.5", "10.1.0.5", "fd00::5"]));
    for not_ours in ["192.168.1.1", "10.9.0.5", "127.0.0.1", "fe80::5"] {
        assert_eq!(offer("", not_ours), offer("", ""), "{not_ours}");
    }
}

#[test]
fn a_filter_names_an_interface_an_address_or_a_network() {
    assert_eq!(offer("ib0", "10.0.0.5").unwrap(), ips(&["10.1.0.5"]));
    assert_eq!(offer("docker0", "").unwrap(), ips(&["172.17.0.1"]));
    assert_eq!(offer("fd00::5", "").unwrap(), ips(&["fd00::5"]));
    assert_eq!(offer("10.0.0.0/8", "10.1.0.5").unwrap(), ips(&["10.1.0.5", "10.0.0.5"]));
    assert_eq!(offer("lo", "").unwrap(), ips(&["127.0.0.1", "::1"]));
}

#[test]
fn a_filter_without_a_match_lists_the_existing_addresses() {
    let error = offer("ib7", "10.0.0.5").unwrap_err().to_string();
    assert!(error.starts_with("no address of this machine matches --interface ib7; it has lo 127.0.0.1/8"), "{error}");
    assert!(error.contains("eth0 10.0.0.5/24") && error.contains("eth9 10.9.0.5/24 (down)"), "{error}");
    assert!(offer("eth9", "").is_err(), "the interface is down");
    let nothing = offered(&[], Some(&Filter::parse("eth0").unwrap()), None, false).unwrap_err().to_string();
    assert!(nothing.ends_with("it has no addresses"), "{nothing}");
}

#[test]
fn lesser_addresses_are_offered_if_no_ordinary_one_exists() {
    let mut interfaces = node();
    interfaces.retain(|own| ["lo", "docker0", "usb0"].contains(&own.interface.as_str()));
    assert_eq!(offered(&interfaces, None, None, false).unwrap(), ips(&["172.17.0.1", "169.254.3.1"]));
    interfaces.retain(|own| own.loopback);
    assert_eq!(offered(&interfaces, None, None, false).unwrap(), ips(&["127.0.0.1", "::1"]));
    assert_eq!(offered(&node(), None, None, true).unwrap(), ips(&["127.0.0.1"]));
}

#[test]
fn virtual_interfaces_are_recognized_by_name() {
    for name in ["docker0", "docker_gwbridge", "br-0a1b2c3d4e5f", "virbr0", "veth12ab", "tun0", "wg0", "ztabc", "cni0"]
    {
        assert!(is_virtual(name), "{name}");
    }
    for name in ["eth0", "br0", "br-ex", "bond0", "enp3s0", "ib0", "vmbr0", "wlan0", "team0", "hsn0", "eno1.42"] {
        assert!(!is_virtual(name), "{name}");
    }
}

fn sockets(texts: &[&str]) -> Vec<SocketAddr> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

#[test]
fn a_child_dials_the_caller_then_neighbours_then_the_rest() {
    let parent = sockets(&["192.168.0.1:7", "10.0.0.1:7", "[fd99::1]:7", "10.1.0.1:7", "[fd00::1]:7"]);
    let order = |ssh: &str| dial_order(&parent, &node(), ssh.parse().ok(), None);
    let neighbours_first = ["10.0.0.1:7", "[fd00::1]:7", "10.1.0.1:7", "[fd99::1]:7", "192.168.0.1:7"];
    assert_eq!(order(""), sockets(&neighbours_first));
    assert_eq!(order("fe80::9"), sockets(&neighbours_first));
    let called = ["10.1.0.1:7", "[fd00::1]:7", "10.0.0.1:7", "[fd99::1]:7", "192.168.0.1:7"];
    assert_eq!(order("::ffff:10.1.0.1"), sockets(&called));
    let translated = ["1.2.3.4:7", "[fd00::1]:7", "10.0.0.1:7", "10.1.0.1:7", "[fd99::1]:7", "192.168.0.1:7"];
    assert_eq!(order("1.2.3.4"), sockets(&translated));
    assert_eq!(dial_order(&[], &node(), "1.2.3.4".parse().ok(), None), []);
}

#[test]
fn a_filter_may_exclude_the_caller() {
    let parent = sockets(&["10.1.0.1:7"]);
    let first = |ssh: &str, filter: &str| {
        dial_order(&parent, &node(), ssh.parse().ok(), Some(&Filter::parse(filter).unwrap()))[0].to_string()
    };
    assert_eq!(first("10.0.0.1", "10.1.0.0/16"), "10.1.0.1:7");
    assert_eq!(first("10.0.0.1", "ib0"), "10.1.0.1:7");
    assert_eq!(first("10.1.0.2", "ib0"), "10.1.0.2:7");
    assert_eq!(first("10.0.0.1", "eth0"), "10.0.0.1:7");
}

#[test]
fn a_source_address_is_set_only_for_directly_connected_networks() {
    let source = |to: &str, filter: &str| {
        source_for(to.parse().unwrap(), &node(), Filter::parse(filter).ok().as_ref()).map(|ip| ip.to_string())
    };
    assert_eq!(source("10.1.0.9", "ib0").as_deref(), Some("10.1.0.5"));
    assert_eq!(source("10.0.0.9", "ib0"), None);
    assert_eq!(source_for("10.1.0.9".parse().unwrap(), &node(), None), None);
}

#[test]
fn the_ssh_connection_variable_is_parsed() {
    let read = SshConnection::parse("10.0.0.1 50022 ::ffff:10.0.0.2 22").unwrap();
    assert_eq!([read.client, read.server], ips(&["10.0.0.1", "10.0.0.2"])[..]);
    for wrong in ["", "10.0.0.1 5 10.0.0.2", "fe80::1%eth0 5 fe80::2%eth0 22", "UNKNOWN 65535 UNKNOWN 65535"] {
        assert_eq!(SshConnection::parse(wrong), None, "{wrong}");
    }
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

fn any_ip() -> impl Strategy<Value = IpAddr> {
    // Few networks, so that addresses often share one; special addresses too.
    prop_oneof![
        (0u8..4, 0u8..6).prop_map(|(network, host)| IpAddr::from([10, 0, network, host])),
        (0u16..4, 0u16..6).prop_map(|(network, host)| IpAddr::from([0xfd00, network, 0, 0, 0, 0, 0, host])),
        prop::sample::select(ips(&["127.0.0.1", "::1", "fe80::1", "169.254.0.1", "0.0.0.0", "::", "224.0.0.1"])),
    ]
}

fn any_interface() -> impl Strategy<Value = InterfaceAddress> {
    let name = prop::sample::select(vec!["eth0", "eth1", "docker0", "lo", "wg0"]);
    (name, any_ip(), 0u8..129, any::<bool>()).prop_map(|(name, ip, prefix_len, up)| InterfaceAddress {
        interface: name.into(),
        ip,
        prefix_len: if ip.is_ipv4() { prefix_len % 33 } else { prefix_len },
        up,
        loopback: ip.is_loopback(),
    })
}

proptest! {
    #[test]
    fn offered_addresses_are_own_usable_and_distinct(
        own in prop::collection::vec(any_interface(), 0..24),
        reached_at in prop::option::of(any_ip()),
        filter in prop::option::of(
            prop::sample::select(vec!["eth0", "docker0", "10.0.1.0/24", "fd00::/16", "10.0.0.1"])
        ),
    ) {
        let filter = filter.map(|text| Filter::parse(text).unwrap());
        let Ok(offers) = offered(&own, filter.as_ref(), reached_at, false) else {
            let filter = filter.expect("only a filter refuses");
            prop_assert!(!own.iter().any(|own| own.up && leads_out(own.ip) && filter.takes(own)));
            return Ok(());
        };
        prop_assert!(offers.len() <= OFFERED_MAX);
        for (position, ip) in offers.iter().enumerate() {
            prop_assert!(own.iter().any(|own| own.ip == *ip && own.up && leads_out(*ip)));
            prop_assert!(!offers[..position].contains(ip));
            if let Some(filter) = &filter {
                prop_assert!(own.iter().any(|own| own.ip == *ip && filter.takes(own)));
            }
        }
        if let Some(reached_at) = reached_at && offers.contains(&reached_at) && !reached_at.is_loopback() {
            prop_assert_eq!(offers[0], reached_at);
        }
        if filter.is_none() && offers.iter().any(IpAddr::is_loopback) {
            prop_assert!(offers.iter().all(IpAddr::is_loopback));
        }
    }

    #[test]
    fn every_offered_address_is_dialled_once(
        own in prop::collection::vec(any_interface(), 0..8),
        parent in prop::collection::vec((any_ip(), 0u16..3), 0..12),
        ssh_client in prop::option::of(any_ip()),
    ) {
        let parent: Vec<SocketAddr> = parent.into_iter().map(|(ip, port)| SocketAddr::new(ip, port)).collect();
        let order = dial_order(&parent, &own, ssh_client, None);
        for address in parent.iter().filter(|address| is_dialable(**address)) {
            prop_assert_eq!(order.iter().filter(|dialled| *dialled == address).count(), 1);
        }
        let caller = ssh_client.and_then(|ip| Some(SocketAddr::new(ip, parent.first()?.port())));
        for (position, address) in order.iter().enumerate() {
            prop_assert!(is_dialable(*address));
            prop_assert!(parent.contains(address) || (position == 0 && Some(*address) == caller));
        }
        if let Some(caller) = caller.filter(|caller| is_dialable(*caller)) {
            prop_assert_eq!(order[0], caller);
        }
    }

    #[test]
    fn ipv4_and_ipv6_addresses_alternate(v4 in 0usize..6, v6 in 0usize..6, v6_first in any::<bool>()) {
        let mut parent: Vec<SocketAddr> = (0..v4).map(|n| SocketAddr::from(([192, 168, 0, n as u8 + 1], 7))).collect();
        let more: Vec<SocketAddr> =
            (0..v6).map(|n| SocketAddr::from(([0xfd77, 0, 0, 0, 0, 0, 0, n as u16 + 1], 7))).collect();
        if v6_first { parent.splice(0..0, more); } else { parent.extend(more); }
        let order = dial_order(&parent, &[], None, None);
        let mixed = 2 * v4.min(v6);
        prop_assert!(order[..mixed].windows(2).all(|pair| pair[0].is_ipv4() != pair[1].is_ipv4()));
        prop_assert_eq!(order.first(), parent.first());
    }
}
